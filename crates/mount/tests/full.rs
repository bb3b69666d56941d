//! A filesystem that is full: write(2) tells first what was written, and then the error, as on a local disk.

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use support::{ROADS, Served};

/// What each write(2) of 2 MiB says until one fails, and how long the file is then.
fn fill(path: &Path) -> (Vec<Result<usize, Option<i32>>>, u64) {
    let (mut file, data, mut said) = (File::create(path).unwrap(), vec![7; 2 << 20], Vec::new());
    while !matches!(said.last(), Some(Err(_))) {
        said.push(file.write(&data).map_err(|error| error.raw_os_error()));
    }
    let size = file.metadata().unwrap().len();
    drop(file);
    fs::remove_file(path).unwrap();
    (said, size)
}

/// A small filesystem mounted on a directory.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn what_was_written_of_a_write_is_told_before_the_error() {
    let mut served = Served::start();
    let export = served.export();
    // A WRITE that the kernel sends to the mount carries 1 MiB: the third one finds room for a part of it.
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2560k", "none"]).arg(&export).status();
    assert!(mounted.unwrap().success());
    let _small = Small(&export);
    served.restart();
    let raw = fill(&export.join("file"));
    assert!(raw.1 > 2 << 20 && raw.0.last() == Some(&Err(Some(28))), "{raw:?}");
    for road in ROADS {
        let mounted = served.mount(road);
        assert_eq!(fill(&mounted.path("file")), raw, "{road:?}");
    }
}
