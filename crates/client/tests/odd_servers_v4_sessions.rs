//! The sessions of the NFSv4.1 client with servers that are broken or hostile: every request has a result,
//! what a server makes the client do and hold is bounded, and so are its callbacks.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use proto::nfs4::attributes as number;
use proto::nfs4::{
    self, Bitmap4, ChannelAttrs4, CreateSession4Args, EXCHGID_CONFIRMED_R, Nfsstat4, Operation, Readdir4Args,
    Sequence4ResOk,
};
use samehost_client as client;
use xdr::{Decoder, Encoder};

use client::{Error, Session};
use support::odd_v4::{
    OddServer, Script, ScriptedAnswer, attributes, callback, callback_head, callback_status, created,
    encoded, exchanged, sequence, session_id, soft,
};
use support::{BOUND, wait_for};

fn is_timeout(error: &Error) -> bool {
    error.errno() == rustix::io::Errno::TIMEDOUT.raw_os_error()
}

/// SEQUENCE's result names the session, the slot and the sequence id of its request (RFC 8881 section
/// 18.46.3). Wrong ones, and results that can't be decoded, are errors of the request. They cost the session,
/// and never its slots: there are far more requests here than slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replies_of_other_slots_are_errors() {
    let fault = Arc::new(AtomicU32::new(0));
    let which = fault.clone();
    let server = OddServer::new(move |request| {
        if request.operation != Operation::Sequence
            || request.compound.get(1) == Some(&Operation::ReclaimComplete)
        {
            return ScriptedAnswer::Good;
        }
        let good = sequence(request.args);
        ScriptedAnswer::Ok(match which.load(SeqCst) {
            1 => encoded(&Sequence4ResOk { slotid: good.slotid + 1, ..good }),
            2 => encoded(&Sequence4ResOk { sequenceid: good.sequenceid + 1, ..good }),
            3 => encoded(&Sequence4ResOk { sessionid: session_id(u64::MAX), ..good }),
            4 => vec![1; 3],
            _ => encoded(&good),
        })
    });
    let session = server.session().await;
    let root = session.root();
    for kind in 1..=4 {
        fault.store(kind, SeqCst);
        for _ in 0..20 {
            let error = tokio::time::timeout(BOUND, session.attributes(&root)).await.expect("a result");
            let error = error.expect_err("the reply is wrong");
            assert!(matches!(error, Error::Protocol { .. }) || is_timeout(&error), "{kind}: {error}");
        }
        fault.store(0, SeqCst);
        let started = Instant::now();
        while let Err(error) = session.attributes(&root).await {
            assert!(started.elapsed() < BOUND, "{error}");
        }
    }
}

/// A server that establishes sessions and knows none of them is asked ever more rarely, and so is one whose
/// slots stay busy, whose connections are never bound, or that withdraws every slot. A soft session gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_that_are_never_executed_are_paced_and_end() {
    for status in [
        Nfsstat4::Badsession,
        Nfsstat4::Deadsession,
        Nfsstat4::ConnNotBoundToSession,
        Nfsstat4::Badslot,
        Nfsstat4::SeqMisordered,
        Nfsstat4::Delay,
        Nfsstat4::RetryUncachedRep,
    ] {
        let is_odd = Arc::new(AtomicBool::new(false));
        let odd = is_odd.clone();
        let server = OddServer::new(move |request| match request.is_ordinary_sequence() {
            true if odd.load(SeqCst) => ScriptedAnswer::Status(status),
            _ => ScriptedAnswer::Good,
        });
        let session = server.session().await;
        is_odd.store(true, SeqCst);
        let before = server.shared.compounds.load(SeqCst);
        let result = tokio::time::timeout(BOUND, session.attributes(&session.root())).await;
        let error = result.expect("an end").expect_err("it was never executed");
        assert!(is_timeout(&error), "{status:?}: {error}");
        // Pauses that double from 20 ms, and some requests for a new session between them.
        let count = server.shared.compounds.load(SeqCst) - before;
        assert!(count < 100, "{status:?}: {count} requests");
    }
}

