//! The store's side of a promise, with a device that fails: what becomes of unstable data when the caches are
//! small, the callers many and the store about to go. What a client sees of it is in `stability`.

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
    /// A disk with a file of [`SIZE`] bytes and a hundred empty ones, in a store that keeps 8 files in mind,
    /// and promises for half as many.
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
        };
        let store = Store::open(options).expect("opens");
        Self { disk, path, verifier, store }
    }

    fn user_context(&self) -> UserContext<'_> {
        self.store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("root may")
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

/// The file leaves the cache between WRITE and COMMIT, and a local process is told of the failure before the
/// server asks: a descriptor that were opened only then wouldn't hear of it.
#[test]
fn a_promise_outlives_the_cache() {
    let rig = Rig::new();
    let user_context = rig.user_context();
    let local = LocalFile::options().write(true).open(&rig.path).expect("opens");
    rig.disk.fail(&rig.path);
    let node = rig.find(&user_context, "file");
    let (handle, before) = (*node.handle(), rig.verifier.get());
    assert_eq!(write(&user_context, &node), Stability::Unstable);
    drop(node);
    // Several times each: what is used but once doesn't drive out what is used more.
    (0..400).for_each(|i| drop(rig.find(&user_context, &format!("other{}", i / 4))));
    local.sync_all().expect_err("the device refuses");
    rig.disk.heal();
    assert_eq!(rig.verifier.get(), before, "the server hasn't been told yet");
    commit(&user_context, &handle).expect_err("now it is");
    assert_ne!(rig.verifier.get(), before, "everybody sends again");
    commit(&user_context, &handle).expect("once");
}

/// Where there is no room to remember a promise none is made: the data is durable before the answer.
#[test]
fn without_room_for_a_promise_a_write_is_stable() {
    let rig = Rig::new();
    let user_context = rig.user_context();
    let nodes: Vec<_> = (0..6).map(|i| rig.find(&user_context, &format!("other{i}"))).collect();
    let committed: Vec<_> = nodes.iter().map(|node| write(&user_context, node)).collect();
    assert_eq!(committed[..4], [Stability::Unstable; 4]);
    assert_eq!(committed[4..], [Stability::DataSync; 2]);
    assert_eq!(write(&user_context, &nodes[0]), Stability::Unstable, "it has its place");
    commit(&user_context, nodes[0].handle()).expect("the disk is whole");
    assert_eq!(write(&user_context, &nodes[4]), Stability::Unstable, "there is room again");
    assert_eq!(write(&user_context, &nodes[0]), Stability::DataSync);
    fs::remove_file(rig.disk.path().join("other1")).expect("own file");
    commit(&user_context, nodes[1].handle()).expect_err("it is gone");
    assert_eq!(write(&user_context, &nodes[0]), Stability::Unstable, "nobody waits for what is gone");
}

/// Two commit at once through one descriptor, and the kernel tells one of them. Neither may believe that all
/// is well.
#[test]
fn of_two_commits_neither_hides_a_failure_from_the_other() {
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
        let answers = std::thread::scope(|scope| {
            [scope.spawn(committing), scope.spawn(committing)].map(|thread| thread.join().expect("no panic"))
        });
        assert!(answers.iter().any(|(result, _)| result.is_err()), "round {round}: {answers:?}");
        for (result, after) in answers {
            assert!(result.is_err() || after != before, "round {round}: well, and the verifier says so");
        }
        rig.disk.heal();
    }
}

/// A store that is closed (an export that was removed, or changed) takes with it the descriptors that would
/// have been told.
#[test]
fn a_store_that_goes_with_promises_open_changes_the_verifier() {
    let Rig { disk, path: _, verifier, store } = Rig::new();
    let before = verifier.get();
    let user_context = store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("root may");
    let root = user_context.node(store.root().as_bytes()).expect("there");
    let node = user_context.lookup(&root, b"file").expect("there");
    write(&user_context, &node);
    drop((root, node, user_context));
    drop(store);
    assert_ne!(verifier.get(), before);
    drop(disk);
}
