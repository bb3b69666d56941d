//! Permissions: the kernel's rules, and the Linux server's two exceptions.

extern crate samehost_store as store;

mod common;

use common::{Export, local, root, root_of, user};
use std::os::unix::fs::{PermissionsExt, chown};
use store::{Access, AccessMode, CreateHow, Error, Holder, Identity, SetAttributes, SetTime, Timestamp, Wcc};

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn put(export: &Export, name: &str, bits: u32, owner: u32, group: u32) {
    local(|| {
        std::fs::write(export.path(name), b"0123456789").expect("writes");
        chown(export.path(name), Some(owner), Some(group)).expect("chown");
        std::fs::set_permissions(export.path(name), std::fs::Permissions::from_mode(bits)).expect("chmod");
    });
}

#[test]
fn new_files_belong_to_their_user() {
    let export = Export::new();
    let store = export.open();
    let (alice, bob) = (user(1000), user(1001));
    let context = store.as_user(&alice).expect("acts");
    let dir = root_of(&context, &store);
    let node =
        context.create(&dir, b"f", &CreateHow::Guarded(mode(0o600)), &mut Wcc::default()).expect("creates");
    context.write(&node, 0, b"secret", io::Stability::Unstable, &mut Wcc::default()).expect("writes");
    let attributes = context.attributes(&node).expect("attributes");
    assert_eq!((attributes.uid, attributes.gid, attributes.mode), (1000, 1000, 0o600));

    let context = store.as_user(&bob).expect("acts");
    let mut buffer = [0; 6];
    assert_eq!(context.read(&node, 0, &mut buffer).err(), Some(Error::Access));
    let refused = context.write(&node, 0, b"x", io::Stability::Unstable, &mut Wcc::default());
    assert_eq!(refused.err(), Some(Error::Access));
    assert_eq!(context.may(&node, AccessMode::Read), Err(Error::Access));
    assert_eq!(context.grant(&node, AccessMode::Read, Holder::Equal).err(), Some(Error::Access));
    assert_eq!(
        context.set_attributes(&node, &mode(0o666), None, &mut Wcc::default()),
        Err(Error::Permission)
    );

    let context = store.as_user(&root()).expect("acts");
    assert_eq!(context.read(&node, 0, &mut buffer).expect("root reads").count, 6);
    let context = store.as_user(&alice).expect("acts");
    context.set_attributes(&node, &mode(0o644), None, &mut Wcc::default()).expect("her own");
    let context = store.as_user(&bob).expect("acts");
    assert_eq!(context.read(&node, 0, &mut buffer).expect("readable by all now").count, 6);
    assert_eq!(&buffer, b"secret");
}

#[test]
fn groups_give_permission() {
    let export = Export::new();
    put(&export, "f", 0o640, 0, 500);
    let store = export.open();
    let member = Identity { uid: 1000, gid: 1000, groups: vec![400, 500] };
    let primary = Identity { uid: 1001, gid: 500, groups: vec![] };
    for (identity, expected) in
        [(&member, Ok(())), (&primary, Ok(())), (&user(1000), Err(Error::Access)), (&member, Ok(()))]
    {
        let context = store.as_user(identity).expect("acts");
        let node = context.lookup(&root_of(&context, &store), b"f").expect("there");
        assert_eq!(context.may(&node, AccessMode::Read), expected, "{identity:?}");
        assert_eq!(context.may(&node, AccessMode::Write), Err(Error::Access), "{identity:?}");
    }
}

#[test]
fn an_owner_reads_and_writes_whatever_the_mode_and_an_executable_is_readable() {
    let export = Export::new();
    put(&export, "mine", 0o000, 1000, 1000);
    put(&export, "program", 0o711, 0, 0);
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let mine = context.lookup(&dir, b"mine").expect("there");
    let mut buffer = [0; 4];
    assert_eq!(context.read(&mine, 3, &mut buffer).expect("the owner reads").count, 4);
    assert_eq!(
        context.write(&mine, 0, b"ab", io::Stability::FileSync, &mut Wcc::default()).expect("writes").count,
        2
    );
    let all =
        Access::READ | Access::MODIFY | Access::EXTEND | Access::EXECUTE | Access::LOOKUP | Access::DELETE;
    assert_eq!(
        context.access(&mine, all).expect("answers"),
        Access::default(),
        "ACCESS reports the mode's permissions"
    );
    let program = context.lookup(&dir, b"program").expect("there");
    assert_eq!(context.read(&program, 0, &mut buffer).expect("execute permission includes reading").count, 4);
    assert_eq!(context.access(&program, all).expect("answers"), Access::EXECUTE);
    let refused = context.write(&program, 0, b"x", io::Stability::Unstable, &mut Wcc::default());
    assert_eq!(refused.err(), Some(Error::Access));
}