/// So is a server that denies calls, which costs no slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn denied_calls_keep_no_slots() {
    let is_odd = Arc::new(AtomicBool::new(false));
    let odd = is_odd.clone();
    let server =
        OddServer::new(move |_| if odd.load(SeqCst) { ScriptedAnswer::Denied } else { ScriptedAnswer::Good });
    let session = server.session().await;
    is_odd.store(true, SeqCst);
    for _ in 0..200 {
        let result = tokio::time::timeout(BOUND, session.attributes(&session.root())).await;
        let error = result.expect("a result").expect_err("it is denied");
        assert_eq!(error.errno(), rustix::io::Errno::ACCESS.raw_os_error(), "{error}");
    }
    is_odd.store(false, SeqCst);
    session.attributes(&session.root()).await.unwrap();
    assert_eq!(server.shared.sequences.load(SeqCst), 0, "nothing is left to be settled");
}

/// Whatever a server grants, the client uses no more than it has asked for, and refuses what its requests
/// have no room in.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn absurd_channels_are_used_in_part_or_refused() {
    for (value, is_refused) in [(0, true), (7, true), (u32::MAX, false)] {
        let server = OddServer::new(move |request| match request.operation {
            Operation::CreateSession => {
                let args: CreateSession4Args<'_> = Decoder::new(request.args).get().unwrap();
                let fore = ChannelAttrs4 {
                    maxrequestsize: value,
                    maxresponsesize: value,
                    maxresponsesize_cached: value,
                    maxoperations: value,
                    maxrequests: value,
                    ..ChannelAttrs4::default()
                };
                ScriptedAnswer::Ok(encoded(&created(&args, 1, fore)))
            }
            Operation::Sequence => {
                let ok = sequence(request.args);
                let limits = Sequence4ResOk { highest_slotid: value, target_highest_slotid: value, ..ok };
                ScriptedAnswer::Ok(encoded(&limits))
            }
            _ => ScriptedAnswer::Good,
        });
        let connected = Session::connect(&server.url(), soft()).await;
        if is_refused {
            let error = connected.expect_err("no request has room");
            assert!(error.to_string().contains("its session permits too few operations"), "{error}");
            continue;
        }
        let session = connected.unwrap();
        let (read, write) = session.transfer_sizes();
        assert!(read <= 1 << 20 && write <= 1 << 20, "{read} {write}");
        let root = session.root();
        let all = (0..200).map(|_| session.attributes(&root));
        for result in futures_util::future::join_all(all).await {
            result.unwrap();
        }
    }
}

/// A slot table that shrinks to one slot and grows again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_single_slot_serves_every_request() {
    let highest = AtomicU32::new(0);
    let server = OddServer::new(move |request| match request.operation {
        Operation::CreateSession => {
            let args: CreateSession4Args<'_> = Decoder::new(request.args).get().unwrap();
            let fore = ChannelAttrs4 { maxrequests: 0, ..args.fore_chan_attrs.clone() };
            ScriptedAnswer::Ok(encoded(&created(&args, 1, fore)))
        }
        Operation::Sequence => {
            let ok = sequence(request.args);
            let highest_slotid = [0, u32::MAX, 1, 0][highest.fetch_add(1, SeqCst) as usize % 4];
            ScriptedAnswer::Ok(encoded(&Sequence4ResOk { highest_slotid, target_highest_slotid: 0, ..ok }))
        }
        _ => ScriptedAnswer::Good,
    });
    // The requests wait for each other.
    let session = Session::connect(&server.url(), soft().timeo(BOUND)).await.unwrap();
    let root = session.root();
    let all = (0..200).map(|_| session.attributes(&root));
    for result in tokio::time::timeout(BOUND, futures_util::future::join_all(all)).await.expect("results") {
        result.unwrap();
    }
}

