//! Write delegations over NFSv4: when the client asks for one, what needs no request under it, what the
//! server learns while it is held and when it is returned, and what is lost with it.

mod support;

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::SeqCst};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::nfs4::{
    Nfsstat4, Open4Args, OpenClaim4, Operation as Proto, SHARE_ACCESS_WANT_NO_DELEG,
    SHARE_ACCESS_WANT_READ_DELEG, Sequence4ResOk, StableHow4, Write4ResOk,
};
use rustix::fs::{FlockOperation, fcntl_lock};
use samehost_client as client;
use xdr::{Array, Decoder};

use client::{
    ByteRange, File, Handle, LaneMode, LockKind, LockOwner, LockRequest, OpenOptions, Operation, Session,
    SetAttributes, SetTime, Status, Version,
};
use support::odd_v4::{
    OddServer, ScriptedAnswer, attributes_of, encoded, opened, opened_for_writing, sequence, soft,
};
use support::{Served, wait_for};

/// How often the number of requests has to be the same, to be sure that no CLOSE waits for others.
const LOOKS_AT_REST: u32 = 40;

const ONE: LockOwner = LockOwner(1);
const TWO: LockOwner = LockOwner(2);

const fn range(first: u64, last: u64) -> ByteRange {
    ByteRange { first, last }
}

const fn exclusive(owner: LockOwner, range: ByteRange) -> LockRequest {
    LockRequest { owner, range, kind: LockKind::Write, waits: false }
}

fn read_and_write() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

/// A session that asks for delegations, and a file of its server with its handle.
struct Holder {
    served: Served,
    session: Session,
    path: PathBuf,
    handle: Handle,
}

impl Holder {
    /// The file isn't delegated.
    async fn without(served: Served, version: Version) -> Self {
        let path = served.export().join("file");
        fs::write(&path, b"first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let options = served.options(LaneMode::Off).version(version).delegations(true);
        let session = Session::connect(&served.url(), options).await.unwrap();
        let handle = session.lookup(&session.root(), b"file").await.unwrap().handle;
        Self { served, session, path, handle }
    }

    /// With a write delegation, and no opens.
    async fn new(mut served: Served, lease: Option<u64>) -> Self {
        if let Some(seconds) = lease {
            served.set_lease(seconds);
        }
        let it = Self::without(served, Version::V4_2).await;
        for _ in 0..3 {
            assert!(!it.is_delegated());
            it.open().await.close().await.unwrap();
        }
        assert!(it.is_delegated());
        it
    }

    fn calls(&self, operation: Operation) -> u64 {
        self.session.counters().calls(operation)
    }

    /// All requests so far.
    fn requests(&self) -> u64 {
        self.session.counters().wire.round_trips
    }

    /// Waits until the closing of files in the background has ended.
    async fn requests_at_rest(&self) -> u64 {
        let (mut before, mut looks) = (0, 0);
        wait_for("rest", || {
            looks = if std::mem::replace(&mut before, self.requests()) == before { looks + 1 } else { 0 };
            looks == LOOKS_AT_REST
        })
        .await;
        before
    }

    fn is_delegated(&self) -> bool {
        self.session.write_delegated_since(&self.handle).is_some()
    }

    async fn open(&self) -> File {
        self.session.open_handle(&self.handle, b"file", &read_and_write()).await.unwrap()
    }

    /// Runs a function that waits for this client, as a local process would.
    async fn locally<T: Send + 'static>(&self, f: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || f(path)).await.unwrap()
    }

    /// Whether a local process could lock the first byte, once it has the file open.
    async fn is_free_for_local_locks(&self) -> bool {
        self.locally(|path| {
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        })
        .await
    }
}

async fn is_locked(file: &File, request: LockRequest) -> bool {
    match file.lock(request).await {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.status(), Some(Status::Locked), "{error}");
            true
        }
    }
}

