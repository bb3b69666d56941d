//! Grants: descriptors for other processes with no more access than requested.

extern crate samehost_store as store;

mod common;

use std::os::fd::{AsRawFd, OwnedFd};

use common::{Export, local, root_of, user};
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, openat};
use rustix::io::Errno;
use store::{Access, AccessMode, Error, Grant, Holder, Wcc};

fn again(file: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), flags | OFlags::CLOEXEC, Mode::empty())
}

#[test]
fn a_grant_has_the_requested_access_and_its_own_offset() {
    let export = Export::new();
    local(|| std::fs::write(export.path("f"), b"0123456789").expect("writes"));
    local(|| std::os::unix::fs::chown(export.path("f"), Some(1000), None).expect("chown"));
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let node = context.lookup(&dir, b"f").expect("there");
    for (mode, flags) in [
        (AccessMode::Read, OFlags::RDONLY),
        (AccessMode::Write, OFlags::WRONLY),
        (AccessMode::ReadWrite, OFlags::RDWR),
    ] {
        let Grant { file, .. } = context.grant(&node, mode, Holder::Equal).expect("granted");
        let has = fcntl_getfl(&file).expect("flags");
        assert_eq!(has & OFlags::RWMODE, flags);
        assert!(
            !has.intersects(OFlags::NONBLOCK | OFlags::APPEND | OFlags::DIRECT | OFlags::PATH),
            "{has:?}"
        );
    }
    let (one, two) = (
        context.grant(&node, AccessMode::Read, Holder::Equal).expect("granted").file,
        context.grant(&node, AccessMode::Read, Holder::Equal).expect("granted").file,
    );
    rustix::io::read(&one, &mut [0; 4]).expect("reads");
    assert_eq!(rustix::fs::tell(&two).expect("tells"), 0);
    let refused = context.grant(&dir, AccessMode::Read, Holder::Equal).err();
    assert_eq!(refused, Some(Error::IsDirectory));
}

/// Also for root, because the mount is read-only.
fn is_for_reading_only(file: &OwnedFd) {
    local(|| {
        again(file, OFlags::RDONLY).expect("reading is fine");
        assert_eq!(again(file, OFlags::RDWR).err(), Some(Errno::ROFS));
        assert_eq!(again(file, OFlags::WRONLY | OFlags::TRUNC).err(), Some(Errno::ROFS));
        assert_eq!(rustix::fs::fchmod(file, Mode::from_raw_mode(0o777)).err(), Some(Errno::ROFS));
        assert_eq!(rustix::fs::fchown(file, Some(rustix::fs::Uid::ROOT), None).err(), Some(Errno::ROFS));
    });
}

#[test]
fn a_stronger_holder_cannot_reopen_for_writing() {
    let export = Export::new();
    local(|| std::fs::write(export.path("f"), b"x").expect("writes"));
    for subtree_check in [false, true] {
        let store = export.open_with(|options| options.subtree_check = subtree_check);
        let context = store.as_user(&user(65534)).expect("acts");
        let dir = root_of(&context, &store);
        let node = context.lookup(&dir, b"f").expect("there");
        let ways = |holder| {
            let found = context.find(&dir, b"f").expect("there");
            [
                context.grant_found(&found, AccessMode::Read, holder).ok(),
                context.grant(&node, AccessMode::Read, holder).ok(),
                context.grant_entry(&dir, b"f", holder),
            ]
        };
        for holder in [Holder::Backed, Holder::Stronger] {
            for (way, grant) in ways(holder).into_iter().enumerate() {
                // The short path needs kernel handles.
                assert_eq!(grant.is_some(), way < 2 || !subtree_check, "{holder:?}, way {way}");
                grant.inspect(|grant| is_for_reading_only(&grant.file));
            }
        }
        for grant in ways(Holder::Equal).into_iter().flatten() {
            local(|| again(&grant.file, OFlags::RDWR)).expect("root may");
        }
    }
}

