//! An NFSv4.1 server whose results of some operations a test scripts.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    self, Bitmap4, CbCompound4Head, CbSequence4Args, ChannelAttrs4, Copy4Args, CreateSession4Args,
    CreateSession4ResOk, ExchangeId4Args, ExchangeId4ResOk, Fattr4, IoAdvise4Args, Lock4Args, Locku4Args,
    Nfsstat4, Open4Args, Operation, Readdir4Args, Sequence4Args, Sequence4ResOk, ServerOwner4, Sessionid4,
    Setattr4Args, StateProtect4R, TestStateid4Args,
};
use rpc::message::{CallHeader, Credential};
use samehost_client::{Options, Session, Url, Version};
use xdr::{Array, Decoder, Encoder, Opaque};

use super::BOUND;

/// The timeout of a soft session.
pub const SOFT: Duration = Duration::from_secs(1);

pub const HANDLE: &[u8] = b"a handle";

/// An operation of a COMPOUND.
pub struct CompoundRequest<'a> {
    pub operation: Operation,
    /// All operations of the COMPOUND.
    pub compound: &'a [Operation],
    /// The arguments.
    pub args: &'a [u8],
}

impl CompoundRequest<'_> {
    /// Whether it is the SEQUENCE of a COMPOUND of an ordinary request.
    pub fn is_ordinary_sequence(&self) -> bool {
        self.operation == Operation::Sequence
            && self.compound.get(1).is_some_and(|second| *second != Operation::ReclaimComplete)
    }
}

