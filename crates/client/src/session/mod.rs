//! A session: one server's export as one user sees it.
//!
//! | module | what |
//! |---|---|
//! | `connect` | addresses, ports, MOUNT, sizes |
//! | `call` | one NFS call |
//! | `procedures` | the procedures, one method each |
//! | `path` | following paths |
//! | `directory` | listings |
//! | `listed` | what makes a listing start over where it was |
//! | `open` | from a name to an open file |
//! | `reply_attributes` | which attributes of which files results carry |
//! | `user` | the same session for another user |

mod acl;
mod call;
mod connect;
mod cookie_loop;
mod directory;
mod durable;
mod listed;
mod open;
mod path;
mod procedures;
mod reply_attributes;
mod user;

use std::sync::Arc;

use crate::counters::{Counters, SessionCounters};
use crate::file::UncommittedPool;
use crate::lane::{LaneManager, LaneReport};
use crate::options::Options;
use crate::types::{FsInfo, Handle};

pub use cookie_loop::CookieLoopDetector;
pub use directory::{Directory, Page};
pub use listed::Listed;
pub use path::Follow;
pub(crate) use user::User;

/// A session with a server. Clones share it; so do the files that were opened with it.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
    /// Who calls.
    pub(crate) user: Arc<User>,
}

/// What all users of a session share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) rpc: rpc::client::Client,
    /// Who the session was made for: mounts, and shakes hands over the lane.
    pub(crate) owner: Arc<User>,
    /// Where MOUNT is served, if not beside NFS.
    mount: Option<std::net::SocketAddr>,
    /// The path that was mounted, as the server has it.
    mounted: Vec<u8>,
    /// What is left of the URL's path.
    target: Vec<u8>,
    root: Handle,
    sizes: FsInfo,
    /// Bytes a READ.
    pub(crate) rsize: usize,
    /// Bytes a WRITE.
    pub(crate) wsize: usize,
    pub(crate) counters: Arc<SessionCounters>,
    /// What was written over the wire and is not durable.
    pub(crate) uncommitted: Arc<UncommittedPool>,
    pub(crate) lane: LaneManager,
}

impl Session {
    /// The root of what was mounted.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.inner.root
    }

    /// The path that was mounted, as the server has it.
    #[must_use]
    pub fn mounted(&self) -> &[u8] {
        &self.inner.mounted
    }

    /// What is left of the URL's path behind what was mounted: the URL named a file, or something inside an
    /// export. Paths of [`Session::walk`] and [`Session::open`] begin at the root, so this is the URL's own
    /// file there.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &self.inner.target
    }

    /// The server's address.
    #[must_use]
    pub fn server(&self) -> std::net::SocketAddr {
        self.inner.rpc.address()
    }

    /// What the server said about sizes at the beginning.
    #[must_use]
    pub fn sizes(&self) -> FsInfo {
        self.inner.sizes
    }

    /// Bytes of one READ and of one WRITE, as agreed.
    #[must_use]
    pub fn transfer_sizes(&self) -> (usize, usize) {
        (self.inner.rsize, self.inner.wsize)
    }

    /// Whether the session is local, and if not, why not.
    #[must_use]
    pub fn lane(&self) -> LaneReport {
        self.inner.lane.report()
    }

    /// What the session has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let stats = self.inner.rpc.stats();
        Counters {
            reconnects: stats.reconnects,
            retransmits: stats.retransmits,
            ..self.inner.counters.snapshot()
        }
    }
}