/// The server may answer NFS4ERR_DELAY for ever, or give another client id every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_that_is_never_established_is_an_error() {
    let ids = AtomicU64::new(1);
    let scripts: Vec<Box<Script>> = vec![
        Box::new(|request| match request.operation {
            Operation::ExchangeId => ScriptedAnswer::Status(Nfsstat4::Delay),
            _ => ScriptedAnswer::Good,
        }),
        Box::new(|request| match request.operation {
            Operation::CreateSession => ScriptedAnswer::Status(Nfsstat4::Delay),
            _ => ScriptedAnswer::Good,
        }),
        Box::new(move |request| match request.operation {
            Operation::ExchangeId => {
                let id = ids.fetch_add(1, SeqCst);
                ScriptedAnswer::Ok(encoded(&exchanged(id, EXCHGID_CONFIRMED_R)))
            }
            Operation::CreateSession => ScriptedAnswer::Status(Nfsstat4::StaleClientid),
            _ => ScriptedAnswer::Good,
        }),
        Box::new(|request| match request.operation {
            Operation::ReclaimComplete => ScriptedAnswer::Status(Nfsstat4::Badsession),
            Operation::Sequence => ScriptedAnswer::Status(Nfsstat4::Badsession),
            _ => ScriptedAnswer::Good,
        }),
    ];
    for script in scripts {
        let server = OddServer::new(script);
        let options = soft().hard(true).attempt_timeout(Duration::from_secs(2));
        let error = Session::connect(&server.url(), options).await.expect_err("no session");
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
        let count = server.shared.compounds.load(SeqCst);
        assert!(count < 100, "{count} requests");
    }
}

/// A back channel that the server calls faulty is replaced with its session, and requests go on at once: the
/// lease of an hour is not what they wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_faulty_back_channel_delays_no_request() {
    let is_faulty = Arc::new(AtomicBool::new(false));
    let faulty = is_faulty.clone();
    let server = OddServer::new(move |request| match request.operation {
        // Once.
        Operation::Sequence if faulty.swap(false, SeqCst) => {
            let status_flags = nfs4::SEQ4_BACKCHANNEL_FAULT;
            ScriptedAnswer::Ok(encoded(&Sequence4ResOk { status_flags, ..sequence(request.args) }))
        }
        _ => ScriptedAnswer::Good,
    });
    let session = server.session().await;
    let root = session.root();
    is_faulty.store(true, SeqCst);
    session.attributes(&root).await.unwrap();
    wait_for("another session", || server.shared.sessions.load(SeqCst) == 2).await;
    for _ in 0..3 {
        tokio::time::timeout(BOUND, session.attributes(&root)).await.expect("a result").unwrap();
    }
}

/// A page is requested with the session's sizes, also while the session is being replaced.
/// The server ends the session between the SEQUENCE that says that its connection isn't bound and the
/// binding.
#[tokio::test]
async fn a_session_that_ends_before_it_is_bound_is_replaced() {
    let unbound = AtomicBool::new(false);
    let server = OddServer::new(move |request| match request.operation {
        Operation::Sequence if request.is_ordinary_sequence() && !unbound.swap(true, SeqCst) => {
            ScriptedAnswer::Status(Nfsstat4::ConnNotBoundToSession)
        }
        Operation::BindConnToSession => ScriptedAnswer::Status(Nfsstat4::Badsession),
        _ => ScriptedAnswer::Good,
    });
    let session = server.session().await;
    session.attributes(&session.root()).await.unwrap();
    assert_eq!(server.shared.sessions.load(SeqCst), 2);
}

