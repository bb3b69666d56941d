//! Asynchronous copies on servers that are broken or hostile: callbacks that are lost, early, repeated or
//! for nobody, servers that lose copies, and callers that stop waiting. Every copy has an end.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};
use proto::nfs4::{CreateSession4Args, Nfsstat4, OffloadInfo4, Operation};
use samehost_client as client;
use xdr::Decoder;

use client::{Error, OpenOptions, Status, Version};
use support::copy_server::{CopyServer, LENGTH, TARGET, begun, copied, done, id, offload_head, status};
use support::odd_v4::{ScriptedAnswer, callback_status, created, encoded, exchanged, session_id, soft};
use support::{BOUND, wait_for};

/// No CB_OFFLOAD comes: the server is asked until it says that the copy is complete. It doesn't say whether
/// the data is durable, so it is committed. The copy's state id is given back.
#[tokio::test]
async fn a_lost_callback_is_asked_for() {
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => begun(id(1)),
        Operation::OffloadStatus if asked.statuses() == 1 => status(3 << 20, None),
        Operation::OffloadStatus => status(LENGTH, Some(Nfsstat4::Ok)),
        _ => ScriptedAnswer::Good,
    });
    assert_eq!(server.copy().await.unwrap(), LENGTH);
    assert_eq!((server.asked.statuses(), server.asked.commits.load(SeqCst)), (2, 1));
    server.wait_for_cancel(&[id(1)]).await;
}

/// The server doesn't answer the question, and calls back later.
#[tokio::test]
async fn a_callback_answers_a_question_that_is_not_answered() {
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => begun(id(1)),
        Operation::OffloadStatus => {
            asked.send(TARGET, id(1), done(LENGTH));
            ScriptedAnswer::Silence
        }
        _ => ScriptedAnswer::Good,
    });
    assert_eq!(server.copy().await.unwrap(), LENGTH);
    assert_eq!((server.asked.statuses(), server.asked.commits.load(SeqCst)), (1, 0), "it is durable");
}

/// CB_OFFLOAD overtakes COPY's reply. It comes again, for other files, and for copies that nobody waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn early_repeated_and_foreign_callbacks_are_told_apart() {
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => {
            asked.send(TARGET, id(1), done(LENGTH));
            asked.send(TARGET, id(1), done(0));
            asked.send(b"another file", id(1), done(LENGTH));
            asked.send(&[0; 128], id(1), OffloadInfo4::Failed(77_777, 0));
            begun(id(1))
        }
        _ => ScriptedAnswer::Good,
    });
    let replies = server.odd.shared.callback_replies();
    let (_session, from, to) = server.files().await;
    let copy = || from.copy_range(0, &to, 0, LENGTH);
    assert_eq!(tokio::time::timeout(BOUND, copy()).await.expect("an end").unwrap(), LENGTH);
    let statuses = tokio::task::block_in_place(|| {
        let next = || callback_status(&replies.recv_timeout(BOUND).expect("a reply"));
        [next(), next(), next(), next()]
    });
    let unknown = Nfsstat4::BadStateid as u32;
    assert_eq!(statuses, [0, 0, unknown, unknown]);
    assert_eq!((server.asked.statuses(), server.asked.commits.load(SeqCst)), (0, 0));
    let late = server.asked.cb_offload(TARGET, &[id(1)], &done(LENGTH));
    let late = tokio::task::block_in_place(|| server.odd.call_back(&late, &offload_head(&[id(1)])));
    assert_eq!(callback_status(&late), unknown, "nobody waits any more");
    assert_eq!(*server.asked.cancelled.lock(), [], "the server has forgotten the copy");
}

/// While a COPY is on its way, a server reports the ends of many copies. The client keeps some, and learns
/// the end of its own by asking.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_flood_of_early_callbacks_is_bounded() {
    const CALLBACKS: u8 = 20;
    /// The CB_OFFLOADs of a callback.
    const OFFLOADS: u8 = 7;
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => {
            for number in 0..CALLBACKS {
                let ids = (number * OFFLOADS..).map(id).take(OFFLOADS.into());
                asked.send_all(TARGET, &ids.collect::<Vec<_>>(), done(1));
            }
            begun(id(u8::MAX))
        }
        Operation::OffloadStatus => status(LENGTH, Some(Nfsstat4::Ok)),
        _ => ScriptedAnswer::Good,
    });
    let replies = server.odd.shared.callback_replies();
    assert_eq!(server.copy().await.unwrap(), LENGTH);
    let statuses: Vec<u32> = tokio::task::block_in_place(|| {
        let next = |_| callback_status(&replies.recv_timeout(BOUND).expect("a reply"));
        (0..CALLBACKS).map(next).collect()
    });
    let taken = client_state::MAX_EARLY_ENDS / usize::from(OFFLOADS);
    assert!(statuses[..taken].iter().all(|status| *status == 0), "{statuses:?}");
    assert!(statuses[taken..].iter().all(|status| *status == Nfsstat4::Delay as u32), "{statuses:?}");
}

