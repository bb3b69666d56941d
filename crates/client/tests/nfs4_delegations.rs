//! Read delegations over NFSv4: what needs no request under them, and their return.

mod support;

use std::fs::OpenOptions as LocalOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::nfs4::{self, Nfsstat4, Operation as Operation4};
use samehost_client as client;

use client::{
    Access, ByteRange, File, Handle, LaneMode, LockKind, LockOwner, LockRequest, OpenOptions, Operation,
    Session, SetAttributes, Version,
};
use support::odd_v4::{
    OddServer, ScriptedAnswer, attributes_of, callback, callback_head, callback_status, encoded, opened,
    session_id, soft,
};
use support::{BOUND, Served, wait_for};

/// A session that asks for delegations, and a file of its server with its handle, opened and closed once.
struct Delegated {
    served: Served,
    session: Session,
    path: PathBuf,
    handle: Handle,
}

impl Delegated {
    async fn new(mut served: Served, lease: Option<u64>) -> Self {
        if let Some(seconds) = lease {
            served.set_lease(seconds);
        }
        let path = served.export().join("file");
        std::fs::write(&path, b"first").unwrap();
        let options = served.options(LaneMode::Off).version(Version::V4_2).delegations(true);
        let session = Session::connect(&served.url(), options).await.unwrap();
        let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
        let handle = file.handle();
        file.close().await.unwrap();
        let new = Self { served, session, path, handle };
        wait_for("the CLOSE", || new.calls(Operation::Close) == 1).await;
        assert!(new.is_delegated());
        new
    }

    fn calls(&self, operation: Operation) -> u64 {
        self.session.counters().calls(operation)
    }

    fn is_delegated(&self) -> bool {
        self.session.delegated_since(&self.handle).is_some()
    }

    async fn open(&self, options: &OpenOptions) -> File {
        self.session.open_handle(&self.handle, b"file", options).await.unwrap()
    }

    /// Opens the file as a local process that writes, which waits while the file is delegated.
    async fn write_locally(&self, data: &'static [u8]) {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || std::fs::write(path, data).unwrap()).await.unwrap();
    }
}

/// Whether a local process may write the file at once.
fn is_free(path: &Path) -> bool {
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    LocalOptions::new().write(true).custom_flags(without_waiting).open(path).is_ok()
}

