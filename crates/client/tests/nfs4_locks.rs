//! Byte-range locks over NFSv4: between sessions, with processes on the server's host, and their recovery.

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, fcntl_lock};
use samehost_client as client;

use client::{
    ByteRange, DataPath, File, LaneMode, LockKind, LockOwner, LockRequest, OpenOptions, Operation, Session,
    Status, Version,
};
use support::proxy::Proxy;
use support::{Served, wait_for};

const ONE: LockOwner = LockOwner(1);
const TWO: LockOwner = LockOwner(2);

const fn range(first: u64, last: u64) -> ByteRange {
    ByteRange { first, last }
}

const fn exclusive(owner: LockOwner, range: ByteRange) -> LockRequest {
    LockRequest { owner, range, kind: LockKind::Write, waits: false }
}

const fn shared(owner: LockOwner, range: ByteRange) -> LockRequest {
    LockRequest { kind: LockKind::Read, ..exclusive(owner, range) }
}

const fn waiting(owner: LockOwner, range: ByteRange) -> LockRequest {
    LockRequest { waits: true, ..exclusive(owner, range) }
}

async fn open(session: &Session, name: &[u8]) -> File {
    session.open(name, &OpenOptions::new().read(true).write(true).create(true)).await.unwrap()
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

/// Waits until the server has answered a LOCK of a session that waits, which is sent again then.
async fn until_waiting(session: &Session, sent_before: u64) {
    wait_for("a waiting LOCK", || session.counters().calls(Operation::Lock) >= sent_before + 2).await;
}

#[tokio::test]
async fn locks_exclude_other_owners_sessions_and_local_processes() {
    for (version, lane) in
        [(Version::V4_1, LaneMode::Off), (Version::V4_2, LaneMode::Off), (Version::V4_2, LaneMode::Required)]
    {
        let served = Served::with_lane();
        let options = served.options(lane).version(version);
        let session = Session::connect(&served.url(), options).await.unwrap();
        let other = served.wire_by(Version::V4_2).await;
        let (file, theirs) = (open(&session, b"file").await, open(&other, b"file").await);
        let local = std::fs::File::options().write(true).open(served.export().join("file")).unwrap();
        let local = |operation| fcntl_lock(&local, operation).is_ok();

        file.lock(exclusive(ONE, range(10, 19))).await.unwrap();
        assert!(is_locked(&file, exclusive(TWO, range(19, 30))).await, "another owner of the session");
        assert!(is_locked(&theirs, shared(ONE, range(0, u64::MAX))).await, "another session");
        assert!(!local(FlockOperation::NonBlockingLockExclusive), "a local process");
        let found = theirs.test_lock(ONE, range(0, 100), LockKind::Read).await.unwrap().unwrap();
        assert_eq!((found.range, found.kind), (range(10, 19), LockKind::Write));
        assert_eq!(file.test_lock(ONE, range(0, 100), LockKind::Write).await.unwrap(), None, "its own");
        // A part is unlocked, and another made shared.
        file.unlock(ONE, Some(range(10, 14))).await.unwrap();
        file.lock(shared(ONE, range(15, 16))).await.unwrap();
        assert!(!is_locked(&theirs, shared(ONE, range(0, 16))).await);
        assert!(is_locked(&theirs, shared(ONE, range(17, 17))).await);
        assert!(is_locked(&file, exclusive(TWO, range(0, 0))).await);
        theirs.unlock(ONE, None).await.unwrap();
        file.unlock(ONE, None).await.unwrap();

        assert!(local(FlockOperation::NonBlockingLockExclusive));
        assert!(is_locked(&file, exclusive(ONE, range(0, 0))).await);
        assert!(local(FlockOperation::Unlock));
        assert!(!is_locked(&file, exclusive(ONE, range(0, 0))).await);
        // The end of the open is that of its locks.
        drop(file);
        let waited = LockRequest { waits: true, ..shared(TWO, range(0, 0)) };
        theirs.lock(waited).await.unwrap();
        theirs.close().await.unwrap();
        other.close().await;
    }
}

#[tokio::test]
async fn nfs3_has_no_locks() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V3).await;
    let file = open(&session, b"file").await;
    assert!(!session.has_locks());
    let refused = file.lock(exclusive(ONE, range(0, 0))).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::NotSupported));
}

