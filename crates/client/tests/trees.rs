//! Sessions that have been given the directory tree of their export. These tests need root: other servers
//! give no trees.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use rustix::fs::{XattrFlags, setxattr};
use samehost_client as client;

use client::{
    Access, Create, Credential, DataPath, Error, FileKind, Handle, LaneMode, Node, OpenOptions, Operation,
    Plus, PosixAcl, Session, SetAttributes, Status, Version,
};
use support::{BOUND, Served, pattern, wait_for};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// The calls over the wire, but for the LOOKUPs by which handles get their seals.
fn calls(session: &Session) -> u64 {
    let counters = session.counters();
    Operation::ALL.iter().filter(|one| **one != Operation::Lookup).map(|one| counters.calls(*one)).sum()
}

#[tokio::test]
async fn operations_in_a_tree_ask_the_server_nothing() {
    if is_root() {
        let served = Served::with_trees();
        perform_all(&served.lane().await, &served).await;
    }
}

/// What may wait for the disk runs on other threads.
#[tokio::test]
async fn operations_in_a_tree_on_a_disk_ask_the_server_nothing() {
    if is_root() {
        let served = Served::with_trees_on_disk();
        let session = served.lane().await;
        // There are no trees of filesystems without file handles, such as a container's overlayfs.
        if session.lane().tree {
            perform_all(&session, &served).await;
        }
    }
}

async fn perform_all(session: &Session, served: &Served) {
    let report = session.lane();
    assert!(report.tree, "{report:?}");
    let (before, lane) = (calls(session), session.counters().lane.round_trips);
    let operations = session.counters().events.tree_operations;
    let root = session.root();

    let dir = session.make_dir(&root, b"dir", &mode(0o775)).await.unwrap();
    assert_eq!(dir.attributes.unwrap().mode, 0o775);
    let dir = dir.handle;
    let file =
        session.open_at(&dir, b"file", &OpenOptions::replacing().read(true).mode(0o666)).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Lane);
    file.write_at(b"content", 0).await.unwrap();
    let mut buffer = [0; 20];
    assert_eq!(file.read_at(&mut buffer, 0).await.unwrap(), 7);
    file.close().await.unwrap();
    let found = session.lookup(&dir, b"file").await.unwrap();
    assert_eq!((found.attributes.unwrap().size, found.attributes.unwrap().mode), (7, 0o666));
    session.set_attributes(&found.handle, &mode(0o640), None).await.unwrap();
    assert_eq!(session.attributes(&found.handle).await.unwrap().mode, 0o640);
    let wanted = Access::READ | Access::MODIFY;
    assert_eq!(session.access(&found.handle, wanted).await.unwrap(), wanted);
    session.symlink(&dir, b"link", b"file", &SetAttributes::default()).await.unwrap();
    let link = session.lookup(&dir, b"link").await.unwrap().handle;
    assert_eq!(session.read_link(&link).await.unwrap(), b"file");
    session.make_node(&dir, b"pipe", Node::Fifo, &mode(0o600)).await.unwrap();
    session.link(&found.handle, &dir, b"other").await.unwrap();
    session.rename(&dir, b"other", &root, b"moved").await.unwrap();
    session.create(&dir, b"new", &Create::Guarded(mode(0o600))).await.unwrap();
    assert_eq!(session.read_dir(&dir, Plus::All).collect().await.unwrap().len(), 4);
    assert_eq!(session.acls(&dir).await.unwrap().default, None);
    assert!(session.fs_stat(&dir).await.unwrap().total_bytes > 0);
    for name in [&b"file"[..], b"link", b"pipe", b"new"] {
        session.remove(&dir, name).await.unwrap();
    }
    session.remove_dir(&root, b"dir").await.unwrap();
    let missing = session.lookup(&root, b"dir").await.unwrap_err();
    assert_eq!(missing.status(), Some(Status::NoEntry));
    assert_eq!((calls(session), session.counters().lane.round_trips), (before, lane));
    assert!(session.counters().events.tree_operations >= operations + 20);
    assert_eq!(fs::read_dir(served.export()).unwrap().count(), 1);
}

