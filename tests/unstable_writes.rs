//! COMMIT's guarantee in the store, with a device that fails: unstable data survives small caches, concurrent
//! callers and the end of the store. The guarantee towards clients is tested in `stability`.

use std::fs::{self, File as LocalFile};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

use io::Stability;
use samehost_tests::failing::FailingDisk;
use samehost_tests::need_root;
use samehost_tests::scratch::pattern;
use store::{
    Error, FileHandle, HandleKey, Identity, Node, Store, StoreOptions, UserContext, Wcc, WriteVerifier,
};

const SIZE: usize = 64 << 10;

struct Rig {
    disk: FailingDisk,
    path: PathBuf,
    verifier: Arc<WriteVerifier>,
    store: Store,
}

impl Rig {
    /// A disk with a file of [`SIZE`] bytes and a hundred empty ones, in a store that caches 8 files and
    /// keeps half as many open for their unstable data.
    fn new() -> Self {
        need_root();
        let disk = FailingDisk::new("ext4", "");
        let path = disk.path().join("file");
        fs::write(&path, pattern(1, SIZE)).expect("there is room");
        (0..100).for_each(|i| fs::write(disk.path().join(format!("other{i}")), b"").expect("there is room"));
        let verifier = Arc::new(WriteVerifier::new());
        let options = StoreOptions {
            path: disk.path().to_owned(),
            export_id: 1,
            key: HandleKey::new([7; 16]),
            read_only: false,
            subtree_check: false,
            verifier: Arc::clone(&verifier),
            limits: store::DescriptorLimits { nodes: 8, ..store::DescriptorLimits::default() },
            reserved_name: None,
        };
        let store = Store::open(options).expect("opens");
        Self { disk, path, verifier, store }
    }

    fn user_context(&self) -> UserContext<'_> {
        self.store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("root is permitted")
    }

    fn find(&self, user_context: &UserContext<'_>, name: &str) -> Arc<Node> {
        let root = user_context.node(self.store.root().as_bytes()).expect("there");
        user_context.lookup(&root, name.as_bytes()).expect("there")
    }
}

fn write(user_context: &UserContext<'_>, node: &Arc<Node>) -> Stability {
    let written = user_context.write(node, 0, &pattern(2, SIZE), Stability::Unstable, &mut Wcc::default());
    written.expect("it goes to the page cache").committed
}

fn commit(user_context: &UserContext<'_>, handle: &FileHandle) -> Result<(), Error> {
    user_context
        .node(handle.as_bytes())
        .and_then(|node| user_context.commit(&node, 0, 0, &mut Wcc::default()))
}

/// The file leaves the cache between WRITE and COMMIT, and a local process sees the write error before the
/// server: a descriptor opened only for the COMMIT wouldn't report it.
#[test]
fn uncommitted_writes_survive_eviction_from_the_cache() {
    let rig = Rig::new();
    let user_context = rig.user_context();
    let local = LocalFile::options().write(true).open(&rig.path).expect("opens");
    rig.disk.fail(&rig.path);
    let node = rig.find(&user_context, "file");
    let (handle, before) = (*node.handle(), rig.verifier.get());
    assert_eq!(write(&user_context, &node), Stability::Unstable);
    drop(node);
    // Several lookups each: the cache keeps files used once only if there is room.
    (0..400).for_each(|i| drop(rig.find(&user_context, &format!("other{}", i / 4))));
    local.sync_all().expect_err("the device fails");
    rig.disk.heal();
    assert_eq!(rig.verifier.get(), before, "the server hasn't seen the error yet");
    commit(&user_context, &handle).expect_err("the server sees the error");
    assert_ne!(rig.verifier.get(), before, "all clients send their data again");
    commit(&user_context, &handle).expect("the error is reported once");
}

/// If the store can't keep another file open for its unstable data, the data is durable before the reply.
#[test]
fn a_write_beyond_the_limit_of_uncommitted_files_is_stable() {
    let rig = Rig::new();
    let user_context = rig.user_context();
    let nodes: Vec<_> = (0..6).map(|i| rig.find(&user_context, &format!("other{i}"))).collect();
    let committed: Vec<_> = nodes.iter().map(|node| write(&user_context, node)).collect();
    assert_eq!(committed[..4], [Stability::Unstable; 4]);
    assert_eq!(committed[4..], [Stability::DataSync; 2]);
    assert_eq!(write(&user_context, &nodes[0]), Stability::Unstable, "this file is kept open already");
    commit(&user_context, nodes[0].handle()).expect("the disk works");
    assert_eq!(write(&user_context, &nodes[4]), Stability::Unstable, "another file may be kept open");
    assert_eq!(write(&user_context, &nodes[0]), Stability::DataSync);
    fs::remove_file(rig.disk.path().join("other1")).expect("own file");
    commit(&user_context, nodes[1].handle()).expect_err("it is removed");
    assert_eq!(write(&user_context, &nodes[0]), Stability::Unstable, "a removed file is not kept open");
}

