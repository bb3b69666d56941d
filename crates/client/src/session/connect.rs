//! From a URL to a session: address, port, MOUNT, sizes.
//!
//! MOUNT is looked for where NFS is first, as Samehost and other servers with one port for all programs serve
//! it there; only then is rpcbind asked. The URL's path may name something inside an export: the longest part
//! of it that the server lets us mount becomes the session's root, and the rest its target.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::mount3::{self, Mountres3, Mountstat3};
use proto::{nfs3, rpcbind};
use rpc::client::{Client, Error as RpcError, Reply, Request};
use rpc::message::Credential as Wire;
use xdr::{Decoder, Encode, Opaque};

use super::{Inner, Session, User};
use crate::counters::SessionCounters;
use crate::error::{Error, Result};
use crate::file::UncommittedPool;
use crate::lane::LaneManager;
use crate::options::{LaneMode, Options, ReservedPort};
use crate::types::{ExportEntry, FsInfo, Handle};
use crate::url::Url;

/// How long a session may take to come up unless [`Options::retry`] says otherwise: nfs(5)'s `retry` in the
/// foreground.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// How many parts of a path are tried at MOUNT.
const MOUNT_TRIES: usize = 64;

/// The sizes of a server that doesn't tell: what every server can.
const SMALL: u32 = 32 << 10;

/// No READ or WRITE is longer than this, whatever the server offers.
const LARGE: u32 = 1 << 20;

/// Room for what surrounds a payload in a reply.
const HEADROOM: usize = 64 << 10;

impl Session {
    /// Connects, mounts, asks for the sizes, and looks for a lane; all that within [`Options::retry`].
    ///
    /// # Errors
    /// [`Error::Resolve`], [`Error::Rpc`], [`Error::NoAnswer`], [`Error::Mount`]; with
    /// [`LaneMode::Required`], [`Error::NoLane`].
    pub async fn connect(url: &Url, mut options: Options) -> Result<Self> {
        url.apply(&mut options)?;
        let after = options.retry.filter(|retry| !retry.is_zero()).unwrap_or(CONNECT_TIMEOUT);
        match tokio::time::timeout(after, Box::pin(Self::come_up(url, options))).await {
            Ok(session) => session,
            Err(_) => Err(Error::NoAnswer { object: url.to_string(), after }),
        }
    }

    async fn come_up(url: &Url, options: Options) -> Result<Self> {
        let rpc = connect_any(url, &options).await?;
        let owner = Arc::new(User::new(options.credential.clone()));
        let mut door = Door { rpc: &rpc, other: None, options: &options, credential: &owner.wire };
        let mounted = mount(&mut door, url).await?;
        let mount = door.other.map(|client| client.address());
        let mut inner = Inner {
            lane: LaneManager::new(&options, owner.lane.is_some()),
            mount,
            mounted: mounted.path,
            target: mounted.target,
            root: mounted.root,
            sizes: FsInfo::default(),
            rsize: SMALL as usize,
            wsize: SMALL as usize,
            counters: Arc::new(SessionCounters::default()),
            uncommitted: UncommittedPool::new(options.unstable_max),
            owner: owner.clone(),
            rpc,
            options,
        };
        // FSINFO is asked by a session that has no sizes yet.
        let session = Self { inner: Arc::new(inner), user: owner.clone() };
        let sizes = session.fs_info(&mounted.root).await.map_err(|error| error.about(|| url.to_string()))?;
        inner = Arc::try_unwrap(session.inner).map_err(|_| Error::Protocol {
            object: url.to_string(),
            what: "the session is in use before it is made",
        })?;
        inner.rsize = agreed(inner.options.rsize, sizes.read_preferred, sizes.read_max);
        inner.wsize = agreed(inner.options.wsize, sizes.write_preferred, sizes.write_max);
        inner.sizes = sizes;
        let session = Self { inner: Arc::new(inner), user: owner };
        if session.inner.lane.mode() != LaneMode::Off {
            session.initial_probe().await.map_err(|error| error.about(|| url.to_string()))?;
        }
        Ok(session)
    }

