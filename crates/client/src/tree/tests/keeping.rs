//! What a tree keeps open, how it finds files again, and as whom it acts.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use rustix::process::umask;
use sys::lease::{LeaseBreaks, LeaseType, stop_eventfds};

use super::served::Served;
use super::side::{Both, USER, inherit_list, make_dir_of, plain};
use crate::disk_waits;
use crate::error::Status;
use crate::file::{DataPath, File};
use crate::lane::{LaneOpen, OpenPurpose};
use crate::options::{Credential, LaneMode, OpenOptions, Options};
use crate::session::Session;
use crate::tree::failure::Failure;
use crate::tree::local::Waits;
use crate::tree::open::Opened;
use crate::tree::user::TreeUsers;
use crate::tree::{Call, LocalResult, LocalTree};
use crate::types::{Create, FileKind, Handle, NameHint, Node, Plus, SetAttributes, SetTime, Timestamp};
use crate::url::Url;
use crate::user::User;

const fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), uid: None, gid: None, size: None, atime: None, mtime: None }
}

#[test]
fn closed_files_are_found_again_by_their_names() {
    // One descriptor at a time.
    let (side, root, dir) = plain(1);
    fs::create_dir_all(dir.path().join("a/b/c")).expect("made");
    fs::write(dir.path().join("a/b/c/file"), b"content").expect("made");
    fs::write(dir.path().join("a/other"), b"").expect("made");
    let mut at = root.clone();
    let mut handles = Vec::new();
    for name in ["a", "b", "c", "file"] {
        at = side.lookup(&at, name.as_bytes()).expect("there").handle;
        handles.push(at.clone());
    }
    for _ in 0..3 {
        let kinds = handles.iter().map(|handle| side.attributes(handle).expect("found again").kind);
        assert_eq!(kinds.filter(|kind| *kind == FileKind::Directory).count(), 3);
    }
    // With the directory moved through this tree, the names are the new ones.
    let b = &handles[1];
    side.rename((&handles[0], b"b"), (&root, b"moved")).expect("renamed");
    side.lookup(&handles[0], b"other").expect("there");
    b.moved(&root, b"moved");
    assert_eq!(side.attributes(&handles[3]).expect("found again").size, 7);
}

#[test]
fn another_file_of_the_same_name_is_not_taken_for_the_former() {
    let (side, root, dir) = plain(1);
    fs::create_dir(dir.path().join("dir")).expect("made");
    fs::write(dir.path().join("dir/file"), b"content").expect("made");
    let sub = side.lookup(&root, b"dir").expect("there").handle;
    let file = side.lookup(&sub, b"file").expect("there").handle;
    side.attributes(&sub).expect("the only one that stays open");
    // Renamed, so that the inode's number is in use.
    fs::rename(dir.path().join("dir/file"), dir.path().join("elsewhere")).expect("renamed");
    fs::write(dir.path().join("dir/file"), b"another").expect("made");
    assert_eq!(side.attributes(&file), Err(Failure::NotLocal));
    fs::remove_file(dir.path().join("dir/file")).expect("there");
    assert_eq!(side.attributes(&file), Err(Failure::NotLocal));
}

#[test]
fn a_removed_file_is_not_kept_open() {
    let (side, root, dir) = plain(100);
    for how in 0..3 {
        fs::write(dir.path().join("victim"), b"content").expect("made");
        fs::write(dir.path().join("other"), b"content").expect("made");
        let file = side.lookup(&root, b"victim").expect("there").handle;
        assert!(side.local().descriptors.get(file.identity()).is_some());
        match how {
            0 => side.remove(&root, b"victim").expect("removed"),
            1 => side.rename((&root, b"other"), (&root, b"victim")).expect("replaced"),
            _ => {
                // By another process: noticed at the next use.
                fs::remove_file(dir.path().join("victim")).expect("there");
                assert_eq!(side.attributes(&file), Err(Failure::Status(Status::Stale)));
            }
        }
        assert!(side.local().descriptors.get(file.identity()).is_none(), "{how}");
    }
}