/// NFS4ERR_OFFLOAD_NO_REQS: the server can copy in one way only, or not in order at all.
#[tokio::test]
async fn a_server_that_cannot_meet_a_requirement_is_asked_the_other_way() {
    for can_synchronous in [true, false] {
        let server = CopyServer::new(move |asked, request| match request.operation {
            Operation::Copy if can_synchronous && asked.copies.lock().last() == Some(&true) => copied(LENGTH),
            // `copy_requirements4`.
            Operation::Copy => ScriptedAnswer::Failed(Nfsstat4::OffloadNoReqs, vec![0; 8]),
            _ => ScriptedAnswer::Good,
        });
        let result = server.copy().await;
        if can_synchronous {
            assert_eq!(result.unwrap(), LENGTH);
        } else {
            assert_eq!(result.unwrap_err().status(), Some(Status::NotSupported));
        }
        assert_eq!(*server.asked.copies.lock(), [false, true]);
    }
}

/// A server that has lost a copy has copied what it said before, if its write verifier is the same.
/// Otherwise the copy is made again.
#[tokio::test]
async fn a_lost_copy_counts_as_far_as_it_survives() {
    for has_restarted in [false, true] {
        let server = CopyServer::new(move |asked, request| match request.operation {
            Operation::Copy if asked.copies() == 1 => begun(id(1)),
            Operation::Copy => copied(LENGTH),
            Operation::OffloadStatus if asked.statuses() == 1 => status(5 << 20, None),
            Operation::OffloadStatus => ScriptedAnswer::Status(Nfsstat4::BadStateid),
            Operation::Commit if has_restarted => ScriptedAnswer::Ok(b"restarts".to_vec()),
            _ => ScriptedAnswer::Good,
        });
        let count = server.copy().await.unwrap();
        assert_eq!(count, if has_restarted { LENGTH } else { 5 << 20 });
        assert_eq!(server.asked.copies(), if has_restarted { 2 } else { 1 });
        assert_eq!(server.asked.commits.load(SeqCst), 1);
        assert_eq!(*server.asked.cancelled.lock(), [], "there is nothing to cancel");
    }
}

/// A server that ends every copy before it has copied anything. That isn't the end of the source.
#[tokio::test]
async fn copies_that_copy_nothing_are_requested_again_for_a_while() {
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => {
            let id = id(asked.copies() as u8);
            asked.send(TARGET, id, done(0));
            begun(id)
        }
        _ => ScriptedAnswer::Good,
    });
    let error = server.copy().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    assert_eq!(*server.asked.copies.lock(), [false, false, false, true, true, true]);
}

/// The server loses the client id, and with it the copy. It may give the copy's state id to another one, so
/// that the client neither asks about it nor cancels it.
#[tokio::test]
async fn a_copy_ends_with_the_client_id_and_is_made_again() {
    let clients = AtomicU64::new(0);
    let has_restarted = AtomicBool::new(false);
    let server = CopyServer::new(move |asked, request| {
        let mut args = Decoder::new(request.args);
        match request.operation {
            Operation::ExchangeId => {
                ScriptedAnswer::Ok(encoded(&exchanged(clients.fetch_add(1, SeqCst) + 1, 0)))
            }
            Operation::CreateSession if has_restarted.load(SeqCst) => {
                let args: CreateSession4Args<'_> = args.get().unwrap();
                match args.clientid {
                    1 => ScriptedAnswer::Status(Nfsstat4::StaleClientid),
                    _ => ScriptedAnswer::Ok(encoded(&created(&args, 2, args.fore_chan_attrs.clone()))),
                }
            }
            Operation::Sequence if has_restarted.load(SeqCst) && request.args[..16] == session_id(1) => {
                ScriptedAnswer::Status(Nfsstat4::Badsession)
            }
            Operation::Copy if asked.copies() == 1 => {
                has_restarted.store(true, SeqCst);
                begun(id(1))
            }
            Operation::Copy => copied(LENGTH),
            _ => ScriptedAnswer::Good,
        }
    });
    assert_eq!(server.copy().await.unwrap(), LENGTH);
    assert_eq!((server.asked.copies(), server.asked.statuses()), (2, 0));
    assert_eq!(*server.asked.cancelled.lock(), []);
}