    /// MOUNT's EXPORT: what the server exports to whom.
    ///
    /// # Errors
    /// The call's.
    pub async fn exports(&self) -> Result<Vec<ExportEntry>> {
        let inner = &*self.inner;
        let mut door = self.door().await?;
        let reply = door.call(mount3::Procedure::Export, &()).await.map_err(|source| Error::Rpc {
            object: format!("export list of {}", inner.rpc.address()),
            source,
        })?;
        let list: mount3::Exports<'_> = Decoder::new(&reply.results).get().map_err(|_| Error::Protocol {
            object: "EXPORT".to_owned(),
            what: "its results can't be decoded",
        })?;
        Ok(list
            .0
            .into_iter()
            .map(|node| ExportEntry {
                path: node.dir.0.to_vec(),
                groups: node.groups.0.into_iter().map(|name| name.0.to_vec()).collect(),
            })
            .collect())
    }

    /// Tells the server that the export is no longer used (MOUNT's UMNT; a courtesy that fails silently).
    /// Open files stay usable; the connections close with the last of them.
    pub async fn close(self) {
        let path = Opaque::<{ mount3::MNTPATHLEN }>(&self.inner.mounted);
        if let Ok(mut door) = self.door().await {
            let _ = door.call(mount3::Procedure::Umnt, &path).await;
        }
    }

    async fn door(&self) -> Result<Door<'_>> {
        let inner = &*self.inner;
        let other = match inner.mount {
            None => None,
            Some(address) => Some(
                Client::connect(address, rpc_options(&inner.options, 1))
                    .await
                    .map_err(|source| Error::Rpc { object: "MOUNT".to_owned(), source })?,
            ),
        };
        Ok(Door { rpc: &inner.rpc, other, options: &inner.options, credential: &inner.owner.wire })
    }
}

/// What the user wants, else what the server prefers, within what both can; a multiple of 4 KiB if it is
/// above that.
fn agreed(wanted: Option<u32>, preferred: u32, max: u32) -> usize {
    let max = if max == 0 { SMALL } else { max.min(LARGE) };
    let preferred = if preferred == 0 { SMALL } else { preferred };
    let size = wanted.unwrap_or(preferred).clamp(1, max) as usize;
    if size > 4096 { size & !4095 } else { size }
}

fn rpc_options(options: &Options, connections: usize) -> rpc::client::Options {
    rpc::client::Options {
        policy: options.policy(),
        connections,
        reserved_port: match options.reserved_port {
            ReservedPort::Auto => rpc::client::ReservedPort::Auto,
            ReservedPort::Yes => rpc::client::ReservedPort::Yes,
            ReservedPort::No => rpc::client::ReservedPort::No,
        },
        max_reply: LARGE as usize + HEADROOM,
        ..rpc::client::Options::default()
    }
}