#[test]
fn open_checks_permission_like_a_local_process() {
    use AccessMode::{Read, ReadWrite, Write};
    let export = Export::new();
    let cases = [
        // Unlike with READ and WRITE, the mode applies to the owner.
        ("mine", 0o000, 1000, [Err(Error::Access), Err(Error::Access), Err(Error::Access)]),
        ("own", 0o600, 1000, [Ok(()), Ok(()), Ok(())]),
        ("others", 0o604, 0, [Ok(()), Err(Error::Access), Err(Error::Access)]),
        // Execute permission includes reading, in order to execute.
        ("program", 0o711, 0, [Ok(()), Err(Error::Access), Err(Error::Access)]),
        ("odd", 0o713, 0, [Ok(()), Ok(()), Err(Error::Access)]),
        ("sink", 0o702, 0, [Err(Error::Access), Ok(()), Err(Error::Access)]),
    ];
    for (name, bits, owner, _) in &cases {
        put(&export, name, *bits, *owner, *owner);
    }
    let store = export.open();
    for (name, _, _, expected) in &cases {
        let context = store.as_user(&user(1000)).expect("acts");
        let node = context.lookup(&root_of(&context, &store), name.as_bytes()).expect("there");
        let asked = [Read, Write, ReadWrite].map(|mode| context.may_open(&node, mode));
        assert_eq!(&asked, expected, "{name}");
        let reader = store.as_read_only_user(&user(1000)).expect("acts");
        assert_eq!(reader.may_open(&node, Write), Err(Error::ReadOnly), "{name}");
        drop((context, reader));
        let root = store.as_user(&root()).expect("acts");
        assert_eq!(root.may_open(&node, ReadWrite), Ok(()), "{name}");
    }
}

#[test]
fn access_of_a_directory_and_of_a_reader() {
    let export = Export::new();
    put(&export, "f", 0o666, 0, 0);
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let all = Access(0x3f);
    let directory = Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE;
    assert_eq!(context.access(&dir, all).expect("answers"), directory);
    let node = context.lookup(&dir, b"f").expect("there");
    assert_eq!(context.access(&node, all).expect("answers"), Access::READ | Access::MODIFY | Access::EXTEND);
    let reader = store.as_read_only_user(&user(1000)).expect("acts");
    assert_eq!(reader.access(&dir, all).expect("answers"), Access::READ | Access::LOOKUP);
    assert_eq!(reader.access(&node, all).expect("answers"), Access::READ);
}

#[test]
fn a_local_chmod_invalidates_cached_permissions() {
    let export = Export::new();
    put(&export, "f", 0o644, 0, 0);
    let store = export.open();
    for round in 0..20 {
        let bits = if round % 2 == 0 { 0o644 } else { 0o600 };
        local(|| {
            std::fs::set_permissions(export.path("f"), std::fs::Permissions::from_mode(bits)).expect("chmod");
        });
        let context = store.as_user(&user(1000)).expect("acts");
        let node = context.lookup(&root_of(&context, &store), b"f").expect("there");
        for _ in 0..3 {
            assert_eq!(context.may(&node, AccessMode::Read).is_ok(), bits == 0o644, "round {round}");
        }
    }
}

#[test]
fn search_permission_is_required() {
    let export = Export::new();
    local(|| {
        std::fs::create_dir(export.path("d")).expect("makes");
        std::fs::write(export.path("d/f"), b"").expect("writes");
        std::fs::set_permissions(export.path("d"), std::fs::Permissions::from_mode(0o700)).expect("chmod");
    });
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = context.lookup(&root_of(&context, &store), b"d").expect("there");
    assert_eq!(context.lookup(&dir, b"f").err(), Some(Error::Access));
    let read = context.read_dir(&dir, 0, [0; 8], &mut |_| std::ops::ControlFlow::Continue(()));
    assert_eq!(read.err(), Some(Error::Access));
    let mut wcc = Wcc::default();
    let made = context.create(&dir, b"g", &CreateHow::Guarded(mode(0o644)), &mut wcc);
    assert_eq!(made.err(), Some(Error::Access));
    assert!(wcc.before.is_some() && wcc.before == wcc.after, "filled for a failure, too");
    // As without subtree_check in the kernel's server, root's handle works for everyone who has it.
    let context = store.as_user(&root()).expect("acts");
    let below = context.lookup(&dir, b"f").expect("root may");
    let context = store.as_user(&user(1000)).expect("acts");
    context.may(&below, AccessMode::Read).expect("the file itself is open to all");
}