/// A caller that stops waiting: the copy is cancelled, also if that is before the reply to COPY.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_copy_that_nobody_waits_for_is_cancelled() {
    for before_the_reply in [false, true] {
        let gate = Arc::new((Mutex::new(!before_the_reply), Condvar::new()));
        let opened = gate.clone();
        let server = CopyServer::new(move |_, request| match request.operation {
            Operation::Copy => {
                let mut is_open = opened.0.lock();
                while !*is_open {
                    opened.1.wait(&mut is_open);
                }
                begun(id(7))
            }
            Operation::OffloadStatus => status(0, None),
            _ => ScriptedAnswer::Good,
        });
        let (_session, from, to) = server.files().await;
        let copy = tokio::spawn(async move { from.copy_range(0, &to, 0, LENGTH).await });
        wait_for("COPY", || server.asked.copies() == 1).await;
        if !before_the_reply {
            wait_for("OFFLOAD_STATUS", || server.asked.statuses() > 0).await;
        }
        copy.abort();
        assert!(copy.await.unwrap_err().is_cancelled());
        *gate.0.lock() = true;
        gate.1.notify_all();
        server.wait_for_cancel(&[id(7)]).await;
    }
}

/// A server delays OFFLOAD_CANCEL: it is sent again.
#[tokio::test]
async fn a_delayed_cancel_is_repeated() {
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => begun(id(1)),
        Operation::OffloadStatus => status(LENGTH, Some(Nfsstat4::Ok)),
        Operation::OffloadCancel if asked.cancelled.lock().len() < 3 => {
            ScriptedAnswer::Status(Nfsstat4::Delay)
        }
        _ => ScriptedAnswer::Good,
    });
    assert_eq!(server.copy().await.unwrap(), LENGTH);
    server.wait_for_cancel(&[id(1); 3]).await;
}

/// A copy that fails has the error of the server, or is short if something is copied.
#[tokio::test]
async fn a_failed_copy_is_short_or_an_error() {
    for part in [0, 1 << 20] {
        let server = CopyServer::new(move |asked, request| match request.operation {
            Operation::Copy => {
                asked.send(TARGET, id(1), OffloadInfo4::Failed(Nfsstat4::Nospc as u32, part));
                begun(id(1))
            }
            _ => ScriptedAnswer::Good,
        });
        match server.copy().await {
            Ok(count) => assert_eq!((count, server.asked.commits.load(SeqCst)), (part, 1)),
            Err(error) => assert_eq!((error.status(), part), (Some(Status::NoSpace), 0)),
        }
    }
}

/// A server that has copied more than was requested, and one that gives its state id to two copies.
#[tokio::test]
async fn senseless_results_are_errors() {
    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => {
            asked.send(TARGET, id(1), done(LENGTH + 1));
            begun(id(1))
        }
        _ => ScriptedAnswer::Good,
    });
    let error = server.copy().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");

    let server = CopyServer::new(|asked, request| match request.operation {
        Operation::Copy => begun(id(1)),
        Operation::OffloadStatus if asked.copies() == 2 => status(LENGTH, Some(Nfsstat4::Ok)),
        Operation::OffloadStatus => status(0, None),
        _ => ScriptedAnswer::Good,
    });
    let (session, from, to) = server.files().await;
    let other = session.open(b"to", &OpenOptions::new().write(true)).await.unwrap();
    let first = tokio::spawn({
        let from = from.clone();
        async move { from.copy_range(0, &to, 0, LENGTH).await }
    });
    wait_for("the first copy", || server.asked.statuses() > 0).await;
    let second = from.copy_range(0, &other, LENGTH, LENGTH);
    let second = tokio::time::timeout(BOUND, second).await.expect("an end");
    assert!(matches!(second, Err(Error::Protocol { .. })), "{second:?}");
    let first = tokio::time::timeout(BOUND, first).await.expect("an end");
    assert_eq!(first.unwrap().unwrap(), LENGTH);
}

/// In a soft session a copy that makes no progress fails, as a call that isn't answered, and is cancelled.
#[tokio::test]
async fn a_soft_session_gives_up_on_a_copy_without_progress() {
    let server = CopyServer::new(|_, request| match request.operation {
        Operation::Copy => begun(id(1)),
        Operation::OffloadStatus => status(1 << 20, None),
        _ => ScriptedAnswer::Good,
    });
    let (_session, from, to) = server.files_by(soft().version(Version::V4_2)).await;
    let copy = tokio::time::timeout(BOUND, from.copy_range(0, &to, 0, LENGTH)).await.expect("an end");
    let error = copy.unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::TIMEDOUT.raw_os_error(), "{error}");
    server.wait_for_cancel(&[id(1)]).await;
}