/// What a script answers.
pub enum ScriptedAnswer {
    /// The result of a server without faults.
    Good,
    /// An error.
    Status(Nfsstat4),
    /// An error, with this result.
    Failed(Nfsstat4, Vec<u8>),
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

pub type Script = dyn Fn(&CompoundRequest<'_>) -> ScriptedAnswer + Send + Sync;

pub fn words(to: &mut Encoder, words: &[u32]) {
    words.iter().for_each(|word| to.u32(*word));
}

/// A result as bytes.
pub fn encoded(value: &impl xdr::Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

/// A server whose results are scripted.
pub struct OddServer {
    port: u16,
    pub shared: Arc<OddServerState>,
}

pub struct OddServerState {
    script: Box<Script>,
    pub sessions: AtomicU64,
    pub compounds: AtomicU64,
    /// COMPOUNDs of SEQUENCE alone.
    pub sequences: AtomicU64,
    /// Calls of MOUNT, which isn't served.
    pub mounts: AtomicU64,
    connections: Mutex<Vec<Arc<Mutex<TcpStream>>>>,
    pub open_connections: AtomicU32,
    callback_replies: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    destroyed: Mutex<HashSet<Sessionid4>>,
}

impl OddServer {
    pub fn new(script: impl Fn(&CompoundRequest<'_>) -> ScriptedAnswer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(OddServerState {
            script: Box::new(script),
            sessions: AtomicU64::new(0),
            compounds: AtomicU64::new(0),
            sequences: AtomicU64::new(0),
            mounts: AtomicU64::new(0),
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

    pub fn url(&self) -> Url {
        Url::new("127.0.0.1", Some(self.port), b"/")
    }

    /// A soft session.
    pub async fn session(&self) -> Session {
        Session::connect(&self.url(), soft()).await.unwrap()
    }

    /// Sends CB_COMPOUND on the last connection, and returns the reply behind the RPC header.
    pub fn call_back(&self, operations: &[u8], head: &CbCompound4Head<'_>) -> Vec<u8> {
        let told = self.shared.callback_replies();
        self.shared.send_callback(operations, head);
        told.recv_timeout(BOUND).expect("an answer to a callback")
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
pub fn soft() -> Options {
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
    /// The replies to callbacks from now on, behind their RPC headers.
    pub fn callback_replies(&self) -> mpsc::Receiver<Vec<u8>> {
        let (tell, told) = mpsc::channel();
        *self.callback_replies.lock() = Some(tell);
        told
    }

    /// Sends CB_COMPOUND on the last connection.
    pub fn send_callback(&self, operations: &[u8], head: &CbCompound4Head<'_>) {
        let mut to = Encoder::new();
        CallHeader::encode(&mut to, 77, 0x4000_0000, 1, 1, &Credential::None);
        to.put(head);
        to.raw(operations);
        let connection = self.connections.lock().last().cloned().expect("a connection");
        send_record(&mut connection.lock(), to.as_slice()).expect("a callback is sent");
    }

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
                self.mounts.fetch_add(u64::from(header.program == proto::mount3::PROGRAM), SeqCst);
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
                ScriptedAnswer::Failed(status, body) => (status, body),
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
            Operation::Commit => vec![0; 8],
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
        Operation::Putfh | Operation::Lookup | Operation::Remove => drop(from.opaque(1024).unwrap()),
        Operation::Verify | Operation::Nverify => drop(from.get::<Fattr4<'_>>().unwrap()),
        Operation::Getattr => drop(from.get::<Bitmap4>().unwrap()),
        Operation::Readdir => drop(from.get::<Readdir4Args>().unwrap()),
        Operation::Open => drop(from.get::<Open4Args<'_>>().unwrap()),
        Operation::Close => drop(from.fixed::<20>().unwrap()),
        Operation::OpenDowngrade => drop(from.fixed::<28>().unwrap()),
        Operation::Delegreturn => drop(from.fixed::<16>().unwrap()),
        Operation::Lock => drop(from.get::<Lock4Args<'_>>().unwrap()),
        Operation::Locku => drop(from.get::<Locku4Args>().unwrap()),
        Operation::Read => drop(from.fixed::<28>().unwrap()),
        Operation::Write => {
            from.fixed::<28>().unwrap();
            from.opaque(1 << 20).unwrap();
        }
        Operation::Setattr => drop(from.get::<Setattr4Args<'_>>().unwrap()),
        Operation::FreeStateid | Operation::OffloadStatus | Operation::OffloadCancel => {
            from.fixed::<16>().unwrap();
        }
        Operation::Commit => drop(from.fixed::<12>().unwrap()),
        Operation::IoAdvise => drop(from.get::<IoAdvise4Args>().unwrap()),
        Operation::Copy => drop(from.get::<Copy4Args<'_>>().unwrap()),
        Operation::TestStateid => drop(from.get::<TestStateid4Args>().unwrap()),
        Operation::Putrootfh | Operation::Getfh | Operation::Lookupp | Operation::Savefh => {}
        other => panic!("no test sends {other:?}"),
    }
}

/// The operations of a callback in `session`: CB_SEQUENCE, and these.
pub fn callback(session: Sessionid4, sequenceid: u32, slotid: u32, operations: &[u32]) -> Vec<u8> {
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

/// The head of a CB_COMPOUND with so many operations.
pub fn callback_head(operations: u32) -> CbCompound4Head<'static> {
    CbCompound4Head { tag: Opaque(b""), minor: 1, callback_ident: 0, operations }
}

/// The status of a CB_COMPOUND.
pub fn callback_status(reply: &[u8]) -> u32 {
    Decoder::new(reply).u32().unwrap()
}

pub fn exchanged(clientid: u64, flags: u32) -> ExchangeId4ResOk<'static> {
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

pub fn session_id(number: u64) -> Sessionid4 {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    id
}

pub fn created(
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

/// The result of OPEN: a state id, and perhaps a read delegation.
pub fn opened(id: [u8; 16], delegation: Option<[u8; 16]>) -> Vec<u8> {
    let mut to = result_of_open(id);
    match delegation {
        None => to.u32(0),
        Some(id) => {
            to.u32(1);
            to.raw(&id);
            // It isn't recalled; the permissions are an ACE that says nothing.
            words(&mut to, &[0, 0, 0, 0, 0]);
        }
    }
    to.into_vec()
}

/// The result of OPEN with a write delegation.
pub fn opened_for_writing(id: [u8; 16], delegation: [u8; 16]) -> Vec<u8> {
    let mut to = result_of_open(id);
    to.u32(2);
    to.raw(&delegation);
    // As in `opened`, with a limit of the file's size.
    words(&mut to, &[0, 1, u32::MAX, u32::MAX, 0, 0, 0, 0]);
    to.into_vec()
}

/// The result of OPEN in front of the delegation.
fn result_of_open(id: [u8; 16]) -> Encoder {
    let mut to = Encoder::new();
    to.raw(&id);
    // change_info4, rflags, attrset.
    words(&mut to, &[1, 0, 1, 0, 2, 0, 0]);
    to
}

/// The result of SEQUENCE for these arguments.
pub fn sequence(args: &[u8]) -> Sequence4ResOk {
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
pub fn attributes(requested: &Bitmap4) -> Vec<u8> {
    attributes_of(requested, 2)
}

/// The attributes of a file of a type (`nfs_ftype4`) that are requested.
pub fn attributes_of(requested: &Bitmap4, kind: u32) -> Vec<u8> {
    let (mut mask, mut values) = (Bitmap4::EMPTY, Encoder::new());
    for attribute in requested.iter() {
        match attribute {
            number::TYPE => values.u32(kind),
            number::CHANGE | number::SIZE | number::FILEID | number::SPACE_USED => values.u64(7),
            number::MAXREAD | number::MAXWRITE => values.u64(u64::MAX),
            number::FSID => values.fixed(&[0; 16]),
            number::RAWDEV => values.fixed(&[0; 8]),
            number::LEASE_TIME => values.u32(3600),
            number::SUPPORTED_ATTRS | number::SUPPATTR_EXCLCREAT => {
                values.put(&Bitmap4::of(&[number::MODE_UMASK]));
            }
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
pub fn page(entries: &[(&[u8], u64)], eof: bool) -> Vec<u8> {
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
