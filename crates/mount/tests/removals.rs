//! Files that lose their names while they are open, by NFSv4.2 over TCP, at a server that promises to keep
//! them (`OPEN4_RESULT_PRESERVE_UNLINKED`, RFC 8881 section 18.16.4).
//!
//! No server that can be installed makes this promise. Samehost's keeps such files until it stops, and a
//! proxy puts the promise into its replies.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use client::Version;
use samehost_mount::{AttributeTimes, MountOptions};
use support::{Served, Transport, proxy, wait_for};

/// `OPEN4_RESULT_PRESERVE_UNLINKED`.
const PRESERVE_UNLINKED: u8 = 0x8;

/// The results of PUTFH and OPEN up to the state id, if both have succeeded.
const OPENED: [u8; 16] = [0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 18, 0, 0, 0, 0];

/// The last byte of `rflags` behind that: a state id, `change_info4`, and four bytes.
const FLAGS: usize = OPENED.len() + 16 + 20 + 3;

/// Adds the promise to the server's replies to OPEN.
fn promise(record: &mut [u8]) {
    let opened = record.windows(OPENED.len()).position(|window| window == OPENED);
    if let Some(flags) = opened.and_then(|at| record.get_mut(at + FLAGS)) {
        *flags |= PRESERVE_UNLINKED;
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Removes a file that is open, and replaces another. Returns the names that the export has then.
fn remove_and_replace(export: &Path, mounted: &support::Mounted) -> Vec<String> {
    for file in ["removed", "replaced", "new"] {
        fs::write(export.join(file), file).unwrap();
    }
    let open = |file| File::options().read(true).write(true).open(mounted.path(file)).unwrap();
    let (removed, replaced) = (open("removed"), open("replaced"));
    fs::remove_file(mounted.path("removed")).unwrap();
    fs::rename(mounted.path("new"), mounted.path("replaced")).unwrap();
    let left = names(export);
    for (file, text) in [(&removed, "removed"), (&replaced, "replaced")] {
        let mut bytes = [0; 16];
        let len = file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..len], text.as_bytes());
        file.write_all_at(b"more", 100).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().size(), 104);
    }
    assert_eq!(fs::read_to_string(mounted.path("replaced")).unwrap(), "new");
    left
}

#[test]
fn a_file_that_the_server_keeps_gets_no_hidden_name() {
    let served = Served::without_tree();
    let mounted = served.mount_through(proxy(served.port(), promise), MountOptions::default());
    assert_eq!(remove_and_replace(&served.export(), &mounted), ["replaced"]);
}

#[test]
fn a_file_that_the_server_may_not_keep_gets_a_hidden_name() {
    let served = Served::without_tree();
    let mounted = served.mount(Transport::Wire);
    let left = remove_and_replace(&served.export(), &mounted);
    assert_eq!(left.iter().filter(|name| name.starts_with(".nfs")).count(), 2, "{left:?}");
}

/// The hidden name goes with the last close, and the kernel learns that the file has one link less.
#[test]
fn the_last_close_of_one_of_two_names_shows_in_the_link_count() {
    let served = Served::without_tree();
    fs::write(served.export().join("one"), b"text").unwrap();
    fs::hard_link(served.export().join("one"), served.export().join("two")).unwrap();
    let forever = Duration::from_secs(3600);
    let (file_min, file_max, directory_min, directory_max) = (forever, forever, forever, forever);
    let attributes =
        AttributeTimes { file_min, file_max, directory_min, directory_max, ..AttributeTimes::default() };
    let options = MountOptions { attributes, ..MountOptions::default() };
    let mounted = served.mount_by(Version::V4_2, Transport::Wire, options);
    let open = File::open(mounted.path("one")).unwrap();
    fs::remove_file(mounted.path("one")).unwrap();
    let links = || fs::metadata(mounted.path("two")).unwrap().nlink();
    assert_eq!(links(), 2);
    drop(open);
    wait_for("the hidden name to go", || links() == 1);
}