#[test]
fn a_removed_file_is_not_kept_open_if_the_caller_knows_it() {
    let (side, root, dir) = plain(100);
    let with = |work: &dyn Fn(&LocalTree, Call<'_>) -> LocalResult<()>| {
        side.with_waits(Waits::Allowed, |local, call| work(local, call)).expect("done");
    };
    let is_open = |file: &Handle| side.local().descriptors.get(file.identity()).is_some();
    let make = |name: &str| {
        fs::write(dir.path().join(name), b"content").expect("made");
        side.lookup(&root, name.as_bytes()).expect("there").handle
    };
    let (victim, other) = (make("victim"), make("other"));
    // The hint is wrong: the other file keeps its descriptor.
    with(&|local, call| local.remove_hinted(call, &root, b"victim", NameHint::File(&other)));
    assert!(is_open(&other) && is_open(&victim));
    assert_eq!(side.attributes(&victim), Err(Failure::Status(Status::Stale)));
    let victim = make("victim");
    with(&|local, call| local.remove_hinted(call, &root, b"victim", NameHint::File(&victim)));
    assert!(!is_open(&victim));
    let victim = make("victim");
    let from = (&root, &b"other"[..], NameHint::File(&other));
    with(&|local, call| local.rename_hinted(call, from, (&root, b"victim", NameHint::File(&victim))));
    assert!(!is_open(&victim) && is_open(&other));
    // Closed, it is found again by its new name.
    side.local().descriptors.remove(other.identity());
    assert_eq!(side.attributes(&other).expect("found again").size, 7);
}

#[test]
fn attributes_are_set_by_the_descriptor_of_an_open_file() {
    let (side, root, dir) = plain(100);
    let how = Create::Guarded(mode(0o600));
    let (file, found) = side
        .with_waits(Waits::Allowed, |local, call| {
            match local.open_new(call, &root, b"new", &how, (false, true))? {
                Opened::New(file, found) => Ok((file, *found)),
                _ => panic!("it is new"),
            }
        })
        .expect("created");
    let set = |set: &SetAttributes| {
        side.with_waits(Waits::Allowed, |local, call| {
            local.set_attributes_of_open(call, (&found.handle, file.as_fd()), set)
        })
    };
    let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };
    let times = SetAttributes { mtime: Some(SetTime::To(time)), ..mode(0o4640) };
    side.seen.take();
    let now = set(&times).expect("set");
    assert_eq!((now.mode, now.mtime), (0o4640, time));
    assert!(side.local().descriptors.is_empty(), "no other descriptor was opened");
    let seen = side.seen.take();
    assert_eq!(seen.len(), 1);
    assert_eq!((&seen[0].0, seen[0].1.attributes), (&found.handle, Some(now)));
    assert!(seen[0].1.before.is_some(), "one can tell whose change it is");
    let path = dir.path().join("new");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o4640);
    // Whatever its name is, as for fchmod(2).
    fs::rename(&path, dir.path().join("elsewhere")).expect("renamed");
    assert_eq!(set(&mode(0o400)).expect("set").mode, 0o400);
    let refused = side.with_waits(Waits::Forbidden, |local, call| {
        local.set_attributes_of_open(call, (&found.handle, file.as_fd()), &mode(0o600))
    });
    assert_eq!(refused, Err(Failure::WouldWait));
}

/// The server's descriptor may be of a mount on which nothing can be changed.
#[tokio::test]
async fn attributes_are_not_set_by_a_descriptor_that_the_server_has_opened() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let served = Served::new(true, "no_root_squash");
    fs::write(served.export().join("file"), b"content").expect("made");
    let url = Url::new("127.0.0.1", Some(served.port()), served.export().as_os_str().as_bytes());
    let options = Options::new().lane(LaneMode::Required).run_dir(served.run_dir());
    let session = Session::connect(&url, options).await.expect("a session");
    assert!(session.lane().tree, "{:?}", session.lane());
    let (root, options) = (session.root(), OpenOptions::reading());
    let target = lane::Target::Entry { directory: root.as_bytes(), name: b"file" };
    let user = &session.caller.user;
    let opened = session.inner.lane.open(user, target, b"file", (true, false), OpenPurpose::FirstOpen).await;
    let Ok(LaneOpen::Granted(opened)) = opened else { panic!("no grant") };
    let granted = File::new(&session, *opened, b"file", &options);
    let own = session.open_at(&root, b"file", &options).await.expect("opens");
    assert_eq!((granted.data_path(), own.data_path()), (DataPath::Lane, DataPath::Lane));
    assert!(granted.set_attributes_now(&session, &mode(0o640)).is_none());
    let set = disk_waits::poll_blocking(&mut Box::pin(async {
        own.set_attributes_now(&session, &mode(0o600)).expect("its tree lasts")
    }));
    assert_eq!(set.expect("nothing to wait for").expect("set").mode, 0o600);
}

#[test]
fn a_name_that_does_not_exist_is_looked_up_as_others_are() {
    let (side, root, dir) = plain(100);
    // The second one in a row is looked up in another way.
    for _ in 0..3 {
        assert_eq!(side.lookup(&root, b"none"), Err(Failure::Status(Status::NoEntry)));
    }
    std::os::unix::fs::symlink("/etc", dir.path().join("none")).expect("made");
    let found = side.lookup(&root, b"none").expect("there");
    assert_eq!(found.attributes.expect("known").kind, FileKind::Symlink);
}

