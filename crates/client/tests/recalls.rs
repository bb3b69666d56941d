//! What a session holds of an export's filesystem that the server takes back while nothing is done with the
//! session. These tests need root: other servers give no trees.

mod support;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use samehost_client as client;

use client::{Counters, DataPath, File, LaneMode, OpenOptions, Plus, Session};
use support::{Served, wait_for};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The descriptors of this process that are of a directory or of what is in it.
fn held(dir: &Path) -> usize {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let mut files: HashSet<_> =
        fs::read_dir(dir).unwrap().map(|entry| identity(entry.unwrap().metadata().unwrap())).collect();
    files.insert(identity(fs::metadata(dir).unwrap()));
    let open =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    open.filter(|meta| files.contains(&(meta.dev(), meta.ino()))).count()
}

/// A session that holds the tree, files and an open directory.
struct Idle {
    session: Session,
    files: Vec<File>,
    _listing: client::Directory,
}

impl Idle {
    async fn of(served: &Served) -> Self {
        for number in 0..3000 {
            fs::write(served.export().join(format!("file-{number:04}")), b"content").unwrap();
        }
        let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
        wait_for("a tree", || session.lane().tree).await;
        let root = session.root();
        let mut files = Vec::new();
        for (name, options) in [
            (&b"file-0001"[..], OpenOptions::reading()),
            (b"file-0002", OpenOptions::new().read(true).write(true)),
            (b"new", OpenOptions::replacing()),
        ] {
            let file = session.open_at(&root, name, &options).await.unwrap();
            assert_eq!(file.data_path(), DataPath::Lane);
            files.push(file);
        }
        files[1].write_at(b"written", 0).await.unwrap();
        let mut listing = session.read_dir(&root, Plus::All);
        listing.next().await.unwrap();
        session.lookup(&root, b"file-0003").await.unwrap();
        // The tree, the files, the listing, and what was looked up.
        assert!(held(&served.export()) >= 6);
        Self { session, files, _listing: listing }
    }

    async fn releases_everything(&self, served: &Served, before: &Counters) {
        wait_for("nothing to be held", || held(&served.export()) == 0).await;
        let after = self.session.counters();
        assert_eq!(after.wire.round_trips, before.wire.round_trips, "nothing was asked");
        assert_eq!(after.lane.round_trips, before.lane.round_trips);
    }
}

#[tokio::test]
async fn an_idle_session_releases_what_the_server_recalls() {
    if !is_root() {
        return;
    }
    let mut served = Served::with_trees();
    let idle = Idle::of(&served).await;
    let before = idle.session.counters();
    served.reload_with("no_root_squash,no_tree");
    idle.releases_everything(&served, &before).await;
    let report = idle.session.lane();
    assert!(report.local && !report.tree, "the lane goes on: {report:?}");
    // The files are used as before, under the new rules.
    assert_eq!(idle.files[1].read_into(Vec::new(), 0, 20).await.unwrap(), b"written");
    assert_eq!(idle.files[1].data_path(), DataPath::Lane);
    served.reload_with("no_root_squash");
    wait_for("the second recall", || held(&served.export()) == 0).await;
    idle.session.lookup(&idle.session.root(), b"file-0001").await.unwrap();
    wait_for("another tree", || idle.session.lane().tree).await;
}

#[tokio::test]
async fn an_idle_session_releases_everything_when_its_lane_ends() {
    if !is_root() {
        return;
    }
    let mut served = Served::with_trees();
    let idle = Idle::of(&served).await;
    let before = idle.session.counters();
    served.kill();
    idle.releases_everything(&served, &before).await;
    assert!(!idle.session.lane().local);
}

#[tokio::test]
async fn a_session_that_is_dropped_holds_nothing() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let Idle { session, files, _listing } = Idle::of(&served).await;
    drop((files, _listing));
    drop(session);
    wait_for("nothing to be held", || held(&served.export()) == 0).await;
}

#[tokio::test]
async fn a_tree_comes_although_its_requester_stops_waiting() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = served.wire().await;
    session.set_lane_mode(LaneMode::Required);
    let has_lane = std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if session.lane().local { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    tokio::select! {
        biased;
        // It has sent the request for the tree, and waits for the answer.
        report = session.probe() => panic!("it waits for the tree: {report:?}"),
        () = has_lane => {}
    }
    wait_for("a tree", || session.lane().tree).await;
}