#[tokio::test]
async fn waiters_are_woken_in_order() {
    let mut served = Served::wire_only();
    // A turn is a part of the lease, and this machine may be slow.
    served.set_lease(3600);
    let holder = served.wire_by(Version::V4_2).await;
    let held = open(&holder, b"file").await;
    held.lock(exclusive(ONE, range(0, u64::MAX))).await.unwrap();
    let order = Arc::<Mutex<Vec<usize>>>::default();
    let mut waiters = Vec::new();
    for number in 0..3 {
        let session = served.wire_by(Version::V4_1).await;
        let (file, order) = (open(&session, b"file").await, order.clone());
        let before = session.counters().calls(Operation::Lock);
        let task = tokio::spawn(async move {
            file.lock(waiting(ONE, range(0, 9))).await.unwrap();
            order.lock().push(number);
            file
        });
        until_waiting(&session, before).await;
        waiters.push((session, task));
    }
    assert!(order.lock().is_empty());
    held.unlock(ONE, None).await.unwrap();
    for (number, (_, task)) in waiters.into_iter().enumerate() {
        let file = task.await.unwrap();
        assert_eq!(*order.lock(), (0..=number).collect::<Vec<_>>());
        file.unlock(ONE, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_has_no_lock() {
    let served = Served::wire_only();
    let (one, two) = (served.wire_by(Version::V4_2).await, served.wire_by(Version::V4_2).await);
    let (held, file) = (open(&one, b"file").await, open(&two, b"file").await);
    held.lock(exclusive(ONE, range(0, 9))).await.unwrap();
    let before = two.counters().calls(Operation::Lock);
    let task = tokio::spawn({
        let file = file.clone();
        async move { file.lock(waiting(TWO, range(5, 5))).await }
    });
    until_waiting(&two, before).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    held.unlock(ONE, None).await.unwrap();
    let local = std::fs::File::options().write(true).open(served.export().join("file")).unwrap();
    fcntl_lock(&local, FlockOperation::NonBlockingLockExclusive).unwrap();
    // It can ask again.
    assert!(is_locked(&file, exclusive(TWO, range(5, 5))).await);
}

#[tokio::test]
async fn locks_outlive_a_killed_server() {
    let mut served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let file = open(&session, b"file").await;
    file.write_at(b"0123456789", 0).await.unwrap();
    file.lock(exclusive(ONE, range(0, 4))).await.unwrap();
    file.lock(shared(TWO, range(5, 9))).await.unwrap();
    for round in 0..2 {
        served.kill();
        served.restart();
        // The first request finds out, and waits until everything is reclaimed.
        session.attributes(&session.root()).await.unwrap();
        file.write_at(b"A", round).await.unwrap();
        let other = served.wire_by(Version::V4_1).await;
        let theirs = open(&other, b"file").await;
        assert!(is_locked(&theirs, shared(ONE, range(4, 4))).await);
        assert!(!is_locked(&theirs, shared(ONE, range(5, 9))).await);
        assert!(is_locked(&theirs, exclusive(ONE, range(9, 9))).await);
        theirs.unlock(ONE, None).await.unwrap();
        drop(theirs);
        other.close().await;
    }
    file.commit().await.unwrap();
    file.unlock(ONE, None).await.unwrap();
    file.unlock(TWO, None).await.unwrap();
    let other = served.wire_by(Version::V4_1).await;
    assert!(!is_locked(&open(&other, b"file").await, exclusive(ONE, range(0, 9))).await);
}

/// The requests are made before the client knows that the server has been restarted, and name its former
/// state.
#[tokio::test]
async fn requests_that_wait_for_a_restarted_server_name_its_new_state() {
    let mut served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let file = open(&session, b"file").await;
    for owner in [ONE, TWO] {
        file.lock(shared(owner, range(0, 4))).await.unwrap();
        file.lock(shared(owner, range(5, 9))).await.unwrap();
    }
    served.kill();
    let sent = || session.counters().calls(Operation::Lock) + session.counters().calls(Operation::Unlock);
    let before = sent();
    let (locking, unlocking) = (file.clone(), file.clone());
    let locked = tokio::spawn(async move { locking.lock(exclusive(ONE, range(20, 24))).await });
    let unlocked = tokio::spawn(async move { unlocking.unlock(TWO, Some(range(5, 9))).await });
    wait_for("both requests", || sent() == before + 2).await;
    served.restart();
    locked.await.unwrap().unwrap();
    unlocked.await.unwrap().unwrap();
    file.write_at(b"0123456789", 0).await.unwrap();

    let other = served.wire_by(Version::V4_1).await;
    let theirs = open(&other, b"file").await;
    file.unlock(ONE, Some(range(0, 9))).await.unwrap();
    for (first, last, is_free) in [(0, 4, false), (5, 9, true), (20, 24, false)] {
        assert_eq!(!is_locked(&theirs, exclusive(ONE, range(first, last))).await, is_free, "{first}..{last}");
    }
}

/// A client that is cut off for longer than its lease loses a lock that another client wants, and only the
/// file with that lock fails.
#[tokio::test]
async fn a_client_that_is_cut_off_loses_its_locks_and_nothing_else() {
    let mut served = Served::wire_only();
    served.set_lease(2);
    let session = served.wire_by(Version::V4_2).await;
    let (file, untouched) = (open(&session, b"file").await, open(&session, b"untouched").await);
    file.write_at(b"mine", 0).await.unwrap();
    untouched.write_at(b"mine", 0).await.unwrap();
    file.lock(exclusive(ONE, range(0, u64::MAX))).await.unwrap();
    // This thread runs all tasks of the session. While it waits the lease isn't renewed.
    let (url, options) = (served.url(), served.options(LaneMode::Off).version(Version::V4_2));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let other = Session::connect(&url, options).await.unwrap();
            let theirs = open(&other, b"file").await;
            theirs.lock(waiting(ONE, range(0, 0))).await.unwrap();
            theirs.write_at(b"yours", 0).await.unwrap();
            theirs.close().await.unwrap();
            other.close().await;
        });
    })
    .join()
    .unwrap();

    let mut buffer = [0; 5];
    let lost = file.read_at(&mut buffer, 0).await.unwrap_err();
    assert_eq!(lost.status(), Some(Status::Io), "{lost}");
    assert_eq!(file.write_at(b"mine", 0).await.unwrap_err().status(), Some(Status::Io));
    untouched.write_at(b"M", 0).await.unwrap();
    assert_eq!(untouched.read_at(&mut buffer, 0).await.unwrap(), 4);
    // Once it has unlocked what it hasn't any more, the file is as good as any.
    file.unlock(ONE, None).await.unwrap();
    file.read_at(&mut buffer, 0).await.unwrap();
    assert_eq!(&buffer, b"yours");
    assert!(!is_locked(&file, exclusive(ONE, range(0, 0))).await);
}

