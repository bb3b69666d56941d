//! Directories that are given over the lane with everything below. These tests need root.

mod common;

use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use common::disk::{Disk, run as command};
use common::local::{lane, open, run, user};
use common::v4::{ANYBODY, Session};
use common::{Client, Scratch, wait_for};
use lane::{Access, OpenStatus, OpenedGrant, Target};
use proto::nfs4::{OpenClaim4, SHARE_ACCESS_READ};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use samehost_server::{Config, LaneOffer, Server};
use xdr::Opaque;

const OPEN: &str = "*(rw,insecure,no_root_squash)";
const SHARE_DENY_WRITE: u32 = 2;

/// Opens a file below a directory, as a client does.
fn below(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let strict = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o644) } else { Mode::empty() };
    openat2(directory, name, flags | OFlags::CLOEXEC, mode, strict)
}

fn keep(tree: &OpenedGrant) -> OwnedFd {
    tree.grant.as_fd().try_clone_to_owned().unwrap()
}

/// What the kernel says to a change in the directory.
fn change(directory: impl AsFd, name: &str) -> Result<(), Errno> {
    mkdirat(directory, name, Mode::RWXU)
}

/// Waits until nothing can be changed through the directory.
fn wait_until_read_only(directory: impl AsFd) {
    let directory = directory.as_fd();
    wait_for("the directory to be read-only", || match change(directory, "probe") {
        Ok(()) => rustix::fs::unlinkat(directory, "probe", AtFlags::REMOVEDIR) == Err(Errno::ROFS),
        Err(errno) => errno == Errno::ROFS,
    });
}

/// A server whose exports are in a file, with what is written there for the scratch directory.
struct Reloading {
    scratch: Scratch,
    server: Server,
}

impl Reloading {
    fn new(clients: &str) -> Self {
        let scratch = Scratch::new();
        let list = scratch.dir.path().join("exports");
        fs::create_dir(scratch.dir.path().join("other")).unwrap();
        let config = Config { exports: vec![], export_files: vec![list], ..scratch.config("") };
        Self::write(&scratch, clients);
        let server = Server::start(config).unwrap();
        Self { scratch, server }
    }

    fn write(scratch: &Scratch, clients: &str) {
        let other = scratch.dir.path().join("other");
        let mut text = format!("{} {OPEN}\n", other.display());
        if !clients.is_empty() {
            text.push_str(&format!("{} {clients}\n", scratch.export().display()));
        }
        fs::write(scratch.dir.path().join("exports"), text).unwrap();
    }

    fn reload(&self, clients: &str) {
        Self::write(&self.scratch, clients);
        self.server.reload().unwrap();
    }
}

/// Something mounted, until it is dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn at(path: &'a Path) -> Self {
        command(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(path));
        Self(path)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn a_tree_is_the_exported_directory_itself() {
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    fs::write(scratch.at("f"), "data").unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &user(0, 0, &[])).await.unwrap();
        assert_eq!(tree.handle, root);
        assert_eq!(tree.attributes.file.fileid, client.getattr(&root).fileid);
        assert_eq!(tree.attributes.file.fsid, client.getattr(&root).fsid);
        let directory = &tree.grant;
        let file = below(directory, "f", OFlags::RDONLY).unwrap();
        let handle = client.lookup(&root, "f");
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_ino, client.getattr(&handle).fileid);
        below(directory, "new", OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY).unwrap();
        client.lookup(&root, "new");
        rustix::fs::unlinkat(directory, "f", AtFlags::empty()).unwrap();
        assert!(!scratch.at("f").exists());
        // It can be listed, and leads nowhere else.
        let listed = rustix::fs::Dir::read_from(directory).unwrap();
        assert!(listed.filter_map(Result::ok).any(|entry| entry.file_name() == c"new"));
        let up = openat(directory, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(rustix::fs::fstat(up).unwrap().st_ino, tree.attributes.file.fileid);

        let status = server.status();
        assert_eq!(status.exports[0].tree, "given");
        let grants = status.grants;
        assert_eq!((grants.open, grants.trees, grants.trees_granted, grants.trees_refused), (1, 1, 1, 0));
        drop(tree);
        lane.flush();
        wait_for("the release", || server.status().grants.trees == 0);
    });
}

