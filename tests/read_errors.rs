//! READ of a file of which the disk can't read one block: clients get the error for that block and the data
//! of all others. Large payloads go to the socket without a copy, so the server may notice the error when a
//! part of the reply has been sent.

use std::fs::{self, File as LocalFile};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use client::blocking::{File, Session};
use client::{LaneMode, OpenOptions, Options, Status, Url, Version};
use samehost_tests::disk::{BLOCK, Disk};
use samehost_tests::scratch::pattern;
use samehost_tests::{Serve, Server, need_root};

/// One READ.
const SIZE: usize = 1 << 20;
/// The block that can't be read.
const BAD: usize = 150 * BLOCK;

struct Rig {
    path: PathBuf,
    contents: Vec<u8>,
    server: Server,
    _disk: Disk,
}

impl Rig {
    fn new(size: usize) -> Self {
        need_root();
        let disk = Disk::new("btrfs", 256);
        let path = disk.path().join("file");
        let contents = pattern(1, size);
        fs::write(&path, &contents).expect("there is room");
        disk.damage(&path, BAD as u64);
        let server = Serve::openly(disk.path()).start();
        Self { path, contents, server, _disk: disk }
    }

    fn open(&self, version: Version) -> (Session, File) {
        let url: Url = self.server.url(self.path.parent().expect("a directory")).parse().expect("a URL");
        // A server that never answered would show as an error.
        let options =
            Options::new().lane(LaneMode::Off).version(version).hard(false).timeo(Duration::from_secs(10));
        let session = Session::connect(&url, options).expect("the server is there");
        let file = session.open(b"file", &OpenOptions::new().read(true)).expect("opens");
        (session, file)
    }

    /// Reads all of the file at once, and then its parts.
    fn check(&self, file: &File) {
        let read = |from: usize, to: usize| {
            let mut buffer = vec![0; to - from];
            let count = file.read_at(&mut buffer, from as u64)?;
            buffer.truncate(count);
            Ok::<_, client::Error>(buffer)
        };
        let (behind, end) = (BAD + BLOCK, self.contents.len());
        for attempt in 0..2 {
            for (from, to) in [(0, end), (BAD, behind)] {
                let error = read(from, to).expect_err("one block can't be read");
                assert_eq!(error.status(), Some(Status::Io), "attempt {attempt}, {from} to {to}: {error}");
            }
            for (from, to) in [(0, BAD), (behind, end)] {
                let data =
                    read(from, to).unwrap_or_else(|e| panic!("attempt {attempt}, {from} to {to}: {e}"));
                assert!(data == self.contents[from..to], "attempt {attempt}, {from} to {to}");
            }
        }
    }

    /// READs so far.
    fn reads(&self) -> u64 {
        let status = self.server.status();
        status.calls("wire", "READ") + status.calls("wire", "NFS4.READ")
    }

    /// The number of connections that the server has closed.
    fn broken(&self) -> u64 {
        self.server.status().json()["wire"]["broken"].as_u64().expect("a number")
    }
}

/// Nothing is cached: the server reads the range first, and finds the error before it replies.
#[test]
fn an_unreadable_block_of_an_uncached_file_is_an_error_of_its_read() {
    for version in [Version::V3, Version::V4_2] {
        let rig = Rig::new(SIZE);
        let (_session, file) = rig.open(version);
        let mut buffer = vec![0; SIZE];
        let error = file.read_at(&mut buffer, 0).expect_err("one block can't be read");
        assert_eq!(
            (error.status(), rig.reads()),
            (Some(Status::Io), 2),
            "data first, then the error: {error}"
        );
        rig.check(&file);
        assert_eq!(rig.broken(), 0);
    }
}

/// Both ends of the range are cached: the server finds the error when it has sent a part. It closes the
/// connection once, and the client repeats its request.
#[test]
fn an_unreadable_block_within_a_reply_costs_one_connection() {
    for version in [Version::V3, Version::V4_2] {
        let rig = Rig::new(SIZE);
        let (_session, file) = rig.open(version);
        let local = LocalFile::open(&rig.path).expect("it is there");
        rustix::fs::fadvise(&local, 0, None, rustix::fs::Advice::Random).expect("a file");
        for at in [0, SIZE - 1] {
            local.read_exact_at(&mut [0], at as u64).expect("only one block is damaged");
        }
        rig.check(&file);
        assert_eq!(rig.broken(), 1);
    }
}

/// The last bytes of a file are too few to be sent without a copy, although the client asks for more.
#[test]
fn an_unreadable_block_at_the_end_is_an_error_of_its_read() {
    for version in [Version::V3, Version::V4_2] {
        let rig = Rig::new(BAD + 2 * BLOCK);
        let (_session, file) = rig.open(version);
        let mut buffer = vec![0; SIZE];
        let error = file.read_at(&mut buffer, BAD as u64).expect_err("it can't be read");
        assert_eq!(error.status(), Some(Status::Io), "{error}");
        assert_eq!(rig.broken(), 0);
        rig.check(&file);
    }
}