/// Another client waits for the lock of a file, gets it because the lease of its holder has expired, writes,
/// and unlocks.
async fn take_over(other: &Session) {
    let theirs = open(other, b"file").await;
    theirs.lock(waiting(ONE, range(0, 0))).await.unwrap();
    theirs.write_at(b"yours", 0).await.unwrap();
    theirs.close().await.unwrap();
}

/// The lock on `file` is lost: no read or write of it is believed, whatever the lane would permit, until it
/// is unlocked. `untouched` has a grant, and keeps it.
async fn loses_its_lock(session: &Session, (file, untouched): (&File, &File)) {
    let mut buffer = [0; 5];
    let lost = file.read_at(&mut buffer, 0).await.unwrap_err();
    assert_eq!(lost.status(), Some(Status::Io), "{lost}");
    assert_eq!(file.write_at(b"mine", 0).await.unwrap_err().status(), Some(Status::Io));
    let again = open(session, b"file").await;
    assert_eq!(again.data_path(), DataPath::Wire, "nor is it passed through");
    assert_eq!(again.read_at(&mut buffer, 0).await.unwrap_err().status(), Some(Status::Io));
    assert!(again.with_granted_fd(|_| ()).is_none());
    untouched.write_at(b"M", 0).await.unwrap();
    assert_eq!(untouched.read_at(&mut buffer, 0).await.unwrap(), 4);
    file.unlock(ONE, None).await.unwrap();
    file.write_at(b"after", 0).await.unwrap();
    file.read_at(&mut buffer, 0).await.unwrap();
    assert_eq!(&buffer, b"after");
}

