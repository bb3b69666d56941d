//! What happens while CLOSEs wait to be sent together: none closes what it isn't for, and nothing waits for
//! them in vain.

mod support;

use samehost_client as client;

use client::{
    ByteRange, Credential, File, LaneMode, LockKind, LockOwner, LockRequest, OpenOptions, Operation, Session,
    Status, Version,
};
use support::{Served, on_disk, wait_for};

const ALL: ByteRange = ByteRange { first: 0, last: u64::MAX };
const OWNER: LockOwner = LockOwner(1);

const fn exclusive(waits: bool) -> LockRequest {
    LockRequest { owner: OWNER, range: ALL, kind: LockKind::Write, waits }
}

async fn open(session: &Session, name: &str) -> File {
    let both = OpenOptions::new().read(true).write(true).create(true).mode(0o666);
    session.open(name.as_bytes(), &both).await.unwrap()
}

fn closes(session: &Session) -> u64 {
    session.counters().calls(Operation::Close)
}

/// Closes a file, so that those which are closed next wait.
async fn close_one(session: &Session) {
    open(session, "first").await.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_users_close_files_in_turn() {
    const FILES: usize = 100;
    let served = Served::wire_only();
    std::fs::set_permissions(served.export(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let session = served.wire_by(Version::V4_2).await;
    let user = |uid| session.as_user(Credential::Sys { uid, gid: uid, groups: Vec::new() });
    let (alice, bob) = (user(1001), user(1002));
    let (mut files, mut kept) = (Vec::new(), Vec::new());
    for number in 0..FILES {
        for (session, name) in [(&alice, "alice"), (&bob, "bob")] {
            files.push(open(session, &format!("{name}-{number}")).await);
        }
        // Each has one file open that the other closes.
        if number % 10 == 0 {
            let name = format!("shared-{number}");
            kept.push(open(&alice, &name).await);
            files.push(open(&bob, &name).await);
        }
    }
    let before = closes(&session);
    drop(files);
    for (number, file) in kept.iter().enumerate() {
        file.write_at(&[number as u8], 0).await.unwrap();
    }
    drop(kept);
    drop((alice, bob));
    session.clone().close().await;
    // 24 with a request, and those that are closed by themselves.
    let sent = closes(&session) - before;
    assert!(sent <= 16, "{sent} requests for 220 files");
    // All state is gone: without any the server gives locks to others at once.
    let other = served.wire_by(Version::V4_1).await;
    for number in (0..FILES).step_by(10) {
        open(&other, &format!("shared-{number}")).await.lock(exclusive(false)).await.unwrap();
    }
}

/// A lock through an open that came after a close(2) stays when the CLOSE is sent.
#[tokio::test]
async fn locks_outlive_the_close_of_an_earlier_open() {
    let served = Served::wire_only();
    let (session, other) = (served.wire_by(Version::V4_2).await, served.wire_by(Version::V4_1).await);
    let theirs = open(&other, "locked").await;
    for round in 0..4 {
        close_one(&session).await;
        let earlier = open(&session, "locked").await;
        let is_locked_before = round % 2 == 1;
        if is_locked_before {
            earlier.lock(exclusive(false)).await.unwrap();
        }
        drop(earlier);
        let file = open(&session, "locked").await;
        file.lock(exclusive(true)).await.unwrap();
        let before = closes(&session);
        close_one(&session).await;
        wait_for("the CLOSEs", || closes(&session) > before).await;
        let refused = theirs.lock(exclusive(false)).await.unwrap_err();
        assert_eq!(refused.status(), Some(Status::Locked), "round {round}");
        file.write_at(b"mine", 0).await.unwrap();
        file.unlock(OWNER, None).await.unwrap();
        drop(file);
        // Its end, and the CLOSE that waits, keep nobody from the lock.
        theirs.lock(exclusive(false)).await.unwrap();
        theirs.unlock(OWNER, None).await.unwrap();
    }
}

/// The locks of a file that is closed with them are free before the CLOSE.
#[tokio::test]
async fn a_closed_files_locks_are_free() {
    let served = Served::wire_only();
    let (session, other) = (served.wire_by(Version::V4_2).await, served.wire_by(Version::V4_1).await);
    let theirs = open(&other, "locked").await;
    for _ in 0..4 {
        close_one(&session).await;
        let file = open(&session, "locked").await;
        file.lock(exclusive(false)).await.unwrap();
        drop(file);
        theirs.lock(exclusive(true)).await.unwrap();
        theirs.unlock(OWNER, None).await.unwrap();
    }
}

/// A recalled delegation is returned behind its file's CLOSE: the local process that opens the file gets it,
/// and another open of it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_delegation_is_recalled_while_closes_wait() {
    let served = Served::wire_only();
    let options = served.options(LaneMode::Off).version(Version::V4_2).delegations(true);
    let session = Session::connect(&served.url(), options).await.unwrap();
    for round in 0..8_u8 {
        let path = served.export().join(format!("file-{round}"));
        std::fs::write(&path, [round]).unwrap();
        let name = format!("file-{round}").into_bytes();
        close_one(&session).await;
        let opened = session.open(&name, &OpenOptions::reading()).await.unwrap();
        let handle = opened.handle();
        drop(opened);
        assert!(session.delegated_since(&handle).is_some());
        let is_kept = round % 2 == 0;
        let kept = if is_kept {
            Some(session.open_handle(&handle, &name, &OpenOptions::reading()).await.unwrap())
        } else {
            None
        };
        let writer = path.clone();
        tokio::task::spawn_blocking(move || std::fs::write(writer, b"local").unwrap()).await.unwrap();
        assert!(session.delegated_since(&handle).is_none());
        std::fs::remove_file(&path).unwrap();
        if let Some(kept) = kept {
            assert_eq!(
                kept.read_into(Vec::new(), 0, 100).await.unwrap(),
                b"local",
                "it is open at the server"
            );
        }
    }
    // Nothing is left that would keep the client id.
    session.close().await;
}

/// The server has ended the client while CLOSEs waited: they end, and only what is open is opened again.
#[tokio::test]
async fn closes_that_wait_when_the_lease_expires_end() {
    const FILES: usize = 50;
    let mut served = Served::wire_only();
    served.set_lease(2);
    let session = served.wire_by(Version::V4_2).await;
    let (kept, locked) = (open(&session, "kept").await, open(&session, "locked").await);
    locked.lock(exclusive(false)).await.unwrap();
    let mut files = Vec::new();
    for number in 0..FILES {
        files.push(open(&session, &format!("file-{number}")).await);
    }
    close_one(&session).await;
    let (opens, closed) = (session.counters().calls(Operation::Open), closes(&session));
    drop(files);
    // This thread runs all tasks of the session. While it waits the lease isn't renewed.
    let (url, options) = (served.url(), served.options(LaneMode::Off).version(Version::V4_2));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let other = Session::connect(&url, options).await.unwrap();
            let theirs = open(&other, "locked").await;
            theirs.lock(exclusive(true)).await.unwrap();
            theirs.close().await.unwrap();
            other.close().await;
        });
    })
    .join()
    .unwrap();
    kept.write_at(b"kept", 0).await.unwrap();
    assert_eq!(on_disk(&served.export().join("kept")), b"kept");
    let again = session.counters().calls(Operation::Open) - opens;
    assert!(again <= 4, "two files are reclaimed or opened: {again} OPENs");
    locked.unlock(OWNER, None).await.unwrap();
    drop((kept, locked));
    session.clone().close().await;
    let sent = closes(&session) - closed;
    assert!(sent <= 4, "{sent} requests with CLOSEs");
}
