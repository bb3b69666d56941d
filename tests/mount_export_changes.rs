//! An export changes while programs make, rename, unpack and remove files in it on a mount: it becomes
//! read-only, is withdrawn, or squashes the user. No operation that begins after the change was acknowledged
//! changes anything, each fails with the error that the wire has for it, and no answer is wrong. Once the
//! export is as before, everything succeeds again.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rustix::io::Errno;
use samehost_tests::scratch::pattern;
use samehost_tests::{DataPath, Scratch, need_root, run, run_ok, wait_for};

/// Threads that make system calls, beside one that runs programs.
const CALLERS: usize = 3;

/// How often the export changes, and changes back.
const ROUNDS: usize = 2;

const WRITABLE: &str = "rw,insecure,no_root_squash,no_mount_grant";

/// Where the change of the export has got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    Changing,
    Changed,
    ChangingBack,
    ChangedBack,
}

const PHASES: [Phase; 5] =
    [Phase::Before, Phase::Changing, Phase::Changed, Phase::ChangingBack, Phase::ChangedBack];

/// Work in a directory on the mount.
struct Work<'a> {
    /// Where the archive and the repository are.
    scratch: &'a Path,
    directory: &'a Path,
    /// What changes fail with while the export is changed.
    errors: &'a [Errno],
    /// Whether files can be read while it is.
    is_readable: bool,
    phase: AtomicUsize,
    /// How many rounds each worker has begun, and all of it before has ended.
    rounds: [AtomicUsize; CALLERS + 1],
    stop: AtomicBool,
}

impl Work<'_> {
    fn phase(&self) -> Phase {
        PHASES[self.phase.load(SeqCst)]
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as usize, SeqCst);
    }

    /// Waits until what has begun has ended, and a round more.
    fn pass(&self) {
        let before: Vec<usize> = self.rounds.iter().map(|count| count.load(SeqCst)).collect();
        wait_for("the work", || {
            assert!(!self.stop.load(SeqCst), "a worker has failed");
            let now = self.rounds.iter().map(|count| count.load(SeqCst));
            now.zip(&before).all(|(now, before)| now >= before + 2).then_some(())
        });
    }

    fn run(&self, worker: usize) {
        let _stop = StopOnDrop(&self.stop);
        for round in 0.. {
            if self.stop.load(SeqCst) {
                break;
            }
            if worker < CALLERS {
                self.make_calls(worker, round);
            } else {
                self.run_programs(round);
            }
            self.rounds[worker].fetch_add(1, SeqCst);
        }
    }

    /// Performs an operation, which must succeed or fail as the phases that it began and ended in say.
    fn check(&self, what: &str, fails_when_changed: bool, operation: impl FnOnce() -> io::Result<()>) {
        let began = self.phase();
        let done = operation();
        let ended = self.phase();
        let said = format!("{what}, from {began:?} to {ended:?}: {done:?}");
        match done {
            Ok(()) => assert!(!(fails_when_changed && began == Phase::Changed && began == ended), "{said}"),
            Err(error) => {
                let is_expected = Errno::from_io_error(&error).is_some_and(|it| self.errors.contains(&it));
                assert!(fails_when_changed && is_expected, "{said}");
                assert!(ended > Phase::Before && began < Phase::ChangedBack, "{said}");
            }
        }
    }

    /// One change of each kind. What isn't undone because the export has changed meanwhile stays.
    fn make_calls(&self, worker: usize, round: usize) {
        let name = |what: &str| self.directory.join(format!("{what}-{worker}"));
        let new = |what: &str| self.directory.join(format!("{what}-{worker}-{round}"));
        let (old, contents) = (name("old"), pattern(worker as u64, 3_000));
        self.check("mkdir", true, || {
            fs::create_dir(new("directory"))?;
            fs::remove_dir(new("directory"))
        });
        self.check("a new file", true, || {
            File::create_new(new("file"))?.write_all(&contents)?;
            fs::remove_file(new("file"))
        });
        self.check("rename", true, || match fs::rename(name("moved"), name("back")) {
            Err(error) if error.kind() == ErrorKind::NotFound => fs::rename(name("back"), name("moved")),
            done => done,
        });
        self.check("link", true, || {
            fs::hard_link(name("linked"), new("link"))?;
            fs::remove_file(new("link"))
        });
        self.check("chmod", true, || fs::set_permissions(&old, Permissions::from_mode(0o644)));
        self.check("a file written", true, || match File::options().write(true).open(&old) {
            // By NFSv3 the open asks ACCESS, whose reply has no reason (RFC 1813 section 3.3.4).
            Err(error) if error.kind() == ErrorKind::PermissionDenied && self.errors == [Errno::ROFS] => {
                Err(Errno::ROFS.into())
            }
            // Delegated to the mount, it is opened there, and the write fails when it is written back.
            opened => {
                let mut file = opened?;
                file.write_all(&contents)?;
                file.sync_all()
            }
        });
        self.check("rm", true, || {
            match fs::remove_file(name("victim")) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                done => done?,
            }
            File::create_new(name("victim")).map(drop)
        });
        self.check("a file read", !self.is_readable, || {
            assert_eq!(fs::read(&old)?, contents, "in {:?}", self.phase());
            Ok(())
        });
    }

    /// Unpacks an archive, clones a repository, and removes both.
    fn run_programs(&self, round: usize) {
        let new = |what: &str| self.directory.join(format!("{what}-{round}"));
        let program = |what: &str, command: &mut Command| {
            let began = self.phase();
            let output = run(command.env("LC_ALL", "C").current_dir(self.scratch));
            let ended = self.phase();
            let words = String::from_utf8_lossy(&output.stderr);
            let said = format!("{what}, from {began:?} to {ended:?}: {}\n{words}", output.status);
            if output.status.success() {
                assert!(!(began == Phase::Changed && began == ended), "{said}");
            } else {
                assert!(ended > Phase::Before && began < Phase::ChangedBack, "{said}");
                assert!(!words.contains("Input/output error"), "{said}");
            }
            output.status.success()
        };
        // The directory is where the first of them fails.
        let unpacked = program("mkdir", Command::new("mkdir").arg(new("tar")))
            && program("tar", Command::new("tar").args(["-xf", "archive.tar", "-C"]).arg(new("tar")));
        let cloned =
            program("git", Command::new("git").args(["clone", "--quiet", "repository"]).arg(new("git")));
        for (done, what) in [(unpacked, "tar"), (cloned, "git")] {
            if done {
                program("rm", Command::new("rm").arg("-r").arg(new(what)));
            }
        }
    }
}

