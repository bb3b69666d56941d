//! Durable metadata, also for users with permission to change a file but not to read it.

extern crate samehost_store as store;

mod common;

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use common::{Export, as_ordinary_user, local, root, root_of, user};
use store::{CreateHow, Error, SetAttributes, SpecialFile, Store, UserContext, Wcc};

fn wcc() -> Wcc {
    Wcc::default()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// Makes a directory that its owner may write but not read, changes its contents, and makes each change
/// durable.
fn work_without_reading(context: &UserContext<'_>, store: &Store) {
    let top = root_of(context, store);
    let dir = context.mkdir(&top, b"dropbox", &mode(0o300), &mut wcc()).expect("makes a directory");
    context.sync_metadata(&top).expect("everybody may read it");
    context.sync_metadata(&dir).expect("its owner may not read it");
    let guarded = CreateHow::Guarded(mode(0o200));
    let file = context.create(&dir, b"letter", &guarded, &mut wcc()).expect("the owner may write");
    context.sync_metadata(&file).expect("its owner may not read it");
    context.sync_metadata(&dir).expect("as before");
    context.set_attributes(&file, &mode(0), None, &mut wcc()).expect("the owner may");
    context.sync_metadata(&file).expect("no user may read it");
    context.rename(&dir, b"letter", &top, b"taken", &mut wcc(), &mut wcc()).expect("renames");
    for dir in [&top, &dir] {
        context.sync_metadata(dir).expect("both ends of a rename");
    }
}

#[test]
fn an_owner_needs_no_permission_to_read() {
    let export = Export::new();
    let store = export.open();
    let before = store.verifier();
    let context = store.as_user(&user(1000)).expect("acts");
    work_without_reading(&context, &store);
    // The thread still acts as the same user.
    local(|| {
        std::fs::write(export.path("private"), "root's").expect("writes");
        std::fs::set_permissions(export.path("private"), PermissionsExt::from_mode(0o600)).expect("chmod");
    });
    let private = context.lookup(&root_of(&context, &store), b"private").expect("is there");
    context.sync_metadata(&private).expect("syncs a file that the user may not read");
    assert_eq!(context.read(&private, 0, &mut [0; 4]).err(), Some(Error::Access));
    let made = context.create(
        &root_of(&context, &store),
        b"mine",
        &CreateHow::Guarded(SetAttributes::default()),
        &mut wcc(),
    );
    let made = context.attributes(&made.expect("creates")).expect("is there");
    assert_eq!((made.uid, made.gid), (1000, 1000));
    assert_eq!(store.verifier(), before, "nothing was lost");
}

#[test]
fn an_unprivileged_server_syncs_what_it_can() {
    let export = Export::new();
    as_ordinary_user(1000, || {
        let store = export.open_as_is();
        let context = store.as_user(&root()).expect("acts as its own user");
        work_without_reading(&context, &store);
    });
}

#[test]
fn special_files_are_synced_with_their_directory() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let top = root_of(&context, &store);
    let link =
        context.symlink(&top, b"link", b"/nowhere", &SetAttributes::default(), &mut wcc()).expect("links");
    // Without a peer: an open that waits for one would never return.
    let pipe =
        context.mknod(&top, b"pipe", SpecialFile::Fifo, &mode(0o600), &mut wcc()).expect("makes a pipe");
    assert!(local(|| std::fs::metadata(export.path("pipe")).expect("is there").file_type().is_fifo()));
    for node in [&link, &pipe, &top] {
        context.sync_metadata(node).expect("nothing to wait for");
    }
}

#[test]
fn syncing_a_removed_file_succeeds() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let top = root_of(&context, &store);
    let file = context
        .create(&top, b"f", &CreateHow::Guarded(SetAttributes::default()), &mut wcc())
        .expect("creates");
    local(|| std::fs::remove_file(export.path("f")).expect("removes"));
    let before = store.verifier();
    context.sync_metadata(&file).expect("there is nothing left to lose");
    assert_eq!(store.verifier(), before);
}

#[test]
fn missing_directory_fsync_is_ignored() {
    let export = Export::new();
    // fsync of its directories returns EINVAL.
    let place = Path::new("/proc/sys/kernel");
    let error =
        local(|| std::fs::File::open(place).and_then(|dir| dir.sync_all())).expect_err("no fsync here");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    let store = export.open_with(|options| options.path = place.to_owned());
    let context = store.as_user(&root()).expect("acts");
    context.sync_metadata(&root_of(&context, &store)).expect("nothing to sync");
}