#[test]
fn grant_entry_opens_readable_regular_files_only() {
    use std::os::unix::fs::PermissionsExt;
    let export = Export::new();
    local(|| {
        std::fs::write(export.path("f"), b"12345").expect("writes");
        std::fs::write(export.path("closed"), b"x").expect("writes");
        std::fs::set_permissions(export.path("closed"), PermissionsExt::from_mode(0o600)).expect("chmod");
        std::fs::create_dir(export.path("d")).expect("makes");
        std::os::unix::fs::symlink("f", export.path("l")).expect("links");
        rustix::fs::mknodat(CWD, export.path("p"), rustix::fs::FileType::Fifo, 0o666.into(), 0)
            .expect("makes");
    });
    // A process that waits in open(2) for a reader of the pipe keeps waiting.
    let pipe = openat(CWD, export.path("p"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    assert_eq!(pipe.err(), Some(Errno::NXIO));
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    for holder in [Holder::Equal, Holder::Stronger] {
        let grant = context.grant_entry(&dir, b"f", holder).expect("a regular file");
        let node = context.lookup(&dir, b"f").expect("there");
        assert_eq!(grant.handle, *node.handle());
        assert_eq!(grant.attributes, context.attributes(&node).expect("attributes"));
        let has = fcntl_getfl(&grant.file).expect("flags");
        assert_eq!(has & OFlags::RWMODE, OFlags::RDONLY);
        assert!(!has.intersects(OFlags::NONBLOCK | OFlags::PATH), "{has:?}");
        for name in [&b"closed"[..], b"d", b"l", b"p", b"missing", b".", b"..", b"", b"d/../f"] {
            assert!(context.grant_entry(&dir, name, holder).is_none(), "{}", String::from_utf8_lossy(name));
        }
        assert!(context.grant_entry(&node, b"f", holder).is_none());
    }
}

#[test]
fn a_read_only_grant_cannot_be_reopened_for_writing() {
    let export = Export::new();
    local(|| std::fs::write(export.path("f"), b"x").expect("writes"));
    local(|| std::os::unix::fs::chown(export.path("f"), Some(1000), None).expect("chown"));
    for subtree_check in [false, true] {
        for read_only in [false, true] {
            let store = export.open_with(|options| {
                options.read_only = read_only;
                options.subtree_check = subtree_check;
            });
            let context = store.as_read_only_user(&user(1000)).expect("acts");
            let node = context.lookup(&root_of(&context, &store), b"f").expect("there");
            for mode in [AccessMode::Write, AccessMode::ReadWrite] {
                let refused = context.grant(&node, mode, Holder::Equal).err();
                assert_eq!(refused, Some(Error::ReadOnly));
            }
            let granted = context.grant(&node, AccessMode::Read, Holder::Equal).expect("granted");
            is_for_reading_only(&granted.file);
        }
    }
}

/// A file that is open for writing keeps the kernel from making the clone of the mount read-only.
#[test]
fn a_store_that_becomes_read_only_grants_nothing_for_writing() {
    let export = Export::new();
    local(|| std::fs::write(export.path("f"), b"x").expect("writes"));
    let store = export.open();
    let granted = |mode| {
        let context = store.as_user(&user(0)).expect("acts");
        let node = context.lookup(&root_of(&context, &store), b"f").expect("there");
        context.grant(&node, mode, Holder::Equal).map(|grant| grant.file)
    };
    for is_open_for_writing in [false, true] {
        let writer = is_open_for_writing.then(|| granted(AccessMode::ReadWrite).expect("granted"));
        store.set_read_only(true);
        for mode in [AccessMode::Write, AccessMode::ReadWrite] {
            assert_eq!(granted(mode).err(), Some(Error::ReadOnly));
        }
        is_for_reading_only(&granted(AccessMode::Read).expect("granted"));
        store.set_read_only(false);
        granted(AccessMode::ReadWrite).expect("granted again");
        drop(writer);
    }
}

#[test]
fn a_read_only_user_cannot_change_files() {
    let export = Export::new();
    local(|| {
        std::fs::write(export.path("f"), b"x").expect("writes");
        rustix::fs::mknodat(CWD, export.path("p"), rustix::fs::FileType::Fifo, 0o666.into(), 0)
            .expect("makes");
    });
    let store = export.open();
    let context = store.as_read_only_user(&user(0)).expect("acts");
    let dir = root_of(&context, &store);
    let node = context.lookup(&dir, b"f").expect("there");
    let pipe = context.lookup(&dir, b"p").expect("there");
    let changes = Access::MODIFY | Access::EXTEND;
    assert_eq!(context.access(&node, changes), Ok(Access(0)));
    assert_eq!(context.access(&dir, changes), Ok(Access(0)));
    assert_eq!(context.access(&pipe, changes), Ok(changes), "a pipe's data isn't the export's");
    let set = store::SetAttributes { size: Some(0), ..Default::default() };
    let mut wcc = Wcc::default();
    let mut other = Wcc::default();
    let refused = Err(Error::ReadOnly);
    assert_eq!(context.set_attributes(&node, &set, None, &mut wcc), refused);
    assert_eq!(context.write(&node, 0, b"y", io::Stability::Unstable, &mut wcc).map(|_| ()), refused);
    assert_eq!(context.create(&dir, b"g", &store::CreateHow::Unchecked(set), &mut wcc).map(|_| ()), refused);
    assert_eq!(context.mkdir(&dir, b"g", &set, &mut wcc).map(|_| ()), refused);
    assert_eq!(context.symlink(&dir, b"g", b"t", &set, &mut wcc).map(|_| ()), refused);
    assert_eq!(context.mknod(&dir, b"g", store::SpecialFile::Fifo, &set, &mut wcc).map(|_| ()), refused);
    assert_eq!(context.remove(&dir, b"f", &mut wcc), refused);
    assert_eq!(context.rmdir(&dir, b"f", &mut wcc), refused);
    assert_eq!(context.link(&node, &dir, b"g", &mut wcc), refused);
    assert_eq!(context.rename(&dir, b"f", &dir, b"g", &mut wcc, &mut other), refused);
    assert!(wcc.before.is_some() && other.after.is_some());
    assert_eq!(context.may(&node, AccessMode::Write), refused);
    let mut names = common::names(&context, &dir, 10);
    names.sort();
    assert_eq!(names, [b"f".to_vec(), b"p".to_vec()]);
}

#[test]
fn grant_found_checks_permission() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let export = Export::new();
    let make = |name: &str, mode: u32| {
        std::fs::write(export.path(name), b"12345").expect("writes");
        chown(export.path(name), Some(1000), Some(1000)).expect("chown");
        std::fs::set_permissions(export.path(name), PermissionsExt::from_mode(mode)).expect("chmod");
    };
    local(|| {
        for (name, mode) in [("open", 0o644), ("closed", 0o600), ("program", 0o711), ("own", 0o000)] {
            make(name, mode);
        }
        std::fs::create_dir(export.path("d")).expect("makes");
    });
    for subtree_check in [false, true] {
        // The first round finds files without nodes, the second cached ones.
        let store = export.open_with(|options| options.subtree_check = subtree_check);
        for round in 0..2 {
            let grant = |uid: u32, name: &[u8], mode: AccessMode| {
                let context = store.as_user(&user(uid)).expect("acts");
                let dir = root_of(&context, &store);
                let found = context.find(&dir, name).expect("there");
                let granted = context.grant_found(&found, mode, Holder::Equal);
                let now = context.attributes(&found.node).expect("attributes");
                granted.map(|grant| assert_eq!(grant.attributes, now, "round {round}"))
            };
            let access = Err(Error::Access);
            assert_eq!(grant(1001, b"open", AccessMode::Read), Ok(()));
            assert_eq!(grant(1001, b"open", AccessMode::Write), access);
            assert_eq!(grant(1001, b"open", AccessMode::ReadWrite), access);
            assert_eq!(grant(1001, b"closed", AccessMode::Read), access);
            // The wire allows these, as NFS servers must, and open(2) doesn't.
            let wire = Err(Error::NotSupported);
            assert_eq!(
                grant(1001, b"program", AccessMode::Read),
                wire,
                "permission to execute isn't permission to open"
            );
            assert_eq!(grant(1001, b"program", AccessMode::ReadWrite), access);
            assert_eq!(grant(1001, b"own", AccessMode::Read), access);
            assert_eq!(
                grant(1000, b"own", AccessMode::ReadWrite),
                wire,
                "the mode applies to the owner, too"
            );
            assert_eq!(grant(0, b"own", AccessMode::ReadWrite), Ok(()));
            assert_eq!(grant(0, b"d", AccessMode::Read), Err(Error::IsDirectory));
        }
    }
}