#[test]
fn directories_below_the_root_are_given_while_they_are_below() {
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    for name in ["d", "d/e", "gone"] {
        fs::create_dir(scratch.at(name)).unwrap();
    }
    fs::write(scratch.at("f"), "data").unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let outer = client.lookup(&root, "d");
        let inner = client.lookup(&outer, "e");
        let tree = open(&lane, Target::Tree(&inner), Access::ReadWrite, &admin).await.unwrap();
        assert_eq!(tree.attributes.file.fileid, fs::metadata(scratch.at("d/e")).unwrap().ino());
        change(&tree.grant, "new").unwrap();
        assert!(scratch.at("d/e/new").exists());

        let gone = client.lookup(&root, "gone");
        fs::rename(scratch.at("gone"), scratch.dir.path().join("gone")).unwrap();
        let refused = open(&lane, Target::Tree(&gone), Access::ReadWrite, &admin).await.err();
        assert_eq!(refused, Some(OpenStatus::Stale));
        let file = client.lookup(&root, "f");
        let refused = open(&lane, Target::Tree(&file), Access::ReadWrite, &admin).await.err();
        assert_eq!(refused, Some(OpenStatus::NotDirectory));
        let refused = open(&lane, Target::Tree(b"nothing"), Access::ReadWrite, &admin).await.err();
        assert_eq!(refused, Some(OpenStatus::BadHandle));
    });
}

#[test]
fn nothing_can_be_changed_in_a_tree_for_reading_or_of_a_read_only_export() {
    for (clients, access, expected) in [
        (OPEN, Access::ReadWrite, Ok(())),
        (OPEN, Access::Read, Err(Errno::ROFS)),
        ("*(ro,insecure,no_root_squash)", Access::ReadWrite, Err(Errno::ROFS)),
        ("127.0.0.1(ro,insecure,no_root_squash) *(rw)", Access::ReadWrite, Err(Errno::ROFS)),
    ] {
        let scratch = Scratch::new();
        let server = scratch.serve(clients);
        let mut client = Client::new(&server);
        let root = client.mnt(&scratch.export()).unwrap();
        run(async {
            let lane = lane(&scratch, &mut client).await;
            let tree = open(&lane, Target::Tree(&root), access, &user(0, 0, &[])).await.unwrap();
            assert_eq!(change(&tree.grant, "d"), expected, "{clients} {access:?}");
            // Opened again through /proc, too.
            let path = format!("/proc/self/fd/{}/e", tree.grant.as_fd().as_raw_fd());
            assert_eq!(fs::create_dir(path).is_ok(), expected.is_ok(), "{clients} {access:?}");
        });
    }
}

/// The namespaces that a server in this process finds to be shared with a client in this process. Before
/// Linux 6.5 it can't find out.
fn namespaces() -> lane::SharedNamespaces {
    let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
    lane::SharedNamespaces::of(&here, &lane::PeerCredentials::of(&here).unwrap())
}

/// Becomes an ordinary user, on this thread alone.
fn become_user(id: u32, groups: &[u32]) {
    use rustix::process::{Gid, Uid};
    let groups: Vec<_> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    rustix::thread::set_thread_groups(&groups).unwrap();
    rustix::thread::set_thread_gid(Gid::from_raw(id)).unwrap();
    rustix::thread::set_thread_uid(Uid::from_raw(id)).unwrap();
}

/// Requests a tree as a process of user `peer` that claims to be `claim`, and returns what `with` makes of
/// the answer.
fn asked<T: Send>(
    clients: &str,
    peer: (u32, &[u32]),
    claim: u32,
    with: impl FnOnce(&Scratch, Result<OpenedGrant, OpenStatus>) -> T + Send,
) -> T {
    asked_for(clients, peer, claim, tree_of, with)
}

fn tree_of(handle: &[u8]) -> Target<'_> {
    Target::Tree(handle)
}

fn mount_of(handle: &[u8]) -> Target<'_> {
    Target::Mount(handle)
}

