//! The NFSv4.1 client against servers that are broken or hostile: every request has a result, and what a
//! server makes the client do and hold is bounded. Each test scripts the results of some operations.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    self, Bitmap4, CbCompound4Head, CbSequence4Args, ChannelAttrs4, CreateSession4Args, CreateSession4ResOk,
    EXCHGID_CONFIRMED_R, ExchangeId4Args, ExchangeId4ResOk, Nfsstat4, Open4Args, Operation, Readdir4Args,
    Sequence4Args, Sequence4ResOk, ServerOwner4, Sessionid4, StateProtect4R, TestStateid4Args,
};
use rpc::message::{CallHeader, Credential};
use samehost_client as client;
use xdr::{Array, Decoder, Encoder, Opaque};

use client::{Error, OpenOptions, Options, Session, Url, Version};

/// The time limit of every wait in these tests.
const BOUND: Duration = Duration::from_secs(60);

/// The timeout of a soft session.
const SOFT: Duration = Duration::from_secs(1);

const HANDLE: &[u8] = b"a handle";

/// An operation of a COMPOUND.
struct CompoundRequest<'a> {
    operation: Operation,
    /// All operations of the COMPOUND.
    compound: &'a [Operation],
    /// The arguments.
    args: &'a [u8],
}

impl CompoundRequest<'_> {
    /// Whether it is the SEQUENCE of a COMPOUND of an ordinary request.
    fn is_ordinary_sequence(&self) -> bool {
        self.operation == Operation::Sequence
            && self.compound.get(1).is_some_and(|second| *second != Operation::ReclaimComplete)
    }
}

/// What a script answers.
enum ScriptedAnswer {
    /// The result of a server without faults.
    Good,
    /// An error.
    Status(Nfsstat4),
    /// Success, with this result.
    Ok(Vec<u8>),
    /// The call is denied.
    Denied,
    /// No reply at all.
    Silence,
}

/// Why a COMPOUND has no results.
enum NoReply {
    Denied,
    Silence,
}

