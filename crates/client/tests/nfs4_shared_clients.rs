//! Sessions of one process that share an NFSv4 client, those that don't, and another server at the address of
//! a client's.

mod support;

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use proto::nfs4::{
    EXCHGID_CONFIRMED_R, ExchangeId4Args, ExchangeId4ResOk, Lock4Args, Nfsstat4, Open4Args, OpenClaim4,
    Operation as Op, ServerOwner4,
};
use samehost_client as client;
use xdr::{Decoder, Encoder, Opaque};

use client::{
    ByteRange, Credential, File, LaneMode, LockKind, LockOwner, LockRequest, OpenOptions, Operation, Options,
    Session, Status, Url, Version,
};
use support::odd_v4::{OddServer, ScriptedAnswer, attributes_of, encoded, exchanged, opened, soft};
use support::{Served, another_client, wait_for};

const OWNER: LockOwner = LockOwner(1);

const fn exclusive(first: u64, last: u64) -> LockRequest {
    LockRequest { owner: OWNER, range: ByteRange { first, last }, kind: LockKind::Write, waits: false }
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

/// How often the server has executed an operation since its start.
fn executed(served: &Served, operation: &str) -> u64 {
    let status = server::status::query(&served.run_dir()).unwrap().pop().unwrap();
    let name = format!("NFS4.{operation}");
    status.counters.values().filter_map(|of| of.get(&name)).map(|procedure| procedure.ops).sum()
}

/// A server with a second export, and the options and sessions of one client: two of the first export, and
/// one of the second.
async fn sharing(served: &mut Served) -> (Options, [Session; 3]) {
    let (first, second) = (served.export(), served.export().with_file_name("second"));
    fs::create_dir(&second).unwrap();
    let lines = [(&first, 7), (&second, 8)].map(|(path, fsid)| {
        format!("{} *(rw,insecure,no_root_squash,no_tree,fsid={fsid})\n", path.display())
    });
    served.reload_lines(&lines.concat());
    let options = served.options(LaneMode::Off).version(Version::V4_2);
    let second = served.url().with_path(second.to_str().unwrap().as_bytes());
    let connect = |url| Session::connect(url, options.clone());
    let url = served.url();
    // At the same time.
    let (one, two, three) = tokio::join!(connect(&url), connect(&url), connect(&second));
    (options.clone(), [one.unwrap(), two.unwrap(), three.unwrap()])
}

#[tokio::test]
async fn sessions_are_one_client_and_keep_what_is_theirs() {
    let mut served = Served::wire_only();
    let (_, [one, two, three]) = sharing(&mut served).await;
    for operation in ["EXCHANGE_ID", "CREATE_SESSION"] {
        assert_eq!(executed(&served, operation), 1, "{operation}");
    }
    // What connected to find the server is closed.
    let connections = || server::status::query(&served.run_dir()).unwrap()[0].connections.len();
    wait_for("one connection", || connections() == 1).await;

    // Each counts its own.
    let counts = |session: &Session| {
        let counters = session.counters();
        (counters.calls(Operation::Getattr), counters.calls(Operation::Lock), counters.wire.round_trips)
    };
    let before = [&one, &two, &three].map(counts);
    two.attributes(&two.root()).await.unwrap();
    let after = [&one, &two, &three].map(counts);
    assert_eq!((after[0], after[2]), (before[0], before[2]));
    assert_eq!(after[1], (before[1].0 + 1, before[1].1, before[1].2 + 1));

    // The lock owners with one number are others in each, and so are the opens.
    let (mine, theirs, elsewhere) =
        (open(&one, b"file").await, open(&two, b"file").await, open(&three, b"f").await);
    mine.lock(exclusive(0, 4)).await.unwrap();
    assert!(is_locked(&theirs, exclusive(4, 9)).await);
    assert!(!is_locked(&theirs, exclusive(5, 9)).await);
    elsewhere.lock(exclusive(0, 9)).await.unwrap();
    let stranger = served.wire_by(Version::V4_2).await;
    let strange = open(&stranger, b"file").await;
    assert!(is_locked(&strange, exclusive(0, 0)).await && is_locked(&strange, exclusive(9, 9)).await);

    // The end of one is that of its locks.
    drop(theirs);
    two.close().await;
    assert!(!is_locked(&strange, exclusive(5, 9)).await);
    assert!(is_locked(&strange, exclusive(0, 0)).await);
    strange.unlock(OWNER, None).await.unwrap();
    assert_eq!(executed(&served, "DESTROY_CLIENTID"), 0);

    // All recover.
    served.kill();
    served.restart();
    mine.write_at(b"mine", 0).await.unwrap();
    elsewhere.write_at(b"mine", 0).await.unwrap();
    assert!(is_locked(&strange, exclusive(0, 0)).await);
    assert!(!is_locked(&strange, exclusive(5, 9)).await);
    mine.unlock(OWNER, None).await.unwrap();
    assert!(!is_locked(&strange, exclusive(0, 0)).await);

    // The client ends with the last one.
    drop(mine);
    one.close().await;
    assert_eq!(executed(&served, "DESTROY_CLIENTID"), 0);
    elsewhere.write_at(b"M", 0).await.unwrap();
    drop(elsewhere);
    three.close().await;
    assert_eq!((executed(&served, "DESTROY_SESSION"), executed(&served, "DESTROY_CLIENTID")), (1, 1));
}

/// A session that was dropped, without a word to the server, isn't waited for.
#[tokio::test]
async fn the_last_session_that_ends_ends_the_client() {
    let mut served = Served::wire_only();
    let (options, [one, two, three]) = sharing(&mut served).await;
    drop(one);
    three.close().await;
    assert_eq!(executed(&served, "DESTROY_CLIENTID"), 0);
    let mut file = Some(open(&two, b"file").await);
    two.close().await;
    assert_eq!(executed(&served, "DESTROY_CLIENTID"), 1);
    // Another session doesn't get what has ended, nor does that hold it up. The file goes on.
    let next = Session::connect(&served.url(), options).await.unwrap();
    file.as_ref().unwrap().write_at(b"on", 0).await.unwrap();
    let before = executed(&served, "EXCHANGE_ID");
    next.attributes(&next.root()).await.unwrap();
    file.take().unwrap().write_at(b"ON", 0).await.unwrap();
    next.attributes(&next.root()).await.unwrap();
    assert_eq!(executed(&served, "EXCHANGE_ID"), before, "two clients leave each other alone");
    next.close().await;
}

#[tokio::test]
async fn sessions_that_differ_are_clients_of_their_own() {
    let served = Served::with_lane();
    let options = served.options(LaneMode::Off).version(Version::V4_2);
    let user = Credential::Sys { uid: 1, gid: 1, groups: Vec::new() };
    let different = [
        options.clone(),
        options.clone().unique_id(another_client()),
        options.clone().credential(user),
        options.clone().hard(false),
        options.clone().timeo(Duration::from_secs(21)),
        options.clone().retrans(3),
        options.clone().nconnect(2),
        options.clone().version(Version::V4_1),
        options.clone().lane(LaneMode::Auto),
    ];
    let mut sessions = Vec::new();
    for options in &different {
        sessions.push(Session::connect(&served.url(), options.clone()).await.unwrap());
        assert_eq!(executed(&served, "CREATE_SESSION"), sessions.len() as u64);
    }
    // Connections end with their runtime.
    let url = served.url();
    let in_another_runtime = options.clone();
    let connected = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { drop(Session::connect(&url, in_another_runtime).await.unwrap()) });
    });
    connected.join().unwrap();
    assert_eq!(executed(&served, "CREATE_SESSION"), sessions.len() as u64 + 1);
    // What may differ.
    let alike = [options.clone().unstable_max(1 << 20), options.clone().version(Version::V4).rsize(4096)];
    for options in alike {
        sessions.push(Session::connect(&served.url(), options).await.unwrap());
        assert_eq!(executed(&served, "CREATE_SESSION"), different.len() as u64 + 1);
    }
    for session in &sessions {
        session.attributes(&session.root()).await.unwrap();
    }
}

