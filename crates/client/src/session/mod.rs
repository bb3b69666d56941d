//! A session: one server's export as one user sees it.
//!
//! | module | what |
//! |---|---|
//! | `connect` | connections, root, transfer sizes, lane |
//! | `operations` | one method each |
//! | `path` | following paths |
//! | `directory` | listings |
//! | `mount_grant` | the export's own mount |
//! | `listed` | names that a listing leaves out after it has started over |
//! | `cookie_loop` | listings whose cookies repeat |
//! | `extended` | extended attributes, NFSv4's access control lists, birth times |
//! | `local_first` | the choice between the tree and the wire, for each operation |

mod connect;
mod cookie_loop;
mod directory;
mod extended;
mod listed;
mod local_first;
mod mount_grant;
mod operations;
mod path;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::counters::{Counters, SessionCounters};
use crate::lane::LaneManager;
use crate::options::{Credential, LaneMode, Options, Version};
use crate::types::{FsInfo, Handle, LaneReport};
use crate::uncommitted_writes::UncommittedPool;
use crate::user::User;
use crate::wire::WireCaller;

#[doc(hidden)]
pub use cookie_loop::CookieLoopDetector;
pub use directory::Directory;
#[doc(hidden)]
pub use listed::Listed;
pub use path::Follow;
pub(crate) use path::PathWalk;

/// A session with a server. Clones share it; so do the files that were opened with it.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
    /// The user's calls.
    pub(crate) caller: WireCaller,
}

/// What all users of a session share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Arc<Options>,
    pub(crate) rpc: Arc<rpc::client::Client>,
    /// The user who mounts and establishes lanes.
    pub(crate) owner: Arc<User>,
    /// The path that was mounted, as the server has it.
    mounted: Vec<u8>,
    /// The rest of the URL's path.
    target: Vec<u8>,
    root: Handle,
    sizes: FsInfo,
    pub(crate) counters: Arc<SessionCounters>,
    /// What was written over the wire and is not durable.
    pub(crate) uncommitted: Arc<UncommittedPool>,
    pub(crate) lane: Arc<LaneManager>,
}

impl Session {
    /// The same session for another user: connections, lane, sizes and counters are shared, calls and Opens
    /// are made with `credential`. This is cheap. A mounted filesystem keeps one for each active user.
    #[must_use]
    pub fn as_user(&self, credential: Credential) -> Self {
        let user = Arc::new(User::new(credential, &self.caller.user.session));
        Self { inner: self.inner.clone(), caller: WireCaller { wire: self.caller.wire.clone(), user } }
    }

    /// The same session with a umask, which is cleared in the modes of new files. A file in a directory with
    /// a default access control list inherits that instead, as on Linux, where the server or this process
    /// makes it so: over NFSv4.2 ([`Session::server_applies_umask`]) and in trees. Elsewhere, and where the
    /// server creates a file over the lane, the umask applies in any case.
    #[must_use]
    pub fn with_umask(&self, umask: u32) -> Self {
        let umask = umask & 0o777;
        // Most new files have no bit that it clears.
        if umask == self.caller.user.umask {
            return self.clone();
        }
        let user = Arc::new(User { umask, ..(*self.caller.user).clone() });
        Self { inner: self.inner.clone(), caller: WireCaller { wire: self.caller.wire.clone(), user } }
    }

    /// Whether the server applies the umask of new files itself (NFSv4.2's attribute `mode_umask`, RFC 8275).
    #[must_use]
    pub fn server_applies_umask(&self) -> bool {
        self.caller.wire.protocol.applies_umask()
    }

    /// The directory that was mounted.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.inner.root.clone()
    }

    /// The path that was mounted, as the server has it.
    #[must_use]
    pub fn mounted(&self) -> &[u8] {
        &self.inner.mounted
    }

    /// The part of the URL's path behind the mounted directory; empty if the URL names that directory itself.
    /// It is the path of the URL's file for [`Session::walk`] and [`Session::open`], which begin at the root.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &self.inner.target
    }

    /// The server's address.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.inner.rpc.address()
    }

    /// The NFS version that client and server agreed on: [`Version::V3`], [`Version::V4_1`] or
    /// [`Version::V4_2`].
    #[must_use]
    pub fn version(&self) -> Version {
        self.caller.wire.protocol.version()
    }

    /// The server's limits and preferences, as it stated them when the session connected.
    #[must_use]
    pub fn sizes(&self) -> FsInfo {
        self.inner.sizes
    }

    /// The sizes of the session's READs and WRITEs over the wire, in bytes.
    #[must_use]
    pub fn transfer_sizes(&self) -> (usize, usize) {
        (self.caller.wire.rsize, self.caller.wire.wsize)
    }

    /// Whether the session has a lane, and the reasons if it has none.
    ///
    /// ```
    /// use samehost_client::{DataPath, LaneMode, OpenOptions, Options, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # let url = server.url();
    /// # let run_dir = server.run_dir();
    /// let options = Options::new().lane(LaneMode::Required).run_dir(&run_dir);
    /// let session = Session::connect(&url, options).await?;
    /// assert!(session.lane().local);
    ///
    /// let file = session.open(b"greeting", &OpenOptions::reading()).await?;
    /// assert_eq!(file.data_path(), DataPath::Lane);
    ///
    /// // The file remains usable without a lane, and the report says why there is none.
    /// session.set_lane_mode(LaneMode::Off);
    /// let mut buffer = [0; 5];
    /// assert_eq!(file.read_at(&mut buffer, 0).await?, 5);
    /// assert_eq!((&buffer, file.data_path()), (b"hello", DataPath::Wire));
    /// assert!(!session.lane().local);
    /// println!("{}", session.lane().reasons.join("; "));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lane(&self) -> LaneReport {
        self.inner.lane.report()
    }

    /// Looks for a lane and a tree now, whatever the backoff says, and reports.
    pub async fn probe(&self) -> LaneReport {
        if self.inner.lane.mode() != LaneMode::Off {
            self.inner.lane.probe_once(true).await;
            self.inner.lane.await_tree_now().await;
        }
        self.lane()
    }

    /// Whether to use the lane from now on; [`Options::lane`] is the first mode. When the lane is switched
    /// off, files with a grant go on over the wire with their next read or write. When it is switched on, a
    /// lane is looked for in the background ([`Session::probe`] waits for it).
    pub fn set_lane_mode(&self, mode: LaneMode) {
        self.inner.lane.set_mode(mode);
    }

    /// Since when a file has been delegated to this client (RFC 8881 section 10.4). Until the delegation
    /// ends, other clients and processes on the server don't change the file: attributes that were requested
    /// then or later are true, but for changes by this client and for the access time. `None` if the file
    /// isn't delegated, or if the server may have ended that.
    #[must_use]
    pub fn delegated_since(&self, file: &Handle) -> Option<Instant> {
        self.caller.wire.protocol.delegated_since(file, false)
    }

    /// As [`Session::delegated_since`], if the file is delegated for writing: nobody else has it open, or
    /// locks in it.
    #[must_use]
    pub fn write_delegated_since(&self, file: &Handle) -> Option<Instant> {
        self.caller.wire.protocol.delegated_since(file, true)
    }

    /// Whether locks reach the server: by NFSv4.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        self.caller.wire.protocol.has_locks()
    }

    /// The session's counters now, those of all users together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.counters.snapshot(self.inner.rpc.stats())
    }
}
