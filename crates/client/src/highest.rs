//! The highest version of NFS that a server has for a path, found as mount.nfs(8) does.
//!
//! NFSv4 comes first. NFSv3 follows only if an answer says that the server doesn't have NFSv4.1, or the path
//! or the host by it: an NFSv3 session keeps locks on this host, so no timeout and no failure that may be
//! temporary leads to one.

use std::io;
use std::sync::Arc;

use crate::error::{Error, Result, RpcError, Status};
use crate::nfs3::Nfs3;
use crate::nfs4::Nfs4;
use crate::operations::Operations as _;
use crate::options::Options;
use crate::protocol::Mounted;
use crate::url::Url;
use crate::user::User;

/// Why NFSv3 may have what NFSv4 doesn't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The server doesn't serve NFSv4.
    Version,
    /// The server's namespace of NFSv4 doesn't have the path, or not for this host. NFSv3's may: the roots of
    /// the two may differ.
    Path,
    /// There is no connection to NFSv4's port. NFSv3 may have another one.
    Port,
}

/// Connects as `user` by the highest version.
///
/// # Errors
/// Those of [`Nfs4::connect`] and [`Nfs3::connect`].
pub(crate) async fn connect(url: &Url, options: Arc<Options>, user: &Arc<User>) -> Result<Mounted> {
    let by_4 = match Nfs4::connect(url, options.clone(), user).await {
        Ok(mounted) if mounted.lacks_path => {
            return choose_for_lacking_path(mounted, url, options, user).await;
        }
        Ok(mounted) => return Ok(mounted),
        Err(error) => error,
    };
    let Some(lack) = lack(&by_4) else { return Err(by_4) };
    tracing::debug!(%url, error = %by_4, "not by NFSv4");
    let by_3 = match lack {
        Lack::Version | Lack::Path => Nfs3::connect(url, options, user).await,
        // A server whose port is 2049 may be starting: by the next attempt it has NFSv4.
        Lack::Port => match Nfs3::connect_elsewhere(url, options, user).await {
            Some(by_3) => by_3,
            None => return Err(by_4),
        },
    };
    by_3.map_err(|by_3| both(lack, by_4, by_3))
}

/// The path begins with a name that isn't in the root of NFSv4: it may be NFSv3's path of that root, or of an
/// export that isn't below it (`fsid=0` of exports(5)). If NFSv3 doesn't have it either, NFSv4 is used, for a
/// file that is to be created.
async fn choose_for_lacking_path(
    by_4: Mounted,
    url: &Url,
    options: Arc<Options>,
    user: &Arc<User>,
) -> Result<Mounted> {
    let Ok(by_3) = Nfs3::connect(url, options, user).await else { return Ok(by_4) };
    let (chosen, other) = if by_3.path == b"/" { (by_4, by_3) } else { (by_3, by_4) };
    other.protocol.end(user).await;
    Ok(chosen)
}

/// What the server lacks by NFSv4, according to the error.
fn lack(error: &Error) -> Option<Lack> {
    use rpc::client::Error as E;
    match error {
        Error::Mount { .. } => Some(Lack::Path),
        // Also for the root: old servers have none for NFSv4.
        Error::Status { status, .. } => matches!(
            status,
            Status::NoEntry | Status::NotPermitted | Status::Access | Status::Invalid | Status::NotSupported
        )
        .then_some(Lack::Path),
        Error::Rpc { source: RpcError(source), .. } => match source {
            E::ProgramUnavailable { .. } | E::ProgramMismatch { .. } | E::ProcedureUnavailable { .. } => {
                Some(Lack::Version)
            }
            // MOUNT says why a host is refused.
            E::Auth { .. } => Some(Lack::Path),
            E::Connect { source, .. } => {
                (source.kind() != io::ErrorKind::PermissionDenied).then_some(Lack::Port)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The error of both versions.
fn both(lack: Lack, by_4: Error, by_3: Error) -> Error {
    match (by_4, by_3) {
        (_, by_3) if lack == Lack::Version => by_3,
        (Error::Mount { reason: by_4, .. }, Error::Mount { path, server, reason: by_3 }) => {
            let reason = if by_3.starts_with(&by_4) { by_3 } else { format!("{by_4}; by NFSv3: {by_3}") };
            Error::Mount { path, server, reason }
        }
        (_, by_3 @ Error::Mount { .. }) => by_3,
        (by_4, _) => by_4,
    }
}
