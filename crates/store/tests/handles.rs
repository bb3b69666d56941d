//! Validity of handles: restarts, renames, removals, forged handles.

extern crate samehost_store as store;

mod common;

use common::{Export, local, root, root_of, user};
use store::{CreateHow, Error, FileHandle, HandleKey, SetAttributes, Wcc};

fn unchecked() -> CreateHow {
    CreateHow::Unchecked(SetAttributes::default())
}

#[test]
fn a_handle_survives_a_restart_and_a_local_rename() {
    let export = Export::new();
    let store = export.open();
    assert!(store.has_kernel_handles());
    let handle = {
        let context = store.as_user(&user(1000)).expect("acts");
        let dir = root_of(&context, &store);
        let sub = context.mkdir(&dir, b"sub", &SetAttributes::default(), &mut Wcc::default()).expect("makes");
        *context.create(&sub, b"f", &unchecked(), &mut Wcc::default()).expect("creates").handle()
    };
    drop(store);
    local(|| {
        std::fs::rename(export.path("sub"), export.path("bus")).expect("renames");
        std::fs::rename(export.path("bus/f"), export.path("bus/g")).expect("renames");
    });
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let node = context.node(handle.as_bytes()).expect("the same file");
    assert_eq!(context.attributes(&node).expect("attributes").uid, 1000);
    let dir = context.lookup(&root_of(&context, &store), b"bus").expect("there");
    assert_eq!(context.lookup(&dir, b"g").expect("there").handle(), &handle);
    assert!(std::sync::Arc::ptr_eq(&context.lookup(&dir, b"g").expect("there"), &node), "one node a file");
    assert!(handle.as_bytes().len() <= FileHandle::MAX);
}

#[test]
fn invalid_handles_are_refused() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let node = context.create(&dir, b"f", &unchecked(), &mut Wcc::default()).expect("creates");
    let genuine = node.handle().as_bytes().to_vec();
    for index in 0..genuine.len() {
        let mut forged = genuine.clone();
        forged[index] ^= 0x10;
        // Three bytes are the same in all handles, and four in those of the export.
        let expected = if [0, 1, 2, 4, 5, 6, 7].contains(&index) { Error::BadHandle } else { Error::Stale };
        assert_eq!(context.node(&forged).err(), Some(expected), "byte {index}");
    }
    assert_eq!(context.node(&genuine[..genuine.len() - 1]).err(), Some(Error::Stale));
    assert_eq!(context.node(&[]).err(), Some(Error::BadHandle));
    assert_eq!(context.node(&[0; 65]).err(), Some(Error::BadHandle));
    assert_eq!(context.node(&[0xff; 64]).err(), Some(Error::BadHandle));

    std::fs::create_dir(export.path("d")).expect("creates");
    let other_key = export.open_with(|options| options.key = HandleKey::new([43; 16]));
    let other_export = export.open_with(|options| options.export_id = 8);
    let other_directory = export.open_with(|options| options.path.push("d"));
    let others =
        [(other_key, Error::Stale), (other_export, Error::BadHandle), (other_directory, Error::Stale)];
    for (other, expected) in others {
        let context = other.as_user(&root()).expect("acts");
        assert_eq!(context.node(&genuine).err(), Some(expected));
    }
}

#[test]
fn a_removed_file_is_stale_and_its_space_freed() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let ours = context.create(&dir, b"ours", &unchecked(), &mut Wcc::default()).expect("creates");
    let theirs = context.create(&dir, b"theirs", &unchecked(), &mut Wcc::default()).expect("creates");
    let (ours, theirs) = (*ours.handle(), *theirs.handle());
    let nodes = store.open_nodes();

    context.remove(&dir, b"ours", &mut Wcc::default()).expect("removes");
    assert_eq!(store.open_nodes(), nodes - 1, "a removal through the store closes the file");
    assert_eq!(context.node(ours.as_bytes()).err(), Some(Error::Stale));

    local(|| std::fs::remove_file(export.path("theirs")).expect("removes"));
    let context = store.as_user(&user(1000)).expect("acts");
    let gone = context.node(theirs.as_bytes()).and_then(|node| context.attributes(&node).map(|_| ()));
    assert_eq!(gone, Err(Error::Stale));
    assert_eq!(store.open_nodes(), nodes - 2);
    assert_eq!(context.node(theirs.as_bytes()).err(), Some(Error::Stale));
}

#[test]
fn a_reused_inode_number_is_another_file() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        let node = context.create(&dir, b"f", &unchecked(), &mut Wcc::default()).expect("creates");
        assert!(seen.insert(*node.handle()), "a handle came back");
        context.remove(&dir, b"f", &mut Wcc::default()).expect("removes");
    }
}

#[test]
fn the_parent_of_the_root_is_the_root() {
    let export = Export::new();
    local(|| std::fs::create_dir_all(export.path("a/b")).expect("makes"));
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let a = context.lookup(&dir, b"a").expect("there");
    let b = context.lookup(&a, b"b").expect("there");
    assert_eq!(context.lookup(&b, b"..").expect("there").handle(), a.handle());
    assert_eq!(context.lookup(&a, b"..").expect("there").handle(), dir.handle());
    assert_eq!(context.lookup(&dir, b"..").expect("there").handle(), dir.handle());
    assert_eq!(context.lookup(&dir, b".").expect("there").handle(), dir.handle());
    assert_eq!(context.lookup(&a, b".").expect("there").handle(), a.handle());
}

#[test]
fn a_directory_moved_outside_has_no_parent() {
    let outer = Export::new();
    local(|| std::fs::create_dir_all(outer.path("export/a/b")).expect("makes"));
    let store = outer.open_with(|options| options.path = outer.path("export"));
    let context = store.as_user(&root()).expect("acts");
    let a = context.lookup(&root_of(&context, &store), b"a").expect("there");
    local(|| std::fs::rename(outer.path("export/a"), outer.path("a")).expect("renames"));
    let context = store.as_user(&root()).expect("acts");
    assert_eq!(context.lookup(&a, b"..").err(), Some(Error::Stale));
}

#[test]
fn links_and_mounts_are_not_followed() {
    let export = Export::new();
    local(|| {
        std::os::unix::fs::symlink("/etc", export.path("out")).expect("links");
        std::fs::create_dir(export.path("mounted")).expect("makes");
        std::fs::write(export.path("mounted/below"), b"").expect("writes");
    });
    let _mounted = common::Mounted::tmpfs(export.path("mounted"));
    local(|| std::fs::write(export.path("mounted/above"), b"").expect("writes"));
    let store = export.open();
    assert!(store.is_cloned());
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let link = context.lookup(&dir, b"out").expect("the link itself");
    assert_eq!(link.kind(), store::FileKind::Symlink);
    assert_eq!(context.readlink(&link), Ok(b"/etc".to_vec()));
    assert_eq!(context.lookup(&link, b"passwd").err(), Some(Error::NotDirectory));
    let covered = context.lookup(&dir, b"mounted").expect("there");
    assert_eq!(common::names(&context, &covered, 10), [b"below".to_vec()]);
}

#[test]
fn the_cache_is_bounded() {
    let export = Export::new();
    let store = export.open_with(|options| options.limits.nodes = 16);
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let mut handles = Vec::new();
    for index in 0..200 {
        let name = format!("f{index}");
        let node = context.create(&dir, name.as_bytes(), &unchecked(), &mut Wcc::default()).expect("creates");
        handles.push(*node.handle());
    }
    assert!(store.open_nodes() <= 16, "{}", store.open_nodes());
    for handle in &handles {
        context.node(handle.as_bytes()).expect("still there");
    }
}
