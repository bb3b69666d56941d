//! Data, attributes, creation and removal of files.

extern crate samehost_store as store;

mod common;

use common::{Export, local, root, root_of, user};
use io::Stability::{DataSync, FileSync, Unstable};
use store::{CreateHow, Error, SetAttributes, SetTime, Timestamp, Wcc};

fn wcc() -> Wcc {
    Wcc::default()
}

fn unchecked(size: Option<u64>) -> CreateHow {
    CreateHow::Unchecked(SetAttributes { size, ..SetAttributes::default() })
}

#[test]
fn offsets_at_the_edges_of_64_bits() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let node =
        context.create(&root_of(&context, &store), b"f", &unchecked(None), &mut wcc()).expect("creates");
    context.write(&node, 0, b"0123456789", Unstable, &mut wcc()).expect("writes");
    let mut buffer = [0; 16];
    let read = context.read(&node, 4, &mut buffer).expect("reads");
    assert_eq!((read.count, read.eof, read.attributes.size), (6, true, 10));
    let read = context.read(&node, 0, &mut buffer[..4]).expect("reads");
    assert_eq!((read.count, read.eof), (4, false));
    let read = context.read(&node, 6, &mut buffer[..4]).expect("reads");
    assert_eq!((read.count, read.eof), (4, true));
    for offset in [10, 11, 1 << 40, i64::MAX as u64 - 1, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX] {
        let read = context.read(&node, offset, &mut buffer).expect("nothing is there, and that is no error");
        assert_eq!((read.count, read.eof), (0, true), "at {offset:#x}");
    }
    for offset in [i64::MAX as u64 - 3, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX] {
        let mut seen = wcc();
        let refused = context.write(&node, offset, b"12345", FileSync, &mut seen);
        assert_eq!(refused.err(), Some(Error::FileTooLarge), "at {offset:#x}");
        assert_eq!(seen.before, seen.after);
        assert_eq!(context.write(&node, offset, b"", Unstable, &mut wcc()).map(|w| w.count), Ok(0));
        context.commit(&node, offset, u64::MAX, &mut wcc()).expect("syncs all there is");
    }
    for size in [1 << 63, u64::MAX] {
        let set = SetAttributes { size: Some(size), ..Default::default() };
        assert_eq!(context.set_attributes(&node, &set, None, &mut wcc()), Err(Error::FileTooLarge));
    }
    assert_eq!(context.attributes(&node).expect("attributes").size, 10);
}

#[test]
fn a_write_returns_wcc_and_durability() {
    let export = Export::new();
    let store = export.open();
    let verifier = store.verifier();
    let context = store.as_user(&user(1000)).expect("acts");
    let node =
        context.create(&root_of(&context, &store), b"f", &unchecked(None), &mut wcc()).expect("creates");
    let mut last = context.attributes(&node).expect("attributes");
    for (index, stability) in [Unstable, DataSync, FileSync].into_iter().enumerate() {
        let mut seen = wcc();
        let written =
            context.write(&node, index as u64 * 100, &[7; 100], stability, &mut seen).expect("writes");
        assert_eq!((written.count, written.committed), (100, stability));
        let (before, after) = (seen.before.expect("before"), seen.after.expect("after"));
        assert_eq!(before, last);
        assert_eq!(after.size, before.size + 100);
        assert!(after.change > before.change, "a change is seen");
        last = after;
    }
    context.commit(&node, 0, 0, &mut wcc()).expect("commits");
    assert_eq!(store.verifier(), verifier, "nothing was lost");
    export.verifier.change();
    assert_ne!(store.verifier(), verifier, "shared");
}

#[test]
fn concurrent_writes_have_consistent_wcc() {
    let export = Export::new();
    let store = export.open();
    let handle = {
        let context = store.as_user(&user(1000)).expect("acts");
        *context
            .create(&root_of(&context, &store), b"f", &unchecked(None), &mut wcc())
            .expect("creates")
            .handle()
    };
    let mut seen: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let writer = |name: u64| {
            let (store, handle) = (&store, &handle);
            scope.spawn(move || {
                let context = store.as_user(&user(1000)).expect("acts");
                let node = context.node(handle.as_bytes()).expect("there");
                let write = |index: u64| {
                    let mut seen = wcc();
                    context.write(&node, name * 1000 + index, b"x", Unstable, &mut seen).expect("writes");
                    // Without `before` if another write overlapped.
                    seen.before.map(|before| (before.change, seen.after.expect("after").change))
                };
                (0..200).filter_map(write).collect::<Vec<_>>()
            })
        };
        let writers: Vec<_> = (0..4).map(writer).collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("ran")).collect()
    });
    seen.sort_unstable();
    for pair in seen.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two changes overlap: {pair:?}");
    }
}