/// As [`asked`], for a tree or a mount.
fn asked_for<T: Send>(
    clients: &str,
    (peer, groups): (u32, &[u32]),
    claim: u32,
    target: fn(&[u8]) -> Target<'_>,
    with: impl FnOnce(&Scratch, Result<OpenedGrant, OpenStatus>) -> T + Send,
) -> T {
    let scratch = Scratch::new();
    let server = scratch.serve(clients);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    fs::write(scratch.at("private"), "root's").unwrap();
    fs::set_permissions(scratch.at("private"), fs::Permissions::from_mode(0o600)).unwrap();
    let (scratch, client) = (&scratch, &mut client);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if peer != 0 {
                become_user(peer, groups);
            }
            let mut result = None;
            run(async {
                let lane = lane(scratch, client).await;
                let tree = open(&lane, target(&root), Access::ReadWrite, &user(claim, claim, &[])).await;
                result = Some(with(scratch, tree));
            });
            result.unwrap()
        });
        thread.join().unwrap()
    })
}

#[test]
fn only_users_whom_the_export_does_not_squash_get_a_tree() {
    use OpenStatus::{Denied, TreeSquashed};
    const SQUASH: &str = "*(rw,insecure,root_squash)";
    let unsquashed = if namespaces().mount { None } else { Some(TreeSquashed) };
    for (clients, peer, claim, expected) in [
        (OPEN, (0, &[][..]), 0, None),
        // Root may act for its users.
        (OPEN, (0, &[]), 1000, None),
        (OPEN, (1000, &[]), 1000, None),
        (OPEN, (1000, &[0]), 1000, None),
        (SQUASH, (1000, &[]), 1000, unsquashed),
        (SQUASH, (1000, &[2000]), 1000, unsquashed),
        // Root is squashed, whoever it claims to be, and so is its group.
        (SQUASH, (0, &[]), 0, Some(TreeSquashed)),
        (SQUASH, (0, &[]), 1000, Some(TreeSquashed)),
        (SQUASH, (1000, &[0]), 1000, Some(TreeSquashed)),
        ("*(rw,insecure,all_squash)", (1000, &[]), 1000, Some(TreeSquashed)),
        ("*(rw,insecure,all_squash,anonuid=1000,anongid=1000)", (1000, &[]), 1000, Some(TreeSquashed)),
        ("*(rw,insecure,all_squash,no_root_squash)", (0, &[]), 0, Some(TreeSquashed)),
        // Another user's uid.
        (OPEN, (1000, &[]), 2000, Some(Denied)),
        (OPEN, (1000, &[]), 0, Some(Denied)),
        (SQUASH, (1000, &[]), 2000, Some(Denied)),
    ] {
        let status = asked(clients, peer, claim, |_, tree| tree.map(drop).err());
        assert_eq!(status, expected, "{clients}: {peer:?} as {claim}");
    }
}

#[test]
fn the_kernel_checks_every_access_in_a_tree() {
    asked(OPEN, (1000, &[]), 1000, |scratch, tree| {
        let tree = tree.unwrap();
        assert_eq!(below(&tree.grant, "private", OFlags::RDONLY).err(), Some(Errno::ACCESS));
        let made = below(&tree.grant, "own", OFlags::CREATE | OFlags::WRONLY).unwrap();
        assert_eq!(rustix::fs::fstat(made).unwrap().st_uid, 1000);
        assert_eq!(fs::metadata(scratch.at("own")).unwrap().uid(), 1000);
    });
}

#[test]
fn a_directory_that_the_user_may_not_read_is_not_listed() {
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    fs::write(scratch.at("known"), "data").unwrap();
    fs::set_permissions(scratch.export(), fs::Permissions::from_mode(0o711)).unwrap();
    let (scratch, client) = (&scratch, &mut client);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            become_user(1000, &[]);
            run(async {
                let lane = lane(scratch, client).await;
                let ordinary = user(1000, 1000, &[]);
                let tree = open(&lane, Target::Tree(&root), Access::Read, &ordinary).await.unwrap();
                below(&tree.grant, "known", OFlags::RDONLY).unwrap();
                let listed = openat(&tree.grant, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                assert_eq!(listed.err(), Some(Errno::ACCESS));
                let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
                let mut entries = rustix::fs::RawDir::new(&tree.grant, &mut buffer);
                assert!(matches!(entries.next(), Some(Err(Errno::BADF))));
            });
        });
    });
}