async fn read(file: &File) -> Vec<u8> {
    let mut buffer = [0; 16];
    let length = file.read_at(&mut buffer, 0).await.unwrap();
    buffer[..length].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_delegated_file_is_opened_without_a_request() {
    let it = Delegated::new(Served::wire_only(), None).await;
    let before = it.session.counters().wire.round_trips;
    for _ in 0..10 {
        let (one, two) = (it.open(&OpenOptions::reading()).await, it.open(&OpenOptions::reading()).await);
        assert_eq!(one.access_at_open().unwrap().0 & Access::READ.0, Access::READ.0);
        one.close().await.unwrap();
        two.close().await.unwrap();
    }
    assert_eq!(it.session.counters().wire.round_trips, before);
    let file = it.open(&OpenOptions::reading()).await;
    assert_eq!(read(&file).await, b"first");
    assert_eq!(it.session.counters().wire.round_trips, before + 1);
    // The end of the session returns it.
    drop(file);
    it.session.close().await;
    assert!(is_free(&it.path));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_local_writer_gets_the_file_and_its_readers_keep_it() {
    let it = Delegated::new(Served::wire_only(), None).await;
    let (opens, closes) = (it.calls(Operation::Open), it.calls(Operation::Close));
    let reader = it.open(&OpenOptions::reading()).await;
    it.write_locally(b"second").await;
    wait_for("the recall", || !it.is_delegated()).await;
    // The server was told of the open: it keeps the file without its name.
    assert_eq!(it.calls(Operation::Open), opens + 1);
    std::fs::remove_file(&it.path).unwrap();
    assert_eq!(read(&reader).await, b"second");
    reader.close().await.unwrap();
    wait_for("the CLOSE", || it.calls(Operation::Close) == closes + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn another_clients_write_recalls_and_the_next_open_asks() {
    let it = Delegated::new(Served::wire_only(), None).await;
    let other = it.served.wire_by(Version::V4_1).await;
    let theirs = other.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
    assert!(!it.is_delegated());
    theirs.write_at(b"other", 0).await.unwrap();
    theirs.close().await.unwrap();
    let opens = it.calls(Operation::Open);
    assert_eq!(read(&it.open(&OpenOptions::reading()).await).await, b"other");
    assert_eq!(it.calls(Operation::Open), opens + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn own_writes_locks_and_changes_of_attributes_return_it() {
    let it = Delegated::new(Served::wire_only(), None).await;
    // A file whose delegation was recalled isn't delegated again for a time: each case has its own.
    let delegated = async |name: &'static [u8]| {
        std::fs::write(it.served.export().join(str::from_utf8(name).unwrap()), b"first").unwrap();
        let reader = it.session.open(name, &OpenOptions::reading()).await.unwrap();
        assert!(it.session.delegated_since(&reader.handle()).is_some());
        reader
    };
    let is_returned = |file: &File| it.session.delegated_since(&file.handle()).is_none();
    let writing = OpenOptions::new().write(true);

    let reader = delegated(b"by handle").await;
    let writer = it.session.open_handle(&reader.handle(), b"by handle", &writing).await.unwrap();
    assert!(is_returned(&reader));
    writer.write_at(b"F", 0).await.unwrap();
    assert_eq!(read(&reader).await, b"First");

    let reader = delegated(b"by name").await;
    let writer = it.session.open(b"by name", &writing).await.unwrap();
    assert!(is_returned(&reader));
    writer.write_at(b"F", 0).await.unwrap();
    assert_eq!(read(&reader).await, b"First");

    let reader = delegated(b"locked").await;
    let (owner, range) = (LockOwner(1), ByteRange { first: 0, last: 0 });
    reader.lock(LockRequest { owner, range, kind: LockKind::Read, waits: false }).await.unwrap();
    assert!(is_returned(&reader));

    let reader = delegated(b"changed").await;
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    it.session.set_attributes(&reader.handle(), &set, None).await.unwrap();
    assert!(is_returned(&reader));
    assert_eq!(read(&reader).await, b"first");
}

/// A delegation is returned by the request that removes the file's name, unless the server must be told of
/// opens before.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_request_that_removes_a_file_returns_it() {
    for is_open in [false, true] {
        let it = Delegated::new(Served::wire_only(), None).await;
        let file = if is_open { Some(it.open(&OpenOptions::reading()).await) } else { None };
        let before = it.session.counters().wire.round_trips;
        it.session.remove(&it.session.root(), b"file").await.unwrap();
        assert!(!it.path.exists() && !it.is_delegated());
        if !is_open {
            assert_eq!(it.session.counters().wire.round_trips, before + 1);
        }
        drop(file);
        it.session.close().await;
    }
}

/// What is executed of a request with DELEGRETURN and REMOVE.
type Executed = Arc<Mutex<Vec<Operation4>>>;

/// Whatever a server answers to DELEGRETURN, the name is removed once, after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn servers_may_refuse_to_take_a_delegation_with_a_removal() {
    use Operation4::{Delegreturn, Remove};
    let cases: [(&[Nfsstat4], &[Operation4]); 4] = [
        (&[Nfsstat4::Ok], &[Delegreturn, Remove]),
        (&[Nfsstat4::Delay, Nfsstat4::Ok], &[Delegreturn, Delegreturn, Remove]),
        (&[Nfsstat4::BadStateid], &[Delegreturn, Remove]),
        (&[Nfsstat4::Stale], &[Delegreturn, Remove]),
    ];
    for (answers, expected) in cases {
        let executed = Executed::default();
        let (log, answers) = (executed.clone(), Mutex::new(answers.iter()));
        let server = OddServer::new(move |request| match request.operation {
            Operation4::Open => ScriptedAnswer::Ok(opened([1; 16], Some([2; 16]))),
            Operation4::Close => ScriptedAnswer::Ok(vec![1; 16]),
            Operation4::Getattr if request.compound.contains(&Operation4::Open) => {
                let requested = xdr::Decoder::new(request.args).get().unwrap();
                ScriptedAnswer::Ok(attributes_of(&requested, 1))
            }
            Delegreturn => {
                log.lock().push(Delegreturn);
                match *answers.lock().next().expect("another DELEGRETURN") {
                    Nfsstat4::Ok => ScriptedAnswer::Good,
                    refused => ScriptedAnswer::Status(refused),
                }
            }
            Remove => {
                log.lock().push(Remove);
                // change_info4.
                ScriptedAnswer::Ok(vec![0; 20])
            }
            _ => ScriptedAnswer::Good,
        });
        let options = soft().hard(true).delegations(true);
        let session = Session::connect(&server.url(), options).await.unwrap();
        let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
        let handle = file.handle();
        file.close().await.unwrap();
        wait_for("the CLOSE", || session.counters().calls(Operation::Close) == 1).await;
        assert!(session.delegated_since(&handle).is_some());
        session.remove(&session.root(), b"file").await.unwrap();
        assert_eq!(*executed.lock(), expected);
        session.close().await;
        assert_eq!(*executed.lock(), expected);
    }
}

/// The session is replaced before the reply to a request with DELEGRETURN and REMOVE comes: that says nothing
/// of what the server has now, and that the name is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_delegation_that_is_returned_in_a_replaced_session_is_returned_again() {
    use Operation4::{Delegreturn, Remove};
    let cases: [(Nfsstat4, &[Operation4]); 2] = [
        (Nfsstat4::Ok, &[Delegreturn, Remove, Delegreturn]),
        (Nfsstat4::BadStateid, &[Delegreturn, Delegreturn, Remove]),
    ];
    for (answer, expected) in cases {
        let executed = Executed::default();
        // Whether DELEGRETURN is there, and a further session is used.
        let (is_there, is_replaced) = <(Arc<AtomicBool>, AtomicBool)>::default();
        let (log, there, is_open) = (executed.clone(), is_there.clone(), AtomicBool::new(false));
        let server = OddServer::new(move |request| match request.operation {
            Operation4::Sequence if request.args[..16] != session_id(1) => {
                is_replaced.store(true, SeqCst);
                ScriptedAnswer::Good
            }
            Operation4::Sequence if there.load(SeqCst) => ScriptedAnswer::Status(Nfsstat4::Badsession),
            Operation4::Open => {
                let is_first = !is_open.swap(true, SeqCst);
                ScriptedAnswer::Ok(opened([1; 16], is_first.then_some([2; 16])))
            }
            Operation4::Close => ScriptedAnswer::Ok(vec![1; 16]),
            Operation4::Getattr if request.compound.contains(&Operation4::Open) => {
                let requested = xdr::Decoder::new(request.args).get().unwrap();
                ScriptedAnswer::Ok(attributes_of(&requested, 1))
            }
            Delegreturn => {
                log.lock().push(Delegreturn);
                if there.swap(true, SeqCst) {
                    return ScriptedAnswer::Status(Nfsstat4::BadStateid);
                }
                let begun = Instant::now();
                while !is_replaced.load(SeqCst) {
                    assert!(begun.elapsed() < BOUND, "no other session is used");
                    std::thread::sleep(Duration::from_millis(1));
                }
                match answer {
                    Nfsstat4::Ok => ScriptedAnswer::Good,
                    refused => ScriptedAnswer::Status(refused),
                }
            }
            Remove => {
                log.lock().push(Remove);
                // change_info4.
                ScriptedAnswer::Ok(vec![0; 20])
            }
            _ => ScriptedAnswer::Good,
        });
        // The requests behind the one that waits for its reply go over other connections, in turn.
        let options = soft().hard(true).timeo(BOUND).attempt_timeout(BOUND).nconnect(8).delegations(true);
        let session = Session::connect(&server.url(), options).await.unwrap();
        let (root, reading) = (session.root(), OpenOptions::reading());
        let file = session.open(b"file", &reading).await.unwrap();
        let handle = file.handle();
        file.close().await.unwrap();
        wait_for("the CLOSE", || session.counters().calls(Operation::Close) == 1).await;
        assert!(session.delegated_since(&handle).is_some());
        let replaced = async {
            wait_for("DELEGRETURN", || is_there.load(SeqCst)).await;
            session.attributes(&root).await.unwrap();
        };
        let (removed, ()) = tokio::join!(session.remove(&root, b"file"), replaced);
        removed.unwrap();
        wait_for("all of it", || executed.lock().len() >= expected.len()).await;
        // What waits for the delegation's return ends.
        let writing = OpenOptions::new().write(true);
        let again = tokio::time::timeout(BOUND, session.open_handle(&handle, b"file", &writing)).await;
        drop(again.expect("an end").unwrap());
        session.close().await;
        assert_eq!(*executed.lock(), expected);
    }
}

/// A delegation would keep the space of a file without a name, and a server may refuse to change its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_lose_or_change_their_names_are_returned() {
    let it = Delegated::new(Served::wire_only(), None).await;
    let (export, root) = (it.served.export().to_owned(), it.session.root());
    let delegated = async |name: &'static [u8]| {
        std::fs::write(export.join(str::from_utf8(name).unwrap()), b"first").unwrap();
        let reader = it.session.open(name, &OpenOptions::reading()).await.unwrap();
        let handle = reader.handle();
        reader.close().await.unwrap();
        assert!(it.session.delegated_since(&handle).is_some());
        handle
    };
    let is_held = |handle: &Handle| it.session.delegated_since(handle).is_some();

    let removed = delegated(b"removed").await;
    it.session.remove(&root, b"removed").await.unwrap();
    assert!(!is_held(&removed));

    let (moved, replaced, other) =
        (delegated(b"moved").await, delegated(b"replaced").await, delegated(b"other").await);
    it.session.rename(&root, b"moved", &root, b"replaced").await.unwrap();
    assert!(!is_held(&moved) && !is_held(&replaced));
    assert!(is_held(&other) && it.is_delegated());

    // One that is open is known to the server before it loses its name.
    let open = it.open(&OpenOptions::reading()).await;
    it.session.remove(&root, b"file").await.unwrap();
    assert_eq!(read(&open).await, b"first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_are_open_by_a_delegation_outlive_a_killed_server() {
    let mut it = Delegated::new(Served::wire_only(), None).await;
    let reader = it.open(&OpenOptions::reading()).await;
    it.served.kill();
    it.served.restart();
    it.session.attributes(&it.session.root()).await.unwrap();
    assert!(!it.is_delegated(), "delegations aren't reclaimed");
    std::fs::remove_file(&it.path).unwrap();
    assert_eq!(read(&reader).await, b"first");
}

/// A client that is cut off for longer than its lease doesn't rely on its delegations.
#[tokio::test]
async fn an_expired_lease_ends_delegations() {
    let it = Delegated::new(Served::wire_only(), Some(2)).await;
    let reader = it.open(&OpenOptions::reading()).await;
    // This thread runs all tasks of the session. While it waits no recall is answered, and the lease isn't
    // renewed.
    let path = it.path.clone();
    std::thread::spawn(move || std::fs::write(path, b"second").unwrap()).join().unwrap();
    assert!(!it.is_delegated());
    let other = it.open(&OpenOptions::reading()).await;
    assert_eq!(read(&other).await, b"second");
    assert_eq!(read(&reader).await, b"second");
}

/// CB_RECALL_ANY (RFC 8881 section 20.6): the client returns what it has used longest ago, of the kinds that
/// are meant, until it has no more than the number that it may keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn delegations_beyond_what_the_server_lets_the_client_keep_are_returned() {
    const READING: u32 = 1 << nfs4::RCA4_RDATA_DLG;
    const WRITING: u32 = 1 << nfs4::RCA4_WDATA_DLG;
    let returned: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (log, opens) = (returned.clone(), AtomicU8::new(0));
    let server = OddServer::new(move |request| match request.operation {
        Operation4::Open => {
            let number = opens.fetch_add(1, SeqCst) + 1;
            ScriptedAnswer::Ok(opened([number; 16], Some([10 + number; 16])))
        }
        Operation4::Getfh if request.compound.contains(&Operation4::Open) => {
            ScriptedAnswer::Ok(encoded(&xdr::Opaque::<128>(&[opens.load(SeqCst)])))
        }
        Operation4::Getattr if request.compound.contains(&Operation4::Open) => {
            let requested = xdr::Decoder::new(request.args).get().unwrap();
            ScriptedAnswer::Ok(attributes_of(&requested, 1))
        }
        Operation4::Close => ScriptedAnswer::Ok(request.args[4..].to_vec()),
        Operation4::Delegreturn => {
            log.lock().push(request.args[4]);
            ScriptedAnswer::Good
        }
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().delegations(true)).await.unwrap();
    let names: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
    let mut handles = Vec::new();
    for name in names {
        let file = session.open(name, &OpenOptions::reading()).await.unwrap();
        handles.push(file.handle());
        file.close().await.unwrap();
    }
    let is_held = |number: usize| session.delegated_since(&handles[number]).is_some();
    assert!((0..4).all(is_held));
    let limits = [(0, WRITING, vec![]), (3, READING, vec![11]), (1, READING | WRITING, vec![11, 12, 13])];
    for ((keep, kinds, expected), sequence) in limits.into_iter().zip(1..) {
        let operations = callback(session_id(1), sequence, 0, &[nfs4::CB_RECALL_ANY, keep, 1, kinds]);
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &callback_head(2)));
        assert_eq!(callback_status(&reply), 0);
        wait_for("the returns", || returned.lock().len() >= expected.len()).await;
        returned.lock().sort_unstable();
        assert_eq!(*returned.lock(), expected, "{keep} may be kept");
    }
    assert_eq!([0, 1, 2, 3].map(is_held), [false, false, false, true]);
    session.close().await;
    returned.lock().sort_unstable();
    assert_eq!(*returned.lock(), [11, 12, 13, 14]);
}
