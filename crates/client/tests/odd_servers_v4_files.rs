//! The files and directories of the NFSv4.1 client on servers that are broken or hostile: listings, opens,
//! and state that a server revokes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use parking_lot::Mutex;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    Bitmap4, IoAdvise4Args, Lock4Args, Lock4Denied, NfsLockType4, Nfsstat4, Operation,
    RESULT_MAY_NOTIFY_LOCK, Readdir4Args, Sequence4ResOk, StateOwner4,
};
use samehost_client as client;
use xdr::{Array, Decoder, Encoder, Opaque};

use client::{
    Advice, ByteRange, Error, LockKind, LockOwner, LockRequest, OpenOptions, Session, Status, Version,
};
use support::odd_v4::{OddServer, ScriptedAnswer, attributes_of, encoded, opened, page, sequence, soft};
use support::{BOUND, wait_for};

/// A listing may have any cookies, names, handles and attributes. It ends, with the names that a directory
/// can contain.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn listings_are_checked() {
    let kind = Arc::new(AtomicU32::new(0));
    let which = kind.clone();
    let server = OddServer::new(move |request| {
        if request.operation != Operation::Readdir {
            return ScriptedAnswer::Good;
        }
        let args: Readdir4Args = Decoder::new(request.args).get().unwrap();
        let names: [&[u8]; 8] = [b"good", b"", b".", b"..", b"a/b", b"../..", b"nul\0", b"/"];
        ScriptedAnswer::Ok(match which.load(SeqCst) {
            0 => page(&names.map(|name| (name, 9)), true),
            // The same page again and again; cookies that are the client's own; a circle.
            1 => page(&[(b"same", 9)], false),
            2 => page(&[(b"one", 1)], false),
            3 => page(&[(b"two", args.cookie % 2 + 1)], false),
            4 => page(&[(b"in a circle", 3 + (args.cookie + 1) % 50)], false),
            5 => page(&[], false),
            // Attributes that are longer than the reply, more than there are, and unknown.
            kind => {
                let mut to = Encoder::new();
                to.u64(0);
                to.bool(true);
                to.u64(9);
                to.opaque(b"name");
                match kind {
                    6 => to.u32(u32::MAX),
                    7 => {
                        to.u32(1024);
                        to.raw(&[0xff; 4096]);
                    }
                    _ => to.put(&Bitmap4::of(&[number::TYPE, 255])),
                }
                to.opaque(&[0, 0, 0, 2]);
                to.bool(false);
                to.bool(true);
                to.into_vec()
            }
        })
    });
    let session = server.session().await;
    let list = || tokio::time::timeout(BOUND, session.read_dir(&session.root(), client::Plus::All).collect());
    let all = list().await.expect("an end").unwrap();
    let names: Vec<&[u8]> = all.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(names, [b"good"]);
    for bad in 1..=8 {
        kind.store(bad, SeqCst);
        let error = list().await.expect("an end").expect_err("a bad listing");
        assert!(matches!(error, Error::Protocol { .. }), "{bad}: {error}");
    }
}

/// `SEQ4_STATUS_ADMIN_STATE_REVOKED`.
const ADMIN_STATE_REVOKED: u32 = 0x20;