async fn read(file: &File) -> Vec<u8> {
    let mut buffer = [0; 64];
    let length = file.read_at(&mut buffer, 0).await.unwrap();
    buffer[..length].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn opens_and_locks_need_no_request() {
    let it = Holder::new(Served::wire_only(), None).await;
    let before = it.requests_at_rest().await;
    for _ in 0..10 {
        let (writer, reader) = (it.open().await, it.open().await);
        let owner = writer.access_at_open().unwrap();
        assert_eq!(owner.0 & client::Access::MODIFY.0, client::Access::MODIFY.0);
        writer.lock(exclusive(ONE, range(0, 9))).await.unwrap();
        assert!(is_locked(&reader, exclusive(TWO, range(9, 9))).await);
        let found = reader.test_lock(TWO, range(0, 100), LockKind::Read).await.unwrap().unwrap();
        assert_eq!((found.range, found.kind), (range(0, 9), LockKind::Write));
        assert_eq!(reader.test_lock(TWO, range(10, 100), LockKind::Write).await.unwrap(), None);
        writer.unlock(ONE, Some(range(0, 9))).await.unwrap();
        assert!(!is_locked(&reader, exclusive(TWO, range(9, 9))).await);
        writer.close().await.unwrap();
        reader.close().await.unwrap();
    }
    assert_eq!(it.requests(), before);
    // Its own changes of attributes leave it delegated. The server tells the rights after that.
    let now = SetAttributes { size: Some(2), mtime: Some(SetTime::Now), ..SetAttributes::default() };
    it.session.set_attributes(&it.handle, &now, None).await.unwrap();
    assert!(it.is_delegated());
    let writer = it.open().await;
    writer.write_at(b"written", 0).await.unwrap();
    writer.close().await.unwrap();
    assert_eq!(read(&it.open().await).await, b"written");
    assert!(it.is_delegated());
    for (mode, asks) in [(0o644, 0), (0o600, 1)] {
        let mode = SetAttributes { mode: Some(mode), uid: Some(0), ..SetAttributes::default() };
        it.session.set_attributes(&it.handle, &mode, None).await.unwrap();
        let before = it.calls(Operation::Open);
        it.open().await.close().await.unwrap();
        it.open().await.close().await.unwrap();
        assert_eq!(it.calls(Operation::Open), before + asks);
        assert!(it.is_delegated());
    }
    it.session.close().await;
    assert_eq!(fs::read(&it.path).unwrap(), b"written");
}

/// One owner waits for another's lock, which only the client knows of.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_waiting_lock_is_had_when_another_owner_unlocks() {
    let it = Holder::new(Served::wire_only(), None).await;
    let (one, two) = (it.open().await, it.open().await);
    one.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    let before = it.calls(Operation::Lock);
    let waiting = tokio::spawn(async move {
        two.lock(LockRequest { waits: true, ..exclusive(TWO, range(0, 0)) }).await.unwrap();
        two
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    one.unlock(ONE, None).await.unwrap();
    let two = waiting.await.unwrap();
    assert!(is_locked(&one, exclusive(ONE, range(0, 0))).await);
    drop(two);
    assert_eq!(it.calls(Operation::Lock), before);
}

/// Most files are written once or twice, and cost what they cost without delegations.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_are_written_once_are_not_delegated() {
    let it = Holder::without(Served::wire_only(), Version::V4_2).await;
    let root = it.session.root();
    let mut handles = Vec::new();
    for number in 0..8 {
        let name = format!("new {number}");
        let options = OpenOptions::new().write(true).create(true);
        let file = it.session.open_at(&root, name.as_bytes(), &options).await.unwrap();
        handles.push((file.handle(), name));
        file.write_at(b"data", 0).await.unwrap();
        file.close().await.unwrap();
    }
    for (handle, name) in &handles {
        let file = it.session.open_handle(handle, name.as_bytes(), &read_and_write()).await.unwrap();
        file.close().await.unwrap();
        assert!(it.session.delegated_since(handle).is_none());
        it.session.remove(&root, name.as_bytes()).await.unwrap();
    }
    let counters = it.session.counters();
    assert_eq!((counters.calls(Operation::Open), counters.calls(Operation::Create)), (8, 8));
}

/// A database, which is open for a long time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_that_is_locked_again_and_again_is_delegated() {
    for version in [Version::V4_1, Version::V4_2] {
        let it = Holder::without(Served::wire_only(), version).await;
        let file = it.open().await;
        for _ in 0..4 {
            file.lock(exclusive(ONE, range(0, 9))).await.unwrap();
            file.unlock(ONE, Some(range(0, 9))).await.unwrap();
        }
        assert!(it.is_delegated());
        assert_eq!((it.calls(Operation::Open), it.calls(Operation::Lock)), (2, 3));
        let before = it.requests_at_rest().await;
        for _ in 0..20 {
            file.lock(exclusive(ONE, range(0, 9))).await.unwrap();
            file.unlock(ONE, Some(range(0, 9))).await.unwrap();
        }
        assert_eq!(it.requests(), before);
        // Another client has a file open: the first isn't asked again and again.
        let other = it.served.wire_by(Version::V4_2).await;
        fs::write(it.served.export().join("shared"), b"data").unwrap();
        let theirs = other.open(b"shared", &read_and_write()).await.unwrap();
        let ours = it.session.open(b"shared", &read_and_write()).await.unwrap();
        let opens = it.calls(Operation::Open);
        for _ in 0..60 {
            ours.lock(exclusive(ONE, range(0, 9))).await.unwrap();
            ours.unlock(ONE, Some(range(0, 9))).await.unwrap();
        }
        assert_eq!(it.calls(Operation::Open), opens + 2);
        theirs.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_recall_tells_the_server_of_data_opens_and_locks() {
    let it = Holder::new(Served::wire_only(), None).await;
    let (opens, locks) = (it.calls(Operation::Open), it.calls(Operation::Lock));
    let writer = it.open().await;
    writer.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    writer.lock(exclusive(TWO, range(1, 9))).await.unwrap();
    writer.write_behind(Bytes::from_static(b"waiting data"), 0).await.unwrap();
    // A local process: the kernel's lease recalls it.
    let (data, is_free) = it
        .locally(|path| {
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            let data = std::io::read_to_string(&file).unwrap();
            (data, fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
        })
        .await;
    assert_eq!((data.as_str(), is_free), ("waiting data", false));
    assert!(!it.is_delegated());
    assert_eq!((it.calls(Operation::Open), it.calls(Operation::Lock)), (opens + 1, locks));
    // Another client.
    let other = it.served.wire_by(Version::V4_1).await;
    let theirs = other.open(b"file", &read_and_write()).await.unwrap();
    assert!(is_locked(&theirs, exclusive(ONE, range(0, 0))).await);
    assert!(is_locked(&theirs, exclusive(ONE, range(9, 9))).await);
    writer.unlock(TWO, None).await.unwrap();
    assert!(!is_locked(&theirs, exclusive(ONE, range(9, 9))).await);
    // The CLOSE, which gives the other lock back, is sent in the background.
    writer.close().await.unwrap();
    theirs.lock(LockRequest { waits: true, ..exclusive(ONE, range(0, 0)) }).await.unwrap();
}

/// Every open is told to the server, before its lease on the file ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_files_are_recalled_in_time() {
    let it = Holder::without(Served::wire_only(), Version::V4_2).await;
    let mut open = Vec::new();
    for number in 0..40 {
        let name = format!("file {number}");
        fs::write(it.served.export().join(&name), b"data").unwrap();
        let file = it.session.open(name.as_bytes(), &read_and_write()).await.unwrap();
        let handle = file.handle();
        for _ in 0..2 {
            open.push(it.session.open_handle(&handle, name.as_bytes(), &read_and_write()).await.unwrap());
        }
        assert!(it.session.write_delegated_since(&handle).is_some());
        let owner = LockOwner(number);
        open.last().unwrap().lock(exclusive(owner, range(0, 9))).await.unwrap();
    }
    let export = it.served.export();
    let started = std::time::Instant::now();
    let locked = tokio::task::spawn_blocking(move || {
        let threads: Vec<_> = (0..40)
            .map(|number| {
                let path = export.join(format!("file {number}"));
                std::thread::spawn(move || {
                    let file = fs::File::options().read(true).write(true).open(path).unwrap();
                    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|locked| *locked).count()
    });
    assert_eq!(locked.await.unwrap(), 40);
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "no delegation was revoked");
}

/// The size with the data that waits, for the clients of other versions too (CB_GETATTR).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn others_see_the_size_of_waiting_data() {
    let it = Holder::new(Served::wire_only(), None).await;
    let others = [it.served.wire_by(Version::V4_2).await, it.served.wire_by(Version::V3).await];
    let writer = it.open().await;
    for (number, other) in others.iter().enumerate() {
        let before = other.attributes(&it.handle).await.unwrap();
        let end = 1000 * (number as u64 + 1);
        writer.write_behind(Bytes::from(vec![7; 10]), end - 10).await.unwrap();
        let after = other.attributes(&it.handle).await.unwrap();
        assert_eq!(after.size, end);
        assert_ne!((before.change, before.mtime), (after.change, after.mtime));
        // The size that the server knows by now.
        writer.settle().await;
        let settled = other.attributes(&it.handle).await.unwrap();
        let again = other.attributes(&it.handle).await.unwrap();
        assert_eq!((settled.size, settled.mtime), (end, again.mtime), "nobody has written");
        assert!(it.is_delegated());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn locks_outlive_a_killed_server() {
    let mut it = Holder::new(Served::wire_only(), None).await;
    let writer = it.open().await;
    writer.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    writer.write_behind(Bytes::from_static(b"before the kill"), 0).await.unwrap();
    it.served.kill();
    it.served.restart();
    writer.commit().await.unwrap();
    assert!(!it.is_delegated(), "delegations aren't reclaimed");
    assert!(!it.is_free_for_local_locks().await, "the lock was");
    assert_eq!(fs::read(&it.path).unwrap(), b"before the kill");
    writer.unlock(ONE, None).await.unwrap();
    assert!(it.is_free_for_local_locks().await);
    writer.close().await.unwrap();
}

/// A client that is cut off for longer than its lease: others may have had the locks.
#[tokio::test]
async fn an_expired_lease_takes_the_locks() {
    let it = Holder::new(Served::wire_only(), Some(2)).await;
    let writer = it.open().await;
    writer.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    // This thread runs all tasks of the session. While it waits no recall is answered, and the lease isn't
    // renewed.
    let path = it.path.clone();
    std::thread::spawn(move || {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        std::io::Write::write_all(&mut &file, b"local").unwrap();
    })
    .join()
    .unwrap();
    assert!(!it.is_delegated());
    let error = writer.write_at(b"too late", 0).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::Io), "{error}");
    writer.unlock(ONE, None).await.unwrap();
    assert_eq!(read(&writer).await, b"local");
    writer.write_at(b"again", 0).await.unwrap();
}

/// The server says that it has revoked the delegation, and TEST_STATEID says which.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revoked_delegation_takes_its_locks() {
    /// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`.
    const REVOKED: u32 = 0x40;
    const OPEN_ID: [u8; 16] = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    const DELEGATION_ID: [u8; 16] = [0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2];
    let (is_revoked, freed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (revoked, frees, opens) = (is_revoked.clone(), freed.clone(), AtomicU32::new(0));
    let server = OddServer::new(move |request| match request.operation {
        Proto::Sequence if revoked.load(SeqCst) && frees.load(SeqCst) == 0 => {
            ScriptedAnswer::Ok(encoded(&Sequence4ResOk { status_flags: REVOKED, ..sequence(request.args) }))
        }
        Proto::Open => {
            opens.fetch_add(1, SeqCst);
            ScriptedAnswer::Ok(opened_for_writing(OPEN_ID, DELEGATION_ID))
        }
        Proto::Getattr if opens.load(SeqCst) > 0 => {
            let requested = Decoder::new(request.args).get().unwrap();
            ScriptedAnswer::Ok(attributes_of(&requested, 1))
        }
        Proto::TestStateid => {
            let status = |id: &[u8]| match id[4..] == DELEGATION_ID[4..] {
                true => Nfsstat4::DelegRevoked,
                false => Nfsstat4::Ok,
            };
            let ids = request.args[4..].chunks(16);
            ScriptedAnswer::Ok(encoded(&Array::<_, 256>(ids.map(status).collect())))
        }
        Proto::FreeStateid => {
            assert_eq!(request.args[4..], DELEGATION_ID[4..]);
            frees.fetch_add(1, SeqCst);
            ScriptedAnswer::Good
        }
        Proto::Write => {
            let (count, committed, writeverf) = (4, StableHow4::FileSync, [0; 8]);
            ScriptedAnswer::Ok(encoded(&Write4ResOk { count, committed, writeverf }))
        }
        Proto::Lock => panic!("the delegation allows it"),
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().delegations(true)).await.unwrap();
    let file = session.open(b"name", &read_and_write()).await.unwrap();
    assert!(session.write_delegated_since(&file.handle()).is_some());
    file.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    file.write_at(b"data", 0).await.unwrap();
    is_revoked.store(true, SeqCst);
    file.write_at(b"data", 0).await.unwrap();
    wait_for("FREE_STATEID", || freed.load(SeqCst) == 1).await;
    wait_for("the loss", || session.write_delegated_since(&file.handle()).is_none()).await;
    let error = file.write_at(b"data", 0).await.unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::IO.raw_os_error(), "{error}");
    file.unlock(ONE, None).await.unwrap();
    file.write_at(b"data", 0).await.unwrap();
}

/// The server makes a read delegation of a write delegation when the file is opened by another name: it is
/// told of opens and then of locks, and has the delegation back. By a known name none is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_downgraded_delegation_is_returned_behind_opens_and_locks() {
    let id = |seqid: u8, of: u8| {
        let mut id = [of; 16];
        id[..4].copy_from_slice(&[0, 0, 0, seqid]);
        id
    };
    let (executed, wants) = <(Arc<Mutex<Vec<Proto>>>, Arc<Mutex<Vec<u32>>>)>::default();
    let (log, asked, opens) = (executed.clone(), wants.clone(), AtomicU8::new(0));
    let server = OddServer::new(move |request| match request.operation {
        Proto::Open => {
            let args: Open4Args<'_> = Decoder::new(request.args).get().unwrap();
            let number = opens.fetch_add(1, SeqCst) + 1;
            ScriptedAnswer::Ok(match args.claim {
                OpenClaim4::Null(_) => {
                    asked.lock().push(args.share_access & !3);
                    match args.share_access & !3 {
                        SHARE_ACCESS_WANT_READ_DELEG => opened(id(number, 1), Some(id(2, 2))),
                        _ if number == 1 => opened_for_writing(id(number, 1), id(1, 2)),
                        _ => opened(id(number, 1), None),
                    }
                }
                _ => {
                    log.lock().push(Proto::Open);
                    opened(id(number, 1), None)
                }
            })
        }
        Proto::Getattr if request.compound.contains(&Proto::Open) => {
            let requested = Decoder::new(request.args).get().unwrap();
            ScriptedAnswer::Ok(attributes_of(&requested, 1))
        }
        Proto::Lock => {
            log.lock().push(Proto::Lock);
            ScriptedAnswer::Ok(id(1, 3).to_vec())
        }
        Proto::Delegreturn => {
            assert_eq!(request.args, id(2, 2));
            log.lock().push(Proto::Delegreturn);
            ScriptedAnswer::Good
        }
        Proto::Write => {
            assert_eq!(request.args[4..16], id(0, 3)[4..], "the lock");
            let (count, committed, writeverf) = (4, StableHow4::FileSync, [0; 8]);
            ScriptedAnswer::Ok(encoded(&Write4ResOk { count, committed, writeverf }))
        }
        Proto::Close | Proto::Locku | Proto::OpenDowngrade => ScriptedAnswer::Ok(vec![1; 16]),
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().delegations(true)).await.unwrap();
    let writer = session.open(b"name", &OpenOptions::new().write(true)).await.unwrap();
    let file = session.open_handle(&writer.handle(), b"name", &read_and_write()).await.unwrap();
    file.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    let known = session.open(b"name", &OpenOptions::reading()).await.unwrap();
    assert!(session.write_delegated_since(&known.handle()).is_some() && executed.lock().is_empty());
    let _reader = session.open(b"other name", &OpenOptions::reading()).await.unwrap();
    assert!(session.delegated_since(&file.handle()).is_none());
    let no = SHARE_ACCESS_WANT_NO_DELEG;
    assert_eq!(*wants.lock(), [no, no, SHARE_ACCESS_WANT_READ_DELEG]);
    wait_for("DELEGRETURN", || executed.lock().contains(&Proto::Delegreturn)).await;
    assert_eq!(*executed.lock(), [Proto::Open, Proto::Lock, Proto::Delegreturn]);
    file.write_at(b"data", 0).await.unwrap();
}

/// Files that get or have a grant, and files that somebody else has open.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn grants_and_delegations_exclude_each_other() {
    let it = Holder::new(Served::with_lane(), None).await;
    let writer = it.open().await;
    writer.lock(exclusive(ONE, range(0, 0))).await.unwrap();
    writer.write_behind(Bytes::from_static(b"waiting data"), 0).await.unwrap();
    // Another client of this host, which has a lane.
    let options = it.served.options(LaneMode::Required).version(Version::V4_2).delegations(true);
    let local = Session::connect(&it.served.url(), options).await.unwrap();
    let theirs = local.open(b"file", &read_and_write()).await.unwrap();
    assert_eq!(read(&theirs).await, b"waiting data");
    assert!(!it.is_delegated());
    assert!(is_locked(&theirs, exclusive(TWO, range(0, 0))).await);
    let granted = local.open(b"file", &read_and_write()).await.unwrap();
    assert_eq!(granted.data_path(), client::DataPath::Lane);
    // The lane's own client asks for no delegation that it can't have.
    fs::write(it.served.export().join("granted"), b"data").unwrap();
    let granted = local.open(b"granted", &read_and_write()).await.unwrap();
    for _ in 0..8 {
        granted.lock(exclusive(ONE, range(0, 9))).await.unwrap();
        granted.unlock(ONE, Some(range(0, 9))).await.unwrap();
    }
    assert!(local.delegated_since(&granted.handle()).is_none());
    assert_eq!(granted.data_path(), client::DataPath::Lane);
}

/// The name of a delegated file changes: it is returned first, with what waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_lose_or_change_their_names_are_returned() {
    let it = Holder::new(Served::wire_only(), None).await;
    let root = it.session.root();
    let writer = it.open().await;
    writer.write_behind(Bytes::from_static(b"waiting data"), 0).await.unwrap();
    it.session.rename(&root, b"file", &root, b"moved").await.unwrap();
    assert!(!it.is_delegated());
    it.session.remove(&root, b"moved").await.unwrap();
    assert_eq!(read(&writer).await, b"waiting data");
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    assert!(fs::File::options().read(true).custom_flags(without_waiting).open(&it.path).is_err());
}