#[test]
fn create_in_all_three_modes() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let mode = SetAttributes { mode: Some(0o4640), ..SetAttributes::default() };
    let mut seen = wcc();
    let node = context.create(&dir, b"f", &CreateHow::Guarded(mode), &mut seen).expect("creates");
    assert_ne!(seen.before, seen.after);
    assert_eq!(context.attributes(&node).expect("attributes").mode, 0o4640);
    context.write(&node, 0, b"data", Unstable, &mut wcc()).expect("writes");

    assert_eq!(context.create(&dir, b"f", &CreateHow::Guarded(mode), &mut wcc()).err(), Some(Error::Exists));
    let same = context.create(&dir, b"f", &unchecked(None), &mut wcc()).expect("takes it");
    assert_eq!(same.handle(), node.handle());
    assert_eq!(context.attributes(&same).expect("attributes").size, 4);
    context.create(&dir, b"f", &unchecked(Some(0)), &mut wcc()).expect("truncates it");
    assert_eq!(context.attributes(&node).expect("attributes").size, 0);
    let grown = context.create(&dir, b"grown", &unchecked(Some(5000)), &mut wcc()).expect("creates");
    assert_eq!(context.attributes(&grown).expect("attributes").size, 5000);

    context.mkdir(&dir, b"d", &SetAttributes::default(), &mut wcc()).expect("makes");
    assert_eq!(context.create(&dir, b"d", &unchecked(None), &mut wcc()).err(), Some(Error::Exists));
    let bob = store.as_user(&user(1001)).expect("acts");
    assert_eq!(bob.create(&dir, b"f", &unchecked(Some(0)), &mut wcc()).err(), Some(Error::Access));
}

#[test]
fn an_exclusive_create_finds_its_own_file_again_even_after_a_restart() {
    let export = Export::new();
    let (mine, other) =
        (CreateHow::Exclusive([0xfe; 8], 0), CreateHow::Exclusive([1, 2, 3, 4, 5, 6, 7, 8], 0));
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let handle = *context.create(&dir, b"f", &mine, &mut wcc()).expect("creates").handle();
    assert_eq!(context.create(&dir, b"f", &mine, &mut wcc()).expect("a retry").handle(), &handle);
    assert_eq!(context.create(&dir, b"f", &other, &mut wcc()).err(), Some(Error::Exists));
    drop(store);
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let again = context.create(&dir, b"f", &mine, &mut wcc()).expect("a retry");
    assert_eq!(again.handle(), &handle);
    // The client's next call sets the times; afterwards a retry isn't recognised.
    let now = Some(SetTime::Now);
    let set = SetAttributes { mode: Some(0o600), atime: now, mtime: now, ..Default::default() };
    context.set_attributes(&again, &set, None, &mut wcc()).expect("sets");
    assert_eq!(context.create(&dir, b"f", &mine, &mut wcc()).err(), Some(Error::Exists));
}

#[test]
fn set_attributes_sets_all_at_once_and_checks_the_guard() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let node = context.create(&dir, b"f", &unchecked(None), &mut wcc()).expect("creates");
    let at = |seconds| Some(SetTime::To(Timestamp { seconds, nanoseconds: 123_456_789 }));
    let set = SetAttributes {
        mode: Some(0o751),
        uid: None,
        gid: Some(1000),
        size: Some(77),
        atime: at(4_000_000_000),
        mtime: at(-5),
    };
    context.set_attributes(&node, &set, None, &mut wcc()).expect("sets");
    let now = context.attributes(&node).expect("attributes");
    assert_eq!((now.mode, now.gid, now.size), (0o751, 1000, 77));
    assert_eq!((now.atime.seconds, now.mtime.seconds), (4_000_000_000, -5));

    let truncate = SetAttributes { size: Some(0), ..Default::default() };
    let mut seen = wcc();
    let old = Timestamp { seconds: 1, nanoseconds: 0 };
    assert_eq!(context.set_attributes(&node, &truncate, Some(old), &mut seen), Err(Error::NotSync));
    assert_eq!((seen.before, seen.after), (Some(now), Some(now)));
    context.set_attributes(&node, &truncate, Some(now.ctime), &mut wcc()).expect("the guard holds");
    assert_eq!(context.attributes(&node).expect("attributes").size, 0);

    assert_eq!(context.set_attributes(&dir, &truncate, None, &mut wcc()), Err(Error::IsDirectory));
    let bad = Some(SetTime::To(Timestamp { seconds: 0, nanoseconds: 1_000_000_000 }));
    let bad = SetAttributes { mtime: bad, ..Default::default() };
    assert_eq!(context.set_attributes(&node, &bad, None, &mut wcc()), Err(Error::Invalid));
    let nobody = SetAttributes { uid: Some(u32::MAX), ..Default::default() };
    assert_eq!(context.set_attributes(&node, &nobody, None, &mut wcc()), Err(Error::Invalid));
}