#[tokio::test]
async fn a_listing_waits_for_another_session() {
    let (is_lost, may_create) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let (lost, may) = (is_lost.clone(), may_create.clone());
    let server = OddServer::new(move |request| match request.operation {
        Operation::Sequence if lost.load(SeqCst) && request.args[..16] == session_id(1) => {
            ScriptedAnswer::Status(Nfsstat4::Badsession)
        }
        Operation::CreateSession if !may.load(SeqCst) => ScriptedAnswer::Status(Nfsstat4::Delay),
        Operation::Readdir => {
            let args: Readdir4Args = Decoder::new(request.args).get().unwrap();
            if args.maxcount < 4096 {
                ScriptedAnswer::Status(Nfsstat4::Toosmall)
            } else {
                ScriptedAnswer::Good
            }
        }
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().timeo(BOUND)).await.unwrap();
    let root = session.root();
    may_create.store(false, SeqCst);
    is_lost.store(true, SeqCst);
    let before = server.shared.compounds.load(SeqCst);
    let (first, directory) = (session.clone(), root.clone());
    let first = tokio::spawn(async move { first.attributes(&directory).await });
    // The request that shows that the session is lost, and the first attempt to create another.
    wait_for("the session is lost", || server.shared.compounds.load(SeqCst) >= before + 2).await;
    // The runtime has one thread: the request is made before the session is.
    let page =
        tokio::spawn(
            async move { session.read_dir_page(&root, (0, [0; 8]), 1 << 16, client::Plus::None).await },
        );
    tokio::task::yield_now().await;
    may_create.store(true, SeqCst);
    first.await.unwrap().unwrap();
    page.await.unwrap().unwrap();
}

/// CB_RECALL_SLOT of all slots but the first.
const RECALL_SLOTS: [u32; 2] = [10, 0];

/// Callbacks of other sessions, slots and sequence ids, and with more operations than the back channel has.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callbacks_that_break_the_rules_are_refused() {
    let server = OddServer::new(|_| ScriptedAnswer::Good);
    let session = server.session().await;
    let own = session_id(1);
    for (operations, count, status) in [
        (callback(session_id(2), 1, 0, &[]), 1, Nfsstat4::Badsession),
        (callback(own, 2, 0, &[]), 1, Nfsstat4::SeqMisordered),
        (callback(own, u32::MAX, 3, &[]), 1, Nfsstat4::SeqMisordered),
        (callback(own, 1, 16, &[]), 1, Nfsstat4::Badslot),
        (callback(own, 1, u32::MAX, &[]), 1, Nfsstat4::Badslot),
        (callback(own, 1, 0, &RECALL_SLOTS.repeat(100)), 101, Nfsstat4::TooManyOps),
        (vec![0; 4], 1, Nfsstat4::OpNotInSession),
        (callback(own, 1, 0, &[0xffff_fff0]), 2, Nfsstat4::OpIllegal),
        (callback(own, 2, 0, &[]), 1, Nfsstat4::Ok),
    ] {
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &callback_head(count)));
        assert_eq!(callback_status(&reply), status as u32, "{status:?}");
        session.attributes(&session.root()).await.unwrap();
    }
}

