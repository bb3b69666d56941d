//! File times: after writes through a mapping, set explicitly, after reads, and outside of NFSv3's range.

mod support;

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use client::Version;
use samehost_mount::MountOptions;
use support::{Mounted, Served, TRANSPORTS, Transport};

const OLD: u64 = 1_000_000_000;

/// Makes a file of 8 KiB on the server, last written at [`OLD`] and read before that.
fn create_file(served: &Served) {
    let path = served.export().join("file");
    fs::write(&path, vec![b'a'; 8192]).unwrap();
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(OLD));
    let times = times.set_accessed(UNIX_EPOCH + Duration::from_secs(OLD - 100));
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
}

/// Runs a Python script in which `path` is the file's path. Returns its output.
fn python(path: &Path, script: &str) -> String {
    let script = format!("import os, mmap\npath = '{}'\n{script}", path.display());
    let output = Command::new("python3").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.trim().to_owned()
}

/// One field by stat(1), which requests that field only, so that the kernel may answer from its cache.
fn seconds(path: &Path, field: &str) -> u64 {
    let output = Command::new("stat").args(["-c", field]).arg(path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn for_each_transport(test: impl Fn(Transport, &Mounted, PathBuf)) {
    for_each_transport_of(&Served::start(), test);
}

fn for_each_transport_of(served: &Served, test: impl Fn(Transport, &Mounted, PathBuf)) {
    for transport in TRANSPORTS {
        create_file(served);
        let mounted = served.mount(transport);
        let path = mounted.path("file");
        // The kernel caches these attributes for three seconds.
        assert_eq!(fs::metadata(&path).unwrap().mtime() as u64, OLD);
        test(transport, &mounted, path);
        drop(mounted);
        fs::remove_file(served.export().join("file")).unwrap();
    }
}

const MAP: &str = "fd = os.open(path, os.O_RDWR)\nmapping = mmap.mmap(fd, 8192)\n";

#[test]
fn times_show_a_mappings_write_after_close() {
    for_each_transport(|transport, _, path| {
        python(&path, &format!("{MAP}mapping[4096] = 66\nmapping.close()\nos.close(fd)"));
        assert!(seconds(&path, "%Y") > OLD && seconds(&path, "%Z") > OLD, "{transport:?}");
    });
}

#[test]
fn a_time_set_after_a_mappings_write_stays() {
    for_each_transport(|transport, _, path| {
        let script =
            format!("{MAP}mapping[4096] = 66\nos.utime(path, (7, 1234567))\nmapping.close()\nos.close(fd)");
        python(&path, &script);
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 1_234_567, "{transport:?}");
        assert_eq!(fs::read(&path).unwrap()[4096], 66);
    });
}

#[test]
fn times_outside_of_nfsv3s_range_are_refused_by_nfsv3_only() {
    let served = Served::without_tree();
    let by = |version| TRANSPORTS.map(|transport| (version, transport));
    for (version, transport) in by(Version::V3).into_iter().chain(by(Version::Highest)) {
        create_file(&served);
        let mounted = served.mount_by(version, transport, MountOptions::default());
        let path = mounted.path("file");
        let by_4 = version != Version::V3;
        for (seconds, ok) in [("-1", by_4), ("2**32", by_4), ("0", true), ("2**32 - 1", true)] {
            let script = format!(
                "try:\n  os.utime(path, ({seconds}, {seconds}))\n  print(int(os.stat(path).st_mtime) == \
                 {seconds})\nexcept OSError as error:\n  print(error.errno)"
            );
            let expected = if ok { "True" } else { "22" };
            assert_eq!(python(&path, &script), expected, "{version:?} {transport:?}: {seconds}");
        }
    }
}

#[test]
fn atime_shows_reads_through_this_mount() {
    for_each_transport(|transport, _, path| {
        let file = File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().atime() as u64, OLD - 100);
        std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
        assert!(file.metadata().unwrap().atime() as u64 > OLD, "{transport:?}: open");
        drop(file);
        assert!(fs::metadata(&path).unwrap().atime() as u64 > OLD, "{transport:?}: closed");
    });
}
