//! A client of NFSv4.0 with a callback service, which the test itself implements.

use std::io::Write as _;
use std::net::{IpAddr, TcpListener, TcpStream};

use super::v4::{NFS_OK, Ops, PUTFH, compound, get};
use super::{Client, TIMEOUT, encoded, wait_for};
use proto::nfs4::*;
use rpc::message::{CallHeader, ReplyHeader, ReplyStatus};
use samehost_server::Server;
use xdr::{Decoder, Encoder, Opaque};

/// The client's program.
const PROGRAM: u32 = 0x4000_0001;

/// A client's callback service.
pub struct Callee {
    listener: TcpListener,
    line: Option<Client>,
}

/// A callback.
pub struct Called {
    pub operation: u32,
    pub args: Vec<u8>,
}

/// A client with one open owner, which has this sequence number.
pub struct Old {
    pub wire: Client,
    pub clientid: u64,
    pub seqid: u32,
}

impl Callee {
    fn new(at: IpAddr) -> Self {
        Self { listener: TcpListener::bind((at, 0)).unwrap(), line: None }
    }

    /// Its address in SETCLIENTID's form.
    fn universal(&self) -> String {
        let address = self.listener.local_addr().unwrap();
        format!("{}.{}.{}", address.ip(), address.port() >> 8, address.port() & 0xff)
    }

    /// Waits for the next callback and replies with success, and with `body` if it is a CB_COMPOUND. None for
    /// CB_NULL.
    pub fn answer(&mut self, body: &[u8]) -> Option<Called> {
        let (xid, called) = self.next();
        self.reply(ReplyHeader { xid, status: ReplyStatus::Success }, |to| {
            let Some(called) = &called else { return };
            to.u32(NFS_OK);
            to.opaque(b"");
            [1, called.operation, NFS_OK].iter().for_each(|word| to.u32(*word));
            to.raw(body);
        });
        called
    }

    /// Waits for the next callback and replies that the program is unavailable.
    pub fn refuse(&mut self) {
        let (xid, _) = self.next();
        self.reply(ReplyHeader { xid, status: ReplyStatus::ProgUnavail }, |_| {});
    }

    fn next(&mut self) -> (u32, Option<Called>) {
        let line = self.line.get_or_insert_with(|| {
            let (stream, _): (TcpStream, _) = self.listener.accept().unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            Client { stream, credential: super::sys(0, 0, &[]), xid: 0 }
        });
        let record = line.receive().expect("the server calls");
        let mut from = Decoder::new(&record);
        let header = CallHeader::decode(&mut from).unwrap();
        assert_eq!((header.program, header.version), (PROGRAM, CB_VERSION));
        let called = (header.procedure == CB_COMPOUND).then(|| {
            let head: CbCompound4Head<'_> = from.get().unwrap();
            assert_eq!((head.minor, head.operations), (0, 1));
            Called { operation: from.u32().unwrap(), args: from.rest().to_vec() }
        });
        (header.xid, called)
    }

    fn reply(&mut self, header: ReplyHeader, results: impl FnOnce(&mut Encoder)) {
        let mut to = Encoder::new();
        to.u32(0);
        to.put(&header);
        results(&mut to);
        let mark = rpc::record::mark(to.position() - 4).unwrap();
        to.patch_u32(0, mark);
        self.line.as_mut().expect("it was called").stream.write_all(to.as_slice()).unwrap();
    }
}

impl Old {
    /// SETCLIENTID and its confirmation. The first callback will be CB_NULL.
    pub fn new(server: &Server, id: &[u8]) -> (Self, Callee) {
        let wire = Client::new(server);
        let callee = Callee::new([127, 0, 0, 1].into());
        let mut old = Self { wire, clientid: 0, seqid: 0 };
        old.set_callee(id, &callee);
        (old, callee)
    }