/// In a tree, a list is read by the file's name if that is still its name.
#[tokio::test]
async fn access_control_lists_are_those_of_the_file_whatever_its_name_is() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = served.lane().await;
    let make = |name: &str, uid| {
        let path = served.export().join(name);
        fs::write(&path, b"").unwrap();
        let (users, groups) = (vec![(uid, 4)], vec![]);
        let list = PosixAcl { owner: 6, users, group: 4, groups, mask: Some(4), other: 0 };
        let set = setxattr(&path, c"system.posix_acl_access", &list.to_bytes(), XattrFlags::empty());
        set.unwrap();
        path
    };
    let old = make("file", 1000);
    let handle = session.lookup(&session.root(), b"file").await.unwrap().handle;
    assert_eq!(session.acls(&handle).await.unwrap().access.users, [(1000, 4)]);
    fs::rename(&old, served.export().join("moved")).unwrap();
    assert_eq!(session.acls(&handle).await.unwrap().access.users, [(1000, 4)], "there is no such name");
    make("file", 2000);
    assert_eq!(session.acls(&handle).await.unwrap().access.users, [(1000, 4)], "it is another file's");
    let other = session.lookup(&session.root(), b"file").await.unwrap().handle;
    assert_eq!(session.acls(&other).await.unwrap().access.users, [(2000, 4)]);
}

/// Each has been found in the other one. The wire finds one of them again when it has been found anew.
#[tokio::test]
async fn directories_that_others_move_into_each_other_are_no_cycle() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = served.lane().await;
    let root = session.root();
    let path = |name: &str| served.export().join(name);
    fs::create_dir_all(path("a/b")).unwrap();
    let a = session.lookup(&root, b"a").await.unwrap().handle;
    let b = session.lookup(&a, b"b").await.unwrap().handle;
    fs::rename(path("a/b"), path("b")).unwrap();
    fs::rename(path("a"), path("b/a")).unwrap();
    assert_eq!(session.lookup(&b, b"a").await.unwrap().handle, a);
    // Calls over the wire, for which the handles are sealed if they aren't yet.
    for directory in [&a, &b] {
        let asked = session.path_conf(directory).await;
        assert!(asked.is_ok() || asked.unwrap_err().status() == Some(Status::Stale));
    }
    session.lookup(&root, b"b").await.unwrap();
    session.lookup(&b, b"a").await.unwrap();
    session.path_conf(&a).await.unwrap();
}

/// The server may have a file open that it has sealed. It learns of the removal of a large one.
#[tokio::test]
async fn space_of_large_files_is_free_after_their_removal() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = served.lane().await;
    let root = session.root();
    for (name, len) in [("large", 2 << 20), ("small", 4096)] {
        fs::write(served.export().join(name), pattern(1, len)).unwrap();
    }
    let large = session.lookup(&root, b"large").await.unwrap().handle;
    let small = session.lookup(&root, b"small").await.unwrap().handle;
    // Calls over the wire, for which the handles are sealed.
    session.path_conf(&large).await.unwrap();
    session.path_conf(&small).await.unwrap();
    let before = calls(&session);
    session.remove(&root, b"small").await.unwrap();
    session.remove(&root, b"large").await.unwrap();
    wait_for("a question about the large one", || calls(&session) > before).await;
    assert_eq!(calls(&session), before + 1);
}

#[tokio::test]
async fn a_process_of_root_acts_as_its_users() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    fs::set_permissions(served.export(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(served.export().join("alices")).unwrap();
    chown(served.export().join("alices"), Some(1001), Some(1001)).unwrap();
    let session = served.lane().await;
    assert!(session.lane().tree);
    let user = |uid| session.as_user(Credential::Sys { uid, gid: uid, groups: vec![uid + 1000] });
    let (alice, bob) = (user(1001), user(1002));
    let before = calls(&session);
    let dir = alice.lookup(&session.root(), b"alices").await.unwrap().handle;
    let file = alice.open_at(&dir, b"file", &OpenOptions::replacing().mode(0o600)).await.unwrap();
    file.write_at(b"mine", 0).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(fs::metadata(served.export().join("alices/file")).unwrap().uid(), 1001);
    let refused = bob.create(&dir, b"new", &Create::Guarded(mode(0o600))).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::Access));
    let refused = bob.make_dir(&session.root(), b"new", &mode(0o700)).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::Access));
    assert_eq!(calls(&session), before);
    // What NFS may allow and open(2) doesn't is the server's to decide.
    let refused = bob.open_at(&dir, b"file", &OpenOptions::reading()).await;
    let error = match refused {
        Ok(file) => file.read_into(Vec::new(), 0, 10).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.status(), Some(Status::Access));
}