/// Stops the work, also when a test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// What a directory has: changes of any kind change it.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, (u64, u32, u64, i64, i64)> {
    let mut all = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let it = fs::symlink_metadata(&path).expect("there");
        if it.is_dir() {
            pending.extend(fs::read_dir(&path).expect("there").map(|entry| entry.expect("there").path()));
        }
        all.insert(path, (it.ino(), it.mode(), it.len(), it.ctime(), it.ctime_nsec()));
    }
    all
}

/// An archive and a repository of some files.
fn create_sources(scratch: &Path) {
    let tree = scratch.join("repository");
    for directory in 0..4 {
        let directory = tree.join(format!("directory-{directory}"));
        fs::create_dir_all(&directory).expect("own directory");
        for file in 0..10 {
            fs::write(directory.join(format!("file-{file}")), pattern(file, 2_000)).expect("own file");
        }
    }
    run_ok(Command::new("tar").args(["-cf", "archive.tar", "repository"]).current_dir(scratch));
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(arguments);
        run_ok(command.current_dir(&tree));
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "all"]);
}

/// Has the export changed to `options`, or withdrawn, and back, while there is work in a mount with a data
/// path. While it is changed, changes fail with `errors`.
fn change(path: &str, options: Option<&str>, errors: &[Errno]) {
    need_root();
    let path = DataPath::named(path);
    let scratch = Scratch::in_memory();
    let (export, other) = (scratch.mkdir("export"), scratch.mkdir("other"));
    let list = scratch.join("exports");
    create_sources(scratch.path());
    let write_list = |options: Option<&str>| {
        let line = options.map(|options| format!("{} *({options})\n", export.display()));
        fs::write(&list, line.unwrap_or_default()).expect("own file");
    };
    write_list(Some(WRITABLE));
    let server = path.serve(&other).arguments(["--exports", &list.display().to_string()]).start();
    let Some(mount) = path.mount(&server, &export, "") else { return };
    if path.has_lane() {
        // With `required` opens fail while there is no lane.
        mount.set_lane("auto");
    }
    for worker in 0..CALLERS {
        for name in ["old", "moved", "victim", "linked"] {
            let path = export.join(format!("{name}-{worker}"));
            fs::write(path, pattern(worker as u64, 3_000)).expect("own file");
        }
    }
    let work = Work {
        scratch: scratch.path(),
        directory: mount.path(),
        errors,
        is_readable: options.is_some(),
        phase: AtomicUsize::new(0),
        rounds: Default::default(),
        stop: AtomicBool::new(false),
    };
    let reload = || run_ok(&mut server.client(&["ctl", "reload"]));
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&work.stop);
        for worker in 0..=CALLERS {
            let work = &work;
            scope.spawn(move || work.run(worker));
        }
        for _ in 0..ROUNDS {
            work.enter(Phase::Before);
            work.pass();
            work.enter(Phase::Changing);
            write_list(options);
            reload();
            work.enter(Phase::Changed);
            work.pass();
            let before = snapshot(&export);
            work.pass();
            assert!(snapshot(&export) == before, "something was changed after the change");
            // The same again is the same.
            reload();
            work.pass();
            assert!(snapshot(&export) == before, "something was changed after the second reload");
            work.enter(Phase::ChangingBack);
            write_list(Some(WRITABLE));
            reload();
            work.enter(Phase::ChangedBack);
            work.pass();
            if path.has_lane() {
                mount.wait_for_data_path(path.status);
            }
            wait_for("names from where they were", || {
                (mount.status()?["tree"] == path.has_tree).then_some(())
            });
        }
    });
}

/// A test of each change for each data path.
macro_rules! test_changes {
    ($($path:ident),*) => {
        $(mod $path {
            use super::*;

            #[test]
            fn a_read_only_export_is_changed_by_nobody() {
                let options = "ro,insecure,no_root_squash,no_mount_grant";
                change(stringify!($path), Some(options), &[Errno::ROFS]);
            }

            #[test]
            fn a_withdrawn_export_is_stale() {
                change(stringify!($path), None, &[Errno::STALE]);
            }

            /// By the permissions that nobody has: on a directory, and on a file that isn't his.
            #[test]
            fn a_squashed_user_has_only_the_rights_of_nobody() {
                let options = "rw,insecure,root_squash,no_mount_grant";
                change(stringify!($path), Some(options), &[Errno::ACCESS, Errno::PERM]);
            }
        })*
    };
}

test_changes!(wire, wire_v4, files, tree, tree_served, tree_uring);