#[test]
fn idle_files_are_closed() {
    let (side, root, dir) = plain(100);
    fs::write(dir.path().join("file"), b"").expect("made");
    let file = side.lookup(&root, b"file").expect("there").handle;
    side.local().close_idle();
    side.local().close_idle();
    assert!(side.local().descriptors.is_empty());
    side.attributes(&file).expect("found again");
}

#[test]
fn what_may_wait_is_left_to_threads_that_may() {
    let (side, root, dir) = plain(100);
    fs::write(dir.path().join("file"), b"").expect("made");
    let file = side.lookup(&root, b"file").expect("there").handle;
    side.with_waits(Waits::Forbidden, |local, call| {
        assert!(local.attributes(call, &file).is_ok(), "its descriptor is open");
        assert!(local.lookup(call, &root, b"file").is_ok(), "the kernel has the name");
        for listed in [None, Some(FileKind::Regular)] {
            let opened = local.open(call, &root, b"file", listed, (true, false));
            assert!(matches!(opened, Ok(Opened::File(..))));
        }
        let refused = Err(Failure::WouldWait);
        assert_eq!(local.create(call, &root, b"new", &Create::Guarded(mode(0o600))), refused);
        assert_eq!(local.make_dir(call, &root, b"new", &mode(0o700)), refused);
        assert_eq!(local.remove(call, &root, b"file"), Err(Failure::WouldWait));
        assert_eq!(local.read_dir_page(call, &root, (0, [0; 8]), 4096, Plus::None), Err(Failure::WouldWait));
        assert_eq!(local.set_attributes(call, &file, &mode(0o600), None), Err(Failure::WouldWait));
        Ok(())
    })
    .expect("as oneself");
    assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing was changed");
}

#[test]
fn only_regular_files_are_opened() {
    let (side, root, dir) = plain(100);
    fs::write(dir.path().join("file"), b"content").expect("made");
    std::os::unix::fs::symlink("file", dir.path().join("link")).expect("made");
    fs::create_dir(dir.path().join("dir")).expect("made");
    side.make_node(&root, b"pipe", Node::Fifo, &mode(0o600)).expect("made");
    // A listing may have shown another file by the same name.
    for listed in [None, Some(FileKind::Regular)] {
        let opened = |name: &[u8]| {
            side.with_waits(Waits::Allowed, |local, call| local.open(call, &root, name, listed, (true, true)))
        };
        for (name, kind) in
            [(&b"link"[..], FileKind::Symlink), (b"dir", FileKind::Directory), (b"pipe", FileKind::Fifo)]
        {
            assert!(matches!(opened(name), Ok(Opened::Other(other)) if other == kind), "{kind:?}");
        }
        let Ok(Opened::File(file, found)) = opened(b"file") else { panic!("it is regular") };
        assert_eq!(
            rustix::fs::fcntl_getfl(&file).expect("flags") & !rustix::fs::OFlags::LARGEFILE,
            rustix::fs::OFlags::RDWR
        );
        let fileid = found.attributes.expect("attributes").fileid;
        assert_eq!(rustix::fs::fstat(&file).expect("stat").st_ino, fileid);
        assert_eq!(side.attributes(&found.handle).expect("its handle").fileid, fileid);
        assert!(matches!(opened(b"none"), Err(Failure::Status(Status::NoEntry))));
    }
}

#[test]
fn an_open_that_a_lease_delays_is_left_to_the_server() {
    let (side, root, dir) = plain(100);
    fs::write(dir.path().join("file"), b"content").expect("made");
    let file = side.lookup(&root, b"file").expect("there").handle;
    let ((theirs, _end), (other, _)) = (stop_eventfds().expect("made"), stop_eventfds().expect("made"));
    let (_breaks, watcher) = LeaseBreaks::new(theirs, vec![Arc::new(other)]).expect("made");
    let leased = fs::File::options().read(true).write(true).open(dir.path().join("file")).expect("opens");
    sys::lease::take(&leased, LeaseType::Write, watcher).expect("leased");
    side.with_waits(Waits::Allowed, |local, call| {
        assert!(matches!(local.open_handle(call, &file, (true, false)), Err(Failure::NotLocal)));
        for listed in [None, Some(FileKind::Regular)] {
            let opened = local.open(call, &root, b"file", listed, (true, false));
            assert!(matches!(opened, Err(Failure::NotLocal)));
        }
        let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert_eq!(local.set_attributes(call, &file, &empty, None), Err(Failure::NotLocal));
        Ok(())
    })
    .expect("as oneself");
    sys::lease::release(&leased).expect("released");
    assert_eq!(side.attributes(&file).expect("there").size, 7);
}

