//! A test client of NFSv4: COMPOUNDs, their results, and a session of one slot.

use super::{Client, encoded};
use proto::nfs4::*;
use rpc::message::ReplyStatus;
use samehost_server::Server;
use xdr::{Array, Decode, Decoder, Encode, Encoder, Opaque};

pub const ANYBODY: &str = "*(rw,insecure,no_root_squash,async)";
pub const NFS_OK: u32 = Nfsstat4::Ok as u32;

/// A COMPOUND under construction.
pub struct Ops {
    pub count: u32,
    pub encoder: Encoder,
}

impl Ops {
    pub const fn new() -> Self {
        Self { count: 0, encoder: Encoder::new() }
    }

    pub fn op(mut self, operation: Operation, args: &impl Encode) -> Self {
        self.count += 1;
        self.encoder.u32(operation.number());
        self.encoder.put(args);
        self
    }

    pub fn minor(&self, minor: u32) -> Vec<u8> {
        let mut to = Encoder::new();
        to.opaque(b"tag");
        to.u32(minor);
        to.u32(self.count);
        to.raw(self.encoder.as_slice());
        to.into_vec()
    }
}

/// A COMPOUND's results: its status, and each operation's number, status and the rest.
pub struct Done {
    pub status: u32,
    pub bytes: Vec<u8>,
}

impl Done {
    /// How many results there are.
    pub fn count(&self) -> u32 {
        let mut from = Decoder::new(&self.bytes);
        let _ = (from.u32().unwrap(), from.opaque(100).unwrap());
        from.u32().unwrap()
    }

    /// Skips the results of `operations`, which have succeeded and have bodies of so many bytes; the next
    /// one's status, and its body.
    pub fn after(&self, operations: &[(Operation, usize)]) -> (u32, &[u8]) {
        let mut from = Decoder::new(&self.bytes);
        assert_eq!((from.u32().unwrap(), from.opaque(100).unwrap()), (self.status, &b"tag"[..]));
        let count = from.u32().unwrap() as usize;
        assert!(count > operations.len(), "{count} results, status {}", self.status);
        for (operation, length) in operations {
            assert_eq!((from.u32().unwrap(), from.u32().unwrap()), (operation.number(), NFS_OK));
            for _ in 0..length / 4 {
                from.u32().unwrap();
            }
        }
        let _number = from.u32().unwrap();
        (from.u32().unwrap(), from.rest())
    }
}

/// A client of NFSv4 with a session of one slot.
pub struct Session {
    pub wire: Client,
    pub id: Sessionid4,
    pub clientid: u64,
    pub sequence: u32,
    pub minor: u32,
}

pub const SEQUENCE: (Operation, usize) = (Operation::Sequence, 36);
pub const PUTFH: (Operation, usize) = (Operation::Putfh, 0);

pub fn compound(wire: &mut Client, minor: u32, ops: &Ops) -> Done {
    let (status, results) = wire.raw(PROGRAM, VERSION, COMPOUND, &ops.minor(minor));
    assert_eq!(status, ReplyStatus::Success);
    Done { status: u32::from_be_bytes(results.0[..4].try_into().unwrap()), bytes: results.0 }
}

pub fn get<'a, T: Decode<'a>>(bytes: &'a [u8]) -> T {
    Decoder::new(bytes).get().unwrap()
}

pub fn channel() -> ChannelAttrs4 {
    ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 4096,
        maxoperations: 16,
        maxrequests: 1,
        rdma_ird: Array(vec![]),
    }
}

impl Session {
    pub fn new(server: &Server, minor: u32, owner: &[u8]) -> Self {
        Self::from(Client::new(server), minor, owner)
    }

    /// For the client at the other end of `wire`.
    pub fn from(wire: Client, minor: u32, owner: &[u8]) -> Self {
        Self::with_flags(wire, minor, owner, 0)
    }

    /// A session with a back channel on the same connection.
    pub fn callable(server: &Server, minor: u32, owner: &[u8]) -> Self {
        Self::with_flags(Client::new(server), minor, owner, CREATE_SESSION_CONN_BACK_CHAN)
    }