/// Operations behind CB_SEQUENCE about what a client doesn't have, and numbers that its minor version doesn't
/// define. Each gets the error that RFC 8881 section 20 has for it, and ends the CB_COMPOUND: the slots
/// aren't recalled.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callbacks_about_what_the_client_does_not_have_are_refused() {
    use nfs4::{CB_GETATTR, CB_NOTIFY_LOCK, CB_OFFLOAD, CB_RECALL, CB_RECALL_ANY, CB_SEQUENCE, ILLEGAL};
    const LAYOUTRECALL: u32 = 5;
    let server = OddServer::new(|_| ScriptedAnswer::Good);
    let session = server.session().await;
    let cases: &[(&[u32], u32, Nfsstat4)] = &[
        // Layouts of one file, of a filesystem, and all.
        (&[LAYOUTRECALL, 1, 3, 0, 1, 4, 7, 0, 0, 0, 9, 1, 2, 3, 4], LAYOUTRECALL, Nfsstat4::NomatchingLayout),
        (&[LAYOUTRECALL, 1, 3, 0, 2, 0, 1, 0, 2], LAYOUTRECALL, Nfsstat4::NomatchingLayout),
        (&[LAYOUTRECALL, 1, 3, 1, 3], LAYOUTRECALL, Nfsstat4::NomatchingLayout),
        // CB_NOTIFY, CB_PUSH_DELEG, CB_RECALLABLE_OBJ_AVAIL, CB_WANTS_CANCELLED, CB_NOTIFY_DEVICEID.
        (&[6, 1, 2, 3, 4, 4, 7, 0], 6, Nfsstat4::Notsupp),
        (&[7, 4, 7, 0], 7, Nfsstat4::RejectDeleg),
        (&[9, 100, 1, 3], 9, Nfsstat4::Notsupp),
        (&[12, 1, 1], 12, Nfsstat4::Notsupp),
        (&[14, 1, 1, 2, 20, 1, 0, 0, 0, 0], 14, Nfsstat4::Notsupp),
        // A delegation and a file that the client doesn't know.
        (&[CB_RECALL, 1, 2, 3, 4, 0, 4, 7], CB_RECALL, Nfsstat4::BadStateid),
        (&[CB_GETATTR, 4, 7, 1, 24], CB_GETATTR, Nfsstat4::Badhandle),
        // Kinds of objects that aren't defined.
        (&[CB_RECALL_ANY, 0, 1, 1 << 5], CB_RECALL_ANY, Nfsstat4::Inval),
        (&[CB_RECALL_ANY, 0, 2, 3, 1 << 31], CB_RECALL_ANY, Nfsstat4::Inval),
        (&[CB_SEQUENCE, 0, 0, 0, 1, 1, 0, 0, 0, 0], CB_SEQUENCE, Nfsstat4::SequencePos),
        // NFSv4.1 has no CB_OFFLOAD.
        (&[CB_OFFLOAD, 4, 7, 1, 2, 3, 4, 1, 0, 0], ILLEGAL, Nfsstat4::OpIllegal),
        (&[2], ILLEGAL, Nfsstat4::OpIllegal),
        (&[16], ILLEGAL, Nfsstat4::OpIllegal),
        (&[ILLEGAL], ILLEGAL, Nfsstat4::OpIllegal),
    ];
    let mut sequence = 0;
    for (words, operation, status) in cases {
        sequence += 1;
        let operations = callback(session_id(1), sequence, 0, &[words, &RECALL_SLOTS[..]].concat());
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &callback_head(3)));
        assert_eq!(results_of(&reply), (*status as u32, vec![(*operation, *status as u32)]), "{words:?}");
    }
    // Layouts, which are defined, and a lock that none waits for: the operations that follow are done.
    let fine: [(&[u32], u32); 2] =
        [(&[CB_RECALL_ANY, 0, 1, 1 << 3], CB_RECALL_ANY), (&[CB_NOTIFY_LOCK, 4, 7, 0, 1, 0], CB_NOTIFY_LOCK)];
    for (words, operation) in fine {
        sequence += 1;
        let operations = callback(session_id(1), sequence, 0, &[words, &[CB_RECALL_ANY, 0, 0]].concat());
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &callback_head(3)));
        assert_eq!(results_of(&reply), (0, vec![(operation, 0), (CB_RECALL_ANY, 0)]), "{words:?}");
    }
    assert_eq!(server.shared.sequences.load(SeqCst), 0, "no slot was recalled");
    session.attributes(&session.root()).await.unwrap();
}

/// The status of a CB_COMPOUND, and the operations behind CB_SEQUENCE with theirs. They have no other
/// results here.
fn results_of(reply: &[u8]) -> (u32, Vec<(u32, u32)>) {
    let mut from = Decoder::new(reply);
    let head: nfs4::CbCompound4ResHead<'_> = from.get().unwrap();
    assert_eq!((from.u32().unwrap(), from.u32().unwrap()), (nfs4::CB_SEQUENCE, 0));
    let _: nfs4::CbSequence4ResOk = from.get().unwrap();
    let results = (1..head.results).map(|_| (from.u32().unwrap(), from.u32().unwrap())).collect();
    assert!(from.rest().is_empty(), "{reply:?}");
    (head.status, results)
}

