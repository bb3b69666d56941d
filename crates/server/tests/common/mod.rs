//! A server on a scratch directory, and a raw client: RPC records over one TCP connection.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses its part")]

pub mod called;
pub mod disk;
pub mod gateways;
pub mod local;
pub mod manager;
pub mod users;
pub mod v4;
pub mod v40;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proto::mount3::{self, Mountres3};
use proto::nfs3::{self, Procedure};
use rpc::message::{AuthSys, CallHeader, Credential, ReplyHeader, ReplyStatus};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use samehost_server::{Config, Server};
use xdr::{Decode, Decoder, Encode, Encoder, Opaque};

/// The bound of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A scratch directory with everything a server needs.
pub struct Scratch {
    pub dir: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("export")).unwrap();
        // All users can reach the export, and squashed clients can write to it.
        for (path, mode) in [("", 0o755), ("export", 0o777)] {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(dir.path().join(path), permissions).unwrap();
        }
        Self { dir }
    }

    /// The exported directory.
    pub fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// A path inside the exported directory.
    pub fn at(&self, name: &str) -> PathBuf {
        self.export().join(name)
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn config(&self, clients: &str) -> Config {
        Config {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            exports: vec![format!("{} {clients}", self.export().display())],
            run_dir: self.run_dir(),
            state_dir: Some(self.dir.path().join("state")),
            rpcbind: false,
            threads: 4,
            ..Config::default()
        }
    }

    pub fn serve(&self, clients: &str) -> Server {
        Server::start(self.config(clients)).unwrap()
    }
}

/// A server that gives all hosts access as any user.
pub fn open_server() -> (Scratch, Server, Client) {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash,async)");
    let client = Client::new(&server);
    (scratch, server, client)
}

pub fn address(server: &Server) -> SocketAddr {
    server.local_addrs()[0]
}

pub fn sys(uid: u32, gid: u32, gids: &[u32]) -> Credential {
    Credential::Sys(AuthSys { stamp: 1, machine_name: b"test".to_vec(), uid, gid, gids: gids.to_vec() })
}

/// Results of a call, without the header.
pub struct Results(pub Vec<u8>);

impl Results {
    /// Decodes all of it.
    pub fn get<'a, R: Decode<'a>>(&'a self) -> R {
        let mut from = Decoder::new(&self.0);
        let value = from.get().unwrap();
        from.finish().unwrap();
        value
    }

    /// The status word.
    pub fn status(&self) -> u32 {
        u32::from_be_bytes(self.0[..4].try_into().unwrap())
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    pub credential: Credential,
    pub xid: u32,
}

impl Client {
    pub fn new(server: &Server) -> Self {
        Self::from(server, [127, 0, 0, 1].into(), 0)
    }

    /// Connects from an address and port of this host.
    pub fn from(server: &Server, source: IpAddr, port: u16) -> Self {
        Self::try_from(server, source, port).unwrap()
    }