#[test]
fn options_of_export_and_server_exclude_trees_and_the_status_says_so() {
    use OpenStatus::{NoLane, NoTree, TreeIncomplete};
    for (clients, offer, expected, words) in [
        ("*(rw,insecure,no_root_squash,no_tree)", LaneOffer::On, NoTree, "no_tree"),
        ("*(rw,insecure,no_root_squash,no_lane)", LaneOffer::On, NoLane, "no_lane"),
        ("*(rw,insecure,no_root_squash,no_lane,tree)", LaneOffer::On, NoLane, "no_lane"),
        (OPEN, LaneOffer::Files, NoTree, "the server gives files only (--lane files)"),
        ("*(rw,insecure,no_root_squash,subtree_check)", LaneOffer::On, TreeIncomplete, "subtree_check"),
    ] {
        let scratch = Scratch::new();
        let server = Server::start(Config { lane: offer, ..scratch.config(clients) }).unwrap();
        let mut client = Client::new(&server);
        let root = client.mnt(&scratch.export()).unwrap();
        fs::write(scratch.at("f"), "data").unwrap();
        run(async {
            let lane = lane(&scratch, &mut client).await;
            let admin = user(0, 0, &[]);
            let refused = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.err();
            assert_eq!(refused, Some(expected), "{clients}");
            let entry = Target::Entry { directory: &root, name: b"f" };
            assert_eq!(
                open(&lane, entry, Access::Read, &admin).await.is_ok(),
                expected != NoLane,
                "{clients}"
            );
        });
        let status = server.status();
        assert_eq!(status.exports[0].tree, words, "{clients}");
        assert_eq!(
            (status.grants.trees_granted, status.grants.trees_refused),
            (0, u64::from(expected != NoLane))
        );
    }
}

#[test]
fn a_mount_or_an_export_below_excludes_trees() {
    let scratch = Scratch::new();
    for name in ["inner", "point"] {
        fs::create_dir(scratch.at(name)).unwrap();
    }
    let (outer, inner) = (scratch.export(), scratch.at("inner"));
    let nested = vec![format!("{} {OPEN}", outer.display()), format!("{} {OPEN}", inner.display())];
    for (exports, mounted, words) in
        [(nested, false, "other exports lie in it"), (vec![], true, "something is mounted in it")]
    {
        let mut config = scratch.config(OPEN);
        if !exports.is_empty() {
            config.exports = exports;
        }
        let point = scratch.at("point");
        let _mounted = mounted.then(|| Mounted::at(&point));
        let server = Server::start(config).unwrap();
        let mut client = Client::new(&server);
        let root = client.mnt(&outer).unwrap();
        run(async {
            let lane = lane(&scratch, &mut client).await;
            let refused = open(&lane, Target::Tree(&root), Access::Read, &user(0, 0, &[])).await.err();
            assert_eq!(refused, Some(OpenStatus::TreeIncomplete), "{words}");
        });
        let export = server.status().exports.into_iter().find(|export| export.path == outer).unwrap();
        assert_eq!(export.tree, words);
        server.stop();
    }
}

