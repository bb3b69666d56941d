//! An unprivileged server: one user's files, and located handles. And `subtree_check`, which uses located
//! handles, too.

extern crate samehost_store as store;

mod common;

use std::os::unix::fs::{PermissionsExt, chown};

use common::{Export, as_ordinary_user, local, names, root, root_of, user};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use store::{
    AccessMode, CreateHow, CreatedFile, Error, FileHandle, Holder, Privilege, SetAttributes, SpecialFile, Wcc,
};

const USER: u32 = 1234;

fn guarded(mode: u32) -> CreateHow {
    CreateHow::Guarded(SetAttributes { mode: Some(mode), ..SetAttributes::default() })
}

fn wcc() -> Wcc {
    Wcc::default()
}

/// An export that belongs to the ordinary user.
fn theirs() -> Export {
    let export = Export::new();
    local(|| chown(export.dir.path(), Some(USER), Some(USER)).expect("chown"));
    export
}

#[test]
fn everybody_is_the_process_and_the_reason_is_told() {
    let export = theirs();
    as_ordinary_user(USER, || {
        let store = export.open_as_is();
        assert_eq!(store.privilege(), &Privilege::Unprivileged { reason: "not started as root".into() });
        let acting = store.as_user(&root()).expect("acts");
        assert_eq!(acting.identity().uid, USER);
        let dir = root_of(&acting, &store);
        let node = acting.create(&dir, b"f", &guarded(0o644), &mut wcc()).expect("creates");
        acting.write(&node, 0, b"hello", io::Stability::FileSync, &mut wcc()).expect("writes");
        assert_eq!(acting.attributes(&node).expect("attributes").uid, USER);
        let mut buffer = [0; 8];
        assert_eq!(acting.read(&node, 0, &mut buffer).expect("reads").count, 5);
        let set = SetAttributes { uid: Some(1), ..SetAttributes::default() };
        assert_eq!(acting.set_attributes(&node, &set, None, &mut wcc()), Err(Error::Permission));
        acting.grant(&node, AccessMode::ReadWrite, Holder::Stronger).expect("granted");
        // Without a read-only clone of the mount the receiver could re-open it for writing.
        let reader = store.as_read_only_user(&root()).expect("acts");
        for holder in [Holder::Equal, Holder::Stronger] {
            assert_eq!(reader.grant(&node, AccessMode::Read, holder).err(), Some(Error::NotSupported));
        }
        assert_eq!(acting.grant(&node, AccessMode::Read, Holder::Stronger).err(), Some(Error::NotSupported));
        acting.grant(&node, AccessMode::Read, Holder::Backed).expect("granted");
        assert_eq!(reader.read(&node, 0, &mut buffer).expect("the wire still works").count, 5);
        // A file created without write permission can be written through the descriptor that created it.
        let closed = acting.create(&dir, b"closed", &guarded(0o444), &mut wcc()).expect("creates");
        acting.write(&closed, 0, b"x", io::Stability::Unstable, &mut wcc()).expect("writes");
        assert_eq!(names(&acting, &dir, 1).len(), 2);
        // And so can one that is granted on creation.
        let asked = (AccessMode::Write, Holder::Equal);
        let made =
            acting.create_granted(&dir, b"given", &guarded(0o444), asked, &mut wcc()).expect("creates");
        let CreatedFile::Open(_, grant) = made else { panic!("it is new") };
        assert_eq!(rustix::io::write(&grant.file, b"x"), Ok(1));
        // A file that couldn't be granted isn't created.
        let asked = (AccessMode::Read, Holder::Stronger);
        let refused = acting.create_granted(&dir, b"refused", &guarded(0o644), asked, &mut wcc());
        assert_eq!(refused.err(), Some(Error::NotSupported));
        assert_eq!(names(&acting, &dir, 1).len(), 3);
    });
}