/// Two concurrent commits use one descriptor, and the kernel reports the error to one of them. Both must
/// notice it.
#[test]
fn concurrent_commits_both_notice_a_write_error() {
    let rig = Rig::new();
    let handle = *rig.find(&rig.user_context(), "file").handle();
    for round in 0..20 {
        let user_context = rig.user_context();
        rig.disk.fail(&rig.path);
        write(&user_context, &rig.find(&user_context, "file"));
        let (before, start) = (rig.verifier.get(), Barrier::new(2));
        let committing = || {
            let user_context = rig.user_context();
            start.wait();
            let result = commit(&user_context, &handle);
            (result, rig.verifier.get())
        };
        let results = std::thread::scope(|scope| {
            [scope.spawn(committing), scope.spawn(committing)].map(|thread| thread.join().expect("no panic"))
        });
        assert!(results.iter().any(|(result, _)| result.is_err()), "round {round}: {results:?}");
        for (result, after) in results {
            assert!(result.is_err() || after != before, "round {round}: success with the old verifier");
        }
        rig.disk.heal();
    }
}

/// Concurrent stable writes to parts of a file: one must not receive the error of another, which would then
/// be answered as durable. No verifier tells its client otherwise.
#[test]
fn concurrent_stable_writes_all_notice_their_write_error() {
    const WRITERS: usize = 4;
    let rig = Rig::new();
    let node = rig.find(&rig.user_context(), "file");
    for round in 0..20 {
        rig.disk.fail(&rig.path);
        let start = Barrier::new(WRITERS);
        let writing = &|writer: usize| {
            let (user_context, len) = (rig.user_context(), SIZE / WRITERS);
            let data = pattern(2, len);
            start.wait();
            let at = (writer * len) as u64;
            user_context.write(&node, at, &data, Stability::FileSync, &mut Wcc::default()).err()
        };
        let errors = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS).map(|i| scope.spawn(move || writing(i))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(errors.iter().all(Option::is_some), "round {round}: {errors:?}");
        rig.disk.heal();
        let all = pattern(3, SIZE);
        let repaired = rig.user_context().write(&node, 0, &all, Stability::FileSync, &mut Wcc::default());
        assert_eq!(repaired.expect("it is repaired").committed, Stability::FileSync);
        assert!(rig.disk.contents(&rig.path) == all, "stable data is on the device");
    }
}

/// A stable write of [`SIZE`] bytes.
fn write_stably(user_context: &UserContext<'_>, node: &Arc<Node>, offset: usize) -> Result<(), Error> {
    let data = pattern(4, SIZE);
    user_context.write(node, offset as u64, &data, Stability::FileSync, &mut Wcc::default()).map(drop)
}

/// Nothing that was accepted before is lost, so no client has to send its data again: whether the file has
/// uncommitted data, and whether one write has the file's descriptor or several writes have their own.
#[test]
fn a_stable_write_without_room_keeps_the_verifier() {
    let rig = Rig::new();
    let filler = LocalFile::create(rig.disk.path().join("filler")).expect("own disk");
    let mut length = 0;
    for step in [1 << 20, 4 << 10] {
        let more = |at| rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), at, step);
        while more(length).is_ok() {
            length += step;
        }
    }
    let user_context = rig.user_context();
    let nodes = ["file", "other0"].map(|name| rig.find(&user_context, name));
    let before = rig.verifier.get();
    assert_eq!(write(&user_context, &nodes[0]), Stability::Unstable, "its blocks are allocated");
    for node in &nodes {
        assert_eq!(write_stably(&user_context, node, SIZE), Err(Error::NoSpace));
        let start = Barrier::new(4);
        let writing = || {
            let user_context = rig.user_context();
            start.wait();
            write_stably(&user_context, node, SIZE)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(writing)).collect();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), Err(Error::NoSpace));
            }
        });
    }
    assert_eq!(rig.verifier.get(), before);
    commit(&user_context, nodes[0].handle()).expect("accepted data has its space");
    assert_eq!(rig.verifier.get(), before);
}

/// The device is full: the sync within a stable write fails with the same error as a write without room. Data
/// that was promised is lost.
#[test]
fn a_stable_write_whose_sync_finds_no_room_changes_the_verifier_if_data_was_promised() {
    let rig = Rig::new();
    let user_context = rig.user_context();
    let node = rig.find(&user_context, "file");
    rig.disk.fail(&rig.path);
    let before = rig.verifier.get();
    assert_eq!(write_stably(&user_context, &node, 0), Err(Error::NoSpace));
    assert_eq!(rig.verifier.get(), before, "nobody was promised anything");
    assert_eq!(write(&user_context, &node), Stability::Unstable);
    assert_eq!(write_stably(&user_context, &node, 0), Err(Error::NoSpace));
    assert_ne!(rig.verifier.get(), before, "the unstable data is lost");
    rig.disk.heal();
}

/// Closing a store (its export was removed or changed) closes the descriptors that would have reported the
/// error.
#[test]
fn closing_a_store_with_uncommitted_writes_changes_the_verifier() {
    let Rig { disk, path: _, verifier, store } = Rig::new();
    let before = verifier.get();
    let user_context =
        store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("root is permitted");
    let root = user_context.node(store.root().as_bytes()).expect("there");
    let node = user_context.lookup(&root, b"file").expect("there");
    write(&user_context, &node);
    drop((root, node, user_context));
    drop(store);
    assert_ne!(verifier.get(), before);
    drop(disk);
}