    fn set_callee(&mut self, id: &[u8], callee: &Callee) {
        let address = callee.universal();
        let args = Setclientid4Args {
            client: NfsClientId4 { verifier: *b"verifier", id: Opaque(id) },
            cb_program: PROGRAM,
            cb_location: Netaddr4 { netid: Opaque(b"tcp"), addr: Opaque(address.as_bytes()) },
            callback_ident: 7,
        };
        let done = compound(&mut self.wire, 0, &Ops::new().op(Operation::Setclientid, &args));
        let Setclientid4ResOk { clientid, setclientid_confirm } = get(done.after(&[]).1);
        let args = SetclientidConfirm4Args { clientid, setclientid_confirm };
        let done = compound(&mut self.wire, 0, &Ops::new().op(Operation::SetclientidConfirm, &args));
        assert_eq!(done.status, NFS_OK);
        self.clientid = clientid;
    }

    /// Changes the callback address.
    pub fn move_callee(&mut self, id: &[u8]) -> Callee {
        let callee = Callee::new([127, 0, 0, 1].into());
        self.set_callee(id, &callee);
        callee
    }

    /// The handle of a path from NFSv4's root.
    pub fn walk(&mut self, path: &std::path::Path) -> Vec<u8> {
        let mut ops = Ops::new().op(Operation::Putrootfh, &());
        let mut before = vec![(Operation::Putrootfh, 0)];
        for part in path.to_str().unwrap().split('/').filter(|part| !part.is_empty()) {
            ops = ops.op(Operation::Lookup, &Name4Args { name: Opaque(part.as_bytes()) });
            before.push((Operation::Lookup, 0));
        }
        let done = compound(&mut self.wire, 0, &ops.op(Operation::Getfh, &()));
        get::<NfsFh4<'_>>(done.after(&before).1).0.to_vec()
    }

    /// OPEN for reading and writing: the delegation, if there is one, the open if it must be confirmed, and
    /// the file's handle.
    fn open(&mut self, root: &[u8], name: &[u8]) -> (Option<Stateid4>, Option<Stateid4>, Vec<u8>) {
        self.seqid += 1;
        let args = Open4Args {
            seqid: self.seqid,
            share_access: SHARE_ACCESS_BOTH,
            share_deny: 0,
            owner: StateOwner4 { clientid: self.clientid, owner: Opaque(b"opener") },
            openhow: Openflag4::Nocreate,
            claim: OpenClaim4::Null(Opaque(name)),
        };
        let ops = Ops::new()
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(root) })
            .op(Operation::Open, &args)
            .op(Operation::Getfh, &());
        let done = compound(&mut self.wire, 0, &ops);
        let (status, body) = done.after(&[PUTFH]);
        assert_eq!(status, NFS_OK);
        let opened: Open4ResOk<'_> = get(body);
        let handle = done.after(&[PUTFH, (Operation::Open, encoded(&opened).len())]).1;
        let given = match opened.delegation {
            OpenDelegation4::Read(given) => Some(given.stateid),
            OpenDelegation4::Write(given) => Some(given.stateid),
            OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
        };
        let confirm = (opened.rflags & RESULT_CONFIRM != 0).then_some(opened.stateid);
        (given, confirm, get::<NfsFh4<'_>>(handle).0.to_vec())
    }

    /// Opens a file until a write delegation is granted, which happens once the server has verified the
    /// callback path: the delegation, and the file's handle.
    pub fn open_delegated(&mut self, root: &[u8], name: &[u8]) -> (Option<Stateid4>, Vec<u8>) {
        let mut found = (None, Vec::new());
        wait_for("a delegation", || {
            let (given, confirm, file) = self.open(root, name);
            if let Some(open_stateid) = confirm {
                self.seqid += 1;
                let ops = Ops::new()
                    .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
                    .op(Operation::OpenConfirm, &OpenConfirm4Args { open_stateid, seqid: self.seqid });
                assert_eq!(compound(&mut self.wire, 0, &ops).status, NFS_OK);
            }
            found = (given, file);
            given.is_some()
        });
        found
    }
}