/// All its files belong to the server's user: a set-id program among them would give that user's rights to
/// whoever executes it.
#[test]
fn no_set_id_program_is_made() {
    let export = theirs();
    as_ordinary_user(USER, || {
        let store = export.open_as_is();
        let acting = store.as_user(&root()).expect("acts");
        let dir = root_of(&acting, &store);
        let mode = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let file = acting.create(&dir, b"file", &guarded(0o755), &mut wcc()).expect("creates");
        for bits in [0o4755, 0o2755, 0o6755] {
            let refused = Err(Error::Permission);
            for how in [guarded(bits), CreateHow::Unchecked(mode(bits)), CreateHow::Exclusive([1; 8], bits)] {
                assert_eq!(acting.create(&dir, b"new", &how, &mut wcc()).map(drop), refused, "{how:?}");
                let made =
                    acting.create_granted(&dir, b"new", &how, (AccessMode::Write, Holder::Equal), &mut wcc());
                assert_eq!(made.map(drop), refused, "{how:?}");
            }
            assert_eq!(acting.set_attributes(&file, &mode(bits), None, &mut wcc()), refused);
            let made = acting.mknod(&dir, b"new", SpecialFile::Fifo, &mode(bits), &mut wcc());
            assert_eq!(made.map(drop), refused);
        }
        assert_eq!(acting.attributes(&file).expect("attributes").mode, 0o755);
        let made = acting.mkdir(&dir, b"new", &mode(0o4755), &mut wcc());
        assert_eq!(made.map(drop), Err(Error::Permission));
        assert_eq!(names(&acting, &dir, 9), [b"file"], "nothing was made");
        // On a directory the bit determines the group of new files.
        let inheriting = acting.mkdir(&dir, b"d", &mode(0o2755), &mut wcc()).expect("makes");
        assert_eq!(acting.attributes(&inheriting).expect("attributes").mode, 0o2755);
        acting.set_attributes(&inheriting, &mode(0o3755), None, &mut wcc()).expect("sets");
        assert_eq!(
            acting.set_attributes(&inheriting, &mode(0o4755), None, &mut wcc()),
            Err(Error::Permission)
        );
    });
}

#[test]
fn root_without_the_capability_is_unprivileged_too() {
    let export = Export::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = capabilities(None).expect("capabilities");
            sets.effective.remove(CapabilitySet::DAC_READ_SEARCH);
            sets.permitted.remove(CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).expect("fewer is always allowed");
            let store = export.open_as_is();
            let Privilege::Unprivileged { reason } = store.privilege() else { panic!("it isn't") };
            assert!(reason.contains("CAP_DAC_READ_SEARCH"), "{reason}");
            let acting = store.as_user(&user(1000)).expect("acts");
            let node =
                acting.create(&root_of(&acting, &store), b"f", &guarded(0o600), &mut wcc()).expect("creates");
            assert_eq!(
                acting.attributes(&node).expect("attributes").uid,
                0,
                "everybody is the process's user"
            );
        });
    });
}

#[test]
fn handles_are_found_again_after_a_restart() {
    let export = theirs();
    let deep: Vec<String> = (0..20).map(|level| format!("level-{level}")).collect();
    let (file, below, renamed, removed) = as_ordinary_user(USER, || {
        let store = export.open_as_is();
        let acting = store.as_user(&root()).expect("acts");
        let mut dir = root_of(&acting, &store);
        let top = dir.clone();
        let make = |dir: &store::Node, name: &str| -> FileHandle {
            *acting.create(dir, name.as_bytes(), &guarded(0o644), &mut wcc()).expect("creates").handle()
        };
        let renamed = make(&top, "before");
        let removed = make(&top, "removed");
        for name in &deep {
            dir = acting.mkdir(&dir, name.as_bytes(), &SetAttributes::default(), &mut wcc()).expect("makes");
        }
        (make(&top, "file"), make(&dir, "below"), renamed, removed)
    });
    local(|| {
        std::fs::rename(export.path("before"), export.path("level-0/level-1/after")).expect("renames");
        std::fs::remove_file(export.path("removed")).expect("removes");
        // Other files, and a new file that may reuse the removed one's inode number.
        (0..300)
            .for_each(|index| std::fs::write(export.path(&format!("noise-{index}")), b"").expect("writes"));
    });
    as_ordinary_user(USER, || {
        let store = export.open_as_is();
        let acting = store.as_user(&root()).expect("acts");
        for handle in [&below, &file, &renamed] {
            let node = acting.node(handle.as_bytes()).expect("found again");
            assert_eq!(node.handle(), handle, "and goes by the handle that the client knows");
        }
        assert_eq!(acting.node(removed.as_bytes()).err(), Some(Error::Stale));
        assert_eq!(acting.node(removed.as_bytes()).err(), Some(Error::Stale));
        let dir = root_of(&acting, &store);
        assert_eq!(acting.lookup(&dir, b"file").expect("there").handle(), &file);
        // Its parents are found, too.
        let mut at = acting.node(below.as_bytes()).expect("there");
        assert_eq!(at.kind(), store::FileKind::Regular);
        at = acting.lookup(&dir, b"level-0").expect("there");
        at = acting.lookup(&at, b"level-1").expect("there");
        assert_eq!(acting.lookup(&at, b"after").expect("there").handle(), &renamed);
        let up = acting.lookup(&at, b"..").expect("there");
        assert_eq!(acting.lookup(&up, b"..").expect("there").handle(), dir.handle());
    });
}

