//! Special filesystems: without file handles, full, and with space that must be freed.

extern crate samehost_store as store;

mod common;

use std::time::{Duration, Instant};

use common::{Export, Mounted, local, names, root_of, user};
use store::{CreateHow, Error, Privilege, SetAttributes, Store, Wcc};

fn guarded() -> CreateHow {
    CreateHow::Guarded(SetAttributes::default())
}

/// overlayfs has no file handles by default, and directory cookies that belong to one open directory. With
/// all privileges the store still acts as each user there.
#[test]
fn a_filesystem_without_handles_is_served() {
    let export = Export::new();
    local(|| {
        for dir in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(export.path(dir)).expect("makes");
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(export.path(dir), open).expect("chmod");
        }
        (0..500)
            .for_each(|index| std::fs::write(export.path(&format!("lower/{index}")), b"").expect("writes"));
    });
    let part = |name: &str| export.path(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", part("lower"), part("upper"), part("work"));
    let Some(_mounted) = Mounted::new(export.path("merged"), "overlay", &options) else {
        eprintln!("no overlayfs here: nothing was tested");
        return;
    };
    let open = || export.open_with(|options| options.path = export.path("merged"));
    let store = open();
    assert_eq!((store.privilege(), store.has_kernel_handles()), (&Privilege::Full, false));
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let sub = context.mkdir(&dir, b"sub", &SetAttributes::default(), &mut Wcc::default()).expect("makes");
    let node = context.create(&sub, b"f", &guarded(), &mut Wcc::default()).expect("creates");
    assert_eq!(context.attributes(&node).expect("attributes").uid, 1000);
    context.write(&node, 0, b"x", io::Stability::FileSync, &mut Wcc::default()).expect("writes");
    assert_eq!(names(&context, &dir, 7).len(), 501);
    let (handle, lower) = (*node.handle(), *context.lookup(&dir, b"42").expect("there").handle());
    drop((node, sub, dir));
    drop(store);
    let store = open();
    let context = store.as_user(&user(1001)).expect("acts");
    let node = context.node(handle.as_bytes()).expect("found again");
    let refused = context.write(&node, 0, b"y", io::Stability::Unstable, &mut Wcc::default());
    assert_eq!(refused.err(), Some(Error::Access));
    context.node(lower.as_bytes()).expect("found again");
}

#[test]
fn a_full_filesystem_loses_no_data() {
    let export = Export::new();
    local(|| std::fs::create_dir(export.path("small")).expect("makes"));
    let _mounted = Mounted::tmpfs(export.path("small"));
    let store = export.open_with(|options| options.path = export.path("small"));
    let verifier = store.verifier();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let node = context.create(&dir, b"f", &guarded(), &mut Wcc::default()).expect("creates");
    let megabyte = vec![7; 1 << 20];
    let mut written = 0;
    let error = loop {
        match context.write(&node, written, &megabyte, io::Stability::Unstable, &mut Wcc::default()) {
            Ok(done) => written += done.count as u64,
            Err(error) => break error,
        }
        assert!(written <= 8 << 20, "more than there is room for");
    };
    assert_eq!(error, Error::NoSpace);
    assert_eq!(store.verifier(), verifier, "a full disk loses no accepted data");
    assert_eq!(context.attributes(&node).expect("attributes").size, written);
}

/// No client uses the file again, so only the reaper can notice that it is gone.
#[test]
fn the_space_of_a_locally_deleted_file_is_freed() {
    let export = Export::new();
    local(|| std::fs::create_dir(export.path("small")).expect("makes"));
    let _mounted = Mounted::tmpfs(export.path("small"));
    let store = export.open_with(|options| options.path = export.path("small"));
    let free = |store: &Store| {
        let context = store.as_user(&user(1000)).expect("acts");
        let dir = root_of(&context, store);
        context.fs_stat(&dir).expect("says").free_bytes
    };
    let before = free(&store);
    {
        let context = store.as_user(&user(1000)).expect("acts");
        let dir = root_of(&context, &store);
        let node = context.create(&dir, b"f", &guarded(), &mut Wcc::default()).expect("creates");
        let data = vec![7; 1 << 20];
        context.write(&node, 0, &data, io::Stability::Unstable, &mut Wcc::default()).expect("writes");
    }
    assert!(free(&store) < before);
    local(|| std::fs::remove_file(export.path("small/f")).expect("removes"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while free(&store) != before {
        assert!(Instant::now() < deadline, "the space is still taken");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn limits_are_those_of_the_filesystem() {
    let export = Export::at("/dev/shm".as_ref());
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let info = context.fs_info(&dir).expect("says");
    assert_eq!((info.time_delta, info.max_file_size), (1, i64::MAX as u64), "tmpfs");
    // A time is returned with the granularity of fs_info.
    let node = context.create(&dir, b"f", &guarded(), &mut Wcc::default()).expect("creates");
    let time = store::Timestamp { seconds: 1_000_000_001, nanoseconds: 123_456_789 };
    let set = SetAttributes { mtime: Some(store::SetTime::To(time)), ..SetAttributes::default() };
    context.set_attributes(&node, &set, None, &mut Wcc::default()).expect("sets");
    assert_eq!(context.attributes(&node).expect("attributes").mtime, time);
}