/// One server at two addresses has two clients, whatever their options are: they neither share their state
/// nor end each other.
#[tokio::test]
async fn sessions_of_one_id_at_two_addresses_of_a_server_leave_each_other_their_state() {
    let mut served = Served::wire_only();
    served.listen_also(Ipv4Addr::new(127, 0, 0, 2));
    let options = served.options(LaneMode::Off).version(Version::V4_2);
    let user = Credential::Sys { uid: 1, gid: 1, groups: Vec::new() };
    let another_user = options.clone().credential(user);
    fs::write(served.export().join("file"), b"").unwrap();
    fs::set_permissions(served.export().join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut opened = Vec::new();
    for (host, options) in [("127.0.0.1", &options), ("127.0.0.2", &options), ("127.0.0.2", &another_user)] {
        let url = Url::new(host, Some(served.port()), served.export().to_str().unwrap().as_bytes());
        let session = Session::connect(&url, options.clone()).await.unwrap();
        let file = session.open(b"file", &OpenOptions::new().read(true).write(true)).await.unwrap();
        file.lock(exclusive(opened.len() as u64, opened.len() as u64)).await.unwrap();
        opened.push((session, file));
    }
    for is_restarted in [false, true] {
        if is_restarted {
            served.kill();
            served.restart();
        }
        for (number, (_, file)) in opened.iter().enumerate() {
            // The locks of all others are there, and this client's own.
            for other in 0..opened.len() {
                assert_eq!(is_locked(file, exclusive(other as u64, other as u64)).await, other != number);
            }
        }
        let exchanged = executed(&served, "EXCHANGE_ID");
        for (number, (session, file)) in opened.iter().chain(&opened).enumerate() {
            let before = session.counters().wire.round_trips;
            file.write_at(b"data", 4 * number as u64).await.unwrap();
            assert_eq!(session.counters().wire.round_trips, before + 1, "nothing was to be recovered");
        }
        assert_eq!(executed(&served, "EXCHANGE_ID"), exchanged);
    }
}

/// A server can say that it is another one. That doesn't get it the other's client, nor what that is known
/// by.
#[tokio::test]
async fn a_server_that_claims_to_be_another_learns_nothing_of_its_client() {
    let seen = [0, 1].map(|_| Arc::<Mutex<Vec<(Vec<u8>, [u8; 8])>>>::default());
    let servers = seen.clone().map(|seen| {
        OddServer::new(move |request| {
            if request.operation == Op::ExchangeId {
                let args: ExchangeId4Args<'_> = Decoder::new(request.args).get().unwrap();
                seen.lock().push((args.clientowner.ownerid.0.to_vec(), args.clientowner.verifier));
            }
            ScriptedAnswer::Good
        })
    });
    let options = soft().timeo(support::BOUND).unique_id(another_client());
    let mut sessions = Vec::new();
    for server in &servers {
        sessions.push(Session::connect(&server.url(), options.clone()).await.unwrap());
    }
    let [first, second] = seen.map(|seen| seen.lock().clone());
    assert_eq!((first.len(), second.len()), (1, 2));
    assert_eq!(first[0].0, second[0].0, "the same owner at another server");
    assert_ne!(first[0].0, second[1].0, "which it isn't, as it says");
    assert!(second.iter().all(|(_, verifier)| *verifier != first[0].1));
    for session in &sessions {
        session.attributes(&session.root()).await.unwrap();
    }
}

/// Each session with a lane has a call socket of its own, which the end of another's lane leaves alone.
#[tokio::test]
async fn lanes_of_sessions_with_one_client_are_apart() {
    let served = Served::with_lane();
    let options = served.options(LaneMode::Required).version(Version::V4_2);
    let one = Session::connect(&served.url(), options.clone()).await.unwrap();
    let two = Session::connect(&served.url(), options).await.unwrap();
    assert_eq!(executed(&served, "CREATE_SESSION"), 1);
    let local = |session: &Session| session.counters().events.lane_calls;
    for session in [&one, &two] {
        wait_for("calls on the call socket", || local(session) > 0 || session.lane().local).await;
    }
    one.set_lane_mode(LaneMode::Off);
    let before = (local(&one), local(&two));
    for session in [&one, &two] {
        session.attributes(&session.root()).await.unwrap();
    }
    assert_eq!((local(&one), local(&two)), (before.0, before.1 + 1));
    assert!(two.lane().local && !one.lane().local);
}

/// The state ids of the scripted server.
const OPEN_ID: [u8; 16] = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
const LOCK_ID: [u8; 16] = [0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2];

/// The client's session ends, and the server that answers then knows the client's id and says so. If it is
/// another one, state of the former one isn't believed, and not reclaimed in another scope (RFC 8881 sections
/// 2.10.5 and 8.4.2.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn another_server_at_the_same_address_has_none_of_the_state() {
    // Whether the server is replaced by one of another owner, and scope; then the reclaims of opens and
    // locks, whether the file is opened anew, and whether the lock is lost.
    for (owner, scope, reclaims, is_opened_again, is_lost) in [
        (&b"odd"[..], &b"odd"[..], (0, 0), false, false),
        (b"new", b"odd", (1, 1), false, false),
        (b"odd", b"new", (0, 0), true, true),
        (b"new", b"new", (0, 0), true, true),
    ] {
        let is_replaced = Arc::new(AtomicBool::new(false));
        let counts = Arc::<[AtomicU32; 3]>::default();
        let (replaced, counted, is_exchanged) = (is_replaced.clone(), counts.clone(), AtomicBool::new(false));
        let server = OddServer::new(move |request| {
            let is_new = is_exchanged.load(SeqCst);
            match request.operation {
                Op::Sequence if replaced.load(SeqCst) && !is_new => {
                    ScriptedAnswer::Status(Nfsstat4::Badsession)
                }
                Op::CreateSession if replaced.load(SeqCst) && !is_new => {
                    ScriptedAnswer::Status(Nfsstat4::StaleClientid)
                }
                Op::ExchangeId if replaced.load(SeqCst) => {
                    is_exchanged.store(true, SeqCst);
                    ScriptedAnswer::Ok(encoded(&ExchangeId4ResOk {
                        server_owner: ServerOwner4 { minor_id: 0, major_id: Opaque(owner) },
                        server_scope: Opaque(scope),
                        ..exchanged(1, EXCHGID_CONFIRMED_R)
                    }))
                }
                Op::Open => {
                    let args: Open4Args<'_> = Decoder::new(request.args).get().unwrap();
                    let is_reclaim = matches!(args.claim, OpenClaim4::Previous(_));
                    counted[if is_reclaim { 0 } else { 2 }].fetch_add(u32::from(is_new), SeqCst);
                    ScriptedAnswer::Ok(opened(OPEN_ID, None))
                }
                Op::Lock => {
                    let args: Lock4Args<'_> = Decoder::new(request.args).get().unwrap();
                    assert_eq!(args.reclaim, is_new, "a lost lock isn't taken again");
                    counted[1].fetch_add(u32::from(is_new), SeqCst);
                    ScriptedAnswer::Ok(LOCK_ID.to_vec())
                }
                Op::Getattr if request.compound.contains(&Op::Open) => {
                    let requested = Decoder::new(request.args).get().unwrap();
                    ScriptedAnswer::Ok(attributes_of(&requested, 1))
                }
                Op::Read => {
                    let mut to = Encoder::new();
                    to.bool(true);
                    to.opaque(b"data");
                    ScriptedAnswer::Ok(to.into_vec())
                }
                Op::Close => ScriptedAnswer::Ok(OPEN_ID.to_vec()),
                _ => ScriptedAnswer::Good,
            }
        });
        let session = Session::connect(&server.url(), soft().timeo(support::BOUND)).await.unwrap();
        let file = session.open(b"name", &OpenOptions::new().read(true).write(true)).await.unwrap();
        file.lock(exclusive(0, 9)).await.unwrap();
        is_replaced.store(true, SeqCst);
        session.attributes(&session.root()).await.unwrap();
        let read = file.read_into(Vec::new(), 0, 4).await;
        let of = format!("{:?} {:?}", String::from_utf8_lossy(owner), String::from_utf8_lossy(scope));
        match read {
            Ok(data) => assert!(!is_lost && data == b"data", "{of}"),
            Err(error) => assert!(is_lost && error.status() == Some(Status::Io), "{of}: {error}"),
        }
        let [opens, locks, others] = [0, 1, 2].map(|index| counts[index].load(SeqCst));
        assert_eq!((opens, locks), reclaims, "{of}");
        if is_opened_again {
            wait_for("an OPEN", || counts[2].load(SeqCst) == 1).await;
        } else {
            assert_eq!(others, 0, "{of}");
        }
    }
}
