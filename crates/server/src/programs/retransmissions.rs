//! Tests over TCP: a call that is still running is neither run nor answered a second time.
//!
//! The first run is simulated by its entry in the cache, or waits for a lock that the test holds, so that the
//! tests decide when it ends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use exports::Exports;
use proto::nfs3::{self, Procedure, Remove3Args, StableHow, Write3Args};
use proto::nfs4::{self, Operation};
use rpc::message::{AuthSys, CallHeader, Credential};
use rpc::server::{CallContext, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use store::HandleKey;
use xdr::{Encode, Encoder, Opaque};

use crate::authorization::access::AccessControl;
use crate::authorization::requester::{Requester, Transport};
use crate::export_table::io_modes::IoModeSettings;
use crate::export_table::{ExportTable, StoreSettings};
use crate::lifecycle::config::Config;
use crate::lifecycle::descriptors::{Demands, Descriptors};
use crate::lifecycle::start::start_wire;
use crate::service::Service;
use crate::service::drc::{Drc, Key, Seen};

/// How long a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// NFS3_OK and NFS3ERR_NOENT at the beginning of results.
const OK: [u8; 4] = [0; 4];
const NOENT: [u8; 4] = [0, 0, 0, 2];

/// A server whose internals the test can reach.
struct Rig {
    directory: tempfile::TempDir,
    service: Arc<Service>,
    /// Stopped when this is dropped.
    _wire: rpc::server::Server,
    address: SocketAddr,
    stream: TcpStream,
    credential: Credential,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!("{} *(rw,insecure,no_root_squash,async)", directory.path().display());
        let opening = StoreSettings {
            key: HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let table =
            ExportTable::open(&Exports::parse(&text, "test").unwrap(), &opening, &ExportTable::default());
        let service = Arc::new(Service {
            access: AccessControl::new(table, IoModeSettings::default()),
            counters: Default::default(),
            write_drc: Drc::for_writes(),
            drc: Drc::for_other_calls(),
            mounts: Default::default(),
            state: crate::service::nfs4_state::StateManager::new(
                [0; 16],
                [0; 16],
                (Duration::from_secs(90), Duration::ZERO),
                1024,
                None,
                Default::default(),
            )
            .unwrap(),
            owners: crate::service::Owners::new(None, false),
            cluster: None,
            lane_attempts: Default::default(),
            async_clients: Default::default(),
            trees: crate::service::Trees::new(false),
            verifier: Arc::clone(&opening.verifier),
            call_sockets: OnceLock::new(),
            _state_directory: None,
        });
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 4, ..Config::default() };
        let demands = Demands { threads: 4, exports: 1, connections: 16 };
        let descriptors = Descriptors::divide(1024, demands).unwrap();
        let wire = start_wire(&config, &descriptors, &service, None).unwrap();
        let address = wire.local_addrs()[0];
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let credential =
            Credential::Sys(AuthSys { stamp: 1, machine_name: b"test".to_vec(), uid, gid, gids: vec![] });
        Self { directory, service, _wire: wire, address, stream: connect(address), credential }
    }

    /// The handle of a file of the export, or of the exported directory.
    fn handle(&self, name: Option<&str>) -> Vec<u8> {
        let table = self.service.access.table();
        let owner = rpc::server::TcpOwner::Remote;
        let requester = Requester { address: self.address, owner, claim: None, transport: Transport::Wire };
        let admitted = self.service.access.admit_to(&table.entries()[0], requester).unwrap();
        let root = admitted.root().unwrap();
        let user_context = admitted.user_context().unwrap();
        let mut node = user_context.node(root.as_bytes()).unwrap();
        if let Some(name) = name {
            node = user_context.lookup(&node, name.as_bytes()).unwrap();
        }
        node.handle().as_bytes().to_vec()
    }

    fn peer(&self) -> Peer {
        Peer {
            connection: 1,
            address: self.stream.local_addr().unwrap(),
            local: self.address,
            owner: rpc::server::TcpOwner::User(rustix::process::geteuid().as_raw()),
        }
    }

    /// The key of a call in the server's cache.
    fn key(&self, xid: u32, procedure: Procedure, args: &[u8]) -> Key {
        let peer = self.peer();
        let cx = CallContext::new(xid, nfs3::VERSION, &peer, &self.credential);
        Key::new(&cx, nfs3::PROGRAM, procedure.number(), args)
    }

    /// The key of a COMPOUND in the server's cache.
    fn compound_key(&self, xid: u32, args: &[u8]) -> Key {
        let peer = self.peer();
        let cx = CallContext::new(xid, nfs4::VERSION, &peer, &self.credential);
        Key::new(&cx, nfs4::PROGRAM, nfs4::COMPOUND, args)
    }

    fn record(&self, xid: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let mut to = Encoder::new();
        to.u32(0);
        // NFS has one program number for all versions.
        CallHeader::encode(&mut to, xid, nfs3::PROGRAM, version, procedure, &self.credential);
        to.raw(args);
        let mark = rpc::record::mark(to.position() - 4).unwrap();
        to.patch_u32(0, mark);
        to.into_vec()
    }

    /// Sends a call on the current connection.
    fn send(&mut self, xid: u32, procedure: Procedure, args: &[u8]) {
        let record = self.record(xid, nfs3::VERSION, procedure.number(), args);
        self.stream.write_all(&record).unwrap();
    }

    /// Sends a COMPOUND on the current connection.
    fn send_compound(&mut self, xid: u32, args: &[u8]) {
        let record = self.record(xid, nfs4::VERSION, nfs4::COMPOUND, args);
        self.stream.write_all(&record).unwrap();
    }

    /// Asserts that a COMPOUND isn't answered: its connection ends. The next one is open then.
    fn assert_disconnected(&mut self, xid: u32, args: &[u8]) {
        self.send_compound(xid, args);
        assert_eq!(self.stream.read(&mut [0; 4]).unwrap(), 0, "it is running already");
        self.stream = connect(self.address);
    }

    /// The next reply: its xid and its results.
    fn reply(&mut self) -> (u32, Vec<u8>) {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head).unwrap();
        let [mark, xid] = [&head[..4], &head[4..]].map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        let mut rest = vec![0; (mark & 0x7fff_ffff) as usize - 4];
        self.stream.read_exact(&mut rest).unwrap();
        // REPLY, MSG_ACCEPTED, no verifier, SUCCESS.
        assert_eq!(rest[..20], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        (xid, rest.split_off(20))
    }

    /// Asserts that the call is dropped: the next call on its connection is answered, and it isn't.
    fn assert_dropped(&mut self, xid: u32, procedure: Procedure, args: &[u8]) {
        self.send(xid, procedure, args);
        self.send(xid + 1, Procedure::Null, &[]);
        assert_eq!(self.reply(), (xid + 1, vec![]), "{procedure} is running already");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    // The socket is to be ours, and this thread may be acting as a client's user.
    store::restore_process_ids();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
    stream
}

/// A COMPOUND of version 4.0: PUTFH, and one operation.
fn compound(file: &[u8], operation: Operation, args: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    to.opaque(b"");
    [0, 2, Operation::Putfh.number()].iter().for_each(|word| to.u32(*word));
    to.opaque(file);
    to.u32(operation.number());
    to.raw(args);
    to.into_vec()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

#[test]
fn a_running_call_is_not_run_again_and_its_reply_serves_both() {
    let mut rig = Rig::new();
    let path = rig.directory.path().join("f");
    std::fs::write(&path, "data").unwrap();
    let root = rig.handle(None);
    let object = nfs3::Diropargs3 { dir: Opaque(&root), name: Opaque(b"f") };
    let args = encoded(&Remove3Args { object });
    let service = Arc::clone(&rig.service);
    let Seen::New(running) = service.drc.begin(rig.key(10, Procedure::Remove, &args)) else { panic!() };
    rig.assert_dropped(10, Procedure::Remove, &args);
    // On a second connection of the same client.
    rig.stream = connect(rig.address);
    rig.assert_dropped(10, Procedure::Remove, &args);
    assert!(path.exists(), "it hasn't been removed");
    let answered = [&OK[..], b"what the first run has answered."].concat();
    running.finish(&answered);
    rig.send(10, Procedure::Remove, &args);
    assert_eq!(rig.reply(), (10, answered));
    assert!(path.exists(), "the cached reply is sent and nothing removed");
    // The same arguments with another xid are another call.
    rig.send(20, Procedure::Remove, &args);
    assert_eq!(rig.reply().1[..4], OK);
    assert!(!path.exists());
}

#[test]
fn an_aborted_run_leaves_the_call_to_the_next_one() {
    let mut rig = Rig::new();
    let root = rig.handle(None);
    let object = nfs3::Diropargs3 { dir: Opaque(&root), name: Opaque(b"missing") };
    let args = encoded(&Remove3Args { object });
    let service = Arc::clone(&rig.service);
    let Seen::New(running) = service.drc.begin(rig.key(10, Procedure::Remove, &args)) else { panic!() };
    rig.assert_dropped(10, Procedure::Remove, &args);
    drop(running);
    rig.send(10, Procedure::Remove, &args);
    assert_eq!(rig.reply().1[..4], NOENT);
}

#[test]
fn a_running_write_is_not_run_again_and_its_reply_serves_both() {
    let mut rig = Rig::new();
    let path = rig.directory.path().join("f");
    std::fs::write(&path, "old").unwrap();
    let file = rig.handle(Some("f"));
    let write = |data: &'static [u8]| Write3Args {
        file: Opaque(&file),
        offset: 0,
        count: data.len() as u32,
        stable: StableHow::Unstable,
        data: Opaque(data),
    };
    let (first, other) = (encoded(&write(b"one")), encoded(&write(b"two")));
    let service = Arc::clone(&rig.service);
    let Seen::New(running) = service.write_drc.begin(rig.key(10, Procedure::Write, &first)) else { panic!() };
    rig.assert_dropped(10, Procedure::Write, &first);
    rig.stream = connect(rig.address);
    rig.assert_dropped(10, Procedure::Write, &first);
    assert_eq!(std::fs::read(&path).unwrap(), b"old", "the retransmission wrote nothing");
    // Other data with the same xid, and the same data with another xid, are other calls.
    rig.send(10, Procedure::Write, &other);
    assert_eq!(rig.reply().1[..4], OK);
    assert_eq!(std::fs::read(&path).unwrap(), b"two");
    rig.send(20, Procedure::Write, &first);
    assert_eq!(rig.reply().1[..4], OK);
    assert_eq!(std::fs::read(&path).unwrap(), b"one");
    rig.send(30, Procedure::Write, &other);
    assert_eq!(rig.reply().1[..4], OK);
    let answered = [&OK[..], b"what the first run has answered."].concat();
    running.finish(&answered);
    rig.send(10, Procedure::Write, &first);
    assert_eq!(rig.reply(), (10, answered));
    assert_eq!(std::fs::read(&path).unwrap(), b"two", "the cached reply is sent and nothing written");
}

/// A client of NFSv4.0 doesn't repeat a call while the connection lasts: silence would be for ever.
#[test]
fn a_retransmission_of_a_running_compound_is_disconnected() {
    let mut rig = Rig::new();
    let path = rig.directory.path().join("f");
    std::fs::write(&path, "data").unwrap();
    let root = rig.handle(None);
    let service = Arc::clone(&rig.service);
    let args = compound(&root, Operation::Remove, &encoded(&Opaque::<255>(b"f")));
    let Seen::New(running) = service.drc.begin(rig.compound_key(10, &args)) else { panic!() };
    rig.assert_disconnected(10, &args);
    rig.assert_disconnected(10, &args);
    assert!(path.exists(), "it hasn't been removed");
    let answered = [&OK[..], b"what the first run has answered."].concat();
    running.finish(&answered);
    rig.send_compound(10, &args);
    assert_eq!(rig.reply(), (10, answered));
    assert!(path.exists(), "the cached reply is sent and nothing removed");
    rig.send_compound(20, &args);
    assert_eq!(rig.reply().1[..4], OK);
    assert!(!path.exists());
}

/// A failure would use the owner's sequence number up, and the first run uses it up, too.
#[test]
fn a_running_compound_of_an_owner_or_with_a_write_is_not_run_concurrently() {
    let mut rig = Rig::new();
    std::fs::write(rig.directory.path().join("f"), "data").unwrap();
    let file = rig.handle(Some("f"));
    let service = Arc::clone(&rig.service);
    let stateid = nfs4::Stateid4 { seqid: 1, other: [9; 12] };
    let owner = nfs4::StateOwner4 { clientid: 1, owner: Opaque(b"owner") };
    let open = nfs4::Open4Args {
        seqid: 1,
        share_access: nfs4::SHARE_ACCESS_BOTH,
        share_deny: 0,
        owner,
        openhow: nfs4::Openflag4::Nocreate,
        claim: nfs4::OpenClaim4::Null(Opaque(b"f")),
    };
    let close = nfs4::Close4Args { seqid: 1, open_stateid: stateid };
    let (locktype, offset, length) = (nfs4::NfsLockType4::Write, 0, 1);
    let lock_stateid = stateid;
    let unlock = nfs4::Locku4Args { locktype, seqid: 1, lock_stateid, offset, length };
    let data = Opaque(&b"new"[..]);
    let write = nfs4::Write4Args { stateid, offset, stable: nfs4::StableHow4::Unstable, data };
    let calls = [
        (Operation::Open, encoded(&open)),
        (Operation::Close, encoded(&close)),
        (Operation::Locku, encoded(&unlock)),
        (Operation::Write, encoded(&write)),
    ];
    for (number, (operation, args)) in calls.iter().enumerate() {
        let (xid, args) = (number as u32, compound(&file, *operation, args));
        let (other_xid, mut first) = (xid + 100, connect(rig.address));
        std::mem::swap(&mut rig.stream, &mut first);
        // The first run can't end while the engine is locked: it doesn't know the client or the state.
        service.state.run(|_, _| {
            let record = rig.record(xid, nfs4::VERSION, nfs4::COMPOUND, &args);
            first.write_all(&record).unwrap();
            rig.stream.write_all(&record).unwrap();
            let mut both = [&first, &rig.stream].map(|stream| PollFd::new(stream, PollFlags::IN));
            let timeout = Timespec { tv_sec: REPLY_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
            assert_eq!(poll(&mut both, Some(&timeout)).unwrap(), 1, "{operation}: one of the two runs");
            let is_first_over = !both[0].revents().is_empty();
            if is_first_over {
                std::mem::swap(&mut rig.stream, &mut first);
            }
            assert_eq!(rig.stream.read(&mut [0; 4]).unwrap(), 0, "{operation}: the other one ends");
        });
        rig.stream = first;
        let (answered, results) = rig.reply();
        assert_eq!(answered, xid);
        assert_ne!(results[..4], OK, "{operation}");
        // It is over, and can be repeated.
        rig.send_compound(xid, &args);
        assert_eq!(rig.reply(), (xid, results.clone()));
        rig.send_compound(other_xid, &args);
        assert_eq!(rig.reply(), (other_xid, results));
    }
}
