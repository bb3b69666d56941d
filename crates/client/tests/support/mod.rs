//! What the client's tests share: a server (`served`) and sessions with it.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod served;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use samehost_client::{LaneMode, Options, Session, Url};
pub use served::{BOUND, Served, pattern};

/// What every export here lets its client do.
const OPENLY: &str = "no_root_squash";

impl Served {
    /// Without a lane.
    pub fn wire_only() -> Self {
        Self::new(false, OPENLY)
    }

    /// With one.
    pub fn with_lane() -> Self {
        Self::new(true, OPENLY)
    }

    /// Has the server give the export these options, too; they begin with a comma, or there are none.
    pub fn reload_also(&mut self, more: &str) {
        self.reload_with(&format!("{OPENLY}{more}"));
    }

    /// The URL of the export.
    pub fn url(&self) -> Url {
        Url::new("127.0.0.1", Some(self.port()), self.export().to_str().unwrap().as_bytes())
    }

    /// Options that fit: impatient, with this run directory.
    pub fn options(&self, lane: LaneMode) -> Options {
        Options::new()
            .lane(lane)
            .run_dir(self.run_dir())
            .search_namespaces(false)
            .timeo(Duration::from_secs(20))
    }

    /// A session over the wire alone.
    pub async fn wire(&self) -> Session {
        Session::connect(&self.url(), self.options(LaneMode::Off)).await.expect("a session")
    }

    /// A session that must have a lane.
    pub async fn lane(&self) -> Session {
        Session::connect(&self.url(), self.options(LaneMode::Required)).await.expect("a session with a lane")
    }
}

/// Waits until `condition` holds; the session's tasks go on meanwhile.
pub async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The file's contents as the server's filesystem has them.
pub fn on_disk(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