/// A connection to the first of the host's addresses that takes one, at the URL's port, 2049, or where
/// rpcbind says.
async fn connect_any(url: &Url, options: &Options) -> Result<Client> {
    let given = url.port().or(options.port);
    let port = given.unwrap_or(nfs3::PORT);
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((url.host(), port))
        .await
        .map_err(|source| Error::Resolve { host: url.host().to_owned(), source })?
        .collect();
    let mut last = None;
    for address in &addresses {
        match Client::connect(*address, rpc_options(options, options.nconnect as usize)).await {
            Ok(client) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    if given.is_none() {
        for address in &addresses {
            if let Some(port) = ask_rpcbind(*address, nfs3::PROGRAM, nfs3::VERSION, options).await {
                let address = SocketAddr::new(address.ip(), port);
                match Client::connect(address, rpc_options(options, options.nconnect as usize)).await {
                    Ok(client) => return Ok(client),
                    Err(error) => last = Some(error),
                }
            }
        }
    }
    Err(match last {
        Some(source) => Error::Rpc { object: url.to_string(), source },
        None => Error::Resolve {
            host: url.host().to_owned(),
            source: std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address"),
        },
    })
}

/// The TCP port of a program; `None` if rpcbind isn't there or doesn't know it.
async fn ask_rpcbind(server: SocketAddr, program: u32, version: u32, options: &Options) -> Option<u16> {
    let address = SocketAddr::new(server.ip(), rpcbind::PORT);
    // A question that may fail: never hard, whatever the session is.
    let mut rpc_options = rpc_options(options, 1);
    rpc_options.policy.hard = false;
    rpc_options.reserved_port = rpc::client::ReservedPort::No;
    let client = Client::connect(address, rpc_options).await.ok()?;
    let request = Request {
        program: rpcbind::PROGRAM,
        version: rpcbind::PMAP_VERSION,
        procedure: rpcbind::Procedure::Getaddr.number(),
        credential: &Wire::None,
        payload: bytes::Bytes::new(),
        receive: None,
    };
    let mapping = rpcbind::Mapping { prog: program, vers: version, prot: rpcbind::IPPROTO_TCP, port: 0 };
    let reply = client.call(request, |to| to.put(&mapping)).await.ok()?;
    let port = Decoder::new(&reply.results).u32().ok()?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Where MOUNT is answered.
struct Door<'a> {
    rpc: &'a Client,
    other: Option<Client>,
    options: &'a Options,
    credential: &'a Wire,
}

impl Door<'_> {
    async fn call(&mut self, procedure: mount3::Procedure, args: &impl Encode) -> Result<Reply, RpcError> {
        let request = Request {
            program: mount3::PROGRAM,
            version: mount3::VERSION,
            procedure: procedure.number(),
            credential: self.credential,
            payload: bytes::Bytes::new(),
            receive: None,
        };
        self.other.as_ref().unwrap_or(self.rpc).call(request, |to| to.put(args)).await
    }

    /// Whether a handle from MNT is a directory's. Where the server doesn't say it is taken for one, and the
    /// next call will tell.
    async fn is_directory(&self, handle: &Handle) -> Result<bool, RpcError> {
        let request = Request {
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: nfs3::Procedure::Getattr.number(),
            credential: self.credential,
            payload: bytes::Bytes::new(),
            receive: None,
        };
        let args = nfs3::Getattr3Args { object: Opaque(handle.as_bytes()) };
        let reply = self.rpc.call(request, |to| to.put(&args)).await?;
        Ok(match Decoder::new(&reply.results).get::<nfs3::Getattr3Res>() {
            Ok(nfs3::Outcome::Ok(attributes)) => attributes.kind == nfs3::Ftype3::Dir,
            Ok(nfs3::Outcome::Fail(..)) | Err(_) => true,
        })
    }

    /// Looks for MOUNT elsewhere.
    async fn elsewhere(&mut self) -> Result<bool, RpcError> {
        let server = self.rpc.address();
        let port = match self.options.mount_port {
            Some(port) => Some(port),
            None => ask_rpcbind(server, mount3::PROGRAM, mount3::VERSION, self.options).await,
        };
        let Some(port) = port else { return Ok(false) };
        let address = SocketAddr::new(server.ip(), port);
        self.other = Some(Client::connect(address, rpc_options(self.options, 1)).await?);
        Ok(true)
    }
}

struct Mounted {
    path: Vec<u8>,
    target: Vec<u8>,
    root: Handle,
}

/// Mounts the longest part of the URL's path that can be.
async fn mount(door: &mut Door<'_>, url: &Url) -> Result<Mounted> {
    let server = door.rpc.address();
    let failed = |reason: String| Error::Mount {
        path: String::from_utf8_lossy(url.path()).into_owned(),
        server: server.to_string(),
        reason,
    };
    let rpc_failed = |source| Error::Rpc { object: format!("MOUNT from {server}"), source };
    let mut path = trimmed(url.path());
    let (mut first, mut is_file) = (None, false);
    for _ in 0..MOUNT_TRIES {
        let reply = match door.call(mount3::Procedure::Mnt, &Opaque::<{ mount3::MNTPATHLEN }>(path)).await {
            Err(RpcError::ProgramUnavailable { .. } | RpcError::ProgramMismatch { .. })
                if door.other.is_none() =>
            {
                if !door.elsewhere().await.map_err(rpc_failed)? {
                    return Err(failed(format!(
                        "MOUNT version 3 is not served on port {}, and rpcbind at {} doesn't say where it \
                         is; give the port with ?mountport=",
                        server.port(),
                        server.ip()
                    )));
                }
                continue;
            }
            other => other.map_err(rpc_failed)?,
        };
        let status = match Decoder::new(&reply.results).get::<Mountres3<'_>>() {
            Err(_) => return Err(failed("its answer can't be decoded".to_owned())),
            Ok(Mountres3::Fail(status)) => status,
            Ok(Mountres3::Ok(ok)) => {
                let Some(root) = Handle::new(ok.fhandle.0) else {
                    return Err(failed("its file handle is longer than a handle can be".to_owned()));
                };
                if door.is_directory(&root).await.map_err(rpc_failed)? {
                    let rest = url.path().get(path.len()..).unwrap_or_default();
                    let target = rest.strip_prefix(b"/").unwrap_or(rest).to_vec();
                    return Ok(Mounted { path: path.to_vec(), target, root });
                }
                // knfsd's mountd mounts whatever the path names. It is used from the directory above it, as
                // every file.
                let _ = door.call(mount3::Procedure::Umnt, &Opaque::<{ mount3::MNTPATHLEN }>(path)).await;
                is_file = true;
                Mountstat3::Notdir
            }
        };
        first.get_or_insert(status);
        let parent = trimmed(&path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]);
        if parent == path {
            break;
        }
        path = parent;
    }
    if is_file {
        return Err(failed(
            "it is no directory, and none above it can be mounted: export the directory it is in".to_owned(),
        ));
    }
    Err(failed(mount_reason(first.unwrap_or(Mountstat3::Serverfault)).to_owned()))
}