#[test]
fn a_new_file_is_open_whatever_its_mode() {
    let (side, root, dir) = plain(100);
    let create = |how: &Create| {
        side.with_waits(Waits::Allowed, |local, call| local.open_new(call, &root, b"new", how, (true, true)))
    };
    let Ok(Opened::New(file, found)) = create(&Create::Guarded(mode(0))) else { panic!("new") };
    assert_eq!(rustix::io::pwrite(file.as_fd(), b"data", 0), Ok(4));
    assert_eq!(found.attributes.expect("attributes").mode, 0);
    assert!(matches!(create(&Create::Guarded(mode(0o600))), Err(Failure::Status(Status::Exists))));
    fs::set_permissions(dir.path().join("new"), fs::Permissions::from_mode(0o600)).expect("set");
    let Ok(Opened::File(_, found)) = create(&Create::Unchecked(mode(0o644))) else { panic!("it may exist") };
    let attributes = found.attributes.expect("attributes");
    assert_eq!((attributes.size, attributes.mode), (4, 0o600), "the existing file");
}

#[test]
fn a_thread_acts_as_a_user_for_one_operation_only() {
    let Some(both) = Both::new(USER) else { return };
    make_dir_of(USER, &both.path().join("dir"));
    let groups = rustix::process::getgroups();
    let dir = both.tree.lookup(&both.root, b"dir").expect("there").handle;
    both.tree.create(&dir, b"file", &Create::Guarded(mode(0o600))).expect("the user's");
    let refused = both.tree.create(&both.root, b"file", &Create::Guarded(mode(0o600)));
    assert_eq!(refused, Err(Failure::Status(Status::Access)));
    assert_eq!((sys::credentials::fsuid(), sys::credentials::fsgid()), (0, 0));
    assert_eq!(rustix::process::getgroups(), groups);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        both.tree.with_waits(Waits::Allowed, |_, _| -> Result<(), Failure> { panic!("in the middle") })
    }));
    assert!(panicked.is_err());
    assert_eq!((sys::credentials::fsuid(), sys::credentials::fsgid()), (0, 0));
}

#[test]
fn a_process_that_is_not_root_acts_as_itself_only() {
    let own = TreeUsers::without_privilege();
    let run = |credential: Credential| own.run(&User::new(credential, &Arc::default()), |user| Ok(user.uid));
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    assert_eq!(run(Credential::own()), Ok(uid));
    let more = Credential::Sys { uid, gid, groups: vec![4711] };
    let other = Credential::Sys { uid: uid + 1, gid, groups: Vec::new() };
    for credential in [more, other, Credential::None] {
        assert_eq!(run(credential), Err(Failure::NotLocal));
    }
}

/// Set in the process that has another umask.
const CHILD: &str = "SAMEHOST_TEST_UMASK";

#[test]
fn modes_are_exact_whatever_the_umask() {
    if std::env::var(CHILD).is_err() {
        let (_, module) = module_path!().split_once("::").expect("a module of a test program");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", &format!("{module}::modes_are_exact_whatever_the_umask")])
            .env(CHILD, "1")
            .output()
            .expect("runs");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        return;
    }
    umask(rustix::fs::Mode::from_raw_mode(0o077));
    let (side, root, dir) = plain(100);
    let bits = |name: &str| {
        fs::symlink_metadata(dir.path().join(name)).expect("there").permissions().mode() & 0o7777
    };
    side.create(&root, b"file", &Create::Guarded(mode(0o4666))).expect("made");
    side.make_dir(&root, b"dir", &mode(0o1777)).expect("made");
    side.make_node(&root, b"pipe", Node::Fifo, &mode(0o622)).expect("made");
    assert_eq!((bits("file"), bits("dir"), bits("pipe")), (0o4666, 0o1777, 0o622));
    assert_eq!(
        side.make_dir(&root, b"private", &mode(0o700)).expect("made").attributes.expect("some").mode,
        0o700
    );
    // A default list replaces the umask.
    if inherit_list(&dir.path().join("dir")) {
        let dir = side.lookup(&root, b"dir").expect("there").handle;
        side.create(&dir, b"file", &Create::Guarded(mode(0o666))).expect("made");
        assert_eq!(bits("dir/file"), 0o640, "the list forbids the others");
    }
    assert_eq!(umask(rustix::fs::Mode::empty()).as_raw_mode(), 0o077, "it isn't the library's to change");
}