/// The reply to an OPEN that succeeded has no handle, or no attributes. The file is found by its name, used,
/// and closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_are_opened_without_a_handle_are_closed() {
    const ID: [u8; 16] = [0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    for failing in [Operation::Getfh, Operation::Getattr] {
        for create in [false, true] {
            let (opens_sent, closed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let (opens, closes) = (opens_sent.clone(), closed.clone());
            let server = OddServer::new(move |request| match request.operation {
                Operation::Open => {
                    opens.fetch_add(1, SeqCst);
                    ScriptedAnswer::Ok(opened(ID, None))
                }
                Operation::Close => {
                    assert_eq!(&request.args[4..], &ID);
                    closes.fetch_add(1, SeqCst);
                    ScriptedAnswer::Ok(ID.to_vec())
                }
                failed if failed == failing && request.compound.contains(&Operation::Open) => {
                    ScriptedAnswer::Status(Nfsstat4::Delay)
                }
                Operation::Getattr if opens.load(SeqCst) > 0 => {
                    let requested = Decoder::new(request.args).get().unwrap();
                    ScriptedAnswer::Ok(attributes_of(&requested, 1))
                }
                _ => ScriptedAnswer::Good,
            });
            let session = server.session().await;
            let options = OpenOptions::new().read(true).write(true).create(create);
            let file = session.open(b"name", &options).await.unwrap();
            drop(file);
            wait_for("a CLOSE", || closed.load(SeqCst) == 1).await;
            assert_eq!(opens_sent.load(SeqCst), 1, "{failing:?}");
        }
    }
}

/// An administrator has revoked the open of one file (NFS4ERR_ADMIN_REVOKED), and the server doesn't let it
/// be opened again. Its reads and writes fail with EIO; another file's go on, and so does the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_open_that_is_revoked_costs_its_file_only() {
    /// The open state ids of the two files.
    const IDS: [[u8; 16]; 2] = [[1; 16], [2; 16]];
    let (is_revoked, freed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (opens, refused) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let (revoked, frees, refusals) = (is_revoked.clone(), freed.clone(), refused.clone());
    let server = OddServer::new(move |request| {
        // State ids are compared without their `seqid`.
        let is_first = |id: &[u8]| id[4..16] == IDS[0][4..];
        let is_gone = |id: &[u8]| revoked.load(SeqCst) && is_first(id);
        match request.operation {
            Operation::Sequence if revoked.load(SeqCst) && frees.load(SeqCst) == 0 => {
                let good = sequence(request.args);
                ScriptedAnswer::Ok(encoded(&Sequence4ResOk { status_flags: ADMIN_STATE_REVOKED, ..good }))
            }
            Operation::Open if revoked.load(SeqCst) => {
                refusals.fetch_add(1, SeqCst);
                ScriptedAnswer::Status(Nfsstat4::Access)
            }
            Operation::Open => {
                let id = IDS[opens.fetch_add(1, SeqCst) as usize];
                ScriptedAnswer::Ok(opened(id, None))
            }
            // The handle of each file: as many bytes as files were opened before.
            Operation::Getfh if request.compound.contains(&Operation::Open) => {
                let handle = [7; 3];
                ScriptedAnswer::Ok(encoded(&Opaque::<128>(&handle[..opens.load(SeqCst) as usize])))
            }
            Operation::Getattr if opens.load(SeqCst) > 0 => {
                let requested = Decoder::new(request.args).get().unwrap();
                ScriptedAnswer::Ok(attributes_of(&requested, 1))
            }
            Operation::Read if is_gone(request.args) => ScriptedAnswer::Status(Nfsstat4::AdminRevoked),
            Operation::Read => {
                let mut to = Encoder::new();
                to.bool(true);
                to.opaque(b"data");
                ScriptedAnswer::Ok(to.into_vec())
            }
            Operation::TestStateid => {
                let ids = request.args[4..].chunks(16);
                let status = |id| if is_gone(id) { Nfsstat4::AdminRevoked } else { Nfsstat4::Ok };
                ScriptedAnswer::Ok(encoded(&Array::<_, 256>(ids.map(status).collect())))
            }
            Operation::FreeStateid => {
                assert!(is_gone(request.args), "it is good");
                frees.fetch_add(1, SeqCst);
                ScriptedAnswer::Good
            }
            Operation::Close => {
                assert!(!is_first(&request.args[4..]), "what was revoked isn't closed");
                ScriptedAnswer::Ok(request.args[4..].to_vec())
            }
            _ => ScriptedAnswer::Good,
        }
    });
    let session = server.session().await;
    let (one, two) = (
        session.open(b"one", &OpenOptions::reading()).await.unwrap(),
        session.open(b"two", &OpenOptions::reading()).await.unwrap(),
    );
    let read = async |file: &client::File| file.read_into(Vec::new(), 0, 10).await;
    assert_eq!((read(&one).await.unwrap(), read(&two).await.unwrap()), (b"data".to_vec(), b"data".to_vec()));
    is_revoked.store(true, SeqCst);
    for _ in 0..3 {
        let lost = read(&one).await.unwrap_err();
        assert_eq!(lost.errno(), rustix::io::Errno::IO.raw_os_error(), "{lost}");
        assert!(lost.to_string().contains("one"), "{lost}");
        assert_eq!(read(&two).await.unwrap(), b"data");
    }
    // The READ finds out, and so may TEST_STATEID.
    wait_for("FREE_STATEID", || freed.load(SeqCst) > 0).await;
    assert_eq!(refused.load(SeqCst), 1, "it is opened again once");
    let sessions = server.shared.sessions.load(SeqCst);
    assert_eq!(read(&two).await.unwrap(), b"data");
    drop((one, two));
    session.close().await;
    assert_eq!(server.shared.sessions.load(SeqCst), sessions, "the session is the same");
}

/// A server has lost an open, and delays that it is opened again. A soft session's read fails meanwhile, and
/// a hard session's waits for longer than the timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_soft_read_does_not_wait_for_an_open_without_end() {
    // The pauses double from 50 ms: five are longer than the timeout.
    for (hard, delays) in [(false, u32::MAX), (true, 5)] {
        let (opens, reads) = (AtomicU32::new(0), AtomicU32::new(0));
        let server = OddServer::new(move |request| match request.operation {
            Operation::Open => match opens.fetch_add(1, SeqCst) {
                0 => ScriptedAnswer::Ok(opened(OPEN_ID, None)),
                again if again <= delays => ScriptedAnswer::Status(Nfsstat4::Delay),
                _ => ScriptedAnswer::Ok(opened(OPENED_AGAIN_ID, None)),
            },
            Operation::Getattr if request.compound.contains(&Operation::Open) => {
                ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
            }
            Operation::Read if reads.fetch_add(1, SeqCst) == 0 => {
                ScriptedAnswer::Status(Nfsstat4::BadStateid)
            }
            Operation::Read => {
                let mut to = Encoder::new();
                to.bool(true);
                to.opaque(b"data");
                ScriptedAnswer::Ok(to.into_vec())
            }
            Operation::Close => ScriptedAnswer::Ok(request.args[4..].to_vec()),
            _ => ScriptedAnswer::Good,
        });
        let session = Session::connect(&server.url(), soft().hard(hard)).await.unwrap();
        let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
        let read = tokio::time::timeout(BOUND, file.read_into(Vec::new(), 0, 10)).await.expect("an end");
        if hard {
            assert_eq!(read.unwrap(), b"data");
        } else {
            let error = read.unwrap_err();
            assert_eq!(error.errno(), rustix::io::Errno::TIMEDOUT.raw_os_error(), "{error}");
        }
    }
}