#[test]
fn invalid_names_are_refused() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let set = SetAttributes::default();
    let long = [b'x'; 256];
    for (name, error) in [
        (&b""[..], Error::InvalidName),
        (b"a/b", Error::InvalidName),
        (b"/", Error::InvalidName),
        (b"a\0b", Error::InvalidName),
        (&long, Error::NameTooLong),
    ] {
        assert_eq!(context.lookup(&dir, name).err(), Some(error));
        assert_eq!(context.create(&dir, name, &unchecked(None), &mut wcc()).err(), Some(error));
        assert_eq!(context.mkdir(&dir, name, &set, &mut wcc()).err(), Some(error));
        assert_eq!(context.remove(&dir, name, &mut wcc()).err(), Some(error));
        assert_eq!(context.rename(&dir, name, &dir, b"y", &mut wcc(), &mut wcc()).err(), Some(error));
        assert_eq!(context.rename(&dir, b"y", &dir, name, &mut wcc(), &mut wcc()).err(), Some(error));
    }
    for dots in [&b"."[..], b".."] {
        assert_eq!(context.create(&dir, dots, &unchecked(None), &mut wcc()).err(), Some(Error::Exists));
        assert_eq!(context.mkdir(&dir, dots, &set, &mut wcc()).err(), Some(Error::Exists));
        assert_eq!(context.remove(&dir, dots, &mut wcc()), Err(Error::IsDirectory));
        assert_eq!(context.rename(&dir, dots, &dir, b"y", &mut wcc(), &mut wcc()), Err(Error::Invalid));
    }
    assert_eq!(context.rmdir(&dir, b".", &mut wcc()), Err(Error::Invalid));
    assert_eq!(context.rmdir(&dir, b"..", &mut wcc()), Err(Error::Exists));
    // All other bytes are valid names and stay unchanged.
    for name in [&b"\xff\xfe\x80"[..], b" ", b"...", "\u{e9}".as_bytes(), &[b'y'; 255], b"a\nb"] {
        context.create(&dir, name, &CreateHow::Guarded(set), &mut wcc()).expect("creates");
        assert!(common::names(&context, &dir, 100).iter().any(|listed| listed == name));
    }
}

#[test]
fn renames_links_and_removals() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let set = SetAttributes::default();
    let one = context.mkdir(&dir, b"one", &set, &mut wcc()).expect("makes");
    let two = context.mkdir(&dir, b"two", &set, &mut wcc()).expect("makes");
    let file = context.create(&one, b"f", &unchecked(None), &mut wcc()).expect("creates");
    context.link(&file, &two, b"g", &mut wcc()).expect("links");
    assert_eq!(context.attributes(&file).expect("attributes").nlink, 2);
    assert_eq!(context.lookup(&two, b"g").expect("there").handle(), file.handle());
    assert_eq!(context.link(&file, &two, b"g", &mut wcc()), Err(Error::Exists));
    assert_eq!(context.link(&one, &two, b"d", &mut wcc()), Err(Error::IsDirectory));

    let victim = context.create(&two, b"v", &unchecked(None), &mut wcc()).expect("creates");
    // tmpfs gives a directory the coarse time stamp of a removed entry, so a change within the same clock
    // tick may be invisible.
    common::wait_for_clock_tick();
    let (mut from, mut to) = (wcc(), wcc());
    context.rename(&one, b"f", &two, b"v", &mut from, &mut to).expect("moves");
    assert_ne!(from.before, from.after);
    assert_ne!(to.before, to.after);
    assert_eq!(context.attributes(&victim).err(), Some(Error::Stale));
    assert_eq!(context.lookup(&one, b"f").err(), Some(Error::NotFound));
    assert_eq!(context.lookup(&two, b"v").expect("there").handle(), file.handle());

    assert_eq!(context.rmdir(&dir, b"two", &mut wcc()), Err(Error::NotEmpty));
    assert_eq!(context.remove(&dir, b"two", &mut wcc()), Err(Error::IsDirectory));
    assert_eq!(context.rmdir(&two, b"v", &mut wcc()), Err(Error::NotDirectory));
    let below = context.rename(&dir, b"two", &two, b"below", &mut wcc(), &mut wcc());
    assert_eq!(below, Err(Error::Invalid));
    context.rmdir(&dir, b"one", &mut wcc()).expect("empty");
    assert_eq!(context.create(&one, b"f", &unchecked(None), &mut wcc()).err(), Some(Error::Stale));
    assert_eq!(context.lookup(&one, b"f").err(), Some(Error::Stale));
    assert_eq!(context.lookup(&file, b"f").err(), Some(Error::NotDirectory));

    let link = context.symlink(&dir, b"s", b"../any\xffwhere", &set, &mut wcc()).expect("links");
    assert_eq!(context.readlink(&link), Ok(b"../any\xffwhere".to_vec()));
    assert_eq!(context.readlink(&file), Err(Error::Invalid));
    context.link(&link, &dir, b"s2", &mut wcc()).expect("a link to the link");
    assert_eq!(context.lookup(&dir, b"s2").expect("there").handle(), link.handle());
}

