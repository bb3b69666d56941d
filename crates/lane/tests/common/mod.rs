//! A server that grants the files of one directory, and a client without an NFS connection, for all tests of
//! this crate.
#![allow(dead_code)]

use lane::message::{self, LaneReply, LaneRequest, MAX_MESSAGE};
use lane::nonce::random_instance;
use lane::{
    Access, Bound, DirectoryChange, GrantAttributes, GrantService, Lane, LaneCredential, LaneLimits,
    LaneOptions, LaneServer, NewFile, NfsConnection, Nonce, NotLocal, OpenGrant, OpenRequest, OpenStatus,
    Rendezvous, RendezvousOptions, Target,
};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use samehost_lane as lane;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The NFS connection's client end that every lane is bound to here.
pub const NFS_PEER: &str = "192.0.2.7:1021";
/// An NFS connection from there.
pub fn nfs_connection(number: u64) -> NfsConnection {
    let peer: SocketAddr = NFS_PEER.parse().unwrap();
    NfsConnection { number, peer, share: fairness::Peer::remote(peer.ip()) }
}

/// Longer than any operation here takes.
pub const LONG: Duration = Duration::from_secs(60);

/// The most call sockets that the service opens.
pub const MAX_CALL_SOCKETS: usize = 100;

/// Serves the files of a directory; the handle of a file is its name.
pub struct Files {
    pub dir: PathBuf,
    /// Grants whose `held` has not been dropped.
    pub open: Arc<AtomicUsize>,
    /// Lanes whose clients sync for themselves.
    pub asynchronous: Arc<AtomicUsize>,
    /// The server's ends of the call sockets.
    pub call_sockets: Arc<Mutex<Vec<UnixStream>>>,
    /// Names that make the service panic or wait.
    pub gate: Option<Arc<std::sync::Barrier>>,
}