    /// Connects to an address.
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, credential: sys(0, 0, &[]), xid: 1000 }
    }

    /// As [`Client::from`], where the port may be in use.
    pub fn try_from(server: &Server, source: IpAddr, port: u16) -> std::io::Result<Self> {
        let IpAddr::V4(source) = source else { panic!("IPv4 here") };
        let fd: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &SocketAddrV4::new(source, port))?;
        connect(&fd, &address(server))?;
        let stream = TcpStream::from(fd);
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, credential: sys(0, 0, &[]), xid: 1000 })
    }

    pub fn with_user(mut self, uid: u32, gid: u32, gids: &[u32]) -> Self {
        self.credential = sys(uid, gid, gids);
        self
    }

    /// A call as a record.
    pub fn record(&self, program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let mut to = Encoder::new();
        to.u32(0);
        CallHeader::encode(&mut to, self.xid, program, version, procedure, &self.credential);
        to.raw(args);
        let mark = rpc::record::mark(to.position() - 4).unwrap();
        to.patch_u32(0, mark);
        to.into_vec()
    }

    /// Receives one record.
    pub fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let start = record.len();
            record.resize(start + (mark & 0x7fff_ffff) as usize, 0);
            self.stream.read_exact(&mut record[start..])?;
            if mark >> 31 == 1 {
                return Ok(record);
            }
        }
    }

    /// Sends a call and receives its reply: the status and the results.
    pub fn raw(&mut self, program: u32, version: u32, procedure: u32, args: &[u8]) -> (ReplyStatus, Results) {
        self.xid += 1;
        let record = self.record(program, version, procedure, args);
        self.stream.write_all(&record).unwrap();
        let reply = self.receive().unwrap();
        let mut from = Decoder::new(&reply);
        let header = ReplyHeader::decode(&mut from).unwrap();
        assert_eq!(header.xid, self.xid);
        (header.status, Results(from.rest().to_vec()))
    }

    pub fn nfs(&mut self, procedure: Procedure, args: &impl Encode) -> Results {
        let (status, results) = self.raw(nfs3::PROGRAM, 3, procedure.number(), &encoded(args));
        assert_eq!(status, ReplyStatus::Success, "{procedure}");
        results
    }

    pub fn mount(&mut self, procedure: mount3::Procedure, args: &impl Encode) -> Results {
        let (status, results) = self.raw(mount3::PROGRAM, 3, procedure.number(), &encoded(args));
        assert_eq!(status, ReplyStatus::Success, "{procedure}");
        results
    }

    /// MNT.
    pub fn mnt(&mut self, path: &Path) -> Result<Vec<u8>, mount3::Mountstat3> {
        use std::os::unix::ffi::OsStrExt as _;
        let path: mount3::Dirpath<'_> = Opaque(path.as_os_str().as_bytes());
        match self.mount(mount3::Procedure::Mnt, &path).get::<Mountres3<'_>>() {
            Mountres3::Ok(ok) => Ok(ok.fhandle.0.to_vec()),
            Mountres3::Fail(status) => Err(status),
        }
    }

    /// LOOKUP of an existing name.
    pub fn lookup(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let args = nfs3::Lookup3Args { what: what(dir, name.as_bytes()) };
        let results = self.nfs(Procedure::Lookup, &args);
        match results.get::<nfs3::Lookup3Res<'_>>() {
            nfs3::Outcome::Ok(ok) => ok.object.0.to_vec(),
            nfs3::Outcome::Fail(status, _) => panic!("{name}: {status:?}"),
        }
    }

    /// GETATTR of an existing file.
    pub fn getattr(&mut self, handle: &[u8]) -> nfs3::Fattr3 {
        let results = self.nfs(Procedure::Getattr, &nfs3::Getattr3Args { object: Opaque(handle) });
        results.get::<nfs3::Getattr3Res>().into_result().unwrap()
    }

    /// ACCESS: the granted ones of the `wanted` rights.
    pub fn access(&mut self, file: &[u8], wanted: u32) -> u32 {
        let args = nfs3::Access3Args { object: Opaque(file), access: wanted };
        match self.nfs(Procedure::Access, &args).get::<nfs3::Access3Res>() {
            nfs3::Outcome::Ok(found) => found.access,
            nfs3::Outcome::Fail(status, _) => panic!("{status:?}"),
        }
    }

    pub fn create(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, nfs3::Nfsstat3> {
        let how = nfs3::Createhow3::Unchecked(nfs3::Sattr3 { mode: Some(0o644), ..Default::default() });
        self.create_how(dir, name, how)
    }

    pub fn create_how(
        &mut self,
        dir: &[u8],
        name: &str,
        how: nfs3::Createhow3,
    ) -> Result<Vec<u8>, nfs3::Nfsstat3> {
        let args = nfs3::Create3Args { where_: what(dir, name.as_bytes()), how };
        let results = self.nfs(Procedure::Create, &args);
        match results.get::<nfs3::Create3Res<'_>>() {
            nfs3::Outcome::Ok(ok) => Ok(ok.obj.unwrap().0.to_vec()),
            nfs3::Outcome::Fail(status, _) => Err(status),
        }
    }

    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> nfs3::Write3Res {
        let args = nfs3::Write3Args {
            file: Opaque(file),
            offset,
            count: u32::try_from(data.len()).unwrap(),
            stable: nfs3::StableHow::Unstable,
            data: Opaque(data),
        };
        self.nfs(Procedure::Write, &args).get()
    }

    /// READ: data and eof.
    pub fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfs3::Nfsstat3> {
        let results = self.nfs(Procedure::Read, &nfs3::Read3Args { file: Opaque(file), offset, count });
        match results.get::<nfs3::Read3Res<'_>>() {
            nfs3::Outcome::Ok(ok) => {
                assert_eq!(ok.count as usize, ok.data.0.len());
                assert!(ok.attributes.is_some());
                Ok((ok.data.0.to_vec(), ok.eof))
            }
            nfs3::Outcome::Fail(status, _) => Err(status),
        }
    }

    pub fn remove(&mut self, dir: &[u8], name: &str) -> nfs3::Remove3Res {
        let args = nfs3::Remove3Args { object: what(dir, name.as_bytes()) };
        self.nfs(Procedure::Remove, &args).get()
    }
}

pub fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

pub fn what<'a>(dir: &'a [u8], name: &'a [u8]) -> nfs3::Diropargs3<'a> {
    nfs3::Diropargs3 { dir: Opaque(dir), name: Opaque(name) }
}

/// Waits until `ready` returns true.
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !ready() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
