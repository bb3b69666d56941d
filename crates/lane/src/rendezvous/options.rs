//! How a client looks for servers, and whose servers it trusts.

use std::path::PathBuf;

/// How a client looks for servers.
#[derive(Debug, Clone)]
pub struct RendezvousOptions {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Users besides root and this process's own whose servers are trusted. The overflow id (65534) stands
    /// for all users whom this user namespace doesn't map.
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
        match uid {
            Some(uid) => {
                uid == 0 || uid == rustix::process::geteuid().as_raw() || self.trusted_uids.contains(&uid)
            }
            None => self.trusted_uids.contains(&sys::peer::overflow_uid()),
        }
    }

    /// The trusted users.
    pub(super) fn trusted(&self) -> Vec<Option<u32>> {
        let overflow = sys::peer::overflow_uid();
        let own = rustix::process::geteuid().as_raw();
        let named = self.trusted_uids.iter().map(|uid| Some(*uid).filter(|uid| *uid != overflow));
        [Some(0), Some(own)].into_iter().chain(named).collect()
    }
}
