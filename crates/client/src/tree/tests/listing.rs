//! Listings: pages, their cookies, and what changes meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::side::{Both, Side, USER, plain};
use crate::error::Status;
use crate::tree::failure::Failure;
use crate::types::{DirEntry, Handle};

/// All entries of a directory, read in pages of `count` bytes.
fn list(side: &Side, directory: &Handle, count: u32, plus: bool) -> (Vec<DirEntry>, usize) {
    let (mut all, mut behind, mut pages) = (Vec::new(), (0, [0; 8]), 0);
    loop {
        let page = side.read_dir_page(directory, behind, count, plus).expect("a page");
        pages += 1;
        if let Some(last) = page.entries.last() {
            behind = (last.cookie, page.verifier);
        }
        all.extend(page.entries);
        if page.eof {
            return (all, pages);
        }
    }
}

fn names(entries: &[DirEntry]) -> BTreeSet<Vec<u8>> {
    let names: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names.len(), entries.len(), "no name twice");
    names
}

#[test]
fn a_large_directory_is_listed_in_pages() {
    let (side, root, dir) = plain(100);
    for number in 0..20_000 {
        fs::write(dir.path().join(format!("file-{number}")), b"").expect("made");
    }
    let expected: BTreeSet<_> = (0..20_000).map(|number| format!("file-{number}").into_bytes()).collect();
    for (count, plus) in [(4096, false), (65_536, false), (65_536, true), (1 << 20, true)] {
        let (entries, pages) = list(&side, &root, count, plus);
        let mut seen = names(&entries);
        assert!(seen.remove(&b"."[..]) && seen.remove(&b".."[..]));
        assert_eq!(seen, expected);
        let least = 20_000 * 30 / (count as usize + 32_768);
        assert!(pages >= least, "{pages} pages of {count} bytes");
        for entry in entries.iter().filter(|entry| !entry.name.starts_with(b".")) {
            assert_eq!(entry.attributes.map(|attributes| attributes.fileid), plus.then_some(entry.fileid));
            assert_eq!(entry.handle.is_some(), plus);
        }
    }
}

#[test]
fn entries_are_those_of_the_wire() {
    let Some(both) = Both::new(rustix::process::geteuid().as_raw()) else { return };
    for number in 0..100 {
        fs::write(both.path().join(format!("file-{number}")), b"x").expect("made");
    }
    std::os::unix::fs::symlink("target", both.path().join("link")).expect("made");
    fs::create_dir(both.path().join("dir")).expect("made");
    for plus in [false, true] {
        let (wire, tree) =
            (list(&both.wire, &both.root, 1 << 20, plus).0, list(&both.tree, &both.root, 1 << 20, plus).0);
        let sorted = |entries: Vec<DirEntry>| {
            let mut entries: Vec<_> = entries
                .into_iter()
                .map(|entry| {
                    let is_dots = entry.name == b"." || entry.name == b"..";
                    let file = (entry.handle, entry.attributes);
                    (entry.name, entry.fileid, if is_dots { (None, None) } else { file })
                })
                .collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            entries
        };
        assert_eq!(sorted(tree), sorted(wire), "plus: {plus}");
    }
}

#[test]
fn a_listing_goes_on_where_a_page_ended_whatever_is_removed() {
    let (side, root, dir) = plain(100);
    for number in 0..1000 {
        fs::write(dir.path().join(format!("file-{number:03}")), b"").expect("made");
    }
    let first = side.read_dir_page(&root, (0, [0; 8]), 4096, false).expect("a page");
    assert!(!first.eof && first.entries.len() < 900, "{}", first.entries.len());
    let mut seen = names(&first.entries);
    for name in seen.iter().filter(|name| name.starts_with(b"f")) {
        fs::remove_file(dir.path().join(String::from_utf8_lossy(name).as_ref())).expect("there");
    }
    let mut behind = (first.entries.last().expect("entries").cookie, first.verifier);
    loop {
        let page = side.read_dir_page(&root, behind, 4096, false).expect("a page");
        for entry in &page.entries {
            assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
            behind = (entry.cookie, page.verifier);
        }
        if page.eof {
            break;
        }
    }
    assert_eq!(seen.len(), 1002);
}

#[test]
fn listings_dont_change_sides_in_the_middle() {
    let Some(both) = Both::new(rustix::process::geteuid().as_raw()) else { return };
    for number in 0..1000 {
        fs::write(both.path().join(format!("file-{number:03}")), b"").expect("made");
    }
    let page = |side: &Side| {
        let page = side.read_dir_page(&both.root, (0, [0; 8]), 4096, false).expect("a page");
        (page.entries.last().expect("entries").cookie, page.verifier)
    };
    let (wire, tree) = (page(&both.wire), page(&both.tree));
    let next = |side: &Side, behind| side.read_dir_page(&both.root, behind, 4096, false).map(|_| ());
    assert_eq!(next(&both.wire, tree), Err(Failure::Status(Status::BadCookie)), "the listing starts over");
    assert_eq!(next(&both.tree, wire), Err(Failure::NotLocal), "it goes on over the wire");
    assert_eq!((next(&both.wire, wire), next(&both.tree, tree)), (Ok(()), Ok(())));
}

#[test]
fn no_listing_of_what_is_no_directory_or_cannot_be_read() {
    let Some(both) = Both::new(USER) else { return };
    fs::write(both.path().join("file"), b"").expect("made");
    fs::create_dir(both.path().join("locked")).expect("made");
    fs::set_permissions(both.path().join("locked"), fs::Permissions::from_mode(0o711)).expect("set");
    for (name, status) in [(&b"file"[..], Status::NotDirectory), (b"locked", Status::Access)] {
        for side in [&both.wire, &both.tree] {
            let file = side.lookup(&both.root, name).expect("there").handle;
            let result = side.read_dir_page(&file, (0, [0; 8]), 4096, true);
            assert_eq!(result, Err(Failure::Status(status)));
        }
    }
}

#[test]
fn a_directory_that_another_user_opened_is_checked_again() {
    let Some(both) = Both::new(USER) else { return };
    for number in 0..1000 {
        fs::write(both.path().join(format!("file-{number:03}")), b"").expect("made");
    }
    let page = both.tree.read_dir_page(&both.root, (0, [0; 8]), 4096, false).expect("a page");
    let behind = (page.entries.last().expect("entries").cookie, page.verifier);
    fs::set_permissions(both.path(), fs::Permissions::from_mode(0o711)).expect("set");
    let next = both.tree.read_dir_page(&both.root, behind, 4096, false);
    assert_eq!(next, Err(Failure::Status(Status::Access)));
}
