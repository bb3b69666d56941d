//! MOUNT version 3 (RFC 1813 section 5).
//!
//! Samehost and other servers with one port for all programs serve MOUNT beside NFS, so it is called there
//! first. rpcbind is asked only if it isn't there. A URL's path may name something inside an export: the
//! longest part of it that the server lets us mount becomes the session's root, and the rest its target.

use std::net::SocketAddr;

use proto::mount3::{self, Mountres3, Mountstat3};
use proto::nfs3;
use rpc::client::{Client, Error as CallError, Reply, Request};
use xdr::{Decoder, Encode, Opaque};

use super::Nfs3;
use super::connect::port_from_rpcbind;
use crate::connection::rpc_options;
use crate::error::{Error, Result, RpcError};
use crate::options::Options;
use crate::types::{ExportEntry, Handle};
use crate::url::Url;
use crate::user::User;

/// How many parts of a path are tried at MNT.
const MAX_TRIES: usize = 64;

/// The connection on which MOUNT is called.
pub(super) struct MountClient<'a> {
    pub(super) nfs: &'a Client,
    /// A connection to another port than NFS's.
    pub(super) separate: Option<Client>,
    pub(super) options: &'a Options,
    pub(super) user: &'a User,
}

impl MountClient<'_> {
    async fn call(&self, procedure: mount3::Procedure, args: &impl Encode) -> Result<Reply, CallError> {
        let request = Request {
            program: mount3::PROGRAM,
            version: mount3::VERSION,
            procedure: procedure.number(),
            credential: &self.user.wire,
            payload: bytes::Bytes::new(),
            trailer: bytes::Bytes::new(),
            receive: None,
        };
        self.separate.as_ref().unwrap_or(self.nfs).call(request, |to| to.put(args)).await
    }

    async fn unmount(&self, path: &[u8]) {
        let _ = self.call(mount3::Procedure::Umnt, &Opaque::<{ mount3::MNTPATHLEN }>(path)).await;
    }

    /// Whether a handle from MNT is a directory's. If GETATTR fails it is taken for one, and the next call
    /// fails instead.
    async fn is_directory(&self, handle: &Handle) -> Result<bool, CallError> {
        let request = Request {
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: nfs3::Procedure::Getattr.number(),
            credential: &self.user.wire,
            payload: bytes::Bytes::new(),
            trailer: bytes::Bytes::new(),
            receive: None,
        };
        let args = nfs3::Getattr3Args { object: Opaque(handle.as_bytes()) };
        let reply = self.nfs.call(request, |to| to.put(&args)).await?;
        Ok(match Decoder::new(&reply.results).get::<nfs3::Getattr3Res>() {
            Ok(nfs3::Outcome::Ok(attributes)) => attributes.kind == nfs3::Ftype3::Dir,
            Ok(nfs3::Outcome::Fail(..)) | Err(_) => true,
        })
    }

    /// Connects to MOUNT's own port; false if it isn't known.
    async fn connect_separately(&mut self) -> Result<bool, CallError> {
        let server = self.nfs.address();
        let port = match self.options.mount_port {
            Some(port) => Some(port),
            None => port_from_rpcbind(server, mount3::PROGRAM, mount3::VERSION, self.options).await,
        };
        let Some(port) = port else { return Ok(false) };
        let address = SocketAddr::new(server.ip(), port);
        self.separate = Some(Client::connect(address, rpc_options(self.options, 1)).await?);
        Ok(true)
    }
}

/// Mounts the longest part of the URL's path that the server lets us mount: that path, and its directory.
pub(super) async fn mount(client: &mut MountClient<'_>, url: &Url) -> Result<(Vec<u8>, Handle)> {
    let server = client.nfs.address();
    let failed = |reason: String| Error::Mount {
        path: String::from_utf8_lossy(url.path()).into_owned(),
        server: server.to_string(),
        reason,
    };
    let rpc_failed = |source| Error::Rpc { object: format!("MOUNT from {server}"), source: RpcError(source) };
    let mut path = trimmed(url.path());
    let (mut first, mut is_file) = (None, false);
    for _ in 0..MAX_TRIES {
        let reply = match client.call(mount3::Procedure::Mnt, &Opaque::<{ mount3::MNTPATHLEN }>(path)).await {
            Err(CallError::ProgramUnavailable { .. } | CallError::ProgramMismatch { .. })
                if client.separate.is_none() =>
            {
                if !client.connect_separately().await.map_err(rpc_failed)? {
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
                if client.is_directory(&root).await.map_err(rpc_failed)? {
                    return Ok((path.to_vec(), root));
                }
                // knfsd's mountd also mounts files. The directory above is mounted instead, as for a server
                // that refuses.
                client.unmount(path).await;
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
    Err(failed(reason(first.unwrap_or(Mountstat3::Serverfault)).to_owned()))
}

impl Nfs3 {
    async fn mount_client<'a>(&'a self, user: &'a User) -> Result<MountClient<'a>, CallError> {
        let separate = match self.mount_address {
            None => None,
            Some(address) => Some(Client::connect(address, rpc_options(&self.options, 1)).await?),
        };
        Ok(MountClient { nfs: &self.rpc, separate, options: &self.options, user })
    }

    /// EXPORT.
    pub(super) async fn export_list(&self, user: &User) -> Result<Vec<ExportEntry>> {
        let failed = |source| Error::Rpc {
            object: format!("export list of {}", self.rpc.address()),
            source: RpcError(source),
        };
        let client = self.mount_client(user).await.map_err(failed)?;
        let reply = client.call(mount3::Procedure::Export, &()).await.map_err(failed)?;
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

    /// UMNT.
    pub(super) async fn unmount(&self, user: &User) {
        if let Ok(client) = self.mount_client(user).await {
            client.unmount(&self.mounted).await;
        }
    }
}

/// A path without slashes at its end; the root stays "/".
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 { b"/" } else { &path[..end] }
}

const fn reason(status: Mountstat3) -> &'static str {
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
    fn slashes_at_the_end_are_cut_off() {
        assert_eq!(trimmed(b"/a/b//"), b"/a/b");
        assert_eq!(trimmed(b"///"), b"/");
        assert_eq!(trimmed(b""), b"/");
    }
}