type Script = dyn Fn(&CompoundRequest<'_>) -> ScriptedAnswer + Send + Sync;

fn words(to: &mut Encoder, words: &[u32]) {
    words.iter().for_each(|word| to.u32(*word));
}

/// A result as bytes.
fn encoded(value: &impl xdr::Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

struct OddServer {
    port: u16,
    shared: Arc<OddServerState>,
}

struct OddServerState {
    script: Box<Script>,
    sessions: AtomicU64,
    compounds: AtomicU64,
    /// COMPOUNDs of SEQUENCE alone.
    sequences: AtomicU64,
    connections: Mutex<Vec<Arc<Mutex<TcpStream>>>>,
    open_connections: AtomicU32,
    callback_replies: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    destroyed: Mutex<HashSet<Sessionid4>>,
}

impl OddServer {
    fn new(script: impl Fn(&CompoundRequest<'_>) -> ScriptedAnswer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(OddServerState {
            script: Box::new(script),
            sessions: AtomicU64::new(0),
            compounds: AtomicU64::new(0),
            sequences: AtomicU64::new(0),
            connections: Mutex::new(Vec::new()),
            open_connections: AtomicU32::new(0),
            callback_replies: Mutex::new(None),
            destroyed: Mutex::new(HashSet::new()),
        });
        let server = shared.clone();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                server.open_connections.fetch_add(1, SeqCst);
                let to = Arc::new(Mutex::new(connection.try_clone().unwrap()));
                server.connections.lock().push(to.clone());
                std::thread::spawn(move || {
                    let _ = server.serve(connection, &to);
                    server.open_connections.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { port, shared }
    }

    fn url(&self) -> Url {
        Url::new("127.0.0.1", Some(self.port), b"/")
    }

    /// A soft session.
    async fn session(&self) -> Session {
        Session::connect(&self.url(), soft()).await.unwrap()
    }

    /// Sends CB_COMPOUND on the last connection, and returns the reply behind the RPC header.
    fn call_back(&self, operations: &[u8], head: &CbCompound4Head<'_>) -> Vec<u8> {
        let (tell, told) = mpsc::channel();
        *self.shared.callback_replies.lock() = Some(tell);
        self.send_callback(operations, head);
        told.recv_timeout(BOUND).expect("an answer to a callback")
    }

    fn send_callback(&self, operations: &[u8], head: &CbCompound4Head<'_>) {
        let mut to = Encoder::new();
        CallHeader::encode(&mut to, 77, 0x4000_0000, 1, 1, &Credential::None);
        to.put(head);
        to.raw(operations);
        let connection = self.shared.connections.lock().last().cloned().expect("a connection");
        send_record(&mut connection.lock(), to.as_slice()).expect("a callback is sent");
    }
}

impl Drop for OddServer {
    fn drop(&mut self) {
        for connection in self.shared.connections.lock().drain(..) {
            let _ = connection.lock().shutdown(Shutdown::Both);
        }
    }
}

/// The options of a session that fails after [`SOFT`].
fn soft() -> Options {
    Options::new()
        .version(Version::V4_1)
        .hard(false)
        .timeo(SOFT)
        .retrans(0)
        .search_namespaces(false)
        .run_dir("/nonexistent")
}

fn send_record(to: &mut TcpStream, record: &[u8]) -> std::io::Result<()> {
    let mut bytes = (record.len() as u32 | 1 << 31).to_be_bytes().to_vec();
    bytes.extend_from_slice(record);
    to.write_all(&bytes)
}

impl OddServerState {
    fn serve(&self, mut from: TcpStream, to: &Mutex<TcpStream>) -> std::io::Result<()> {
        loop {
            let mut mark = [0; 4];
            from.read_exact(&mut mark)?;
            let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
            from.read_exact(&mut record)?;
            let mut call = Decoder::new(&record);
            let head = call.fixed::<8>().unwrap();
            if head[7] == 1 {
                // A reply to a callback: its accepted status follows an empty verifier.
                let told = self.callback_replies.lock().clone();
                let _ = told.map(|told| told.send(record[24..].to_vec()));
                continue;
            }
            let mut call = Decoder::new(&record);
            let header = CallHeader::decode(&mut call).unwrap();
            let mut reply = Encoder::new();
            words(&mut reply, &[header.xid, 1]);
            if header.program != nfs4::PROGRAM {
                // PROG_UNAVAIL.
                words(&mut reply, &[0, 0, 0, 1]);
            } else {
                match self.compound(&mut call) {
                    Ok(results) => {
                        words(&mut reply, &[0, 0, 0, 0]);
                        reply.raw(&results);
                    }
                    // MSG_DENIED, AUTH_ERROR, AUTH_REJECTEDCRED.
                    Err(NoReply::Denied) => words(&mut reply, &[1, 1, 2]),
                    Err(NoReply::Silence) => continue,
                }
            }
            send_record(&mut to.lock(), reply.as_slice())?;
        }
    }

    /// The results of a COMPOUND.
    fn compound(&self, from: &mut Decoder<'_>) -> Result<Vec<u8>, NoReply> {
        self.compounds.fetch_add(1, SeqCst);
        from.opaque(1024).unwrap();
        let (_minor, count) = (from.u32().unwrap(), from.u32().unwrap());
        let mut operations = Vec::new();
        for _ in 0..count {
            let operation = Operation::from_number(from.u32().unwrap()).unwrap();
            let args = from.rest();
            skip_args(operation, from);
            operations.push((operation, &args[..args.len() - from.rest().len()]));
        }
        let names: Vec<Operation> = operations.iter().map(|(operation, _)| *operation).collect();
        if names == [Operation::Sequence] {
            self.sequences.fetch_add(1, SeqCst);
        }
        let (mut results, mut status, mut done) = (Encoder::new(), Nfsstat4::Ok, 0);
        for (operation, args) in operations {
            let request = CompoundRequest { operation, compound: &names, args };
            let is_destroyed =
                operation == Operation::Sequence && self.destroyed.lock().contains(&args[..16]);
            let answer = (self.script)(&request);
            let (of, body) = match answer {
                _ if is_destroyed => (Nfsstat4::Badsession, Vec::new()),
                ScriptedAnswer::Good => (Nfsstat4::Ok, self.good(&request)),
                ScriptedAnswer::Ok(body) => (Nfsstat4::Ok, body),
                ScriptedAnswer::Status(status) => (status, Vec::new()),
                ScriptedAnswer::Denied => return Err(NoReply::Denied),
                ScriptedAnswer::Silence => return Err(NoReply::Silence),
            };
            results.u32(operation.number());
            results.put(&of);
            results.raw(&body);
            (status, done) = (of, done + 1);
            if status != Nfsstat4::Ok {
                break;
            }
        }
        let mut to = Encoder::new();
        to.put(&status);
        to.opaque(b"");
        to.u32(done);
        to.raw(results.as_slice());
        Ok(to.into_vec())
    }

    /// The result of a server without faults, which has one directory.
    fn good(&self, request: &CompoundRequest<'_>) -> Vec<u8> {
        let mut args = Decoder::new(request.args);
        match request.operation {
            Operation::ExchangeId => encoded(&exchanged(1, 0)),
            Operation::CreateSession => {
                let args: CreateSession4Args<'_> = args.get().unwrap();
                encoded(&created(&args, self.sessions.fetch_add(1, SeqCst) + 1, args.fore_chan_attrs.clone()))
            }
            Operation::Sequence => encoded(&sequence(request.args)),
            Operation::BindConnToSession => {
                let mut to = Encoder::new();
                to.raw(&request.args[..16]);
                words(&mut to, &[3, 0]);
                to.into_vec()
            }
            Operation::DestroySession => {
                self.destroyed.lock().insert(args.fixed().unwrap());
                Vec::new()
            }
            Operation::Getfh => encoded(&Opaque::<128>(HANDLE)),
            Operation::Getattr => attributes(&args.get().unwrap()),
            Operation::Access => [request.args, request.args].concat(),
            Operation::Readdir => page(&[], true),
            _ => Vec::new(),
        }
    }
}

/// Skips the arguments of an operation.
fn skip_args(operation: Operation, from: &mut Decoder<'_>) {
    match operation {
        Operation::ExchangeId => drop(from.get::<ExchangeId4Args<'_>>().unwrap()),
        Operation::CreateSession => drop(from.get::<CreateSession4Args<'_>>().unwrap()),
        Operation::Sequence => drop(from.get::<Sequence4Args>().unwrap()),
        Operation::BindConnToSession => drop(from.fixed::<24>().unwrap()),
        Operation::DestroySession => drop(from.fixed::<16>().unwrap()),
        Operation::DestroyClientid => drop(from.u64().unwrap()),
        Operation::ReclaimComplete | Operation::Access => drop(from.u32().unwrap()),
        Operation::Putfh | Operation::Lookup => drop(from.opaque(1024).unwrap()),
        Operation::Getattr => drop(from.get::<Bitmap4>().unwrap()),
        Operation::Readdir => drop(from.get::<Readdir4Args>().unwrap()),
        Operation::Open => drop(from.get::<Open4Args<'_>>().unwrap()),
        Operation::Close => drop(from.fixed::<20>().unwrap()),
        Operation::Read => drop(from.fixed::<28>().unwrap()),
        Operation::FreeStateid => drop(from.fixed::<16>().unwrap()),
        Operation::TestStateid => drop(from.get::<TestStateid4Args>().unwrap()),
        Operation::Putrootfh | Operation::Getfh | Operation::Lookupp => {}
        other => panic!("no test sends {other:?}"),
    }
}

fn exchanged(clientid: u64, flags: u32) -> ExchangeId4ResOk<'static> {
    ExchangeId4ResOk {
        clientid,
        sequenceid: 1,
        flags,
        state_protect: StateProtect4R::None,
        server_owner: ServerOwner4 { minor_id: 0, major_id: Opaque(b"odd") },
        server_scope: Opaque(b"odd"),
        server_impl_id: Array(Vec::new()),
    }
}

fn session_id(number: u64) -> Sessionid4 {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    id
}

fn created(
    args: &CreateSession4Args<'_>,
    number: u64,
    fore_chan_attrs: ChannelAttrs4,
) -> CreateSession4ResOk {
    CreateSession4ResOk {
        sessionid: session_id(number),
        sequence: args.sequence,
        flags: args.flags,
        fore_chan_attrs,
        back_chan_attrs: args.back_chan_attrs.clone(),
    }
}

/// The result of SEQUENCE for these arguments.
fn sequence(args: &[u8]) -> Sequence4ResOk {
    let args: Sequence4Args = Decoder::new(args).get().unwrap();
    Sequence4ResOk {
        sessionid: args.sessionid,
        sequenceid: args.sequenceid,
        slotid: args.slotid,
        highest_slotid: 15,
        target_highest_slotid: 15,
        status_flags: 0,
    }
}

/// The attributes of the directory that are requested.
fn attributes(requested: &Bitmap4) -> Vec<u8> {
    attributes_of(requested, 2)
}

/// The attributes of a file of a type (`nfs_ftype4`) that are requested.
fn attributes_of(requested: &Bitmap4, kind: u32) -> Vec<u8> {
    let (mut mask, mut values) = (Bitmap4::EMPTY, Encoder::new());
    for attribute in requested.iter() {
        match attribute {
            number::TYPE => values.u32(kind),
            number::CHANGE | number::SIZE | number::FILEID | number::SPACE_USED => values.u64(7),
            number::MAXREAD | number::MAXWRITE => values.u64(u64::MAX),
            number::FSID => values.fixed(&[0; 16]),
            number::RAWDEV => values.fixed(&[0; 8]),
            number::LEASE_TIME => values.u32(3600),
            number::MODE => values.u32(0o755),
            number::NUMLINKS => values.u32(2),
            number::OWNER | number::OWNER_GROUP => values.opaque(b"0"),
            number::TIME_ACCESS | number::TIME_METADATA | number::TIME_MODIFY => {
                values.u64(i64::MIN.cast_unsigned());
                values.u32(u32::MAX);
            }
            _ => continue,
        }
        mask.insert(attribute);
    }
    let mut to = Encoder::new();
    to.put(&mask);
    to.opaque(values.as_slice());
    to.into_vec()
}

/// A page of these names with their cookies, each with the same handle and no other attribute.
fn page(entries: &[(&[u8], u64)], eof: bool) -> Vec<u8> {
    let mut to = Encoder::new();
    to.u64(0);
    for (name, cookie) in entries {
        to.bool(true);
        to.u64(*cookie);
        to.opaque(name);
        to.put(&Bitmap4::of(&[number::FILEHANDLE]));
        to.opaque(&encoded(&Opaque::<128>(b"")));
    }
    to.bool(false);
    to.bool(eof);
    to.into_vec()
}

/// Waits for a condition.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < BOUND, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

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
    until("another session", || server.shared.sessions.load(SeqCst) == 2).await;
    for _ in 0..3 {
        tokio::time::timeout(BOUND, session.attributes(&root)).await.expect("a result").unwrap();
    }
}

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
    let list = || tokio::time::timeout(BOUND, session.read_dir(&session.root(), true).collect());
    let all = list().await.expect("an end").unwrap();
    let names: Vec<&[u8]> = all.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(names, [b"good"]);
    for bad in 1..=8 {
        kind.store(bad, SeqCst);
        let error = list().await.expect("an end").expect_err("a bad listing");
        assert!(matches!(error, Error::Protocol { .. }), "{bad}: {error}");
    }
}

/// A page is requested with the session's sizes, also while the session is being replaced.
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
    until("the session is lost", || server.shared.compounds.load(SeqCst) >= before + 2).await;
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

/// The operations behind CB_SEQUENCE in `session`.
fn callback(session: Sessionid4, sequenceid: u32, slotid: u32, operations: &[u32]) -> Vec<u8> {
    let mut to = Encoder::new();
    to.u32(nfs4::CB_SEQUENCE);
    to.put(&CbSequence4Args {
        sessionid: session,
        sequenceid,
        slotid,
        highest_slotid: slotid,
        cachethis: false,
        referring_call_lists: Array(Vec::new()),
    });
    words(&mut to, operations);
    to.into_vec()
}

/// CB_RECALL_SLOT of all slots but the first.
const RECALL_SLOTS: [u32; 2] = [10, 0];

fn head(operations: u32) -> CbCompound4Head<'static> {
    CbCompound4Head { tag: Opaque(b""), minor: 1, callback_ident: 0, operations }
}

/// The status of a CB_COMPOUND.
fn status_of(reply: &[u8]) -> u32 {
    Decoder::new(reply).u32().unwrap()
}

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
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &head(count)));
        assert_eq!(status_of(&reply), status as u32, "{status:?}");
        session.attributes(&session.root()).await.unwrap();
    }
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
        let reply = tokio::task::block_in_place(|| server.call_back(&operations, &head(2)));
        assert_eq!(status_of(&reply), 0);
    }
    until("a SEQUENCE", || server.shared.sequences.load(SeqCst) > 0).await;
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
    until("a renewal", || server.shared.sequences.load(SeqCst) > renewals).await;
    assert_eq!(server.shared.open_connections.load(SeqCst), 1);
    drop(session);
    until("no connection", || server.shared.open_connections.load(SeqCst) == 0).await;
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