#[tokio::test]
async fn a_listing_goes_on_when_the_server_is_killed() {
    if !is_root() {
        return;
    }
    let mut served = Served::with_trees();
    for number in 0..5000 {
        fs::write(served.export().join(format!("file-{number}")), b"").unwrap();
    }
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    wait_for("a tree", || session.lane().tree).await;
    let mut listing = session.read_dir(&session.root(), Plus::All);
    let mut names = Vec::new();
    while let Some(entry) = listing.next().await.unwrap() {
        names.push(entry.name);
        if names.len() == 1000 {
            served.kill();
            served.restart();
        }
    }
    names.retain(|name| !name.starts_with(b"."));
    names.sort();
    let mut expected: Vec<_> = (0..5000).map(|number| format!("file-{number}").into_bytes()).collect();
    expected.sort();
    assert_eq!(names.len(), 5000);
    assert!(names == expected, "every name once");
}

/// A tree saves work by what isn't asked for. A server may send more.
#[tokio::test]
async fn a_listing_has_at_least_what_is_asked_for() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    fs::write(served.export().join("file"), b"content").unwrap();
    fs::create_dir(served.export().join("dir")).unwrap();
    std::os::unix::fs::symlink("file", served.export().join("link")).unwrap();
    let in_tree = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    wait_for("a tree", || in_tree.lane().tree).await;
    for session in [in_tree, served.wire_by(Version::V3).await, served.wire_by(Version::V4_2).await] {
        let list = async |plus| session.read_dir(&session.root(), plus).collect().await.unwrap();
        let all = list(Plus::All).await;
        assert_eq!(all.len(), 3);
        for plus in [Plus::Kinds, Plus::Attributes] {
            let listed = list(plus).await;
            assert_eq!(listed.len(), 3);
            for (entry, full) in listed.iter().zip(&all) {
                assert_eq!((&entry.name, entry.fileid, entry.kind), (&full.name, full.fileid, full.kind));
                let needs_attributes = matches!(plus, Plus::Attributes);
                let needs_handle = needs_attributes && full.kind == Some(FileKind::Directory);
                assert!(
                    entry.attributes == full.attributes || entry.attributes.is_none() && !needs_attributes
                );
                assert!(entry.handle == full.handle || entry.handle.is_none() && !needs_handle);
            }
        }
        session.close().await;
    }
}

/// Files that were found over the wire are used in the tree when there is one.
#[tokio::test]
async fn a_tree_takes_over_what_the_wire_has_found() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    fs::create_dir_all(served.export().join("a/b")).unwrap();
    fs::write(served.export().join("a/b/file"), b"content").unwrap();
    let session = served.wire().await;
    let mut at = session.root();
    for name in [&b"a"[..], b"b", b"file"] {
        at = session.lookup(&at, name).await.unwrap().handle;
    }
    let listed = session.read_dir(&session.root(), Plus::All).collect().await.unwrap();
    let listed = listed.iter().find(|entry| entry.name == b"a").unwrap().handle.clone().unwrap();
    session.set_lane_mode(LaneMode::Required);
    session.probe().await;
    assert!(session.lane().tree, "{:?}", session.lane());
    let before = session.counters();
    assert_eq!(session.attributes(&at).await.unwrap().size, 7);
    assert_eq!(session.read_dir(&listed, Plus::All).collect().await.unwrap().len(), 1);
    let file = session.open_handle(&at, b"file", &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.read_into(Vec::new(), 0, 10).await.unwrap(), b"content");
    file.close().await.unwrap();
    let after = session.counters();
    assert_eq!(after.wire.round_trips, before.wire.round_trips);
    assert_eq!(after.lane.round_trips, before.lane.round_trips);
}