impl Files {
    pub fn new(dir: &Path) -> Self {
        let (open, asynchronous, call_sockets) = (Arc::default(), Arc::default(), Arc::default());
        Self { dir: dir.into(), open, asynchronous, call_sockets, gate: None }
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl GrantService for Files {
    fn open(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus> {
        assert_eq!(bound.nfs_peer, NFS_PEER.parse::<SocketAddr>().unwrap());
        let name = match request.target {
            Target::Handle(handle) | Target::Tree(handle) | Target::Mount(handle) => handle,
            Target::Entry { name, .. } | Target::New(NewFile { name, .. }) => name,
        };
        assert_ne!(name, b"panic", "a bug in the server");
        if name == b"gate"
            && let Some(gate) = &self.gate
        {
            gate.wait();
            gate.wait();
        }
        let name = std::str::from_utf8(name).map_err(|_| OpenStatus::BadHandle)?;
        let flags = match request.access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let made = match request.target {
            Target::New(new) => Some((OFlags::CREATE, Mode::from_raw_mode(new.mode))),
            _ => None,
        };
        let (create, mode) = made.unwrap_or((OFlags::empty(), Mode::empty()));
        let file = rustix::fs::open(self.dir.join(name), flags | create | OFlags::CLOEXEC, mode);
        let file = file.map_err(|_| OpenStatus::NotFound)?;
        self.open.fetch_add(1, SeqCst);
        Ok(OpenGrant {
            file,
            handle: name.into(),
            attributes: GrantAttributes {
                file: sys::Attributes { size: 5, uid: request.credential.uid, ..sys::Attributes::default() },
                modes: io::IoModes::default(),
            },
            lasts: true,
            directory: made
                .map(|_| Box::new(DirectoryChange { before: None, after: Some(sys::Attributes::default()) })),
            held: Some(Box::new(Counted(Arc::clone(&self.open)))),
        })
    }

    fn verifier(&self) -> [u8; 8] {
        *b"verifier"
    }

    fn call_socket(&self, bound: &Bound) -> Result<OwnedFd, OpenStatus> {
        assert_eq!(bound.nfs_peer, NFS_PEER.parse::<SocketAddr>().unwrap());
        let mut sockets = self.call_sockets.lock();
        if sockets.len() == MAX_CALL_SOCKETS {
            return Err(OpenStatus::TooMany);
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        sockets.push(ours);
        Ok(theirs.into())
    }

    fn async_from_now(&self, bound: &Bound) {
        assert_eq!(bound.nfs_peer, NFS_PEER.parse::<SocketAddr>().unwrap());
        self.asynchronous.fetch_add(1, SeqCst);
    }
}

/// A server in a run directory of its own, with one file `hello`.
pub struct World {
    pub dir: tempfile::TempDir,
    pub server: LaneServer,
    pub open: Arc<AtomicUsize>,
    pub asynchronous: Arc<AtomicUsize>,
    pub call_sockets: Arc<Mutex<Vec<UnixStream>>>,
    pub gate: Arc<std::sync::Barrier>,
    pub instance: [u8; 16],
    run_dir: Option<PathBuf>,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut LaneOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Processes of other users connect here in some tests.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self::within(dir, change)
    }

    pub fn within(dir: tempfile::TempDir, change: impl FnOnce(&mut LaneOptions)) -> Self {
        std::fs::write(dir.path().join("hello"), "hello").unwrap();
        let instance = random_instance().unwrap();
        let mut options = LaneOptions::new(dir.path().join("run"), instance);
        // Other tests' clients search the abstract names of the whole namespace: they would be counted here.
        options.abstract_socket = false;
        options.search_namespaces = false;
        change(&mut options);
        let run_dir = options.run_dir.clone();
        let gate = Arc::new(std::sync::Barrier::new(2));
        let files = Files { gate: Some(Arc::clone(&gate)), ..Files::new(dir.path()) };
        let (open, asynchronous) = (Arc::clone(&files.open), Arc::clone(&files.asynchronous));
        let call_sockets = Arc::clone(&files.call_sockets);
        let server = LaneServer::start(options, Arc::new(files)).unwrap();
        Self { dir, server, open, asynchronous, call_sockets, gate, instance, run_dir }
    }

    pub fn limits(change: impl FnOnce(&mut LaneLimits)) -> Self {
        Self::with(|options| change(&mut options.limits))
    }

    pub fn run_dir(&self) -> PathBuf {
        self.run_dir.clone().expect("a run directory")
    }

    pub fn socket_file(&self) -> PathBuf {
        self.run_dir().join(lane::run_dir::lane_name(&self.instance))
    }

    /// The effect of UUID_IS_LOCAL over the wire.
    pub fn nonce_arrives(&self, nonce: [u8; 16]) -> bool {
        self.nonce_arrives_over(1, nonce)
    }

    /// The same, over the NFS connection of this number.
    pub fn nonce_arrives_over(&self, connection: u64, nonce: [u8; 16]) -> bool {
        self.server.uuid_is_local(Nonce(nonce), nfs_connection(connection))
    }

    /// The whole handshake.
    pub async fn connect(&self) -> Lane {
        self.try_connect().await.unwrap()
    }

    /// The whole handshake, over the NFS connection of this number.
    pub async fn connect_over(&self, connection: u64) -> Lane {
        let candidates = Rendezvous::register(self.client_options()).await.unwrap();
        assert!(self.nonce_arrives_over(connection, candidates.nonce()));
        candidates.finish(Duration::ZERO).await.unwrap()
    }

    pub async fn try_connect(&self) -> Result<Lane, NotLocal> {
        let candidates = Rendezvous::register(self.client_options()).await.unwrap();
        self.nonce_arrives(candidates.nonce());
        candidates.finish(Duration::ZERO).await
    }

    /// Searches this world's run directory only.
    pub fn client_options(&self) -> RendezvousOptions {
        let mut options = RendezvousOptions::new(self.run_dir());
        options.search_namespaces = false;
        options
    }

    /// A connection on which the test sends messages itself.
    pub fn raw(&self) -> Raw {
        Raw::connect(&self.socket_file())
    }

    /// The handshake, message by message.
    pub fn raw_lane(&self) -> (Raw, OwnedFd) {
        let raw = self.raw();
        let nonce = Nonce::random().unwrap();
        raw.register(&nonce);
        assert!(self.nonce_arrives(nonce.0));
        let (bytes, fd) = raw.receive().expect("Local");
        assert!(
            matches!(message::decode(&bytes), Ok(LaneReply::Local { nonce: theirs, .. }) if theirs == nonce)
        );
        (raw, fd.expect("the interlock's memory"))
    }

    pub fn open_grants(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// Waits for an effect of another thread.
    pub fn wait_for(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A raw connection, without this crate's client.
pub struct Raw(pub OwnedFd);

fn open_request(serial: u32, name: &[u8], credential: LaneCredential) -> Vec<u8> {
    message::encode(&LaneRequest::Open {
        serial,
        releases: vec![],
        target: Target::Handle(name),
        access: Access::Read,
        credential,
    })
}

impl Raw {
    pub fn connect(path: &Path) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(LONG))
            .unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self(socket)
    }

    pub fn register(&self, nonce: &Nonce) {
        self.send(&message::encode(&LaneRequest::Register {
            lowest: 2,
            highest: 5,
            commitment: nonce.commitment(),
        }));
    }

    pub fn open(&self, serial: u32, name: &[u8]) {
        self.open_as(serial, name, LaneCredential::default());
    }

    pub fn open_as(&self, serial: u32, name: &[u8], credential: LaneCredential) {
        self.send(&open_request(serial, name, credential));
    }

    pub fn try_open_as(
        &self,
        serial: u32,
        name: &[u8],
        credential: LaneCredential,
    ) -> rustix::io::Result<usize> {
        self.try_send(&open_request(serial, name, credential), &[])
    }

    pub fn try_open(&self, serial: u32, name: &[u8]) -> rustix::io::Result<usize> {
        self.try_send(&open_request(serial, name, LaneCredential::default()), &[])
    }

    pub fn send(&self, bytes: &[u8]) {
        self.try_send(bytes, &[]).unwrap();
    }

    pub fn try_send(&self, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(rustix::net::SendAncillaryMessage::ScmRights(fds));
        }
        let flags = rustix::net::SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, &[std::io::IoSlice::new(bytes)], &mut control, flags)
    }

    /// The next datagram and its descriptor; `None` at the hang-up.
    pub fn receive(&self) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
        let iov = &mut [std::io::IoSliceMut::new(&mut bytes)];
        let length = match rustix::net::recvmsg(&self.0, iov, &mut control, flags) {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => panic!("nothing came: {error}"),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        assert!(fds.len() <= 1);
        bytes.truncate(length);
        (length > 0).then_some((bytes, fds.pop()))
    }

    /// Whether the server closes the connection (after any further messages).
    pub fn is_closed(&self) -> bool {
        while self.receive().is_some() {}
        true
    }
}

/// The credential of root's Opens.
pub fn root() -> LaneCredential {
    LaneCredential::default()
}

/// An Open for reading by name.
pub fn by_name<'a>(name: &'a [u8], credential: &'a LaneCredential) -> OpenRequest<'a> {
    OpenRequest { target: Target::Entry { directory: b"root", name }, access: Access::Read, credential }
}

/// The contents of an open file.
pub fn content(file: impl std::os::fd::AsFd) -> String {
    let mut bytes = [0; 64];
    let length = rustix::io::pread(file, &mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into()
}

/// A server that the test controls.
pub struct FakeServer {
    pub dir: tempfile::TempDir,
    pub listener: OwnedFd,
    pub instance: [u8; 16],
    pub path: PathBuf,
    /// The number of interlock slots that it announces.
    pub slots: u32,
    /// The version that it announces.
    pub version: u32,
}

impl FakeServer {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let instance = random_instance().unwrap();
        let path = dir.path().join(lane::run_dir::lane_name(&instance));
        let listener = lane::run_dir::listen(&path, 16).unwrap();
        Self { dir, listener, instance, path, slots: 0, version: 3 }
    }

    pub fn client_options(&self) -> RendezvousOptions {
        let mut options = RendezvousOptions::new(self.dir.path().into());
        options.search_namespaces = false;
        options
    }

    /// The next client that has connected.
    pub fn accept(&self) -> Raw {
        let raw = Raw(rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap());
        rustix::net::sockopt::set_socket_timeout(&raw.0, rustix::net::sockopt::Timeout::Recv, Some(LONG))
            .unwrap();
        raw
    }

    /// The Local that a true server would send.
    pub fn local(&self, nonce: [u8; 16]) -> Vec<u8> {
        message::encode(&LaneReply::Local {
            version: self.version,
            nonce: Nonce(nonce),
            instance: self.instance,
            grants: 100,
            outstanding: 4,
            slots: self.slots,
        })
    }

    /// A lane whose other end the test controls.
    pub async fn lane(&self) -> (Lane, Raw, sys::SharedMemory) {
        self.lane_with(self.client_options()).await
    }

    /// The same for a client with these options.
    pub async fn lane_with(&self, options: RendezvousOptions) -> (Lane, Raw, sys::SharedMemory) {
        let candidates = Rendezvous::register(options).await.unwrap();
        let raw = self.accept();
        let (bytes, _) = raw.receive().unwrap();
        assert!(matches!(message::decode(&bytes), Ok(LaneRequest::Register { .. })));
        let memory = memory();
        // Live, first generation.
        memory.wide(0).unwrap().store(1 << 2, SeqCst);
        raw.try_send(&self.local(candidates.nonce()), &[std::os::fd::AsFd::as_fd(&memory)]).unwrap();
        (candidates.finish(Duration::ZERO).await.unwrap(), raw, memory)
    }
}

/// An interlock's memory.
pub fn memory() -> sys::SharedMemory {
    sys::SharedMemory::create("test", sys::shared_memory::Layout { narrow: 0, wide: 512 }).unwrap()
}

/// Runs as another user: credentials belong to threads, and a socket remembers those of the thread that
/// connected.
pub fn as_user<T: Send + 'static>(
    uid: u32,
    gid: u32,
    groups: &'static [u32],
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    use rustix::process::{Gid, Uid};
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can act as another user: nothing tested");
        return None;
    }
    let thread = std::thread::spawn(move || {
        let groups: Vec<_> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&groups).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    });
    Some(thread.join().unwrap())
}
