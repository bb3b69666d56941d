//! Times of files: what a mapping writes, what is set, what reading does, and what NFSv3 can't say.

mod support;

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use support::{Mounted, ROADS, Road, Served};

const OLD: u64 = 1_000_000_000;

/// A file of 8 KiB on the server, last written at [`OLD`] and read before that.
fn plant(served: &Served) {
    let path = served.export().join("file");
    fs::write(&path, vec![b'a'; 8192]).unwrap();
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(OLD));
    let times = times.set_accessed(UNIX_EPOCH + Duration::from_secs(OLD - 100));
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
}

/// Runs a script in Python in which `path` is the file's; what it says.
fn python(path: &Path, script: &str) -> String {
    let script = format!("import os, mmap\npath = '{}'\n{script}", path.display());
    let output = Command::new("python3").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.trim().to_owned()
}

/// As stat(1) asks for them: one field alone, which the kernel may know.
fn seconds(path: &Path, field: &str) -> u64 {
    let output = Command::new("stat").args(["-c", field]).arg(path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn on_every_road(test: impl Fn(Road, &Mounted, PathBuf)) {
    let served = Served::start();
    for road in ROADS {
        plant(&served);
        let mounted = served.mount(road);
        let path = mounted.path("file");
        // What the kernel knows from now on it believes for three seconds.
        assert_eq!(fs::metadata(&path).unwrap().mtime() as u64, OLD);
        test(road, &mounted, path);
        drop(mounted);
        fs::remove_file(served.export().join("file")).unwrap();
    }
}

const MAP: &str = "fd = os.open(path, os.O_RDWR)\nmapping = mmap.mmap(fd, 8192)\n";

#[test]
fn what_a_mapping_has_written_shows_at_once_when_it_is_closed() {
    on_every_road(|road, _, path| {
        python(&path, &format!("{MAP}mapping[4096] = 66\nmapping.close()\nos.close(fd)"));
        assert!(seconds(&path, "%Y") > OLD && seconds(&path, "%Z") > OLD, "{road:?}");
    });
}

#[test]
fn a_time_that_is_set_after_a_mapping_was_written_stays() {
    on_every_road(|road, _, path| {
        let script =
            format!("{MAP}mapping[4096] = 66\nos.utime(path, (7, 1234567))\nmapping.close()\nos.close(fd)");
        python(&path, &script);
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 1_234_567, "{road:?}");
        assert_eq!(fs::read(&path).unwrap()[4096], 66);
    });
}

#[test]
fn times_that_nfs_has_no_word_for_are_refused() {
    on_every_road(|road, _, path| {
        for (seconds, ok) in [("-1", false), ("2**32", false), ("0", true), ("2**32 - 1", true)] {
            let script = format!(
                "try:\n  os.utime(path, ({seconds}, {seconds}))\n  print(int(os.stat(path).st_mtime) == \
                 {seconds})\nexcept OSError as error:\n  print(error.errno)"
            );
            assert_eq!(python(&path, &script), if ok { "True" } else { "22" }, "{road:?}: {seconds}");
        }
    });
}

#[test]
fn the_time_of_access_shows_what_was_read_here() {
    on_every_road(|road, _, path| {
        let file = File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().atime() as u64, OLD - 100);
        std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
        assert!(file.metadata().unwrap().atime() as u64 > OLD, "{road:?}: open");
        drop(file);
        assert!(fs::metadata(&path).unwrap().atime() as u64 > OLD, "{road:?}: closed");
    });
}