#[test]
fn a_changed_export_recalls_its_trees_and_what_clients_keep_is_read_only() {
    let mut narrowed: Vec<(&str, Option<OpenStatus>)> = vec![
        ("*(ro,insecure,no_root_squash)", None),
        ("", Some(OpenStatus::Stale)),
        ("*(rw,insecure,no_root_squash,no_tree)", Some(OpenStatus::NoTree)),
        ("*(rw,insecure,root_squash)", Some(OpenStatus::TreeSquashed)),
        ("127.0.0.9(rw,insecure,no_root_squash)", Some(OpenStatus::Stale)),
    ];
    // Also of another client, since the clients share a cell.
    narrowed.push(("*(rw,insecure,no_root_squash) 127.0.0.9(ro)", None));
    for (clients, expected) in narrowed {
        let served = Reloading::new(OPEN);
        let scratch = &served.scratch;
        fs::write(scratch.at("f"), "data").unwrap();
        let (mut client, mut second) = (Client::new(&served.server), Client::new(&served.server));
        let root = client.mnt(&scratch.export()).unwrap();
        let unchanged = client.mnt(&scratch.dir.path().join("other")).unwrap();
        run(async {
            let admin = user(0, 0, &[]);
            let (first, other) = (lane(scratch, &mut client).await, lane(scratch, &mut second).await);
            let tree = open(&first, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
            let untouched = open(&other, Target::Tree(&unchanged), Access::ReadWrite, &admin).await.unwrap();
            served.reload(OPEN);
            assert!(tree.grant.is_live(), "nothing has changed");
            let kept = keep(&tree);
            served.reload(clients);
            assert!(!tree.grant.is_live(), "{clients}");
            drop(tree);
            first.flush();
            wait_until_read_only(&kept);
            below(&kept, "f", OFlags::RDONLY).unwrap();
            if clients.ends_with("127.0.0.9(ro)") {
                assert!(untouched.grant.is_live(), "nothing has changed for this client elsewhere");
            }
            assert_eq!(change(&untouched.grant, &format!("d{}", clients.len())), Ok(()));
            let again = open(&first, Target::Tree(&root), Access::ReadWrite, &admin).await;
            assert_eq!(again.as_ref().map(drop).err().copied(), expected, "{clients}");
            if let Ok(again) = again {
                let changed = change(&again.grant, "e");
                assert_eq!(changed.is_ok(), clients.starts_with("*(rw"), "{clients}: {changed:?}");
            }
        });
    }
}

#[test]
fn a_client_that_writes_to_a_removed_export_can_do_so_until_it_closes_the_file() {
    let served = Reloading::new(OPEN);
    let scratch = &served.scratch;
    let mut client = Client::new(&served.server);
    let root = client.mnt(&scratch.export()).unwrap();
    run(async {
        let lane = lane(scratch, &mut client).await;
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &user(0, 0, &[])).await.unwrap();
        let kept = keep(&tree);
        let file = below(&kept, "w", OFlags::CREATE | OFlags::WRONLY).unwrap();
        // The lane is gone, too, and the server keeps the cell nevertheless.
        drop((tree, lane));
        served.reload("");
        rustix::io::write(&file, b"data").unwrap();
        assert_eq!(change(&kept, "d"), Ok(()), "the kernel refuses while a file is open for writing");
        drop(file);
        wait_until_read_only(&kept);
    });
}

#[test]
fn a_mount_that_appears_below_recalls_trees() {
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let point = scratch.at("point");
    fs::create_dir(&point).unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        let kept = keep(&tree);
        let mounted = Mounted::at(&point);
        wait_for("the recall", || !tree.grant.is_live());
        wait_until_read_only(&kept);
        let refused = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.err();
        assert_eq!(refused, Some(OpenStatus::TreeIncomplete));
        let inode = |directory: &OwnedFd| {
            let point = below(directory, "point", OFlags::PATH).unwrap();
            rustix::fs::fstat(point).map(|stat| stat.st_dev).unwrap()
        };
        assert_ne!(inode(&kept), fs::metadata(&point).unwrap().dev(), "what is mounted isn't shown");
        drop(mounted);
        wait_for("the mount to be gone", || server.status().exports[0].tree == "given");
        let again = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        assert_eq!(change(&again.grant, "again"), Ok(()));
    });
}

/// The mount that a directory is on.
fn mount_id(directory: &OwnedFd) -> String {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", directory.as_raw_fd())).unwrap();
    info.lines().find(|line| line.starts_with("mnt_id:")).unwrap().to_owned()
}