/// What learns of revoked state in [`state_that_is_found_to_be_revoked_is_freed`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Finder {
    /// The first LOCK names the open.
    FirstLock,
    /// A further LOCK names the owner's locks.
    Lock,
    Unlock,
    Downgrade,
    /// The OPEN of a file that was delegated.
    OpenDelegated,
    /// DELEGRETURN.
    Return,
}

/// The state ids of the scripted server: those of the open, the locks and the delegation, and of what is
/// opened again.
const OPEN_ID: [u8; 16] = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
const LOCK_ID: [u8; 16] = [0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2];
const DELEGATION_ID: [u8; 16] = [0, 0, 0, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3];
const OPENED_AGAIN_ID: [u8; 16] = [0, 0, 0, 1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4];

/// A server that answers `status` to the first request of `finder`'s kind, for a state that it has revoked.
/// It says so with each SEQUENCE if `flags` has a bit. TEST_STATEID finds nothing: the state is revoked
/// later. Returns the states that are freed, too.
fn revoking(finder: Finder, status: Nfsstat4, flags: u32) -> (OddServer, Arc<Mutex<Vec<Vec<u8>>>>) {
    let freed = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let (frees, is_found, is_open) = (freed.clone(), AtomicBool::new(false), AtomicBool::new(false));
    let gives_delegation = matches!(finder, Finder::OpenDelegated | Finder::Return);
    let names = |args: &[u8], id: [u8; 16]| args.windows(12).any(|part| *part == id[4..]);
    let is_finder = move |operation: Operation, args: &[u8]| match finder {
        Finder::FirstLock => operation == Operation::Lock,
        Finder::Lock => operation == Operation::Lock && names(args, LOCK_ID),
        Finder::Unlock => operation == Operation::Locku,
        Finder::Downgrade => operation == Operation::OpenDowngrade,
        Finder::OpenDelegated => operation == Operation::Open && names(args, DELEGATION_ID),
        Finder::Return => operation == Operation::Delegreturn,
    };
    let server = OddServer::new(move |request| match request.operation {
        Operation::Sequence => {
            ScriptedAnswer::Ok(encoded(&Sequence4ResOk { status_flags: flags, ..sequence(request.args) }))
        }
        operation if is_finder(operation, request.args) && !is_found.swap(true, SeqCst) => {
            ScriptedAnswer::Status(status)
        }
        Operation::Open => {
            let is_first = !is_open.swap(true, SeqCst);
            let id = if is_found.load(SeqCst) { OPENED_AGAIN_ID } else { OPEN_ID };
            ScriptedAnswer::Ok(opened(id, (is_first && gives_delegation).then_some(DELEGATION_ID)))
        }
        Operation::Getattr if is_open.load(SeqCst) => {
            ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
        }
        Operation::Lock | Operation::Locku => ScriptedAnswer::Ok(LOCK_ID.to_vec()),
        Operation::OpenDowngrade | Operation::Close => ScriptedAnswer::Ok(OPEN_ID.to_vec()),
        Operation::TestStateid => {
            let count = request.args[4..].len() / 16;
            ScriptedAnswer::Ok(encoded(&Array::<_, 256>(vec![Nfsstat4::Ok; count])))
        }
        Operation::FreeStateid => {
            frees.lock().push(request.args[4..].to_vec());
            ScriptedAnswer::Good
        }
        _ => ScriptedAnswer::Good,
    });
    (server, freed)
}

