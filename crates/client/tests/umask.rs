//! The umask of new files: as in a local directory, also where they inherit an access control list.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use samehost_client as client;

use client::{LaneMode, Node, OpenOptions, Session, SetAttributes, Version};
use support::Served;

const NAMES: [&str; 4] = ["file", "exclusive", "directory", "fifo"];
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// A default list that gives rights to user 1234, and none to others.
fn set_default_list(directory: &Path) {
    let nobody = u32::MAX;
    let entries = [(1_u16, 7_u16, nobody), (2, 7, 1234), (4, 5, nobody), (16, 7, nobody), (32, 0, nobody)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    setxattr(directory, LISTS[1], &bytes, XattrFlags::empty()).unwrap();
}

/// A file's name, mode and lists.
type Permissions = (&'static str, u32, [Option<Vec<u8>>; 2]);

fn permissions(directory: &Path) -> [Permissions; 4] {
    let list = |path: &Path, name: &str| {
        let mut bytes = vec![0; 1024];
        getxattr(path, name, &mut bytes[..]).ok().map(|length| bytes[..length].to_vec())
    };
    let of = |name| {
        let path = directory.join(name);
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777;
        (name, mode, LISTS.map(|attribute| list(&path, attribute)))
    };
    NAMES.map(of)
}

async fn make(session: &Session, name: &str) {
    let directory = session.lookup(&session.root(), name.as_bytes()).await.unwrap().handle;
    let options = OpenOptions::new().write(true).create(true).mode(0o666);
    session.open_at(&directory, b"file", &options).await.unwrap();
    session.open_at(&directory, b"exclusive", &options.create_new(true)).await.unwrap();
    let set = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    session.make_dir(&directory, b"directory", &set(0o777)).await.unwrap();
    session.make_node(&directory, b"fifo", Node::Fifo, &set(0o666)).await.unwrap();
}

#[tokio::test]
async fn new_files_have_the_permissions_of_local_ones() {
    let served = Served::with_trees();
    let mut number = 0;
    for (version, lane) in [
        (Version::V4_2, LaneMode::Off),
        (Version::V4_2, LaneMode::Required),
        (Version::V4_1, LaneMode::Off),
        (Version::V3, LaneMode::Off),
        (Version::V3, LaneMode::Required),
    ] {
        let session = Session::connect(&served.url(), served.options(lane).version(version)).await.unwrap();
        assert_eq!(session.server_applies_umask(), version == Version::V4_2);
        // Without the attribute the mode that is sent is masked already, and lists are inherited with that.
        let has_lists = version == Version::V4_2 || lane == LaneMode::Required;
        for (umask, list) in [(0o022, false), (0o077, false), (0o022, true), (0o077, true), (0, true)] {
            if list && !has_lists {
                continue;
            }
            number += 1;
            let (ours, local) = (format!("ours-{number}"), served.export().join(format!("local-{number}")));
            for directory in [&served.export().join(&ours), &local] {
                fs::create_dir(directory).unwrap();
                if list {
                    set_default_list(directory);
                }
            }
            let script = format!("umask {umask:o}; : >file; : >exclusive; mkdir directory; mkfifo fifo");
            assert!(Command::new("sh").args(["-c", &script]).current_dir(&local).status().unwrap().success());
            make(&session.with_umask(umask), &ours).await;
            let case = format!("{version:?}, {lane:?}, umask {umask:o}, default list: {list}");
            assert_eq!(permissions(&served.export().join(&ours)), permissions(&local), "{case}");
        }
    }
}