#[test]
fn filesystem_information() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let stat = context.fs_stat(&dir).expect("says");
    assert!(stat.total_bytes >= stat.free_bytes && stat.free_bytes >= stat.available_bytes);
    assert!(stat.total_bytes > 0);
    let info = context.fs_info(&dir).expect("says");
    assert!(info.links && info.symlinks && info.can_set_time && info.max_file_size > 1 << 40);
    let conf = context.pathconf(&dir).expect("says");
    assert_eq!((conf.name_max, conf.no_trunc, conf.case_insensitive), (255, true, false));
}

#[test]
fn open_errors_have_their_reason() {
    let export = Export::new();
    local(|| std::fs::write(export.path("f"), b"").expect("writes"));
    let open = |path| {
        let mut options = export.options();
        options.path = path;
        store::Store::open(options).expect_err("refused").to_string()
    };
    assert!(open(export.path("f")).contains("isn't a directory"));
    assert!(open(export.path("none")).contains("it can't be opened"));
}

#[test]
fn a_write_returns_previous_attributes_only_without_concurrent_writes() {
    let export = Export::new();
    let store = export.open();
    let handle = {
        let context = store.as_user(&user(1000)).expect("acts");
        let dir = root_of(&context, &store);
        let how = CreateHow::Guarded(SetAttributes::default());
        *context.create(&dir, b"f", &how, &mut Wcc::default()).expect("creates").handle()
    };
    // Without concurrency, each write's `before` is the previous write's `after`.
    let context = store.as_user(&user(1000)).expect("acts");
    let node = context.node(handle.as_bytes()).expect("there");
    let mut last = context.attributes(&node).expect("attributes");
    for offset in 0..10 {
        let mut wcc = Wcc::default();
        context.write(&node, offset, b"x", io::Stability::Unstable, &mut wcc).expect("writes");
        assert_eq!(wcc.before, Some(last));
        last = wcc.after.expect("after");
    }
    // With many writers, a write with `before` ran alone, so the observed sizes are consistent.
    let alone: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let context = store.as_user(&user(1000)).expect("acts");
                    let node = context.node(handle.as_bytes()).expect("there");
                    let mut alone = Vec::new();
                    for round in 0..200 {
                        let mut wcc = Wcc::default();
                        let offset = 100 + round * 4 + thread;
                        context
                            .write(&node, offset, b"y", io::Stability::Unstable, &mut wcc)
                            .expect("writes");
                        let after = wcc.after.expect("after").size;
                        if let Some(before) = wcc.before {
                            assert_eq!(after, before.size.max(offset + 1), "no other writer extended it");
                            alone.push((before.size, after));
                        }
                    }
                    alone
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("ran")).collect()
    });
    assert!(alone.iter().all(|(before, after)| before <= after));
    assert_eq!(context.attributes(&node).expect("attributes").size, 100 + 800);
}

/// A file of the server's own in an exported directory to which all users may write.
#[test]
fn no_user_renames_removes_or_replaces_the_reserved_name() {
    let export = Export::new();
    let store = export.open_with(|options| options.reserved_name = Some(c".own"));
    for identity in [user(1000), user(0)] {
        let context = store.as_user(&identity).expect("acts");
        let dir = root_of(&context, &store);
        let set = SetAttributes::default();
        std::fs::write(export.path(".own"), "own").expect("writes");
        let below = context.mkdir(&dir, b"below", &set, &mut wcc()).expect("makes");
        context.create(&below, b".own", &unchecked(None), &mut wcc()).expect("creates");
        assert_eq!(context.remove(&dir, b".own", &mut wcc()), Err(Error::Permission));
        assert_eq!(context.rmdir(&dir, b".own", &mut wcc()), Err(Error::Permission));
        let moved = |from, to| context.rename(&dir, from, &dir, to, &mut wcc(), &mut wcc());
        assert_eq!(moved(&b".own"[..], &b"other"[..]), Err(Error::Permission));
        assert_eq!(moved(b"below", b".own"), Err(Error::Permission));
        let replaced = context.rename(&below, b".own", &dir, b".own", &mut wcc(), &mut wcc());
        assert_eq!(replaced, Err(Error::Permission));
        assert_eq!(std::fs::read_to_string(export.path(".own")).expect("reads"), "own");
        // Elsewhere it is a name like others.
        context.remove(&below, b".own", &mut wcc()).expect("removes");
        context.rmdir(&dir, b"below", &mut wcc()).expect("removes");
    }
}