/// Lets a client of [`revoking`] do what finds out.
async fn find_out(session: &Session, finder: Finder) {
    let range = |first| ByteRange { first, last: first + 9 };
    let owner = LockOwner(1);
    let lock = |first| LockRequest { owner, range: range(first), kind: LockKind::Read, waits: false };
    let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    match finder {
        // The file is opened again.
        Finder::FirstLock => file.lock(lock(0)).await.unwrap(),
        Finder::Lock | Finder::Unlock => {
            file.lock(lock(0)).await.unwrap();
            if finder == Finder::Unlock {
                file.unlock(owner, Some(range(0))).await.unwrap();
            } else {
                let lost = file.lock(lock(20)).await.unwrap_err();
                assert_eq!(lost.status(), Some(Status::Io), "{lost}");
            }
        }
        Finder::Downgrade => {
            let writing = session.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
            drop(file);
            drop(writing);
        }
        // The delegation is returned before the file is opened for writing, and what was opened under it is
        // opened at the server before that.
        Finder::OpenDelegated | Finder::Return => {
            let handle = file.handle();
            drop(file);
            wait_for("a CLOSE", || session.counters().calls(client::Operation::Close) == 1).await;
            let reading = session.open_handle(&handle, b"file", &OpenOptions::reading()).await.unwrap();
            session.open_handle(&handle, b"file", &OpenOptions::new().write(true)).await.unwrap();
            drop(reading);
        }
    }
}

/// The server has revoked a state, or the client's lease expired. Whichever request finds out, the client
/// frees the state, so that the server can forget it. The test of all states didn't find it before, and
/// doesn't after, as the client doesn't know it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn state_that_is_found_to_be_revoked_is_freed() {
    for (finder, id) in [
        (Finder::FirstLock, OPEN_ID),
        (Finder::Lock, LOCK_ID),
        (Finder::Unlock, LOCK_ID),
        (Finder::Downgrade, OPEN_ID),
        (Finder::OpenDelegated, DELEGATION_ID),
        (Finder::Return, DELEGATION_ID),
    ] {
        for (status, flags) in [
            (Nfsstat4::Expired, 0),
            (Nfsstat4::AdminRevoked, 0),
            (Nfsstat4::DelegRevoked, 0),
            (Nfsstat4::BadStateid, ADMIN_STATE_REVOKED),
        ] {
            let (server, freed) = revoking(finder, status, flags);
            let session = Session::connect(&server.url(), soft().delegations(true)).await.unwrap();
            find_out(&session, finder).await;
            // The owners of locks that are good are freed, too, when the file is closed.
            let count = || freed.lock().iter().filter(|freed| **freed == id[4..]).count();
            wait_for(&format!("FREE_STATEID: {finder:?}, {status:?}"), || count() > 0).await;
            session.close().await;
            assert_eq!(count(), 1, "{finder:?}, {status:?}");
        }
        // A state id may be bad for other reasons.
        let (server, freed) = revoking(finder, Nfsstat4::BadStateid, 0);
        let session = Session::connect(&server.url(), soft().delegations(true)).await.unwrap();
        find_out(&session, finder).await;
        session.close().await;
        assert!(freed.lock().iter().all(|freed| *freed != id[4..]), "{finder:?}");
    }
}