/// A user with files open for writing can have as many mounts below an export come and go as it likes.
#[test]
fn mounts_below_take_few_cells_away_in_which_files_are_open_for_writing() {
    const BUSY: usize = 16;
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let point = scratch.at("point");
    fs::create_dir(&point).unwrap();
    let has_notice =
        || server.notices().iter().any(|notice| notice.contains("directories that were recalled"));
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let (mut kept, mut files, mut mounts) = (Vec::new(), Vec::new(), Vec::new());
        // An event of an earlier mount may come late, and take a tree away at once.
        for _ in 0..3 * BUSY {
            if kept.len() == BUSY + 4 {
                break;
            }
            wait_for("the mount to be gone", || server.status().exports[0].tree == "given");
            let Ok(tree) = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await else {
                continue;
            };
            let directory = keep(&tree);
            if let Ok(file) = below(&directory, "w", OFlags::CREATE | OFlags::WRONLY) {
                files.push(file);
                mounts.push(mount_id(&directory));
                kept.push(directory);
            }
            let mounted = Mounted::at(&point);
            wait_for("the recall", || !tree.grant.is_live());
            drop(mounted);
        }
        assert_eq!(kept.len(), BUSY + 4);
        let last = kept.last().unwrap();
        assert_eq!(change(last, "d"), Ok(()));
        assert!(mounts[BUSY..].iter().all(|mount| *mount == mounts[BUSY]), "the cell is kept: {mounts:?}");
        mounts.sort();
        mounts.dedup();
        assert_eq!(mounts.len(), BUSY + 1);
        assert!(has_notice());
        drop(files);
        wait_for("some to be read-only", || !has_notice());
        let _mounted = Mounted::at(&point);
        wait_until_read_only(last);
        wait_until_read_only(&kept[0]);
    });
}

#[test]
fn an_unmounted_filesystem_is_let_go() {
    let (scratch, disk) = (Scratch::new(), Disk::ext4(&[]));
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let exports = vec![format!("{} {OPEN}", disk.path().display())];
    let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
    let mut client = Client::new(&server);
    let root = client.mnt(disk.path()).unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &user(0, 0, &[])).await.unwrap();
        change(&tree.grant, "d").unwrap();
        command(Command::new("umount").arg("--lazy").arg(disk.path()));
        wait_for("the recall", || !tree.grant.is_live());
        wait_until_read_only(&tree.grant);
        assert!(disk.is_in_use(), "the client has a directory of it");
        drop(tree);
        wait_for("the device to be free", || !disk.is_in_use());
    });
}

/// An open through a tree counts nowhere, so deny modes and trees exclude each other altogether.
#[test]
fn an_open_that_denies_access_recalls_trees_and_prevents_them() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut client = Client::new(&server);
    fs::write(scratch.at("f"), "data").unwrap();
    let mut session = Session::new(&server, 2, b"denies");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let claim = || OpenClaim4::Null(Opaque(b"f"));
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        let (id, file) = session.open_shared(&root, claim(), false, SHARE_ACCESS_READ, 0).unwrap();
        session.close(&file, id);
        assert!(tree.grant.is_live(), "nothing is denied");
        let opened = session.open_shared(&root, claim(), false, SHARE_ACCESS_READ, SHARE_DENY_WRITE);
        let (id, file) = opened.unwrap();
        assert!(!tree.grant.is_live(), "before the reply");
        let refused = open(&lane, Target::Tree(&root), Access::Read, &admin).await.err();
        assert_eq!(refused, Some(OpenStatus::TryWire));
        session.close(&file, id);
        let again = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        assert_eq!(change(&again.grant, "d"), Ok(()), "the cell is the same");
        assert_eq!(change(&tree.grant, "e"), Ok(()));
    });
}

#[test]
fn a_directory_is_given_on_a_read_only_mount_and_recalled_when_that_changes() {
    let (scratch, disk) = (Scratch::new(), Disk::ext4(&[]));
    chown(disk.path(), Some(1000), Some(1000)).unwrap();
    let exports = vec![format!("{} {OPEN}", disk.path().display())];
    let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
    let mut client = Client::new(&server);
    let root = client.mnt(disk.path()).unwrap();
    let remount = |options: &str| {
        command(Command::new("mount").args(["-o", &format!("remount,bind,{options}")]).arg(disk.path()));
    };
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        change(&tree.grant, "d").unwrap();
        remount("ro");
        wait_for("the recall", || !tree.grant.is_live());
        wait_until_read_only(&tree.grant);
        let read_only = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        assert_eq!(change(&read_only.grant, "f"), Err(Errno::ROFS));
        remount("rw");
        wait_for("the mount to be writable", || client.create(&root, "h").is_ok());
        wait_for("the recall", || !read_only.grant.is_live());
        let tree = open(&lane, Target::Tree(&root), Access::ReadWrite, &admin).await.unwrap();
        assert_eq!(change(&tree.grant, "g"), Ok(()));
    });
}

