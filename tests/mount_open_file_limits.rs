//! A mount with more open files than a lane has grants: the excess goes over the wire without an error, or
//! fails with ENFILE if a lane is required; and no open leaves a file half created.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;
use samehost_tests::process::run_ok;
use samehost_tests::{Mount, Scratch, Serve, Server, need_root, wait_for};

/// The server's limit of grants. A lane gets a quarter of these, and one user of it half of that.
const GRANTS: usize = 64;

struct Share {
    server: Server,
    export: PathBuf,
    _scratch: Scratch,
}

impl Share {
    fn new(arguments: &[&str]) -> Self {
        need_root();
        let scratch = Scratch::new();
        let export = scratch.mkdir("export");
        let server = Serve::openly(&export).arguments(arguments.iter().copied()).start();
        Self { server, export, _scratch: scratch }
    }

    /// Opens in a tree aren't counted, so there are none.
    fn with_few_grants() -> Self {
        Self::new(&["--lane-grants", &GRANTS.to_string(), "--lane", "files"])
    }
}

fn create_new() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    options
}

fn is_nfile(error: &std::io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NFILE)
}

/// Writes to every file and reads it again.
fn check_all(files: &mut [File], word: &str) {
    for (number, file) in files.iter_mut().enumerate() {
        let text = format!("{word} {number}");
        file.write_all_at(text.as_bytes(), 0).unwrap_or_else(|error| panic!("file {number}: {error}"));
        if number % 8 == 0 {
            file.sync_all().unwrap_or_else(|error| panic!("file {number}: {error}"));
        }
        let mut back = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut back).unwrap_or_else(|error| panic!("file {number}: {error}"));
        assert_eq!(back, text);
    }
}

#[test]
fn files_beyond_what_the_server_grants_are_served_over_the_wire() {
    let share = Share::with_few_grants();
    let mount = Mount::new(&share.server, &share.export, "lane=auto");
    let make = |number: usize| create_new().open(mount.join(number.to_string())).unwrap();
    let mut files: Vec<File> = (0..GRANTS).map(make).collect();
    let granted = share.server.status().grants();
    assert!((1..=GRANTS as u64 / 8).contains(&granted), "{granted}");
    check_all(&mut files, "written");
    // The same after a reopen.
    drop(files);
    for number in 0..GRANTS {
        let there = || fs::read_to_string(share.export.join(number.to_string())).unwrap();
        assert_eq!(there(), format!("written {number}"));
    }
    let open = |number: usize| File::options().read(true).write(true).open(mount.join(number.to_string()));
    let mut files: Vec<File> = (0..GRANTS).map(|number| open(number).unwrap()).collect();
    check_all(&mut files, "rewritten");
}

#[test]
fn with_a_required_lane_excess_opens_fail_and_create_nothing() {
    let share = Share::with_few_grants();
    let mount = Mount::new(&share.server, &share.export, "lane=required");
    let mut files = Vec::new();
    let error = loop {
        match create_new().open(mount.join(files.len().to_string())) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
        assert!(files.len() <= GRANTS);
    };
    assert!(!files.is_empty());
    let refused = files.len().to_string();
    assert!(is_nfile(&error), "{error}");
    for error in [
        File::create(mount.join("other")).unwrap_err(),
        create_new().open(mount.join("other")).unwrap_err(),
        File::open(mount.join("0")).unwrap_err(),
    ] {
        assert!(is_nfile(&error), "{error}");
    }
    for name in [&refused, "other"] {
        assert!(!share.export.join(name).exists(), "{name} was created all the same");
        assert!(!mount.join(name).exists());
        assert_eq!(fs::remove_file(mount.join(name)).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), files.len());
    check_all(&mut files, "written");
    // Closing a file releases its grant.
    files.pop();
    let mut other = wait_for("a free grant", || create_new().open(mount.join("other")).ok());
    other.write_all(b"there is room").unwrap();
    drop(other);
    assert_eq!(fs::read_to_string(share.export.join("other")).unwrap(), "there is room");
    fs::remove_file(mount.join("other")).unwrap();
}

/// The mount's process may have few descriptors; its connections need some of them.
#[test]
fn a_mount_with_few_descriptors_serves_many_files_and_reconnects() {
    const DESCRIPTORS: usize = 96;
    let mut share = Share::new(&[]);
    let mount = Mount::unmounted(&share.server);
    let plain = mount.command(&share.server.url(&share.export), "lane=auto");
    let mut limited = Command::new("prlimit");
    limited
        .arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"))
        .arg(plain.get_program())
        .args(plain.get_args());
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run_ok(&mut limited);
    let mut files: Vec<File> = (0..DESCRIPTORS + 32)
        .map(|number| create_new().open(mount.join(number.to_string())).unwrap())
        .collect();
    let granted = share.server.status().grants();
    assert!((1..DESCRIPTORS as u64).contains(&granted), "{granted}");
    check_all(&mut files, "written");
    // Starting a process copies and closes these descriptors, and a close waits until the file's data is
    // durable: for the server.
    files.iter().for_each(|file| file.sync_all().unwrap());
    share.server.kill();
    share.server.restart();
    check_all(&mut files, "rewritten");
}