/// The CLOSE of a file goes with the next OPEN, and is sent once. If the OPEN fails or the server delays the
/// CLOSE, it is sent later.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn closes_go_with_opens() {
    /// A busy machine may take longer for two calls than CLOSEs wait.
    const ATTEMPTS: u32 = 50;
    /// The number of the file whose CLOSE goes along. The next OPEN takes it.
    const CLOSED: u8 = 2;
    for (open, close, sent) in [
        (Nfsstat4::Ok, Nfsstat4::Ok, 1),
        (Nfsstat4::Ok, Nfsstat4::Delay, 2),
        (Nfsstat4::Noent, Nfsstat4::Ok, 1),
    ] {
        for attempt in 0.. {
            // The OPENs; whether the CLOSE went along, and how often it was executed.
            let (opens, went, executed) = <(Arc<AtomicU32>, Arc<AtomicBool>, Arc<AtomicU32>)>::default();
            let closed = Arc::new(AtomicU32::new(0));
            let (count, along, done, others) =
                (opens.clone(), went.clone(), executed.clone(), closed.clone());
            let server = OddServer::new(move |request| match request.operation {
                Operation::Open => {
                    let number = count.fetch_add(1, SeqCst) as u8 + 1;
                    if number > CLOSED {
                        along.store(request.compound.contains(&Operation::Close), SeqCst);
                    }
                    match open {
                        refused if refused != Nfsstat4::Ok && number > CLOSED => {
                            ScriptedAnswer::Status(refused)
                        }
                        _ => ScriptedAnswer::Ok(opened([number; 16], None)),
                    }
                }
                Operation::Getfh if request.compound.contains(&Operation::Open) => {
                    let handle = vec![b'h'; count.load(SeqCst) as usize];
                    ScriptedAnswer::Ok(encoded(&Opaque::<128>(&handle)))
                }
                Operation::Getattr if request.compound.contains(&Operation::Open) => {
                    let requested = Decoder::new(request.args).get().unwrap();
                    ScriptedAnswer::Ok(attributes_of(&requested, 1))
                }
                Operation::Close if request.args[4..] == [CLOSED; 16] => match done.fetch_add(1, SeqCst) {
                    0 if close != Nfsstat4::Ok => ScriptedAnswer::Status(close),
                    _ => ScriptedAnswer::Ok(vec![CLOSED; 16]),
                },
                Operation::Close => {
                    others.fetch_add(1, SeqCst);
                    ScriptedAnswer::Ok(request.args[4..].to_vec())
                }
                _ => ScriptedAnswer::Good,
            });
            let session = server.session().await;
            let reading = OpenOptions::reading();
            drop(session.open(b"first", &reading).await.unwrap());
            wait_for("the first CLOSE", || closed.load(SeqCst) == 1).await;
            drop(session.open(b"second", &reading).await.unwrap());
            let third = session.open(b"third", &reading).await;
            assert_eq!(third.is_ok(), open == Nfsstat4::Ok);
            drop(third);
            wait_for("the CLOSEs", || executed.load(SeqCst) >= sent).await;
            // With the session's end everything has been sent.
            session.close().await;
            assert_eq!(closed.load(SeqCst), 1 + u32::from(open == Nfsstat4::Ok), "{open:?}, {close:?}");
            if went.load(SeqCst) {
                assert_eq!(executed.load(SeqCst), sent, "{open:?}, {close:?}");
                break;
            }
            assert!(attempt < ATTEMPTS, "{open:?}, {close:?}");
        }
    }
}

