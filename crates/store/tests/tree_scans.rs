//! Handles of files without cached names: one tree scan answers for all of them.

extern crate samehost_store as store;

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Export, local, root, root_of};
use store::{CreateHow, Error, FileHandle, SetAttributes, Store, Wcc};

const FILES: usize = 3000;

/// Makes a tree and returns the handles of all its files.
fn fill(export: &Export) -> Vec<FileHandle> {
    local(|| {
        for index in 0..FILES {
            std::fs::create_dir_all(export.path(&format!("d{}", index % 30))).expect("makes");
            std::fs::write(export.path(&format!("d{}/f{index}", index % 30)), b"").expect("writes");
        }
    });
    let store = located(export);
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let handle = |index: usize| {
        let sub = context.lookup(&dir, format!("d{}", index % 30).as_bytes()).expect("there");
        *context.lookup(&sub, format!("f{index}").as_bytes()).expect("there").handle()
    };
    (0..FILES).map(handle).collect()
}

/// Located handles, as an unprivileged server uses. Opening the store again empties the cache, as a restart
/// does.
fn located(export: &Export) -> Store {
    export.open_with(|options| options.subtree_check = true)
}

#[test]
fn many_stale_handles_need_one_tree_scan() {
    let export = Export::new();
    let handles = fill(&export);
    let (gone, kept) = handles.split_at(FILES - 100);
    local(|| {
        (0..gone.len()).for_each(|index| {
            std::fs::remove_file(export.path(&format!("d{}/f{index}", index % 30))).expect("removes");
        });
        // Files that may reuse the inode numbers of the removed ones.
        std::fs::create_dir(export.path("new")).expect("makes");
        (0..500).for_each(|index| std::fs::write(export.path(&format!("new/{index}")), b"").expect("writes"));
        // Moved files, for which the handles' hints are wrong.
        (FILES - 100..FILES - 50).for_each(|index| {
            let from = export.path(&format!("d{}/f{index}", index % 30));
            std::fs::rename(from, export.path(&format!("moved{index}"))).expect("renames");
        });
    });
    let store = located(&export);
    let context = store.as_user(&root()).expect("acts");
    for handle in gone {
        assert_eq!(context.node(handle.as_bytes()).err(), Some(Error::Stale));
    }
    assert_eq!(store.tree_scans(), 1);
    for handle in kept {
        assert_eq!(context.node(handle.as_bytes()).expect("found again").handle(), handle);
    }
    assert_eq!(store.tree_scans(), 1);
}

#[test]
fn concurrent_requests_do_not_wait_for_a_scan() {
    let export = Export::new();
    let handles = fill(&export);
    local(|| {
        (0..30)
            .for_each(|index| std::fs::remove_dir_all(export.path(&format!("d{index}"))).expect("removes"));
        // The tree for the scan.
        std::fs::create_dir(export.path("x")).expect("makes");
        (0..FILES).for_each(|index| std::fs::write(export.path(&format!("x/{index}")), b"").expect("writes"));
    });
    let store = located(&export);
    let postponed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (store, handles, postponed) = (&store, &handles, &postponed);
            scope.spawn(move || {
                let context = store.as_user(&root()).expect("acts");
                for handle in handles.iter().skip(worker).step_by(8) {
                    let deadline = Instant::now() + Duration::from_secs(60);
                    loop {
                        match context.node(handle.as_bytes()).err() {
                            Some(Error::Stale) => break,
                            Some(Error::TryLater) => postponed.fetch_add(1, Ordering::Relaxed),
                            other => panic!("{other:?}"),
                        };
                        assert!(Instant::now() < deadline, "the search doesn't end");
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(store.tree_scans(), 1, "{} requests got TryLater meanwhile", postponed.into_inner());
}

#[test]
fn files_created_after_a_scan_are_found() {
    let export = Export::new();
    let handles = fill(&export);
    local(|| std::fs::remove_file(export.path("d0/f0")).expect("removes"));
    let store = located(&export);
    let context = store.as_user(&root()).expect("acts");
    assert_eq!(context.node(handles[0].as_bytes()).err(), Some(Error::Stale));
    let dir = root_of(&context, &store);
    let how = CreateHow::Guarded(SetAttributes::default());
    let new = *context.create(&dir, b"new", &how, &mut Wcc::default()).expect("creates").handle();
    local(|| {
        std::fs::rename(export.path("d1/f1"), export.path("seen-then-moved")).expect("renames");
        std::fs::rename(export.path("new"), export.path("d2/made-then-moved")).expect("renames");
    });
    let context = store.as_user(&root()).expect("acts");
    assert_eq!(context.node(handles[1].as_bytes()).expect("there").handle(), &handles[1]);
    assert_eq!(context.node(new.as_bytes()).expect("there").handle(), &new);
    assert_eq!(store.tree_scans(), 2, "one more scan found both");
    // Files removed through the store need no scan.
    let dir = root_of(&context, &store);
    let how = CreateHow::Guarded(SetAttributes::default());
    let short = *context.create(&dir, b"short", &how, &mut Wcc::default()).expect("creates").handle();
    context.remove(&dir, b"short", &mut Wcc::default()).expect("removes");
    assert_eq!(context.node(short.as_bytes()).err(), Some(Error::Stale));
    assert_eq!(store.tree_scans(), 2);
}