/// As [`a_client_that_is_cut_off_loses_its_locks_and_nothing_else`], with a lane, which needs no connection
/// for its reads and writes. The client's tasks stand still, and its connection and lane don't end.
#[tokio::test]
async fn a_client_that_stood_still_believes_nothing_by_a_lost_lock_over_its_lane() {
    let mut served = Served::with_lane();
    served.set_lease(2);
    let session = Session::connect(&served.url(), served.options(LaneMode::Required).version(Version::V4_2))
        .await
        .unwrap();
    let (file, untouched) = (open(&session, b"file").await, open(&session, b"untouched").await);
    untouched.write_at(b"mine", 0).await.unwrap();
    file.lock(exclusive(ONE, range(0, u64::MAX))).await.unwrap();
    file.write_at(b"mine", 0).await.unwrap();
    let (url, options) = (served.url(), served.options(LaneMode::Off).version(Version::V4_2));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let other = Session::connect(&url, options).await.unwrap();
            take_over(&other).await;
            other.close().await;
        });
    })
    .join()
    .unwrap();
    let lane = session.counters().lane;
    loses_its_lock(&session, (&file, &untouched)).await;
    // The lane is the one from before, and serves both files.
    assert_eq!((file.data_path(), untouched.data_path()), (DataPath::Lane, DataPath::Lane));
    let served_by_lane = session.counters().lane;
    assert_eq!(served_by_lane.reads - lane.reads, 2, "one of each file");
    assert_eq!(session.counters().events.probes, 1);
}

/// The connection is cut for longer than the lease. If it is closed, so is the lane: the first read waits for
/// the next connection. If it is only silent, the lane goes on at both ends: a file without locks is read
/// over it, and one with locks waits for the server as soon as the lease may have expired.
#[tokio::test]
async fn a_connection_that_is_cut_lets_no_lost_lock_be_believed_over_the_lane() {
    for is_closed in [true, false] {
        let mut served = Served::with_lane();
        served.set_lease(2);
        let proxy = Proxy::new(served.port());
        let url =
            client::Url::new("127.0.0.1", Some(proxy.port()), served.export().to_str().unwrap().as_bytes());
        let options = served.options(LaneMode::Auto).version(Version::V4_2);
        let session = Session::connect(&url, options).await.unwrap();
        assert!(session.lane().local, "{:?}", session.lane());
        let (file, untouched) = (open(&session, b"file").await, open(&session, b"untouched").await);
        untouched.write_at(b"mine", 0).await.unwrap();
        file.lock(exclusive(ONE, range(0, u64::MAX))).await.unwrap();
        file.write_at(b"mine", 0).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Lane);
        if is_closed {
            proxy.close()
        } else {
            proxy.hold()
        }
        let other = served.wire_by(Version::V4_2).await;
        take_over(&other).await;
        other.close().await;

        let mut buffer = [0; 5];
        if !is_closed {
            let before = session.counters().lane.reads;
            assert_eq!(untouched.read_at(&mut buffer, 0).await.unwrap(), 4);
            assert_eq!(session.counters().lane.reads, before + 1, "it has no locks");
        }
        let reading = file.clone();
        let read = tokio::spawn(async move { reading.read_into(Vec::new(), 0, 5).await });
        wait_for("the read's way", || file.data_path() == DataPath::Wire).await;
        tokio::task::yield_now().await;
        assert!(!read.is_finished(), "the server has to be asked");
        proxy.resume();
        let lost = read.await.unwrap().unwrap_err();
        assert_eq!(lost.status(), Some(Status::Io), "{is_closed}: {lost}");
        loses_its_lock(&session, (&file, &untouched)).await;
    }
}