#[tokio::test]
async fn a_listed_file_is_opened_by_its_name() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    wait_for("a tree", || session.lane().tree).await;
    let root = session.root();
    let path = served.export().join("file");
    std::fs::write(&path, b"content").unwrap();
    let reading = OpenOptions::reading();
    for plus in [Plus::All, Plus::Attributes] {
        let listed = session.read_dir(&root, plus).collect().await.unwrap();
        let entry = listed.into_iter().find(|entry| entry.name == b"file").unwrap();
        assert_eq!(entry.handle.is_some(), matches!(plus, Plus::All));
        let before = session.counters().wire.round_trips;
        let file = session.open_listed(&root, &entry, &reading).await.unwrap();
        assert_eq!(file.attributes_at_open().unwrap().fileid, entry.fileid);
        assert_eq!(file.read_into(Vec::new(), 0, 10).await.unwrap(), b"content");
        assert_eq!(session.attributes(&file.handle()).await.unwrap().size, 7);
        assert_eq!(session.counters().wire.round_trips, before);
        if entry.handle.is_none() {
            // A file that has the name by now is opened, and a link isn't followed.
            std::fs::rename(&path, path.with_file_name("moved")).unwrap();
            std::fs::write(&path, b"another").unwrap();
            let another = session.open_listed(&root, &entry, &reading.create(true)).await.unwrap();
            assert_ne!(another.attributes_at_open().unwrap().fileid, entry.fileid);
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("moved", &path).unwrap();
            let error = session.open_listed(&root, &entry, &reading).await.unwrap_err();
            assert!(matches!(error, Error::Loop { .. }), "{error}");
            std::fs::remove_file(&path).unwrap();
            let error = session.open_listed(&root, &entry, &reading.create(true)).await.unwrap_err();
            assert_eq!(error.status(), Some(Status::NoEntry), "it creates none");
        }
    }
}

/// Within a filesystem the kernel copies: the client reads nothing.
#[tokio::test]
async fn a_granted_file_is_copied_to_a_local_file() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = Session::connect(&served.url(), served.options(LaneMode::Required)).await.unwrap();
    for size in [0, 1, 4096, 100_000, (16 << 20) + 1] {
        let data = pattern(size as u64, size);
        std::fs::write(served.export().join("file"), &data).unwrap();
        let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
        let here = tempfile::tempfile_in(served.export().parent().unwrap());
        for (is_here, local) in [(true, here), (false, tempfile::tempfile())] {
            let local = Arc::new(local.unwrap());
            let before = session.counters().lane.bytes_read;
            let copied = client::read_from(&file, &local, &client::CopyOptions::new()).await.unwrap();
            assert_eq!(copied, size as u64);
            assert!(session.counters().lane.bytes_read == before || !is_here, "{size}");
            let mut read = vec![0; size + 1];
            assert_eq!(io::read_at(&*local, &mut read, 0).unwrap(), size);
            assert!(read[..size] == data, "{size}");
        }
    }
}