/// The reply to an OPEN that succeeded has no handle, or no attributes. The file is found by its name, used,
/// and closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_are_opened_without_a_handle_are_closed() {
    const ID: [u8; 16] = [0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    for failing in [Operation::Getfh, Operation::Getattr] {
        for create in [false, true] {
            let (opened, closed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let (opens, closes) = (opened.clone(), closed.clone());
            let server = OddServer::new(move |request| match request.operation {
                Operation::Open => {
                    opens.fetch_add(1, SeqCst);
                    let mut to = Encoder::new();
                    to.raw(&ID);
                    // change_info4, rflags, attrset, OPEN_DELEGATE_NONE.
                    words(&mut to, &[1, 0, 1, 0, 2, 0, 0, 0]);
                    ScriptedAnswer::Ok(to.into_vec())
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
            until("a CLOSE", || closed.load(SeqCst) == 1).await;
            assert_eq!(opened.load(SeqCst), 1, "{failing:?}");
        }
    }
}

/// An administrator has revoked the open of one file (NFS4ERR_ADMIN_REVOKED), and the server doesn't let it
/// be opened again. Its reads and writes fail with EIO; another file's go on, and so does the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_open_that_is_revoked_costs_its_file_only() {
    /// The open state ids of the two files.
    const IDS: [[u8; 16]; 2] = [[1; 16], [2; 16]];
    const ADMIN_STATE_REVOKED: u32 = 0x20;
    let (is_revoked, freed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (opened, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (revoked, frees, opens, refusals) =
        (is_revoked.clone(), freed.clone(), opened.clone(), refused.clone());
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
                let mut to = Encoder::new();
                to.raw(&IDS[opens.fetch_add(1, SeqCst) as usize]);
                words(&mut to, &[1, 0, 1, 0, 2, 0, 0, 0]);
                ScriptedAnswer::Ok(to.into_vec())
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
    until("FREE_STATEID", || freed.load(SeqCst) > 0).await;
    assert_eq!(refused.load(SeqCst), 1, "it is opened again once");
    let sessions = server.shared.sessions.load(SeqCst);
    assert_eq!(read(&two).await.unwrap(), b"data");
    drop((one, two));
    session.close().await;
    assert_eq!(server.shared.sessions.load(SeqCst), sessions, "the session is the same");
}
