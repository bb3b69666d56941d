//! Opens that may create a file, of names that belong to something already: the same answers in a tree, over
//! a lane without trees and over the wire. These tests need root: other servers give no trees.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use samehost_client as client;

use client::{OpenOptions, Status, Version};
use support::Served;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The names of the directory that is opened in.
const NAMES: [&str; 9] = ["new", "file", "link", "dangling", "outside", "pipe", "socket", "device", "dir"];

fn prepare(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("file"), b"content").unwrap();
    fs::write(dir.join("target"), b"target").unwrap();
    symlink("target", dir.join("link")).unwrap();
    symlink("nothing", dir.join("dangling")).unwrap();
    symlink("/nothing/at/all", dir.join("outside")).unwrap();
    fs::create_dir(dir.join("dir")).unwrap();
    for (name, kind) in
        [("pipe", FileType::Fifo), ("socket", FileType::Socket), ("device", FileType::CharacterDevice)]
    {
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o600), 0x103).unwrap();
    }
}

/// The modes and sizes of all that is in a directory, by name.
fn contents(dir: &Path) -> BTreeMap<OsString, (u32, u64)> {
    let of = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        (entry.file_name(), (meta.mode(), meta.len()))
    };
    fs::read_dir(dir).unwrap().map(of).collect()
}

type Answers = [Result<(), i32>; 9];

const EEXIST: Result<(), i32> = Err(17);
const EISDIR: Result<(), i32> = Err(21);
const EINVAL: Result<(), i32> = Err(22);
const ELOOP: Result<(), i32> = Err(40);
const ENOENT: Result<(), i32> = Err(2);

