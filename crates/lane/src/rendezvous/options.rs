//! How a client looks for servers, and whose servers it trusts.

use std::path::PathBuf;

/// How a client looks for servers.
#[derive(Debug, Clone)]
pub struct RendezvousOptions {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Users besides root and this process's own whose servers are trusted with files, not with directories
    /// or mounts ([`crate::OpenError::FilesOnly`]). The overflow id (65534) stands for all users whom this
    /// user namespace doesn't map.
    pub trusted_uids: Vec<u32>,
    /// Whether to search for abstract sockets, in this network namespace and, with the privilege
    /// (CAP_SYS_ADMIN), in the others; and, without it, to wait for a privileged server that searches for
    /// this client.
    pub search_namespaces: bool,
}

impl RendezvousOptions {
    /// Trusts only root and this process's own user, and searches namespaces.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Self {
        Self { run_dir, trusted_uids: Vec::new(), search_namespaces: true }
    }

    /// Whether a server of this user is trusted; `None` is a user whom this user namespace doesn't map.
    pub(super) fn trusts(&self, uid: Option<u32>) -> bool {
        trusts_unnamed(uid) || self.trusted_uids.contains(&uid.unwrap_or_else(sys::peer::overflow_uid))
    }

    /// The trusted users.
    pub(super) fn trusted(&self) -> Vec<Option<u32>> {
        let overflow = sys::peer::overflow_uid();
        let own = rustix::process::geteuid().as_raw();
        let named = self.trusted_uids.iter().map(|uid| Some(*uid).filter(|uid| *uid != overflow));
        [Some(0), Some(own)].into_iter().chain(named).collect()
    }
}

/// Whether a server of this user is trusted without being named: root and this process's own user have all
/// the rights that this process has.
pub(super) fn trusts_unnamed(uid: Option<u32>) -> bool {
    uid == Some(0) || uid == Some(rustix::process::geteuid().as_raw())
}