#[test]
fn setattr_permissions_and_set_id_clearing() {
    let export = Export::new();
    put(&export, "f", 0o4777, 1000, 1000);
    let store = export.open();
    let context = store.as_user(&user(1001)).expect("acts");
    let node = context.lookup(&root_of(&context, &store), b"f").expect("there");
    let set = |set: &SetAttributes| context.set_attributes(&node, set, None, &mut Wcc::default());
    let given = Some(SetTime::To(Timestamp { seconds: 5, nanoseconds: 6 }));
    assert_eq!(set(&SetAttributes { uid: Some(1001), ..Default::default() }), Err(Error::Permission));
    assert_eq!(set(&SetAttributes { mtime: given, ..Default::default() }), Err(Error::Permission));
    set(&SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..Default::default() })
        .expect("may write");
    assert_eq!(context.attributes(&node).expect("attributes").mode, 0o4777);
    // Linux clients truncate so.
    let now = SetAttributes { mtime: Some(SetTime::Now), ..Default::default() };
    set(&SetAttributes { size: Some(0), ..now }).expect("may write");
    let read = SetAttributes { atime: Some(SetTime::Now), ..Default::default() };
    for times in [now, read, SetAttributes { mtime: now.mtime, ..read }] {
        set(&SetAttributes { size: Some(0), ..times }).expect("may write");
    }
    assert_eq!(set(&now), Err(Error::Permission), "utimensat(2)");
    assert_eq!(set(&read), Err(Error::Permission), "utimensat(2)");
    context.write(&node, 0, b"x", io::Stability::Unstable, &mut Wcc::default()).expect("may write");
    assert_eq!(context.attributes(&node).expect("attributes").mode, 0o777, "no longer set-user-id");

    let context = store.as_user(&user(1000)).expect("acts");
    let set = |set: &SetAttributes| context.set_attributes(&node, set, None, &mut Wcc::default());
    set(&SetAttributes { mtime: given, ..Default::default() }).expect("the owner");
    assert_eq!(
        context.attributes(&node).expect("attributes").mtime,
        Timestamp { seconds: 5, nanoseconds: 6 }
    );
    assert_eq!(set(&SetAttributes { uid: Some(1001), ..Default::default() }), Err(Error::Permission));
    let context = store.as_user(&root()).expect("acts");
    let both = SetAttributes { uid: Some(1001), gid: Some(1002), mode: Some(0o4755), ..Default::default() };
    context.set_attributes(&node, &both, None, &mut Wcc::default()).expect("root may change the owner");
    let attributes = context.attributes(&node).expect("attributes");
    assert_eq!((attributes.uid, attributes.gid, attributes.mode), (1001, 1002, 0o4755));
}

#[test]
fn only_root_creates_devices() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let null = store::SpecialFile::CharacterDevice(1, 3);
    let refused = context.mknod(&dir, b"null", null, &mode(0o666), &mut Wcc::default());
    assert_eq!(refused.err(), Some(Error::Permission));
    context
        .mknod(&dir, b"pipe", store::SpecialFile::Fifo, &mode(0o600), &mut Wcc::default())
        .expect("anybody");
    let context = store.as_user(&root()).expect("acts");
    let node = context.mknod(&dir, b"null", null, &mode(0o666), &mut Wcc::default()).expect("root");
    let attributes = context.attributes(&node).expect("attributes");
    assert_eq!((attributes.rdev, attributes.mode), ((1, 3), 0o666));
    assert_eq!(context.grant(&node, AccessMode::Read, Holder::Equal).err(), Some(Error::Invalid));
    assert_eq!(context.read(&node, 0, &mut [0; 4]).err(), Some(Error::Invalid));
    for (major, minor) in [(1 << 12, 3), (1, 1 << 20), (u32::MAX, u32::MAX)] {
        for what in
            [store::SpecialFile::BlockDevice(major, minor), store::SpecialFile::CharacterDevice(major, minor)]
        {
            let made = context.mknod(&dir, b"far", what, &mode(0o666), &mut Wcc::default());
            assert_eq!(made.err(), Some(Error::Invalid), "{what:?}");
        }
    }
    assert_eq!(context.lookup(&dir, b"far").err(), Some(Error::NotFound));
}

#[test]
fn an_owner_overriding_the_mode_has_no_other_privileges() {
    let export = Export::new();
    put(&export, "f", 0o4000, 1000, 1000);
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let node = context.lookup(&root_of(&context, &store), b"f").expect("there");
    context.write(&node, 0, b"x", io::Stability::Unstable, &mut Wcc::default()).expect("the owner writes");
    assert_eq!(
        context.attributes(&node).expect("attributes").mode,
        0,
        "as root the set-user-id bit would stay"
    );
}

#[test]
fn one_thread_alternates_between_users() {
    let export = Export::new();
    let store = export.open();
    let (alice, bob) = (user(1000), user(1001));
    let (one, two) = (store.as_user(&alice).expect("acts"), store.as_user(&bob).expect("acts"));
    let dir = root_of(&one, &store);
    for (index, (context, uid)) in
        [(&one, 1000), (&two, 1001), (&one, 1000), (&two, 1001)].into_iter().enumerate()
    {
        let name = format!("f{index}");
        let how = CreateHow::Guarded(SetAttributes::default());
        let node = context.create(&dir, name.as_bytes(), &how, &mut Wcc::default()).expect("creates");
        assert_eq!(context.attributes(&node).expect("attributes").uid, uid);
    }
}