/// How to open, and the answer for each of [`NAMES`].
fn cases() -> [(&'static str, OpenOptions, Answers); 6] {
    let create = OpenOptions::new().create(true).mode(0o600);
    // Links are followed, and nothing is made where they lead to.
    let usual = [Ok(()), Ok(()), Ok(()), ENOENT, ENOENT, EINVAL, EINVAL, EINVAL, EISDIR];
    let no_link = [Ok(()), Ok(()), ELOOP, ELOOP, ELOOP, EINVAL, EINVAL, EINVAL, EISDIR];
    let mut exclusive = [EEXIST; 9];
    exclusive[0] = Ok(());
    [
        ("reading", create.read(true), usual),
        ("writing", create.write(true), usual),
        ("reading and writing", create.read(true).write(true), usual),
        ("truncating", create.write(true).truncate(true), usual),
        ("not following", create.write(true).no_follow(true), no_link),
        ("exclusively", create.write(true).create_new(true).truncate(true), exclusive),
    ]
}

#[tokio::test]
async fn an_open_that_may_create_answers_the_same_in_a_tree_and_elsewhere() {
    if !is_root() {
        return;
    }
    let (trees, files) = (Served::with_trees(), Served::with_lane());
    let (lane, tree) = (files.lane().await, trees.lane().await);
    assert!(lane.lane().local && !lane.lane().tree && tree.lane().tree);
    let ways = [
        ("NFSv3", files.wire_by(Version::V3).await, files.export()),
        ("NFSv4.2", files.wire_by(Version::V4_2).await, files.export()),
        ("the lane", lane, files.export()),
        ("the tree", tree, trees.export()),
    ];
    let mut number = 0;
    for (how, options, expected) in cases() {
        for (name, expected) in NAMES.into_iter().zip(expected) {
            for (way, session, export) in &ways {
                number += 1;
                let dir = export.join(format!("dir-{number}"));
                prepare(&dir);
                let before = contents(&dir);
                let path = format!("dir-{number}/{name}");
                let opened = session.open(path.as_bytes(), &options).await;
                let what = format!("{how} {name} by {way}");
                let is_new = opened.as_ref().is_ok_and(client::File::is_new);
                let answer = match opened {
                    Ok(file) => {
                        file.close().await.unwrap();
                        Ok(())
                    }
                    Err(error) => Err(error.errno()),
                };
                assert_eq!(answer, expected, "{what}");
                // A server that grants files doesn't say whether it has made one.
                assert!(is_new == (answer.is_ok() && name == "new") || *way == "the lane", "{what}");
                let mut after = before;
                if answer.is_ok() && name == "new" {
                    after.insert("new".into(), (0o100_600, 0));
                }
                let emptied = if name == "link" { "target" } else { name };
                if answer.is_ok() && how == "truncating" {
                    after.get_mut(std::ffi::OsStr::new(emptied)).unwrap().1 = 0;
                }
                assert_eq!(contents(&dir), after, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn an_open_that_may_create_in_a_removed_directory_is_stale() {
    if !is_root() {
        return;
    }
    let (trees, files) = (Served::with_trees(), Served::with_lane());
    for (session, export) in [
        (files.wire_by(Version::V3).await, files.export()),
        (files.wire_by(Version::V4_2).await, files.export()),
        (files.lane().await, files.export()),
        (trees.lane().await, trees.export()),
    ] {
        let dir = export.join("dir");
        fs::create_dir(&dir).unwrap();
        let handle = session.lookup(&session.root(), b"dir").await.unwrap().handle;
        fs::remove_dir(&dir).unwrap();
        let create = OpenOptions::new().write(true).create(true);
        for options in [create, create.create_new(true)] {
            let error = session.open_at(&handle, b"name", &options).await.unwrap_err();
            assert_eq!(error.status(), Some(Status::Stale), "{error}");
        }
    }
}

/// Others replace and remove the name all the time. The open has the answer that fits one of the moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_that_may_create_is_answered_whatever_takes_the_name_meanwhile() {
    if !is_root() {
        return;
    }
    let served = Served::with_trees();
    let session = served.lane().await;
    assert!(session.lane().tree);
    let nothing = served.export().join("nothing");
    fs::create_dir(&nothing).unwrap();
    // What the name belongs to in turn, and the answers that fit it.
    let turns: [(&[&str], &[i32]); 2] =
        [(&["file", "link", "pipe", "dir"], &[22, 21]), (&["dangling", "file"], &[2])];
    for (number, (names, fitting)) in turns.into_iter().enumerate() {
        let dir = served.export().join(format!("dir-{number}"));
        prepare(&dir);
        fs::remove_file(dir.join("dangling")).unwrap();
        symlink("../nothing/new", dir.join("dangling")).unwrap();
        let handle =
            session.lookup(&session.root(), format!("dir-{number}").as_bytes()).await.unwrap().handle;
        let is_over = Arc::new(AtomicBool::new(false));
        let others = {
            let (is_over, dir) = (is_over.clone(), dir.clone());
            std::thread::spawn(move || {
                let at = dir.join("name");
                while !is_over.load(SeqCst) {
                    for name in names {
                        // A directory replaces no file that the session has made.
                        while fs::rename(dir.join(name), &at).is_err() {
                            let _ = fs::remove_file(&at);
                        }
                        fs::rename(&at, dir.join(name)).unwrap();
                    }
                }
            })
        };
        for options in [OpenOptions::new().read(true), OpenOptions::new().write(true).truncate(true)] {
            for round in 0..1500 {
                match session.open_at(&handle, b"name", &options.create(true)).await {
                    Ok(file) => file.close().await.unwrap(),
                    Err(error) => {
                        // Eight times in a row one has taken the name away.
                        let fits =
                            fitting.contains(&error.errno()) || error.status() == Some(Status::TryLater);
                        assert!(fits, "{names:?} {options:?} {round}: {error}");
                    }
                }
            }
        }
        is_over.store(true, SeqCst);
        others.join().expect("all names were renamed");
        assert_eq!(fs::read_dir(&nothing).unwrap().count(), 0);
    }
}
