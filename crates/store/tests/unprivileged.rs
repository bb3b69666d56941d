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
fn an_unprivileged_store_acts_as_the_process() {
    let export = theirs();
    as_ordinary_user(USER, || {
        let store = export.open_as_is();
        assert_eq!(store.privilege(), &Privilege::Unprivileged { reason: "not started as root".into() });
        let context = store.as_user(&root()).expect("acts");
        assert_eq!(context.identity().uid, USER);
        let dir = root_of(&context, &store);
        let node = context.create(&dir, b"f", &guarded(0o644), &mut wcc()).expect("creates");
        context.write(&node, 0, b"hello", io::Stability::FileSync, &mut wcc()).expect("writes");
        assert_eq!(context.attributes(&node).expect("attributes").uid, USER);
        let mut buffer = [0; 8];
        assert_eq!(context.read(&node, 0, &mut buffer).expect("reads").count, 5);
        let set = SetAttributes { uid: Some(1), ..SetAttributes::default() };
        assert_eq!(context.set_attributes(&node, &set, None, &mut wcc()), Err(Error::Permission));
        context.grant(&node, AccessMode::ReadWrite, Holder::Stronger).expect("granted");
        // Without a read-only clone of the mount the receiver could re-open it for writing.
        let reader = store.as_read_only_user(&root()).expect("acts");
        for holder in [Holder::Equal, Holder::Stronger] {
            assert_eq!(reader.grant(&node, AccessMode::Read, holder).err(), Some(Error::NotSupported));
        }
        assert_eq!(context.grant(&node, AccessMode::Read, Holder::Stronger).err(), Some(Error::NotSupported));
        context.grant(&node, AccessMode::Read, Holder::Backed).expect("granted");
        assert_eq!(reader.read(&node, 0, &mut buffer).expect("the wire still works").count, 5);
        // A file created without write permission can be written through the descriptor that created it.
        let closed = context.create(&dir, b"closed", &guarded(0o444), &mut wcc()).expect("creates");
        context.write(&closed, 0, b"x", io::Stability::Unstable, &mut wcc()).expect("writes");
        assert_eq!(names(&context, &dir, 1).len(), 2);
        // So can one that is granted on creation.
        let grant = (AccessMode::Write, Holder::Equal);
        let made =
            context.create_granted(&dir, b"given", &guarded(0o444), grant, &mut wcc()).expect("creates");
        let CreatedFile::Open(_, grant) = made else { panic!("it is new") };
        assert_eq!(rustix::io::write(&grant.file, b"x"), Ok(1));
        // A file that couldn't be granted isn't created.
        let grant = (AccessMode::Read, Holder::Stronger);
        let refused = context.create_granted(&dir, b"refused", &guarded(0o644), grant, &mut wcc());
        assert_eq!(refused.err(), Some(Error::NotSupported));
        assert_eq!(names(&context, &dir, 1).len(), 3);
    });
}

/// All its files belong to the server's user: a set-id program would give that user's rights to every user
/// who executes it.
#[test]
fn set_id_programs_are_refused() {
    let export = theirs();
    as_ordinary_user(USER, || {
        let store = export.open_as_is();
        let context = store.as_user(&root()).expect("acts");
        let dir = root_of(&context, &store);
        let mode = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let file = context.create(&dir, b"file", &guarded(0o755), &mut wcc()).expect("creates");
        for bits in [0o4755, 0o2755, 0o6755] {
            let refused = Err(Error::Permission);
            for how in [guarded(bits), CreateHow::Unchecked(mode(bits)), CreateHow::Exclusive([1; 8], bits)] {
                assert_eq!(context.create(&dir, b"new", &how, &mut wcc()).map(drop), refused, "{how:?}");
                let made = context.create_granted(
                    &dir,
                    b"new",
                    &how,
                    (AccessMode::Write, Holder::Equal),
                    &mut wcc(),
                );
                assert_eq!(made.map(drop), refused, "{how:?}");
            }
            assert_eq!(context.set_attributes(&file, &mode(bits), None, &mut wcc()), refused);
            let made = context.mknod(&dir, b"new", SpecialFile::Fifo, &mode(bits), &mut wcc());
            assert_eq!(made.map(drop), refused);
        }
        assert_eq!(context.attributes(&file).expect("attributes").mode, 0o755);
        let made = context.mkdir(&dir, b"new", &mode(0o4755), &mut wcc());
        assert_eq!(made.map(drop), Err(Error::Permission));
        assert_eq!(names(&context, &dir, 9), [b"file"], "nothing was made");
        // On a directory the bit determines the group of new files.
        let inheriting = context.mkdir(&dir, b"d", &mode(0o2755), &mut wcc()).expect("makes");
        assert_eq!(context.attributes(&inheriting).expect("attributes").mode, 0o2755);
        context.set_attributes(&inheriting, &mode(0o3755), None, &mut wcc()).expect("sets");
        assert_eq!(
            context.set_attributes(&inheriting, &mode(0o4755), None, &mut wcc()),
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
            let context = store.as_user(&user(1000)).expect("acts");
            let node = context
                .create(&root_of(&context, &store), b"f", &guarded(0o600), &mut wcc())
                .expect("creates");
            assert_eq!(
                context.attributes(&node).expect("attributes").uid,
                0,
                "all users act as the process's user"
            );
        });
    });
}