#[test]
fn renames_through_the_store_keep_handles_even_when_nothing_is_cached() {
    let export = theirs();
    as_ordinary_user(USER, || {
        let mut options = export.options();
        options.limits.nodes = 8;
        let store = store::Store::open(options).expect("opens");
        let acting = store.as_user(&root()).expect("acts");
        let dir = root_of(&acting, &store);
        let sub = acting.mkdir(&dir, b"sub", &SetAttributes::default(), &mut wcc()).expect("makes");
        let file = *acting.create(&sub, b"f", &guarded(0o644), &mut wcc()).expect("creates").handle();
        acting.rename(&dir, b"sub", &dir, b"bus", &mut wcc(), &mut wcc()).expect("renames");
        for index in 0..50 {
            let name = format!("other-{index}");
            acting.create(&dir, name.as_bytes(), &guarded(0o644), &mut wcc()).expect("creates");
        }
        assert_eq!(acting.node(file.as_bytes()).expect("there").handle(), &file);
        let bus = acting.lookup(&dir, b"bus").expect("there");
        assert_eq!(acting.lookup(&bus, b"f").expect("there").handle(), &file);
    });
}

#[test]
fn subtree_check_refuses_what_left_the_tree_or_is_closed_to_the_user() {
    let outer = Export::new();
    local(|| std::fs::create_dir_all(outer.path("export/d")).expect("makes"));
    local(|| std::fs::write(outer.path("export/d/f"), b"").expect("writes"));
    local(|| std::fs::write(outer.path("export/d/g"), b"").expect("writes"));
    let store = outer.open_with(|options| {
        options.path = outer.path("export");
        options.subtree_check = true;
    });
    assert_eq!(store.privilege(), &Privilege::Full);
    let acting = store.as_user(&user(1000)).expect("acts");
    let dir = acting.lookup(&root_of(&acting, &store), b"d").expect("there");
    let stays = *acting.lookup(&dir, b"f").expect("there").handle();
    let leaves = *acting.lookup(&dir, b"g").expect("there").handle();
    local(|| {
        std::fs::rename(outer.path("export/d/g"), outer.path("g")).expect("renames");
        std::fs::rename(outer.path("export/d/f"), outer.path("export/f")).expect("renames");
    });
    let acting = store.as_user(&user(1000)).expect("acts");
    acting.node(stays.as_bytes()).expect("renamed, but below");
    assert_eq!(acting.node(leaves.as_bytes()).err(), Some(Error::Stale));
    local(|| {
        std::fs::rename(outer.path("export/f"), outer.path("export/d/f")).expect("renames");
        std::fs::set_permissions(outer.path("export/d"), std::fs::Permissions::from_mode(0o700))
            .expect("chmod");
    });
    let acting = store.as_user(&root()).expect("acts");
    acting.node(stays.as_bytes()).expect("root may");
    let acting = store.as_user(&user(1000)).expect("acts");
    assert_eq!(acting.node(stays.as_bytes()).err(), Some(Error::Access));
}
