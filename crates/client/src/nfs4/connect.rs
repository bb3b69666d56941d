//! From a URL to a session: the connection, the minor version, the client id and its session, and the
//! directory that the URL's path names.
//!
//! NFSv4 has one port, 2049, and no MOUNT (RFC 8881 section 2.9.1): the path is looked up from the root of
//! the server's pseudo-filesystem. The deepest directory on it becomes the session's root, and the rest its
//! target.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use proto::nfs4::attributes as number;
use proto::nfs4::{Access4Args, Access4ResOk, MinorVersion, Operation};

use super::Nfs4;
use super::callbacks::Callbacks;
use super::compound::{Compound, Trailer};
use super::convert::{FILE, LIMITS};
use super::identity::ClientIdentity;
use super::session::{MAX_IN_FLIGHT, SessionClient};
use super::shared::{ClientKey, ClientUse, use_client};
use crate::connection::{connect_to_any, resolve, rpc_options};
use crate::error::{Error, Result, Status};
use crate::options::{LaneMode, Options, Version};
use crate::protocol::{Mounted, Protocol};
use crate::types::{Access, Attributes, FileKind, Found, Handle};
use crate::url::Url;
use crate::user::User;
use crate::wire::retry_delayed;

/// NFS's port (RFC 8881 section 2.9.3).
const PORT: u16 = 2049;

/// The operations of a request for each name of a path: LOOKUP, GETFH, GETATTR.
pub(super) const OPERATIONS_PER_NAME: usize = 3;

impl Nfs4 {
    /// Connects as `user` and finds the deepest directory on the URL's path.
    ///
    /// # Errors
    /// [`Error::Resolve`], [`Error::Rpc`], [`Error::Mount`], [`Error::Status`].
    pub(crate) async fn connect(url: &Url, options: Arc<Options>, user: &Arc<User>) -> Result<Mounted> {
        let callbacks = Arc::new(Callbacks::default());
        let rpc_options = rpc::client::Options {
            callbacks: Some(callbacks.clone()),
            in_flight: MAX_IN_FLIGHT,
            ..rpc_options(&options, options.nconnect as usize)
        };
        let port = url.port().or(options.port).unwrap_or(PORT);
        let addresses = resolve(url, port).await?;
        // A server that can't be reached is an error at once, also if another session waits for it.
        let rpc = Arc::new(connect_to_any(url, &addresses, &rpc_options).await?);
        let minors: &[MinorVersion] = match options.version {
            Version::V4_1 => &[MinorVersion::V1],
            Version::V4_2 => &[MinorVersion::V2],
            _ => &[MinorVersion::V2, MinorVersion::V1],
        };
        let mut last = None;
        for minor in minors {
            let make = async {
                let identity = ClientIdentity::new(&options, &user.wire)?;
                let (user, callbacks) = (user.clone(), callbacks.clone());
                let client =
                    SessionClient::new(rpc.clone(), user, *minor, identity, callbacks, options.policy());
                client.connect().await?;
                // From here on the server may lose the session.
                client.keep();
                Ok(client)
            };
            match use_client(ClientKey::new(&options, user, rpc.address(), *minor), make).await {
                Ok(used) => {
                    drop(rpc);
                    return Self::mount_by(used, url, &options, user).await;
                }
                Err(error) if error.status() == Some(Status::NotSupported) => last = Some(error),
                Err(error) => return Err(error.about(|| url.to_string())),
            }
        }
        let reason = match options.version {
            Version::V4_1 => "it doesn't serve NFSv4.1. Leave vers out",
            Version::V4_2 => "it doesn't serve NFSv4.2. Leave vers out",
            Version::V4 => "it serves neither NFSv4.2 nor 4.1. Leave vers out",
            Version::V3 | Version::Highest => "it serves neither NFSv4.2 nor 4.1",
        };
        drop(last);
        Err(mount_error(url, rpc.address(), reason.to_owned()))
    }

    /// The session of a client that is established.
    async fn mount_by(used: ClientUse, url: &Url, options: &Options, user: &User) -> Result<Mounted> {
        let client = used.client().clone();
        let trailer = Trailer::new(Operation::Getattr, &proto::nfs4::Getattr4Args { attr_request: FILE });
        let mut nfs = Self {
            applies_umask: false,
            has_read_plus: AtomicBool::new(client.minor >= MinorVersion::V2),
            client,
            used,
            attribute_sink: options.attribute_sink.clone(),
            wants_delegations: options.delegations == Some(true),
            creates: AtomicU64::new(0),
            get_attributes: trailer,
        };
        match nfs.mount(url, options, user).await {
            Ok(MountedDirectory { path, target, root, lacks_path }) => Ok(Mounted {
                rpc: nfs.client.rpc().clone(),
                had_lane: nfs.client.had_lane.clone(),
                is_durable: options.lane == LaneMode::Off,
                protocol: Protocol::Nfs4(nfs),
                path,
                target,
                root,
                lacks_path,
            }),
            Err(error) => {
                if let Error::Mount { .. } | Error::Status { .. } | Error::Moved { .. } = error {
                    // The server needn't keep it until its lease expires.
                    nfs.used.end().await;
                }
                Err(error)
            }
        }
    }