#[test]
fn root_of_the_host_gets_a_mount_where_the_export_says_so() {
    const MOUNTS: &str = "*(rw,insecure,no_root_squash,mount_grant)";
    let of_host = namespaces().mount && namespaces().user;
    let unless_refused = if of_host { None } else { Some(OpenStatus::NoTree) };
    for (clients, peer, expected) in [
        (MOUNTS, 0, unless_refused),
        (OPEN, 0, Some(OpenStatus::NoTree)),
        ("*(rw,insecure,no_root_squash,mount_grant,no_tree)", 0, Some(OpenStatus::NoTree)),
        ("*(rw,insecure,no_root_squash,mount_grant,no_lane)", 0, Some(OpenStatus::NoLane)),
        ("*(rw,insecure,root_squash,mount_grant)", 0, Some(OpenStatus::TreeSquashed)),
        (MOUNTS, 1000, Some(OpenStatus::NoTree)),
    ] {
        let status = asked_for(clients, (peer, &[]), peer, mount_of, |_, mount| mount.map(drop).err());
        assert_eq!(status, expected, "{clients}: {peer}");
    }
    for (clients, access, expected) in [
        (MOUNTS, Access::ReadWrite, Ok(())),
        (MOUNTS, Access::Read, Err(Errno::ROFS)),
        ("*(ro,insecure,no_root_squash,mount_grant)", Access::ReadWrite, Err(Errno::ROFS)),
    ] {
        if !of_host {
            break;
        }
        let scratch = Scratch::new();
        let server = scratch.serve(clients);
        let mut client = Client::new(&server);
        let root = client.mnt(&scratch.export()).unwrap();
        fs::write(scratch.at("f"), "data").unwrap();
        let point = scratch.dir.path().join("point");
        fs::create_dir(&point).unwrap();
        run(async {
            let lane = lane(&scratch, &mut client).await;
            let mount = open(&lane, Target::Mount(&root), access, &user(0, 0, &[])).await.unwrap();
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&mount.grant, "", rustix::fs::CWD, &point, flags).unwrap();
            let _mounted = Mounted(&point);
            assert_eq!(fs::read(point.join("f")).unwrap(), b"data");
            let attached = fs::File::open(&point).unwrap();
            assert_eq!(change(&attached, "d"), expected, "{clients} {access:?}");
            assert_eq!(scratch.at("d").exists(), expected.is_ok());
            server.reload().unwrap();
            assert!(mount.grant.is_live());
            assert_eq!(server.status().exports[0].tree, "given, to root of this host as a mount");
        });
    }
}

#[test]
fn there_are_no_trees_before_old_clients_have_reclaimed() {
    let scratch = Scratch::new();
    let mut config = scratch.config(ANYBODY);
    let server = Server::start(config.clone()).unwrap();
    // Client records belong to the server of an address.
    config.listen = server.local_addrs();
    server.stop();
    let server = Server::start(config.clone()).unwrap();
    fs::write(scratch.at("f"), "data").unwrap();
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let claim = OpenClaim4::Null(Opaque(b"f"));
    session.open_shared(&root, claim, false, SHARE_ACCESS_READ, 0).unwrap();
    drop(server);
    let server = Server::start(config).unwrap();
    let mut client = Client::new(&server);
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let refused = open(&lane, Target::Tree(&root), Access::Read, &admin).await.err();
        assert_eq!(refused, Some(OpenStatus::TryWire));
        let mut session = Session::new(&server, 2, b"one");
        session.reclaim_complete();
        open(&lane, Target::Tree(&root), Access::Read, &admin).await.unwrap();
    });
}
