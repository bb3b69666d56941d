//! The support of the client's tests: a server (`served`) and sessions with it, a server whose results a test
//! scripts (`odd_v4`; `copy_server` for copies), and what can cut a connection (`proxy`).

#![allow(dead_code, unused_imports, unused_macros, reason = "each test program uses its part")]

pub mod copy_server;
pub mod odd_v4;
pub mod proxy;
mod served;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use samehost_client::{LaneMode, Options, Session, Url, Version};
pub use served::{BOUND, Served, pattern};

/// The options of exports without trees: grants of files and the wire are tested by themselves.
const OPENLY: &str = "no_root_squash,no_tree";

/// Makes a test of each version of NFS from async functions that take the version, with these attributes.
macro_rules! by_each_version {
    ($(#[$attribute:meta] $test:ident),* $(,)?) => {
        by_each_version!(@ v3, V3, $(#[$attribute] $test),*);
        by_each_version!(@ v4_1, V4_1, $(#[$attribute] $test),*);
        by_each_version!(@ v4_2, V4_2, $(#[$attribute] $test),*);
    };
    (@ $module:ident, $version:ident, $(#[$attribute:meta] $test:ident),*) => {
        mod $module {
            $(
                #[$attribute]
                async fn $test() {
                    super::$test(samehost_client::Version::$version).await;
                }
            )*
        }
    };
}
pub(crate) use by_each_version;

impl Served {
    /// A server without a lane.
    pub fn wire_only() -> Self {
        Self::new(false, OPENLY)
    }

    /// A server with a lane, over which it grants files only.
    pub fn with_lane() -> Self {
        Self::new(true, OPENLY)
    }

    /// A server with a lane, over which it grants trees, too.
    pub fn with_trees() -> Self {
        Self::new(true, "no_root_squash")
    }

    /// As [`Served::with_trees`], on the filesystem of temporary files, which usually is on a disk.
    pub fn with_trees_on_disk() -> Self {
        Self::new_in(tempfile::tempdir().unwrap(), true, "no_root_squash")
    }

    /// Reloads the export with further options, each after a comma.
    pub fn reload_also(&mut self, more: &str) {
        self.reload_with(&format!("{OPENLY}{more}"));
    }

    /// The URL of the export.
    pub fn url(&self) -> Url {
        Url::new("127.0.0.1", Some(self.port()), self.export().to_str().unwrap().as_bytes())
    }

    /// Options with short timeouts and the server's run directory, for an NFSv4 client of its own.
    pub fn options(&self, lane: LaneMode) -> Options {
        Options::new()
            .lane(lane)
            .run_dir(self.run_dir())
            .search_namespaces(false)
            .timeo(Duration::from_secs(20))
            .unique_id(another_client())
    }

    /// A session over the wire alone.
    pub async fn wire(&self) -> Session {
        Session::connect(&self.url(), self.options(LaneMode::Off)).await.expect("a session")
    }

    /// As [`Served::wire`], by this version of NFS.
    pub async fn wire_by(&self, version: Version) -> Session {
        let options = self.options(LaneMode::Off).version(version);
        Session::connect(&self.url(), options).await.expect("a session")
    }

    /// A session with a required lane.
    pub async fn lane(&self) -> Session {
        Session::connect(&self.url(), self.options(LaneMode::Required)).await.expect("a session with a lane")
    }
}

/// A `unique_id` that no other session of this process has.
pub fn another_client() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("{} of {}", LAST.fetch_add(1, SeqCst), std::process::id())
}

/// Waits until `condition` holds, while the session's tasks run.
pub async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The file's contents in the served filesystem.
pub fn on_disk(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