    /// Finds the directory to mount, and asks for what the server says about it.
    async fn mount(&mut self, url: &Url, options: &Options, user: &User) -> Result<MountedDirectory> {
        let server = self.client.address();
        let names: Vec<&[u8]> = names(url.path()).collect();
        let (directories, failure) = retry_delayed(options, || self.walk(user, &names))
            .await
            .map_err(|error| error.about(|| url.to_string()))?;
        let Some((root, deepest)) = directories.first().zip(directories.last()) else {
            return Err(mount_error(url, server, "its root isn't a directory".to_owned()));
        };
        let depth = directories.len() - 1;
        let lacks_path = depth == 0 && failure == Some(Status::NoEntry);
        if let Some(status) = failure
            && deepest.1.fsid == root.1.fsid
            && !retry_delayed(options, || self.is_writable(user, &deepest.0)).await?
        {
            let reason = match status {
                Status::NoEntry => "no such export",
                Status::Access | Status::NotPermitted => {
                    "permission denied: is the path exported to this host, and must the client use a \
                     reserved port (secure)?"
                }
                _ => return Err(mount_error(url, server, status.to_string())),
            };
            return Err(mount_error(url, server, reason.to_owned()));
        }
        let path = [b"/", &names[..depth].join(&b'/')[..]].concat();
        let target = names[depth..].join(&b'/');
        let limits = retry_delayed(options, || self.limits(user, &deepest.0)).await?;
        self.applies_umask = limits.applies_umask && self.client.minor >= MinorVersion::V2;
        if let Some(seconds) = limits.lease {
            self.client.set_lease(seconds);
        }
        let root = deepest.0.clone();
        Ok(MountedDirectory { path, target, root, lacks_path })
    }

    /// Walks down from the server's root while there are directories. Returns those, the root first, and why
    /// the walk ended if that is an error of the server.
    async fn walk(
        &self,
        user: &User,
        names: &[&[u8]],
    ) -> Result<(Vec<(Handle, Attributes)>, Option<Status>)> {
        let mut directories: Vec<(Handle, Attributes)> = Vec::new();
        let at_once = (self.client.max_operations() / OPERATIONS_PER_NAME).saturating_sub(1).max(1);
        loop {
            let depth = directories.len();
            let (compound, rest) = match directories.last() {
                None => (Compound::new().then(Operation::Putrootfh, &()).get_file(), names),
                Some((last, _)) => (Compound::new().put_fh(last), &names[depth - 1..]),
            };
            let rest = &rest[..rest.len().min(at_once)];
            if depth > 0 && rest.is_empty() {
                return Ok((directories, None));
            }
            let compound = rest.iter().fold(compound, |compound, name| compound.lookup(name).get_file());
            let reply = self.client.call(user, &compound, None).await?;
            let mut results = reply.results()?;
            if depth == 0 {
                results.succeeded(Operation::Putrootfh)?;
                match found_directory(&mut results)? {
                    Some(root) => directories.push(root),
                    None => return Ok((directories, None)),
                }
            } else {
                results.succeeded(Operation::Putfh)?;
            }
            for name in rest {
                let lookup = if *name == b".." { Operation::Lookupp } else { Operation::Lookup };
                let found = match results.succeeded(lookup) {
                    Ok(()) => found_directory(&mut results),
                    Err(error) => Err(error),
                };
                match found {
                    Ok(Some(directory)) => directories.push(directory),
                    Ok(None) => return Ok((directories, None)),
                    Err(Error::Status { status: Status::TryLater, object }) => {
                        return Err(Error::Status { status: Status::TryLater, object });
                    }
                    Err(Error::Status { status, .. }) => return Ok((directories, Some(status))),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Whether the user may create names in a directory. Not, if the server refuses to tell.
    pub(super) async fn is_writable(&self, user: &User, directory: &Handle) -> Result<bool> {
        let wanted = Access::MODIFY | Access::EXTEND;
        let operation = Operation::Access;
        let compound = Compound::new().put_fh(directory).then(operation, &Access4Args { access: wanted.0 });
        let reply = self.client.call(user, &compound, None).await;
        let access = reply.and_then(|reply| {
            let mut results = reply.results()?;
            results.succeeded(Operation::Putfh)?;
            results.get::<Access4ResOk>(operation)
        });
        match access {
            Ok(ok) => Ok(ok.access & wanted.0 != 0),
            Err(error) if error.status().is_some_and(|status| status != Status::TryLater) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The limits of a file's filesystem.
    pub(super) async fn limits(&self, user: &User, file: &Handle) -> Result<Limits> {
        let compound = Compound::new().put_fh(file).get_attributes(&LIMITS);
        let reply = self.client.call(user, &compound, None).await?;
        let mut results = reply.results()?;
        results.succeeded(Operation::Putfh)?;
        let attributes = super::reply_attributes(&mut results)?;
        let applies_umask = attributes.supported.contains(number::MODE_UMASK)
            && attributes.settable_exclusively.contains(number::MODE_UMASK);
        Ok(Limits { info: attributes.fs_info(), lease: attributes.lease, applies_umask })
    }
}

/// Where the path of a URL leads; the fields are those of [`Mounted`].
struct MountedDirectory {
    path: Vec<u8>,
    target: Vec<u8>,
    root: Handle,
    lacks_path: bool,
}

/// A filesystem's limits.
pub(super) struct Limits {
    pub(super) info: crate::types::FsInfo,
    /// The server's lease in seconds.
    lease: Option<u32>,
    /// The server has `mode_umask`, also for exclusive creates.
    applies_umask: bool,
}

/// The results of GETFH and GETATTR; `None` if the file is no directory.
fn found_directory(results: &mut super::compound::Results<'_>) -> Result<Option<(Handle, Attributes)>> {
    let found = super::found(results)?;
    Ok(match found {
        Found { handle, attributes: Some(attributes) } if attributes.kind == FileKind::Directory => {
            Some((handle, attributes))
        }
        _ => None,
    })
}

fn mount_error(url: &Url, server: SocketAddr, reason: String) -> Error {
    Error::Mount {
        path: String::from_utf8_lossy(url.path()).into_owned(),
        server: server.to_string(),
        reason,
    }
}

/// The names of a path, without `.` and empty ones.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}
