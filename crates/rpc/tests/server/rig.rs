//! A programmable test program, and a client of raw bytes over TCP.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use samehost_rpc::{
    message::{CallHeader, Credential, ReplyHeader, ReplyStatus},
    server::{CallContext, CallError, Limits, PayloadFile, Peer, Program, Reply, Server},
};
use xdr::{Decoder, Encoder};

/// The test program's number. It has versions 2 and 3.
pub const PROGRAM: u32 = 400_999;

/// Longer than any operation here takes.
pub const SOON: Duration = Duration::from_secs(60);

/// Returns its argument, opaque data.
pub const ECHO: u32 = 1;
/// Waits until [`Obedient::open`] has opened the gate whose number is the argument, then returns that number.
pub const WAIT: u32 = 2;
/// As [`WAIT`], but announces that it will block.
pub const WAIT_ANNOUNCED: u32 = 3;
/// Panics.
pub const PANIC: u32 = 4;
/// Returns as many zero bytes as the argument requests.
pub const ZEROES: u32 = 5;
/// Opaque data of the file: (offset: u64, length: u32).
pub const FILE: u32 = 6;
/// As [`FILE`], and announces that it will block, so that another worker is the driver when it is sent.
pub const FILE_ANNOUNCED: u32 = 11;
/// Returns the caller's uid.
pub const WHO: u32 = 7;
/// Isn't answered.
pub const DROP: u32 = 8;
/// Isn't answered, and ends the connection.
pub const DISCONNECT: u32 = 10;
/// Returns the length of its argument, opaque data.
pub const LENGTH: u32 = 9;

/// The result of a postponed call.
pub const LATER: u32 = 10_008;

/// What [`FILE`] serves.
#[derive(Debug)]
struct ServedFile {
    file: OwnedFd,
    failures: AtomicUsize,
}

impl AsFd for ServedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl PayloadFile for ServedFile {
    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }
}

/// The program.
#[derive(Default)]
pub struct Obedient {
    gates: Mutex<HashMap<u32, bool>>,
    changed: Condvar,
    file: Option<Arc<ServedFile>>,
    closed: Mutex<Vec<u64>>,
}

impl Obedient {
    /// With a file for [`FILE`].
    pub fn serving(file: OwnedFd) -> Self {
        Self { file: Some(Arc::new(ServedFile { file, failures: AtomicUsize::new(0) })), ..Self::default() }
    }

    /// How often the file couldn't be read in the middle of a reply.
    pub fn failures(&self) -> usize {
        self.file.as_ref().unwrap().failures.load(Ordering::SeqCst)
    }

    /// Lets the calls that wait for `gate`, now or later, return.
    pub fn open(&self, gate: u32) {
        self.gates.lock().unwrap().insert(gate, true);
        self.changed.notify_all();
    }

    /// Waits until a call has come to `gate`.
    pub fn wait_for_caller(&self, gate: u32) {
        let gates = self.gates.lock().unwrap();
        let (_gates, out) =
            self.changed.wait_timeout_while(gates, SOON, |gates| !gates.contains_key(&gate)).unwrap();
        assert!(!out.timed_out(), "nobody has come to gate {gate}");
    }

    /// The number of gates that calls have reached.
    pub fn callers(&self) -> usize {
        self.gates.lock().unwrap().len()
    }

    /// Waits until the program was notified of `count` closed connections.
    pub fn wait_for_closed(&self, count: usize) {
        eventually("closed connections", || self.closed.lock().unwrap().len() == count);
    }

    fn pass(&self, gate: u32) {
        let mut gates = self.gates.lock().unwrap();
        gates.entry(gate).or_insert(false);
        self.changed.notify_all();
        drop(self.changed.wait_while(gates, |gates| !gates[&gate]).unwrap());
    }
}

impl Program for Obedient {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        2..=3
    }

    fn postpone(
        &self,
        _: &CallContext<'_>,
        _: u32,
        _: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        reply.encoder().u32(LATER);
        Ok(())
    }

    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        match procedure {
            ECHO => reply.encoder().opaque(args.opaque(8 << 20)?),
            WAIT | WAIT_ANNOUNCED => {
                let gate = args.u32()?;
                if procedure == WAIT_ANNOUNCED {
                    cx.will_block();
                }
                self.pass(gate);
                reply.encoder().u32(gate);
            }
            PANIC => panic!("as asked"),
            ZEROES => {
                let length = args.u32()? as usize;
                reply.encoder().opaque(&vec![0; length]);
            }
            FILE | FILE_ANNOUNCED => {
                let (offset, length) = (args.u64()?, args.u32()?);
                if procedure == FILE_ANNOUNCED {
                    cx.will_block();
                }
                reply.encoder().u32(length);
                let file = Arc::clone(self.file.as_ref().unwrap());
                reply.attach_file(file, offset, length);
            }
            WHO => match cx.credential {
                Credential::Sys(sys) => reply.encoder().u32(sys.uid),
                Credential::None => return Err(CallError::Denied(samehost_rpc::message::AuthStat::TooWeak)),
            },
            DROP => return Err(CallError::Drop),
            DISCONNECT => return Err(CallError::Disconnect),
            LENGTH => {
                let length = args.opaque(8 << 20)?.len();
                reply.encoder().length(length);
            }
            _ => return Err(CallError::ProcedureUnavailable),
        }
        Ok(())
    }

    fn closed(&self, peer: &Peer) {
        self.closed.lock().unwrap().push(peer.connection);
    }
}

