//! What handles survive, and what invalidates them.

extern crate samehost_store as store;

mod common;

use common::{Export, local, root, root_of, user};
use store::{CreateHow, Error, FileHandle, HandleKey, SetAttributes, Wcc};

fn unchecked() -> CreateHow {
    CreateHow::Unchecked(SetAttributes::default())
}

#[test]
fn a_handle_survives_a_restart_and_a_rename_behind_the_back() {
    let export = Export::new();
    let store = export.open();
    assert!(store.has_kernel_handles());
    let handle = {
        let acting = store.as_user(&user(1000)).expect("acts");
        let dir = root_of(&acting, &store);
        let sub = acting.mkdir(&dir, b"sub", &SetAttributes::default(), &mut Wcc::default()).expect("makes");
        *acting.create(&sub, b"f", &unchecked(), &mut Wcc::default()).expect("creates").handle()
    };
    drop(store);
    local(|| {
        std::fs::rename(export.path("sub"), export.path("bus")).expect("renames");
        std::fs::rename(export.path("bus/f"), export.path("bus/g")).expect("renames");
    });
    let store = export.open();
    let acting = store.as_user(&user(1000)).expect("acts");
    let node = acting.node(handle.as_bytes()).expect("the same file");
    assert_eq!(acting.attributes(&node).expect("attributes").uid, 1000);
    let dir = acting.lookup(&root_of(&acting, &store), b"bus").expect("there");
    assert_eq!(acting.lookup(&dir, b"g").expect("there").handle(), &handle);
    assert!(std::sync::Arc::ptr_eq(&acting.lookup(&dir, b"g").expect("there"), &node), "one node a file");
    assert!(handle.as_bytes().len() <= FileHandle::MAX);
}

#[test]
fn forged_foreign_and_cut_handles_are_refused() {
    let export = Export::new();
    let store = export.open();
    let acting = store.as_user(&root()).expect("acts");
    let dir = root_of(&acting, &store);
    let node = acting.create(&dir, b"f", &unchecked(), &mut Wcc::default()).expect("creates");
    let genuine = node.handle().as_bytes().to_vec();
    for index in 0..genuine.len() {
        let mut forged = genuine.clone();
        forged[index] ^= 0x10;
        assert_eq!(acting.node(&forged).err(), Some(Error::BadHandle), "byte {index}");
    }
    assert_eq!(acting.node(&genuine[..genuine.len() - 1]).err(), Some(Error::BadHandle));
    assert_eq!(acting.node(&[]).err(), Some(Error::BadHandle));
    assert_eq!(acting.node(&[0; 65]).err(), Some(Error::BadHandle));
    assert_eq!(acting.node(&[0xff; 64]).err(), Some(Error::BadHandle));

    let other_key = export.open_with(|options| options.key = HandleKey::new([43; 16]));
    let other_export = export.open_with(|options| options.export_id = 8);
    for other in [other_key, other_export] {
        let acting = other.as_user(&root()).expect("acts");
        assert_eq!(acting.node(&genuine).err(), Some(Error::BadHandle));
    }
}

#[test]
fn a_removed_file_is_stale_at_once_and_leaves_its_space() {
    let export = Export::new();
    let store = export.open();
    let acting = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&acting, &store);
    let ours = acting.create(&dir, b"ours", &unchecked(), &mut Wcc::default()).expect("creates");
    let theirs = acting.create(&dir, b"theirs", &unchecked(), &mut Wcc::default()).expect("creates");
    let (ours, theirs) = (*ours.handle(), *theirs.handle());
    let nodes = store.open_nodes();

    acting.remove(&dir, b"ours", &mut Wcc::default()).expect("removes");
    assert_eq!(store.open_nodes(), nodes - 1, "our own removal lets go of the file");
    assert_eq!(acting.node(ours.as_bytes()).err(), Some(Error::Stale));

    local(|| std::fs::remove_file(export.path("theirs")).expect("removes"));
    let acting = store.as_user(&user(1000)).expect("acts");
    let gone = acting.node(theirs.as_bytes()).and_then(|node| acting.attributes(&node).map(|_| ()));
    assert_eq!(gone, Err(Error::Stale));
    assert_eq!(store.open_nodes(), nodes - 2);
    assert_eq!(acting.node(theirs.as_bytes()).err(), Some(Error::Stale));
}

#[test]
fn a_new_file_in_a_dead_ones_place_is_another_file() {
    let export = Export::new();
    let store = export.open();
    let acting = store.as_user(&root()).expect("acts");
    let dir = root_of(&acting, &store);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        let node = acting.create(&dir, b"f", &unchecked(), &mut Wcc::default()).expect("creates");
        assert!(seen.insert(*node.handle()), "a handle came back");
        acting.remove(&dir, b"f", &mut Wcc::default()).expect("removes");
    }
}

#[test]
fn the_way_up_ends_at_the_root() {
    let export = Export::new();
    local(|| std::fs::create_dir_all(export.path("a/b")).expect("makes"));
    let store = export.open();
    let acting = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&acting, &store);
    let a = acting.lookup(&dir, b"a").expect("there");
    let b = acting.lookup(&a, b"b").expect("there");
    assert_eq!(acting.lookup(&b, b"..").expect("there").handle(), a.handle());
    assert_eq!(acting.lookup(&a, b"..").expect("there").handle(), dir.handle());
    assert_eq!(acting.lookup(&dir, b"..").expect("there").handle(), dir.handle());
    assert_eq!(acting.lookup(&dir, b".").expect("there").handle(), dir.handle());
    assert_eq!(acting.lookup(&a, b".").expect("there").handle(), a.handle());
}

#[test]
fn a_directory_moved_outside_gives_no_way_out() {
    let outer = Export::new();
    local(|| std::fs::create_dir_all(outer.path("export/a/b")).expect("makes"));
    let store = outer.open_with(|options| options.path = outer.path("export"));
    let acting = store.as_user(&root()).expect("acts");
    let a = acting.lookup(&root_of(&acting, &store), b"a").expect("there");
    local(|| std::fs::rename(outer.path("export/a"), outer.path("a")).expect("renames"));
    let acting = store.as_user(&root()).expect("acts");
    assert_eq!(acting.lookup(&a, b"..").err(), Some(Error::Stale));
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
    let acting = store.as_user(&root()).expect("acts");
    let dir = root_of(&acting, &store);
    let link = acting.lookup(&dir, b"out").expect("the link itself");
    assert_eq!(link.kind(), store::FileKind::Symlink);
    assert_eq!(acting.readlink(&link), Ok(b"/etc".to_vec()));
    assert_eq!(acting.lookup(&link, b"passwd").err(), Some(Error::NotDirectory));
    let covered = acting.lookup(&dir, b"mounted").expect("there");
    assert_eq!(common::names(&acting, &covered, 10), [b"below".to_vec()]);
}

#[test]
fn the_cache_is_bounded() {
    let export = Export::new();
    let store = export.open_with(|options| options.limits.nodes = 16);
    let acting = store.as_user(&root()).expect("acts");
    let dir = root_of(&acting, &store);
    let mut handles = Vec::new();
    for index in 0..200 {
        let name = format!("f{index}");
        let node = acting.create(&dir, name.as_bytes(), &unchecked(), &mut Wcc::default()).expect("creates");
        handles.push(*node.handle());
    }
    assert!(store.open_nodes() <= 16, "{}", store.open_nodes());
    for handle in &handles {
        acting.node(handle.as_bytes()).expect("still there");
    }
}