/// Arguments that are cut off or too long are an error of their operation, which a retry gets again. A
/// CB_COMPOUND that ends in front of an operation isn't one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn malformed_callbacks_are_errors_of_their_operations() {
    let server = OddServer::new(|_| ScriptedAnswer::Good);
    let session = server.session().await;
    let cases: &[&[u32]] = &[
        &[nfs4::CB_RECALL],
        &[nfs4::CB_RECALL, 1, 2, 3, 4, 0, 4],
        &[nfs4::CB_RECALL, 1, 2, 3, 4, 0, 129],
        &[nfs4::CB_RECALL, 1, 2, 3, 4, 7, 4, 7],
        &[nfs4::CB_GETATTR, 4, 7, u32::MAX],
        &[nfs4::CB_RECALL_ANY, 0, 2, 3],
        &[nfs4::CB_NOTIFY_LOCK, 4, 7, 0, 1, 1025],
        &[RECALL_SLOTS[0]],
    ];
    for (words, sequence) in cases.iter().zip(1..) {
        let operations = callback(session_id(1), sequence, 0, words);
        let call_back = || server.call_back(&operations, &callback_head(2));
        let expected = (Nfsstat4::Badxdr as u32, vec![(words[0], Nfsstat4::Badxdr as u32)]);
        let reply = tokio::task::block_in_place(call_back);
        assert_eq!(results_of(&reply), expected, "{words:?}");
        assert_eq!(tokio::task::block_in_place(call_back), reply, "{words:?}: a retry");
    }
    let next = u32::try_from(cases.len()).unwrap() + 1;
    let empty = callback(session_id(1), next, 0, &[]);
    // GARBAGE_ARGS: nothing follows the RPC header.
    assert!(tokio::task::block_in_place(|| server.call_back(&empty, &callback_head(2))).is_empty());
    let operations = callback(session_id(1), next, 0, &[nfs4::CB_RECALL_ANY, 0, 0]);
    let reply = tokio::task::block_in_place(|| server.call_back(&operations, &callback_head(2)));
    assert_eq!(results_of(&reply), (0, vec![(nfs4::CB_RECALL_ANY, 0)]));
    session.attributes(&session.root()).await.unwrap();
}

/// A server recalls slots again and again, and answers none of the SEQUENCEs that tell it of the client's
/// compliance: there is one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_flood_of_recalled_slots_makes_one_request() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = is_silent.clone();
    let server = OddServer::new(move |request| match request.operation {
        Operation::Sequence if silent.load(SeqCst) => ScriptedAnswer::Silence,
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().timeo(BOUND)).await.unwrap();
    is_silent.store(true, SeqCst);
    for sequence in 1..=500 {
        let operations = callback(session_id(1), sequence, 0, &RECALL_SLOTS);
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &callback_head(2)));
        assert_eq!(callback_status(&reply), 0);
    }
    wait_for("a SEQUENCE", || server.shared.sequences.load(SeqCst) > 0).await;
    assert_eq!(server.shared.sequences.load(SeqCst), 1);
    drop(session);
}

/// The connection to a server that doesn't answer any more ends with the session, even while the client
/// renews its lease without a limit of time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_dropped_session_closes_its_connection() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = is_silent.clone();
    let server = OddServer::new(move |request| match request.operation {
        Operation::Sequence if silent.load(SeqCst) => ScriptedAnswer::Silence,
        Operation::Getattr => ScriptedAnswer::Ok(short_lease(request.args)),
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().hard(true)).await.unwrap();
    is_silent.store(true, SeqCst);
    let renewals = server.shared.sequences.load(SeqCst);
    wait_for("a renewal", || server.shared.sequences.load(SeqCst) > renewals).await;
    assert_eq!(server.shared.open_connections.load(SeqCst), 1);
    drop(session);
    wait_for("no connection", || server.shared.open_connections.load(SeqCst) == 0).await;
}

/// As [`attributes`], with a lease of no time.
fn short_lease(requested: &[u8]) -> Vec<u8> {
    let requested: Bitmap4 = Decoder::new(requested).get().unwrap();
    if !requested.contains(number::LEASE_TIME) {
        return attributes(&requested);
    }
    let mut to = Encoder::new();
    to.put(&Bitmap4::of(&[number::LEASE_TIME]));
    to.opaque(&[0; 4]);
    to.into_vec()
}