/// A server with the program on a port of its own.
pub fn serve(limits: Limits) -> (Server, Arc<Obedient>, SocketAddr) {
    serve_program(limits, Obedient::default())
}

/// A server with `program` on a port of its own.
pub fn serve_program(limits: Limits, program: Obedient) -> (Server, Arc<Obedient>, SocketAddr) {
    let program = Arc::new(program);
    let server = Server::builder()
        .program(Arc::clone(&program) as Arc<dyn Program>)
        .limits(limits)
        .bind("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    let address = server.local_addrs()[0];
    (server, program, address)
}

/// Waits until `is_so`, for at most [`SOON`].
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client.
pub struct Wire(pub TcpStream);

impl Wire {
    /// Connects.
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    /// Connects as a process of this user would; the test runs as root.
    pub fn of_user(uid: u32, address: SocketAddr) -> Self {
        Self::of(uid, address, |_| {})
    }

    /// The same, with a small buffer for what comes back.
    pub fn narrow(uid: u32, address: SocketAddr) -> Self {
        Self::of(uid, address, |socket| {
            rustix::net::sockopt::set_socket_recv_buffer_size(socket, 64 << 10).unwrap();
        })
    }

    fn of(uid: u32, address: SocketAddr, prepare: impl FnOnce(&OwnedFd)) -> Self {
        use rustix::net::{AddressFamily, SocketType, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // A socket belongs to its creator, unless root changes that.
        rustix::fs::fchown(&socket, Some(rustix::fs::Uid::from_raw(uid)), None)
            .expect("this test needs root");
        prepare(&socket);
        connect(&socket, &address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next record, of one fragment.
    pub fn record(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).expect("a reply");
        let word = u32::from_be_bytes(mark);
        assert!(word & 0x8000_0000 != 0, "the server sends records of one fragment");
        let mut record = vec![0; (word & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut record).expect("a whole reply");
        record
    }

    /// The next reply: its number, its status, its results.
    pub fn reply(&mut self) -> (u32, ReplyStatus, Vec<u8>) {
        let record = self.record();
        let mut from = Decoder::new(&record);
        let header = ReplyHeader::decode(&mut from).unwrap();
        (header.xid, header.status, from.rest().to_vec())
    }

    /// The next `count` replies, by their numbers: one may overtake another.
    pub fn replies(&mut self, count: usize) -> Vec<(u32, ReplyStatus, Vec<u8>)> {
        let mut replies: Vec<_> = (0..count).map(|_| self.reply()).collect();
        replies.sort_by_key(|(xid, ..)| *xid);
        replies
    }

    /// The id and the results of the next reply, which is a success.
    pub fn results(&mut self) -> (u32, Vec<u8>) {
        let (xid, status, results) = self.reply();
        assert_eq!(status, ReplyStatus::Success);
        (xid, results)
    }

    /// Asserts that the server closes the connection without another byte.
    pub fn assert_closed(&mut self) {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => {}
            Ok(_) => panic!("a byte where the end was expected"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

/// A call as a record without its mark.
pub fn bare(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    bare_as(xid, procedure, &Credential::None, args)
}

/// A call with a credential.
pub fn bare_as(xid: u32, procedure: u32, credential: &Credential, args: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    CallHeader::encode(&mut to, xid, PROGRAM, 3, procedure, credential);
    to.raw(args);
    to.into_vec()
}

/// A record of one fragment.
pub fn marked(record: &[u8]) -> Vec<u8> {
    fragment(record, true)
}

/// A fragment.
pub fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
    let mark = u32::try_from(bytes.len()).unwrap() | if last { 0x8000_0000 } else { 0 };
    [&mark.to_be_bytes(), bytes].concat()
}

/// A call, ready to be sent.
pub fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    marked(&bare(xid, procedure, args))
}

/// Opaque data as XDR.
pub fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    to.opaque(bytes);
    to.into_vec()
}

/// A number as XDR.
pub fn word(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}
