//! Opens that may create a file, of a name that another host has made since the kernel has looked for it: the
//! kernel asks for the creation of what exists by then.

mod support;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use samehost_mount::MountOptions;
use support::{Served, TRANSPORTS_AND_VERSIONS, shell_as};

/// What another host makes, and how.
type Object = (&'static str, fn(&Path));

const OBJECTS: [Object; 8] = [
    ("nothing", |_| ()),
    ("file", |at| fs::write(at, b"content").unwrap()),
    ("link", |at| symlink("target", at).unwrap()),
    ("dangling", |at| symlink("made-by-the-kernel", at).unwrap()),
    ("loop", |at| symlink("loop", at).unwrap()),
    ("directory", |at| fs::create_dir(at).unwrap()),
    ("pipe", |at| make_node(at, FileType::Fifo)),
    ("socket", |at| make_node(at, FileType::Socket)),
];

fn make_node(at: &Path, kind: FileType) {
    mknodat(CWD, at, kind, Mode::from_raw_mode(0o600), 0).unwrap();
}

const FLAGS: [(&str, OFlags); 8] = [
    ("reading and writing", OFlags::RDWR),
    ("writing", OFlags::WRONLY.union(OFlags::NONBLOCK)),
    ("reading", OFlags::RDONLY.union(OFlags::NONBLOCK)),
    ("truncating", OFlags::RDWR.union(OFlags::TRUNC)),
    ("truncating for reading", OFlags::RDONLY.union(OFlags::TRUNC).union(OFlags::NONBLOCK)),
    ("not following", OFlags::RDWR.union(OFlags::NOFOLLOW)),
    ("exclusively", OFlags::RDWR.union(OFlags::EXCL)),
    ("exclusively, truncating", OFlags::RDWR.union(OFlags::EXCL).union(OFlags::TRUNC)),
];

/// All that is in a directory: names, modes and sizes.
fn contents(dir: &Path) -> Vec<String> {
    let of = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        let size = if meta.is_dir() { 0 } else { meta.len() };
        format!("{} {:o} {size}", entry.file_name().display(), meta.mode())
    };
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(of).collect();
    all.sort();
    all
}

/// The result of the open: what there is, and how large it is, or the errno.
fn open(path: &Path, flags: OFlags) -> Result<(u32, u64), rustix::io::Errno> {
    let file = rustix::fs::open(path, flags | OFlags::CREATE, Mode::from_raw_mode(0o640))?;
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_mode, stat.st_size as u64))
}

/// Has the kernel learn that a directory doesn't have these names.
fn learn_missing(dir: &Path, names: &[&str]) {
    // It may keep what it has learnt as soon as the mount knows the directory's access control list.
    fs::read_dir(dir).unwrap().for_each(drop);
    names.iter().for_each(|name| assert!(!fs::exists(dir.join(name)).unwrap()));
}

fn answers_as_a_local_filesystem(served: &Served) {
    let local = tempfile::tempdir_in(served.export().parent().unwrap()).unwrap();
    for (number, transport) in TRANSPORTS_AND_VERSIONS.into_iter().enumerate() {
        let mounted = served.mount(transport);
        for (how, flags) in FLAGS {
            for (what, make) in OBJECTS {
                let name = format!("{how}, {what}, {number}");
                let (here, there) = (local.path().join(&name), served.export().join(&name));
                for dir in [&here, &there] {
                    fs::create_dir(dir).unwrap();
                    fs::write(dir.join("target"), b"target").unwrap();
                }
                let dir = mounted.path(&name);
                learn_missing(&dir, &["loop"]);
                for dir in [&here, &there] {
                    make(&dir.join("loop"));
                }
                let case = format!("{how}: {what} by {transport:?}");
                assert_eq!(open(&dir.join("loop"), flags), open(&here.join("loop"), flags), "{case}");
                assert_eq!(contents(&there), contents(&here), "{case}");
                assert_eq!(contents(&dir), contents(&here), "{case}");
            }
        }
    }
}

#[test]
fn an_open_that_may_create_answers_as_on_a_local_filesystem_in_a_tree() {
    answers_as_a_local_filesystem(&Served::start());
}

#[test]
fn an_open_that_may_create_answers_as_on_a_local_filesystem() {
    answers_as_a_local_filesystem(&Served::without_tree());
}

/// NFS lets an owner write whatever the mode says; open(2) doesn't, and the kernel checks no rights to what
/// it takes for new.
#[test]
fn an_open_that_may_create_needs_the_rights_to_what_exists() {
    for served in [Served::start(), Served::without_tree()] {
        for (number, transport) in TRANSPORTS_AND_VERSIONS.into_iter().enumerate() {
            let mounted = served.mount(transport);
            let name = format!("dir-{number}");
            let there = served.export().join(&name);
            fs::create_dir(&there).unwrap();
            fs::set_permissions(&there, fs::Permissions::from_mode(0o777)).unwrap();
            let names = ["owned", "roots", "readable"];
            let paths = names.map(|one| mounted.path(&name).join(one));
            learn_missing(&mounted.path(&name), &names);
            for (one, owner, mode) in [("owned", 1000, 0o444), ("roots", 0, 0o600), ("readable", 0, 0o644)] {
                fs::write(there.join(one), b"content").unwrap();
                chown(there.join(one), Some(owner), Some(owner)).unwrap();
                fs::set_permissions(there.join(one), fs::Permissions::from_mode(mode)).unwrap();
            }
            for path in &paths {
                let (said, is_done) = shell_as(1000, 1000, "", &format!("echo x > {}", path.display()));
                assert!(!is_done && said.contains("ermission denied"), "{path:?} by {transport:?}: {said}");
            }
            names.iter().for_each(|one| assert_eq!(fs::read(there.join(one)).unwrap(), b"content"));
        }
    }
}

/// What was in the file isn't seen again in what is written then.
#[test]
fn a_truncated_file_that_was_to_be_created_is_empty() {
    for served in [Served::start(), Served::without_tree()] {
        for transport in TRANSPORTS_AND_VERSIONS {
            let mounted = served.mount_with(transport, MountOptions::default());
            let name = format!("{transport:?}");
            let path = mounted.path(&name);
            learn_missing(mounted.root(), &[&name]);
            fs::write(served.export().join(&name), vec![b'x'; 10_000]).unwrap();
            let options = &mut OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 0, "{transport:?}");
            file.write_all(b"short").unwrap();
            assert_eq!(file.metadata().unwrap().len(), 5, "{transport:?}");
            drop(file);
            assert_eq!(fs::read(&path).unwrap(), b"short", "{transport:?}");
            assert_eq!(fs::read(served.export().join(&name)).unwrap(), b"short", "{transport:?}");
        }
    }
}
