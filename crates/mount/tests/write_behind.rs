//! Write-behind of a mount over the wire: write(2) returns before the server has the data, and everything
//! that shows the data or a failure afterwards is right.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::process::Command;
use std::sync::mpsc;

use client::{Operation, Version};
use samehost_mount::MountOptions;
use support::{BOUND, Served, SmallFilesystem, Transport, pattern, wait_for};

/// Runs `work` on a thread of its own, and returns its result once there is one.
fn within_bound<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(BOUND).expect("a result while the server is stopped")
}

#[test]
fn writes_do_not_wait_for_the_server_unless_they_must() {
    let served = Served::start();
    for version in [Version::V3, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let path = mounted.path("file");
        let data = pattern(1, 300_000);
        let file = File::create(&path).unwrap();
        served.freeze();
        let file = within_bound({
            let data = data.clone();
            move || {
                file.write_all_at(&data, 0).unwrap();
                file
            }
        });
        served.thaw();
        file.sync_all().unwrap();
        assert_eq!(fs::read(served.export().join("file")).unwrap(), data);
        drop(file);
        // A small file that is written at once and closed costs a WRITE and no COMMIT, unless the machine is
        // so busy that the WRITE is sent before the close.
        let counters = || mounted.mount.session().counters();
        let before = counters();
        fs::write(mounted.path("small"), b"small").unwrap();
        let after = counters();
        let commits = after.calls(Operation::Commit) - before.calls(Operation::Commit);
        assert_eq!(after.calls(Operation::Write) - before.calls(Operation::Write), 1);
        assert!(commits <= 1);
        // O_SYNC and O_DIRECT are as durable, or as far, when write(2) returns.
        let flags = rustix::fs::OFlags::DSYNC.bits().cast_signed();
        let sync = OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap();
        sync.write_all_at(b"SYNC", 0).unwrap();
        assert_eq!(&fs::read(served.export().join("file")).unwrap()[..4], b"SYNC");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn everything_on_the_mount_sees_what_was_written() {
    let served = Served::start();
    for version in [Version::V3, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let path = mounted.path("file");
        let data = pattern(2, 2_500_000);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        for (index, piece) in data.chunks(50_000).enumerate() {
            file.write_all(piece).unwrap();
            let end = (index * 50_000 + piece.len()) as u64;
            match index % 5 {
                0 => assert_eq!(fs::metadata(&path).unwrap().len(), end),
                1 => assert_eq!(file.metadata().unwrap().len(), end),
                2 => {
                    // READDIRPLUS and LOOKUP.
                    let entry = fs::read_dir(mounted.root()).unwrap().flatten().next().unwrap();
                    assert_eq!(entry.metadata().unwrap().len(), end);
                }
                3 => {
                    // What the kernel has cached is dropped: the pages come from the server.
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                    let mut last = vec![0; 60_000.min(end as usize)];
                    let start = end as usize - last.len();
                    file.read_exact_at(&mut last, start as u64).unwrap();
                    assert!(last == data[start..end as usize]);
                }
                _ => {
                    let mut all = Vec::new();
                    File::open(&path).unwrap().read_to_end(&mut all).unwrap();
                    assert!(all == data[..end as usize]);
                }
            }
        }
        // A time that is set after a write stays.
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        file.write_all_at(b"last", 0).unwrap();
        file.set_modified(time).unwrap();
        drop(file);
        assert_eq!(fs::metadata(served.export().join("file")).unwrap().modified().unwrap(), time);
        assert_eq!(&fs::read(served.export().join("file")).unwrap()[4..], &data[4..]);
        // Another mount sees what was written and closed.
        let other = served.mount_by(version, Transport::Wire, MountOptions::default());
        for round in 0..10 {
            let text = format!("round {round}").repeat(round * 300);
            fs::write(&path, &text).unwrap();
            assert_eq!(fs::read_to_string(other.path("file")).unwrap(), text);
        }
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_full_filesystem_is_reported_by_write_fsync_or_close() {
    let mut served = Served::start();
    let export = served.export();
    let _small = SmallFilesystem::mount(&export);
    served.restart();
    for version in [Version::V3, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let path = mounted.path("file");
        let is_full = |error: std::io::Error| error.raw_os_error() == Some(28);
        let mut file = File::create(&path).unwrap();
        // write(2) may accept it; then fsync(2) says the truth, once.
        let written = file.write_all(&pattern(3, 4 << 20));
        let synced = file.sync_all();
        assert!(written.and(synced).is_err_and(is_full));
        file.sync_all().unwrap();
        // Writes wait for the server until an fsync(2) succeeds, and others can be made at once.
        file.set_len(1000).unwrap();
        file.write_all_at(b"fits", 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let on_server = fs::read(export.join("file")).unwrap();
        assert_eq!((&on_server[..4], on_server.len()), (&b"fits"[..], 1000));
        assert_eq!(&fs::read(&path).unwrap()[..4], b"fits");
        // cp(1) and dd(1) learn it from write(2) or close(2).
        let source = served.run_dir().join("source");
        fs::write(&source, pattern(4, 4 << 20)).unwrap();
        let copied = Command::new("cp").arg(&source).arg(mounted.path("copy")).output().unwrap();
        assert!(!copied.status.success());
        assert!(String::from_utf8_lossy(&copied.stderr).contains("No space left"), "{copied:?}");
        fs::remove_file(mounted.path("copy")).unwrap();
        fs::remove_file(path).unwrap();
    }
}

/// As on a local disk (Documentation/core-api/errseq.rst): each open that there is when a write fails is
/// told.
#[test]
fn a_failed_write_is_reported_by_the_fsync_of_each_open() {
    let mut served = Served::start();
    let export = served.export();
    let _small = SmallFilesystem::mount(&export);
    served.restart();
    fs::write(export.join("file"), b"").unwrap();
    let mut space = File::create(export.join("space")).unwrap();
    while space.write_all(&[0; 4096]).is_ok() {}
    for version in [Version::V3, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let open = || OpenOptions::new().read(true).write(true).open(mounted.path("file")).unwrap();
        let [writer, other, reader] = [open(), open(), File::open(mounted.path("file")).unwrap()];
        let sent = || mounted.mount.session().counters().calls(Operation::Write);
        let before = sent();
        writer.write_all_at(&[1; 4096], 0).unwrap();
        wait_for("the write to be sent", || sent() > before);
        let is_full =
            |synced: std::io::Result<()>| synced.is_err_and(|error| error.raw_os_error() == Some(28));
        assert!(is_full(other.sync_all()) && is_full(reader.sync_all()) && is_full(writer.sync_all()));
        for file in [writer, other, reader, open()] {
            file.sync_all().unwrap();
        }
    }
}