    fn with_flags(mut wire: Client, minor: u32, owner: &[u8], flags: u32) -> Self {
        let args = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(owner) },
            flags: EXCHGID_USE_NON_PNFS,
            state_protect: StateProtect4A::None,
            client_impl_id: Array(vec![]),
        };
        let done = compound(&mut wire, minor, &Ops::new().op(Operation::ExchangeId, &args));
        let (status, body) = done.after(&[]);
        assert_eq!(status, NFS_OK);
        let exchanged: ExchangeId4ResOk<'_> = get(body);
        Self::create(wire, minor, exchanged.clientid, exchanged.sequenceid, flags)
    }

    fn create(mut wire: Client, minor: u32, clientid: u64, sequence: u32, flags: u32) -> Self {
        let args = CreateSession4Args {
            clientid,
            sequence,
            flags,
            fore_chan_attrs: channel(),
            back_chan_attrs: channel(),
            cb_program: 0x4000_0000,
            sec_parms: Array(vec![CallbackSecParms4::None]),
        };
        let done = compound(&mut wire, minor, &Ops::new().op(Operation::CreateSession, &args));
        let (status, body) = done.after(&[]);
        assert_eq!(status, NFS_OK);
        let created: CreateSession4ResOk = get(body);
        assert_eq!((created.fore_chan_attrs.maxrequests, created.flags), (1, flags));
        Self { wire, id: created.sessionid, clientid, sequence: 0, minor }
    }

    /// The client's second session, over another connection.
    pub fn second(&self, server: &Server, flags: u32) -> Self {
        Self::create(Client::new(server), self.minor, self.clientid, 2, flags)
    }

    pub fn sequence(&mut self, cachethis: bool) -> Ops {
        self.sequence += 1;
        let args = Sequence4Args {
            sessionid: self.id,
            sequenceid: self.sequence,
            slotid: 0,
            highest_slotid: 0,
            cachethis,
        };
        Ops::new().op(Operation::Sequence, &args)
    }

    pub fn run(&mut self, ops: &Ops) -> Done {
        compound(&mut self.wire, self.minor, ops)
    }

    pub fn reclaim_complete(&mut self) {
        let ops =
            self.sequence(false).op(Operation::ReclaimComplete, &ReclaimComplete4Args { one_fs: false });
        assert_eq!(self.run(&ops).status, NFS_OK);
    }

    /// The handle of a path from NFSv4's root.
    pub fn walk(&mut self, path: &std::path::Path) -> Vec<u8> {
        let mut ops = self.sequence(false).op(Operation::Putrootfh, &());
        let mut before = vec![SEQUENCE, (Operation::Putrootfh, 0)];
        for part in path.to_str().unwrap().split('/').filter(|part| !part.is_empty()) {
            ops = ops.op(Operation::Lookup, &Name4Args { name: Opaque(part.as_bytes()) });
            before.push((Operation::Lookup, 0));
        }
        let done = self.run(&ops.op(Operation::Getfh, &()));
        let (status, body) = done.after(&before);
        assert_eq!(status, NFS_OK);
        get::<NfsFh4<'_>>(body).0.to_vec()
    }

    /// OPEN, and the handle of the opened file.
    pub fn open(
        &mut self,
        at: &[u8],
        claim: OpenClaim4<'_>,
        create: bool,
    ) -> Result<(Stateid4, Vec<u8>), u32> {
        self.open_shared(at, claim, create, SHARE_ACCESS_BOTH, 0)
    }

    /// As [`Session::open`], with these `share_access` and `share_deny`.
    pub fn open_shared(
        &mut self,
        at: &[u8],
        claim: OpenClaim4<'_>,
        create: bool,
        share_access: u32,
        share_deny: u32,
    ) -> Result<(Stateid4, Vec<u8>), u32> {
        let opened = self.open_with(at, claim, create, share_access, share_deny);
        opened.map(|(stateid, _, handle)| (stateid, handle))
    }

    /// As [`Session::open_shared`], and the delegation, if there is one.
    pub fn open_with(
        &mut self,
        at: &[u8],
        claim: OpenClaim4<'_>,
        create: bool,
        share_access: u32,
        share_deny: u32,
    ) -> Result<(Stateid4, Option<Stateid4>, Vec<u8>), u32> {
        let attributes =
            Fattr4 { attrmask: Bitmap4::of(&[attributes::MODE]), attr_vals: Opaque(&[0, 0, 1, 0xa4]) };
        let args = Open4Args {
            seqid: 0,
            share_access,
            share_deny,
            owner: StateOwner4 { clientid: self.clientid, owner: Opaque(b"opener") },
            openhow: if create {
                Openflag4::Create(Createhow4::Guarded(attributes))
            } else {
                Openflag4::Nocreate
            },
            claim,
        };
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(at) })
            .op(Operation::Open, &args)
            .op(Operation::Getfh, &());
        let done = self.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH]);
        if status != NFS_OK {
            return Err(status);
        }
        let opened: Open4ResOk<'_> = get(body);
        let length = encoded(&opened).len();
        let (status, body) = done.after(&[SEQUENCE, PUTFH, (Operation::Open, length)]);
        assert_eq!(status, NFS_OK);
        let delegation = match opened.delegation {
            OpenDelegation4::Read(given) => Some(given.stateid),
            OpenDelegation4::Write(given) => Some(given.stateid),
            OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
        };
        Ok((opened.stateid, delegation, get::<NfsFh4<'_>>(body).0.to_vec()))
    }

    /// One operation on a file: its status, and its result's body.
    pub fn on(&mut self, file: &[u8], operation: Operation, args: &impl Encode) -> (u32, Vec<u8>) {
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
            .op(operation, args);
        let done = self.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH]);
        (status, body.to_vec())
    }

    /// The values of one attribute of a file.
    pub fn attribute(&mut self, file: &[u8], number: u32) -> Vec<u8> {
        let args = Getattr4Args { attr_request: Bitmap4::of(&[number]) };
        let (status, body) = self.on(file, Operation::Getattr, &args);
        assert_eq!(status, NFS_OK);
        let values: Fattr4<'_> = get(&body);
        assert_eq!(values.attrmask, Bitmap4::of(&[number]));
        values.attr_vals.0.to_vec()
    }

    /// SETATTR of one attribute: its status.
    pub fn set(&mut self, file: &[u8], number: u32, value: &impl Encode) -> u32 {
        let value = encoded(value);
        let obj_attributes = Fattr4 { attrmask: Bitmap4::of(&[number]), attr_vals: Opaque(&value) };
        let args = Setattr4Args { stateid: Stateid4::default(), obj_attributes };
        self.on(file, Operation::Setattr, &args).0
    }

    /// LOOKUP, GETFH.
    pub fn lookup(&mut self, at: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(at) })
            .op(Operation::Lookup, &Name4Args { name: Opaque(name) })
            .op(Operation::Getfh, &());
        let done = self.run(&ops);
        let (status, _) = done.after(&[SEQUENCE, PUTFH]);
        if status != NFS_OK {
            return Err(status);
        }
        let (status, body) = done.after(&[SEQUENCE, PUTFH, (Operation::Lookup, 0)]);
        assert_eq!(status, NFS_OK);
        Ok(get::<NfsFh4<'_>>(body).0.to_vec())
    }

    pub fn close(&mut self, file: &[u8], open_stateid: Stateid4) {
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
            .op(Operation::Close, &Close4Args { seqid: 0, open_stateid });
        assert_eq!(self.run(&ops).status, NFS_OK);
    }

    pub fn lock(&mut self, file: &[u8], open: Stateid4, reclaim: bool) -> Result<Stateid4, u32> {
        let owner = StateOwner4 { clientid: self.clientid, owner: Opaque(b"locker") };
        let new = OpenToLockOwner4 { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner: owner };
        let args = Lock4Args {
            locktype: NfsLockType4::Write,
            reclaim,
            offset: 0,
            length: u64::MAX,
            locker: Locker4::New(new),
        };
        let ops = self
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(file) })
            .op(Operation::Lock, &args);
        let done = self.run(&ops);
        let (status, body) = done.after(&[SEQUENCE, PUTFH]);
        if status == NFS_OK { Ok(get(body)) } else { Err(status) }
    }
}