/// A path without slashes at its end; the root stays "/".
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 { b"/" } else { &path[..end] }
}

const fn mount_reason(status: Mountstat3) -> &'static str {
    match status {
        Mountstat3::Acces | Mountstat3::Perm => {
            "permission denied: is the path exported to this host, and must the client use a reserved port \
             (secure)? `showmount -e` lists the exports"
        }
        Mountstat3::Noent => "no such export: `showmount -e` lists the exports",
        Mountstat3::Notdir => "not a directory",
        Mountstat3::Nametoolong => "the path is too long",
        Mountstat3::Inval => "the server takes the path for invalid",
        Mountstat3::Notsupp => "the server does not support it",
        Mountstat3::Io => "the server had an I/O error",
        Mountstat3::Ok | Mountstat3::Serverfault => "the server failed (see its log)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_both_can() {
        assert_eq!(agreed(None, 0, 0), 32 << 10);
        assert_eq!(agreed(None, 1 << 20, 4 << 20), 1 << 20);
        assert_eq!(agreed(None, 4 << 20, 8 << 20), 1 << 20);
        assert_eq!(agreed(Some(70_000), 1 << 20, 1 << 20), 69_632);
        assert_eq!(agreed(Some(512), 1 << 20, 1 << 20), 512);
        assert_eq!(agreed(Some(0), 1 << 20, 1 << 20), 1);
        assert_eq!(agreed(Some(1 << 20), 65_536, 65_536), 65_536);
    }

    #[test]
    fn trailing_slashes_go() {
        assert_eq!(trimmed(b"/a/b//"), b"/a/b");
        assert_eq!(trimmed(b"///"), b"/");
        assert_eq!(trimmed(b""), b"/");
    }
}