/// A server that calls back to no waiter, whether it has said that it may (`OPEN4_RESULT_MAY_NOTIFY_LOCK`) or
/// not, is asked until the lock is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lock_is_asked_for_again_without_a_notice() {
    // The flags of OPEN's result are behind the state id and the change of the directory.
    const FLAGS_END: usize = 39;
    const DENIALS: u32 = 4;
    for flags in [0, u8::try_from(RESULT_MAY_NOTIFY_LOCK).unwrap()] {
        let asked = Arc::new(AtomicU32::new(0));
        let asks = asked.clone();
        let server = OddServer::new(move |request| match request.operation {
            Operation::Open => {
                let mut result = opened(OPEN_ID, None);
                result[FLAGS_END] = flags;
                ScriptedAnswer::Ok(result)
            }
            Operation::Getattr if request.compound.contains(&Operation::Open) => {
                ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
            }
            Operation::Lock => {
                let args: Lock4Args<'_> = Decoder::new(request.args).get().unwrap();
                assert_eq!(args.locktype, NfsLockType4::Writew, "the server may queue the owner");
                if asks.fetch_add(1, SeqCst) >= DENIALS {
                    return ScriptedAnswer::Ok(LOCK_ID.to_vec());
                }
                let owner = StateOwner4 { clientid: 0, owner: Opaque(b"another") };
                let locktype = NfsLockType4::Write;
                let denied = Lock4Denied { offset: 0, length: u64::MAX, locktype, owner };
                ScriptedAnswer::Failed(Nfsstat4::Denied, encoded(&denied))
            }
            Operation::Locku => ScriptedAnswer::Ok(LOCK_ID.to_vec()),
            Operation::Close => ScriptedAnswer::Ok(request.args[4..].to_vec()),
            _ => ScriptedAnswer::Good,
        });
        let session = server.session().await;
        let options = OpenOptions::new().read(true).write(true);
        let file = session.open(b"file", &options).await.unwrap();
        let range = ByteRange { first: 0, last: u64::MAX };
        let request = LockRequest { owner: LockOwner(1), range, kind: LockKind::Write, waits: true };
        file.lock(request).await.unwrap();
        assert_eq!(asked.load(SeqCst), DENIALS + 1, "{flags}");
    }
}

/// IO_ADVISE (RFC 7862 section 15.5) says what posix_fadvise(2) would: the range, and one hint of
/// `IO_ADVISE_TYPE4`. A server may accept no hint, and may not have the operation at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn advice_is_sent_as_the_hint_of_its_name() {
    let hints = [
        (Advice::Normal, 0),
        (Advice::Sequential, 1),
        (Advice::Random, 3),
        (Advice::WillNeed, 4),
        (Advice::DontNeed, 6),
        (Advice::NoReuse, 7),
    ];
    for answer in [Nfsstat4::Ok, Nfsstat4::Notsupp] {
        let advised: Arc<Mutex<Vec<IoAdvise4Args>>> = Arc::default();
        let log = advised.clone();
        let server = OddServer::new(move |request| match request.operation {
            Operation::Open => ScriptedAnswer::Ok(opened(OPEN_ID, None)),
            Operation::Getattr if request.compound.contains(&Operation::Open) => {
                ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
            }
            Operation::IoAdvise => {
                log.lock().push(Decoder::new(request.args).get().unwrap());
                match answer {
                    Nfsstat4::Ok => ScriptedAnswer::Ok(encoded(&Bitmap4::EMPTY)),
                    refused => ScriptedAnswer::Status(refused),
                }
            }
            Operation::Close => ScriptedAnswer::Ok(request.args[4..].to_vec()),
            _ => ScriptedAnswer::Good,
        });
        let session = Session::connect(&server.url(), soft().version(Version::V4_2)).await.unwrap();
        let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
        for (advice, _) in hints {
            file.advise(advice, 4096, 1 << 20).await.unwrap();
        }
        let advised = advised.lock();
        let sent: Vec<_> = advised.iter().map(|args| (args.offset, args.count, args.hints)).collect();
        assert_eq!(sent, hints.map(|(_, hint)| (4096, 1 << 20, Bitmap4::of(&[hint]))), "{answer:?}");
        assert!(advised.iter().all(|args| args.stateid.other == OPEN_ID[4..]), "{advised:?}");
    }
}