#[test]
fn located_handles_survive_a_restart() {
    let export = theirs();
    let deep: Vec<String> = (0..20).map(|level| format!("level-{level}")).collect();
    let (file, below, renamed, removed) = as_ordinary_user(USER, || {
        let store = export.open_as_is();
        let context = store.as_user(&root()).expect("acts");
        let mut dir = root_of(&context, &store);
        let top = dir.clone();
        let make = |dir: &store::Node, name: &str| -> FileHandle {
            *context.create(dir, name.as_bytes(), &guarded(0o644), &mut wcc()).expect("creates").handle()
        };
        let renamed = make(&top, "before");
        let removed = make(&top, "removed");
        for name in &deep {
            dir = context.mkdir(&dir, name.as_bytes(), &SetAttributes::default(), &mut wcc()).expect("makes");
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
        let context = store.as_user(&root()).expect("acts");
        for handle in [&below, &file, &renamed] {
            let node = context.node(handle.as_bytes()).expect("found again");
            assert_eq!(node.handle(), handle, "with the client's handle");
        }
        assert_eq!(context.node(removed.as_bytes()).err(), Some(Error::Stale));
        assert_eq!(context.node(removed.as_bytes()).err(), Some(Error::Stale));
        let dir = root_of(&context, &store);
        assert_eq!(context.lookup(&dir, b"file").expect("there").handle(), &file);
        // Its parents are found, too.
        let mut at = context.node(below.as_bytes()).expect("there");
        assert_eq!(at.kind(), store::FileKind::Regular);
        at = context.lookup(&dir, b"level-0").expect("there");
        at = context.lookup(&at, b"level-1").expect("there");
        assert_eq!(context.lookup(&at, b"after").expect("there").handle(), &renamed);
        let up = context.lookup(&at, b"..").expect("there");
        assert_eq!(context.lookup(&up, b"..").expect("there").handle(), dir.handle());
    });
}

#[test]
fn renames_keep_handles_without_cached_nodes() {
    let export = theirs();
    as_ordinary_user(USER, || {
        let mut options = export.options();
        options.limits.nodes = 8;
        let store = store::Store::open(options).expect("opens");
        let context = store.as_user(&root()).expect("acts");
        let dir = root_of(&context, &store);
        let sub = context.mkdir(&dir, b"sub", &SetAttributes::default(), &mut wcc()).expect("makes");
        let file = *context.create(&sub, b"f", &guarded(0o644), &mut wcc()).expect("creates").handle();
        context.rename(&dir, b"sub", &dir, b"bus", &mut wcc(), &mut wcc()).expect("renames");
        for index in 0..50 {
            let name = format!("other-{index}");
            context.create(&dir, name.as_bytes(), &guarded(0o644), &mut wcc()).expect("creates");
        }
        assert_eq!(context.node(file.as_bytes()).expect("there").handle(), &file);
        let bus = context.lookup(&dir, b"bus").expect("there");
        assert_eq!(context.lookup(&bus, b"f").expect("there").handle(), &file);
    });
}

#[test]
fn subtree_check_refuses_moved_and_inaccessible_files() {
    let outer = Export::new();
    local(|| std::fs::create_dir_all(outer.path("export/d")).expect("makes"));
    local(|| std::fs::write(outer.path("export/d/f"), b"").expect("writes"));
    local(|| std::fs::write(outer.path("export/d/g"), b"").expect("writes"));
    let store = outer.open_with(|options| {
        options.path = outer.path("export");
        options.subtree_check = true;
    });
    assert_eq!(store.privilege(), &Privilege::Full);
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = context.lookup(&root_of(&context, &store), b"d").expect("there");
    let stays = *context.lookup(&dir, b"f").expect("there").handle();
    let leaves = *context.lookup(&dir, b"g").expect("there").handle();
    local(|| {
        std::fs::rename(outer.path("export/d/g"), outer.path("g")).expect("renames");
        std::fs::rename(outer.path("export/d/f"), outer.path("export/f")).expect("renames");
    });
    let context = store.as_user(&user(1000)).expect("acts");
    context.node(stays.as_bytes()).expect("renamed, but below");
    assert_eq!(context.node(leaves.as_bytes()).err(), Some(Error::Stale));
    local(|| {
        std::fs::rename(outer.path("export/f"), outer.path("export/d/f")).expect("renames");
        std::fs::set_permissions(outer.path("export/d"), std::fs::Permissions::from_mode(0o700))
            .expect("chmod");
    });
    let context = store.as_user(&root()).expect("acts");
    context.node(stays.as_bytes()).expect("root may");
    let context = store.as_user(&user(1000)).expect("acts");
    assert_eq!(context.node(stays.as_bytes()).err(), Some(Error::Access));
}