#[tokio::test]
async fn a_granted_descriptor_sets_attributes_as_long_as_its_tree_lasts() {
    if !is_root() {
        return;
    }
    let mut served = Served::with_trees();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    wait_for("a tree", || session.lane().tree).await;
    let options = OpenOptions::replacing().mode(0o666);
    let file = session.open_at(&session.root(), b"file", &options).await.unwrap();
    let before = calls(&session);
    let set = file.set_attributes_now(&session, &mode(0o640)).expect("a tree and a grant").unwrap();
    assert_eq!((set.mode, calls(&session)), (0o640, before));
    let shorter = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert!(file.set_attributes_now(&session, &shorter).is_none());
    served.kill();
    wait_for("the end of the lane", || file.data_path() == DataPath::Wire).await;
    served.restart();
    let tree = async {
        while !session.probe().await.tree {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, tree).await.expect("a tree of the restarted server");
    // The grant is of the former tree.
    assert!(file.set_attributes_now(&session, &mode(0o600)).is_none());
    assert_eq!(session.attributes(&file.handle()).await.unwrap().mode, 0o640);
}

/// A directory of the model: its handle, and the contents of its files.
struct ModelDir {
    handle: Handle,
    files: BTreeMap<String, (Handle, Vec<u8>)>,
}

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// A call that is repeated because the server was killed may find that it has succeeded before. `is_done`
/// says whether it has.
fn done<T>(result: Result<T, Error>, repeated: Status, is_done: bool) -> Option<T> {
    match result {
        Ok(value) => {
            assert!(is_done, "it says so");
            Some(value)
        }
        Err(error) => {
            assert_eq!(error.status(), Some(repeated), "{error}");
            assert!(is_done, "{error}, and it wasn't done before");
            None
        }
    }
}

/// The operations of one program, and the files that there must be.
struct Program {
    session: Session,
    export: std::path::PathBuf,
    random: Random,
    dirs: BTreeMap<String, ModelDir>,
}

impl Program {
    fn path(&self, dir: &str, name: &str) -> std::path::PathBuf {
        self.export.join(dir).join(name)
    }

    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    async fn step(&mut self, number: u64) {
        let name = format!("file-{}", self.random.below(12));
        let dirs: Vec<_> = self.dirs.keys().cloned().collect();
        let dir = dirs[self.random.below(dirs.len())].clone();
        let handle = self.dirs[&dir].handle.clone();
        match self.random.below(10) {
            0..3 => self.write(&dir, &handle, &name, number).await,
            3..5 => self.read(&dir, &handle, &name).await,
            5 => self.remove(&dir, &handle, &name).await,
            6 => {
                let to = dirs[self.random.below(dirs.len())].clone();
                self.rename(&dir, &name, &to).await;
            }
            7 => self.change_mode(&dir, &name).await,
            8 => self.change_dirs(&dir).await,
            _ => self.list(&dir, &handle).await,
        }
    }

    async fn write(&mut self, dir: &str, handle: &Handle, name: &str, number: u64) {
        let file = self.session.open_at(handle, name.as_bytes(), &OpenOptions::replacing()).await.unwrap();
        let content = pattern(number, 1 + self.random.below(20_000));
        file.write_at(&content, 0).await.unwrap();
        let opened = file.handle();
        file.close().await.unwrap();
        self.dirs.get_mut(dir).unwrap().files.insert(name.to_owned(), (opened, content));
    }

    async fn read(&self, dir: &str, handle: &Handle, name: &str) {
        let opened = self.session.open_at(handle, name.as_bytes(), &OpenOptions::reading()).await;
        match (opened, self.dirs[dir].files.get(name)) {
            (Ok(file), Some((known, content))) => {
                assert_eq!(file.handle(), *known);
                assert!(file.read_into(Vec::new(), 0, 30_000).await.unwrap() == *content, "{dir}/{name}");
                assert_eq!(self.session.attributes(known).await.unwrap().size, content.len() as u64);
                file.close().await.unwrap();
            }
            (Err(error), None) => assert_eq!(error.status(), Some(Status::NoEntry), "{dir}/{name}"),
            (opened, known) => {
                panic!("{dir}/{name}: {:?}, but {}", opened.map(|_| ()), known.is_some());
            }
        }
    }

    async fn remove(&mut self, dir: &str, handle: &Handle, name: &str) {
        let removed = self.session.remove(handle, name.as_bytes()).await;
        let known = self.dirs.get_mut(dir).unwrap().files.remove(name);
        let is_done = !self.exists(&self.path(dir, name));
        match known {
            Some(_) => drop(done(removed, Status::NoEntry, is_done)),
            None => assert_eq!(removed.unwrap_err().status(), Some(Status::NoEntry)),
        }
    }

    async fn rename(&mut self, dir: &str, name: &str, to: &str) {
        let new = format!("renamed-{}", self.random.below(6));
        let (from_handle, to_handle) = (self.dirs[dir].handle.clone(), self.dirs[to].handle.clone());
        let renamed = self.session.rename(&from_handle, name.as_bytes(), &to_handle, new.as_bytes()).await;
        match self.dirs.get_mut(dir).unwrap().files.remove(name) {
            Some(file) => {
                let is_done = !self.exists(&self.path(dir, name)) && self.exists(&self.path(to, &new));
                done(renamed, Status::NoEntry, is_done);
                file.0.moved(&to_handle, new.as_bytes());
                self.dirs.get_mut(to).unwrap().files.insert(new, file);
            }
            None => assert_eq!(renamed.unwrap_err().status(), Some(Status::NoEntry)),
        }
    }

    async fn change_mode(&self, dir: &str, name: &str) {
        if let Some((file, _)) = self.dirs[dir].files.get(name) {
            self.session.set_attributes(file, &mode(0o640), None).await.unwrap();
            let bits = fs::metadata(self.path(dir, name)).unwrap().mode() & 0o7777;
            assert_eq!(bits, 0o640, "{dir}/{name}");
        }
    }

    /// Removes the directory if it is empty, and makes another one.
    async fn change_dirs(&mut self, dir: &str) {
        let root = self.session.root();
        if self.dirs.len() > 2 && self.dirs[dir].files.is_empty() {
            let removed = self.session.remove_dir(&root, dir.as_bytes()).await;
            done(removed, Status::NoEntry, !self.exists(&self.export.join(dir)));
            self.dirs.remove(dir);
        } else if self.dirs.len() < 6 {
            let name =
                (0..7).map(|number| format!("dir-{number}")).find(|name| !self.dirs.contains_key(name));
            let name = name.expect("fewer than seven");
            let made = self.session.make_dir(&root, name.as_bytes(), &mode(0o755)).await;
            let handle = match done(made, Status::Exists, self.exists(&self.export.join(&name))) {
                Some(made) => made.handle,
                None => self.session.lookup(&root, name.as_bytes()).await.unwrap().handle,
            };
            self.dirs.insert(name, ModelDir { handle, files: BTreeMap::new() });
        }
    }

    async fn list(&self, dir: &str, handle: &Handle) {
        let entries = self.session.read_dir(handle, Plus::All).collect().await.unwrap();
        let mut names: Vec<_> =
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        assert!(names.iter().eq(self.dirs[dir].files.keys()), "{dir}: {names:?}");
    }
}

/// Kills and restarts the server each time that the program has used the tree again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_notices_nothing_when_the_server_is_killed_again_and_again() {
    if !is_root() {
        return;
    }
    const KILLS: u64 = 6;
    let mut served = Served::with_trees();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    wait_for("a tree", || session.lane().tree).await;
    let mut program = Program {
        session: session.clone(),
        export: served.export(),
        random: Random(42),
        dirs: BTreeMap::new(),
    };
    for name in ["dir-0", "dir-1", "dir-2"] {
        let handle = session.make_dir(&session.root(), name.as_bytes(), &mode(0o755)).await.unwrap().handle;
        program.dirs.insert(name.to_owned(), ModelDir { handle, files: BTreeMap::new() });
    }
    let (steps, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let killer = {
        let (steps, is_over, session) = (steps.clone(), is_over.clone(), session.clone());
        std::thread::spawn(move || {
            for kill in 0..KILLS {
                let (step, operations) = (steps.load(SeqCst), session.counters().events.tree_operations);
                let start = Instant::now();
                // In the tree again, and not always after the same number of steps.
                while steps.load(SeqCst) < step + 100 + 37 * kill
                    || session.counters().events.tree_operations < operations + 50
                {
                    assert!(start.elapsed() < BOUND, "the tree doesn't come back: {:?}", session.lane());
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                served.kill();
                served.restart();
            }
            is_over.store(true, SeqCst);
            served
        })
    };
    while !is_over.load(SeqCst) && !killer.is_finished() {
        program.step(steps.fetch_add(1, SeqCst)).await;
    }
    let served = killer.join().expect("the tree came back each time");
    for (name, dir) in &program.dirs {
        program.list(name, &dir.handle).await;
        for (file, (_, content)) in &dir.files {
            assert!(fs::read(served.export().join(name).join(file)).unwrap() == *content, "{name}/{file}");
        }
    }
    assert_eq!(fs::read_dir(served.export()).unwrap().count(), program.dirs.len());
}
