//! Reading directories page by page while they change.

extern crate samehost_store as store;

mod common;

use std::collections::HashSet;
use std::ops::ControlFlow;

use common::{Export, local, names, root_of, user};
use store::Error;

fn fill(export: &Export, count: usize) {
    local(|| {
        for index in 0..count {
            std::fs::write(export.path(&format!("file-{index:05}")), b"").expect("writes");
        }
    });
}

#[test]
fn each_of_ten_thousand_entries_is_listed_once() {
    for place in ["/dev/shm", "/tmp"] {
        let export = Export::at(place.as_ref());
        fill(&export, 10_000);
        let store = export.open();
        let context = store.as_user(&user(1000)).expect("acts");
        let dir = root_of(&context, &store);
        for page in [37, 1000, 100_000] {
            let all = names(&context, &dir, page);
            assert_eq!(all.len(), 10_000, "{place}, pages of {page}");
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), 10_000);
        }
    }
}

#[test]
fn remaining_entries_are_listed_once_despite_changes_and_a_restart() {
    for place in ["/dev/shm", "/tmp"] {
        let export = Export::at(place.as_ref());
        fill(&export, 2_000);
        let mut store = export.open();
        let (mut cookie, mut verifier, mut seen) = (0, [0; 8], Vec::new());
        for page in 0.. {
            let context = store.as_user(&user(1000)).expect("acts");
            let dir = root_of(&context, &store);
            let mut taken = 0;
            let (from, mut next) = (cookie, cookie);
            let mut each = |entry: store::DirEntry<'_>| {
                if taken == 100 {
                    return ControlFlow::Break(());
                }
                taken += 1;
                next = entry.cookie;
                seen.push(entry.name.to_vec());
                ControlFlow::Continue(())
            };
            let end = context.read_dir(&dir, from, verifier, &mut each).expect("reads on");
            (cookie, verifier) = (next, end.verifier);
            if end.eof {
                break;
            }
            // Every tenth file stays. The entries just read and those still to come are removed, page by
            // page.
            local(|| {
                for index in (page * 90..(page + 1) * 90).filter(|index| index % 10 != 0 && *index < 2000) {
                    let _ = std::fs::remove_file(export.path(&format!("file-{index:05}")));
                }
                std::fs::write(export.path(&format!("new-{page}")), b"").expect("writes");
            });
            if page == 5 {
                store = export.open();
            }
        }
        let unique: HashSet<_> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len(), "{place}: nothing twice");
        for index in (0..2000).step_by(10) {
            assert!(unique.contains(&format!("file-{index:05}").into_bytes()), "{place}: {index} is missing");
        }
    }
}

#[test]
fn invalid_cookies_and_verifiers_are_refused() {
    let export = Export::new();
    fill(&export, 50);
    local(|| std::fs::create_dir(export.path("sub")).expect("makes"));
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let mut stop_at_once = |_: store::DirEntry<'_>| ControlFlow::Break(());
    let page =
        context.read_dir(&dir, 0, [9; 8], &mut stop_at_once).expect("from the start any verifier will do");
    assert!(!page.eof);
    for (cookie, verifier) in [(1, [9; 8]), (1, [0; 8]), (u64::MAX, page.verifier), (1 << 63, page.verifier)]
    {
        let refused = context.read_dir(&dir, cookie, verifier, &mut stop_at_once);
        assert_eq!(refused.err(), Some(Error::BadCookie), "{cookie:#x}");
    }
    let sub = context.lookup(&dir, b"sub").expect("there");
    let of_sub = context.read_dir(&sub, 0, [0; 8], &mut stop_at_once).expect("reads").verifier;
    assert_ne!(of_sub, page.verifier, "a verifier belongs to its directory");
    let file = context.lookup(&dir, b"file-00000").expect("there");
    assert_eq!(context.read_dir(&file, 0, [0; 8], &mut stop_at_once).err(), Some(Error::NotDirectory));
}

#[test]
fn dots_are_listed_and_the_root_is_its_own_parent() {
    let outer = Export::new();
    local(|| std::fs::create_dir_all(outer.path("export/sub")).expect("makes"));
    let store = outer.open_with(|options| options.path = outer.path("export"));
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let sub = context.lookup(&dir, b"sub").expect("there");
    let ids = |node: &store::Node| {
        let mut dots = [0, 0];
        context
            .read_dir(node, 0, [0; 8], &mut |entry| {
                match entry.name {
                    b"." => dots[0] = entry.fileid,
                    b".." => dots[1] = entry.fileid,
                    _ => {}
                }
                ControlFlow::Continue(())
            })
            .expect("reads");
        dots
    };
    assert_eq!(ids(&dir), [dir.fileid(), dir.fileid()]);
    assert_eq!(ids(&sub), [sub.fileid(), dir.fileid()]);
    local(|| std::fs::remove_dir(outer.path("export/sub")).expect("removes"));
    let context = store.as_user(&user(1000)).expect("acts");
    let gone = context.read_dir(&sub, 0, [0; 8], &mut |_| ControlFlow::Continue(()));
    assert_eq!(gone.err(), Some(Error::Stale));
}

/// ramfs uses positions as cookies, as tmpfs did before Linux 6.6.
#[test]
fn a_position_in_a_changed_directory_is_refused() {
    let export = Export::new();
    local(|| std::fs::create_dir(export.path("ram")).expect("makes"));
    let Some(_mounted) = common::Mounted::new(export.path("ram"), "ramfs", "mode=777") else {
        eprintln!("no ramfs here: nothing was tested");
        return;
    };
    local(|| {
        (0..20).for_each(|index| std::fs::write(export.path(&format!("ram/{index}")), b"").expect("writes"));
    });
    let store = export.open_with(|options| options.path = export.path("ram"));
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    // Five entries per page; the names and the last cookie.
    let page = |context: &store::UserContext<'_>, cookie: u64, verifier: [u8; 8]| {
        let (mut names, mut last) = (Vec::new(), cookie);
        let end = context.read_dir(&dir, cookie, verifier, &mut |entry| {
            if names.len() == 5 {
                return ControlFlow::Break(());
            }
            names.push(entry.name.to_vec());
            last = entry.cookie;
            ControlFlow::Continue(())
        });
        end.map(|end| (names, last, end.verifier))
    };
    let (names, cookie, verifier) = page(&context, 0, [0; 8]).expect("reads");
    let (second, _, _) = page(&context, cookie, verifier).expect("reads on");
    let (again, _, _) =
        page(&context, cookie, verifier).expect("nothing has changed: any open directory will do");
    assert_eq!(second, again);
    // The listed entries are removed, as by rm -r: the open directory keeps its position.
    let (_, cookie, verifier) = page(&context, 0, [0; 8]).expect("reads");
    common::wait_for_clock_tick();
    local(|| {
        let plain = names.iter().filter(|name| !name.starts_with(b"."));
        plain.for_each(|name| {
            std::fs::remove_file(export.path("ram").join(std::str::from_utf8(name).expect("digits")))
                .expect("removes");
        });
    });
    let context = store.as_user(&user(1000)).expect("acts");
    let (rest, _, _) = page(&context, cookie, verifier).expect("reads on");
    assert_eq!(rest, second, "no entry is skipped");
    // The same cookie again: without an open directory it would name another entry.
    assert_eq!(page(&context, cookie, verifier).err(), Some(Error::BadCookie));
}
