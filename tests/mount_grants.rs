//! Mount grants: the export's own mount on top of the FUSE filesystem. It goes up where the server gives it
//! to root, comes down when the server recalls it, without an error to applications, and goes up again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use samehost_tests::scratch::pattern;
use samehost_tests::{Daemon, Mount, Scratch, Serve, Server, need_root, run, run_ok, wait_for};

const MOUNTED: &str = "lane, mounted";
const PASSED: &str = "lane, passed through";
const OPTIONS: &str = "rw,insecure,no_root_squash";

/// The kernel breaks a lease that isn't returned after 45 s (`/proc/sys/fs/lease-break-time`).
const LEASE_BREAK_TIME: Duration = Duration::from_secs(45);

/// Longer than `acregmin=1`.
const LONGER: Duration = Duration::from_millis(1_500);

/// A server with one export, whose options can change.
struct Exported {
    server: Server,
    export: PathBuf,
    list: PathBuf,
    scratch: Scratch,
}

impl Exported {
    fn new() -> Self {
        need_root();
        let scratch = Scratch::in_memory();
        let (export, list) = (scratch.mkdir("export"), scratch.join("exports"));
        fs::write(&list, line(&export, &format!("{OPTIONS},mount_grant"))).expect("own directory");
        let other = scratch.mkdir("other");
        let server = Serve::new(format!("{} 192.0.2.1(ro)", other.display()))
            .arguments(["--exports", &list.display().to_string()])
            .start();
        Self { server, export, list, scratch }
    }

    /// Changes the export's options.
    fn export_with(&self, options: &str) {
        fs::write(&self.list, line(&self.export, options)).expect("own directory");
        self.server.reload();
    }

    /// A mount whose first request has been granted.
    fn mounted(&self) -> Mount {
        let mount = Mount::new(&self.server, &self.export, "");
        assert_eq!(road(&mount), MOUNTED);
        mount
    }

    /// A mount that takes no mount grants.
    fn ordinary(&self) -> Mount {
        Mount::new(&self.server, &self.export, "mountgrant=off")
    }
}

fn line(export: &Path, options: &str) -> String {
    format!("{} *({options})\n", export.display())
}

fn road(mount: &Mount) -> String {
    mount.status().expect("a mount")["road"].as_str().expect("words").to_owned()
}

fn refusal(mount: &Mount) -> String {
    mount.status().expect("a mount")["mount_refusal"].as_str().unwrap_or_default().to_owned()
}

/// The requests that the kernel has sent to the mount's process.
fn requests(mount: &Mount) -> u64 {
    mount.status().expect("a mount")["requests"].as_u64().expect("a number")
}

/// The mounts on a directory, the lowest first: filesystem type and options.
fn mounts_on(at: &Path) -> Vec<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let entry = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let separator = words.iter().position(|word| *word == "-")?;
        let here = Path::new(words[4]) == at;
        here.then(|| (words[separator + 1].to_owned(), words[5].to_owned()))
    };
    table.lines().filter_map(entry).collect()
}

/// Unmounts with `command`. The server may hold its copy of the mount's descriptor for moments after the
/// mount is attached, which makes it busy.
fn unmounted_by(command: &[&str], mount: &Mount) {
    wait_for("the unmount", || {
        let mut command = command_line(command, mount.path());
        run(&mut command).status.success().then_some(())
    });
}

fn command_line(command: &[&str], at: &Path) -> Command {
    let program =
        if command[0] == "samehost" { samehost_tests::samehost::binary() } else { Path::new(command[0]) };
    let mut line = Command::new(program);
    line.args(&command[1..]).arg(at);
    line
}

/// Waits until nothing is mounted and the process has ended.
fn wait_for_end(mount: &Mount) {
    wait_for("the end of the mount", || (!mount.is_mounted() && mount.status().is_none()).then_some(()));
}

/// Writes and reads files all the time, and stops at the first error.
fn load(directory: &Path, stop: &AtomicBool, done: &AtomicUsize) {
    while !stop.load(SeqCst) {
        let round = done.load(SeqCst);
        let path = directory.join(format!("file-{}", round % 8));
        let bytes = pattern(round as u64, 3_000);
        fs::write(&path, &bytes).expect("a write succeeds on each data path");
        assert_eq!(fs::read(&path).expect("a read succeeds on each data path"), bytes);
        done.fetch_add(1, SeqCst);
    }
}

/// Stops the load, also when a test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn applications_use_the_exports_own_mount_without_the_process() {
    let exported = Exported::new();
    let (mount, ordinary) = (exported.mounted(), exported.ordinary());
    assert_eq!(road(&ordinary), PASSED);
    assert!(refusal(&ordinary).contains("mountgrant=off"), "{}", refusal(&ordinary));
    let kinds: Vec<String> = mounts_on(mount.path()).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["fuse.samehost", "tmpfs"]);
    let device = |path: &Path| fs::metadata(path).expect("there").dev();
    assert_eq!(device(mount.path()), device(&exported.export));
    assert_ne!(device(ordinary.path()), device(&exported.export));

    let before = requests(&mount);
    for directory in 0..10 {
        let directory = mount.join(format!("directory-{directory}"));
        fs::create_dir(&directory).expect("a new directory");
        for file in 0..20 {
            fs::write(directory.join(format!("file-{file}")), pattern(file, 5_000)).expect("a new file");
        }
    }
    run_ok(Command::new("diff").arg("-r").arg(mount.path()).arg(&exported.export));
    assert_eq!(requests(&mount), before, "the process was asked");
    run_ok(Command::new("diff").arg("-r").arg(mount.path()).arg(ordinary.path()));
    run_ok(Command::new("rm").arg("-r").arg(ordinary.join("directory-3")));
    assert!(!mount.join("directory-3").exists());

    // Locks are the kernel's.
    let path = "directory-1/file-1";
    let [mine, theirs] =
        [mount.path(), &exported.export].map(|root| File::open(root.join(path)).expect("there"));
    mine.lock().expect("not locked");
    theirs.try_lock().expect_err("locked through the mount");
    drop(mine);
    theirs.try_lock().expect("not locked");
    drop(theirs);
    unmounted_by(&["samehost", "umount"], &mount);
    wait_for_end(&mount);
}

#[test]
fn a_recall_disturbs_no_application() {
    let mut exported = Exported::new();
    let mount = exported.mounted();
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut writer = File::create(mount.join("written")).expect("a new file");
    fs::write(mount.join("read"), pattern(1, 100_000)).expect("a new file");
    let reader = File::open(mount.join("read")).expect("there");
    let mut appended = Vec::new();
    // The open files stay on the export's own mount, whatever is at the mountpoint.
    let mut check = |mount: &Mount| {
        let mut bytes = vec![0; 100_000];
        reader.read_exact_at(&mut bytes, 0).expect("an open file is read");
        assert_eq!(bytes, pattern(1, 100_000));
        writer.write_all(b"one more line\n").expect("an open file is written");
        appended.extend_from_slice(b"one more line\n");
        assert_eq!(fs::read(mount.join("written")).expect("there"), appended);
    };
    fs::create_dir(mount.join("load")).expect("a new directory");
    std::thread::scope(|scope| {
        let load_directory = mount.join("load");
        let (stop, done) = (&stop, &done);
        scope.spawn(move || load(&load_directory, stop, done));
        let stop_at_end = StopOnDrop(stop);
        let progress = || {
            let before = done.load(SeqCst);
            wait_for("the load", || (done.load(SeqCst) > before + 2).then_some(()));
        };
        progress();
        check(&mount);

        // The lane is switched off and on.
        mount.set_lane("off");
        mount.wait_for_data_path("wire");
        wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
        progress();
        check(&mount);
        mount.set_lane("auto");
        mount.wait_for_data_path(MOUNTED);
        progress();
        check(&mount);

        // The export loses the option and gets it back.
        exported.export_with(OPTIONS);
        mount.wait_for_data_path(PASSED);
        assert!(refusal(&mount).contains("mount_grant"), "{}", refusal(&mount));
        progress();
        check(&mount);
        exported.export_with(&format!("{OPTIONS},mount_grant"));
        mount.wait_for_data_path(MOUNTED);
        progress();
        check(&mount);

        // The server stops, or is killed, and comes back.
        for kill in [false, true] {
            if kill {
                exported.server.kill();
            } else {
                exported.server.stop();
            }
            mount.wait_for_data_path("wire");
            wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
            exported.server.restart();
            mount.wait_for_data_path(MOUNTED);
            progress();
            check(&mount);
        }
        drop(stop_at_end);
    });

    // A read-only export is mounted read-only; what was open for writing stays so.
    exported.export_with("ro,insecure,no_root_squash,mount_grant");
    wait_for("the read-only mount", || {
        mounts_on(mount.path()).get(1).is_some_and(|(_, options)| options.starts_with("ro")).then_some(())
    });
    check(&mount);
    let refused = fs::write(mount.join("new"), "").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    exported.export_with(&format!("{OPTIONS},mount_grant"));
    wait_for("the writable mount", || fs::write(mount.join("new"), "").ok());
    drop((writer, reader));
    unmounted_by(&["umount"], &mount);
    wait_for_end(&mount);
}

#[test]
fn what_was_cached_before_is_not_seen_after_a_recall() {
    let exported = Exported::new();
    let mount = Mount::new(&exported.server, &exported.export, "actimeo=600");
    let write = |name: &str, text: &str| fs::write(mount.join(name), text).expect("a file is written");
    let read = |name: &str| fs::read_to_string(mount.join(name)).ok();
    write("changed", "before");
    write("replaced", "before");
    write("removed", "before");
    fs::create_dir(mount.join("empty")).expect("a new directory");
    // The FUSE filesystem and its process cache names, missing ones too, attributes and pages.
    mount.set_lane("off");
    wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
    for name in ["changed", "replaced", "removed"] {
        assert_eq!(read(name).as_deref(), Some("before"));
    }
    let open = File::open(mount.join("changed")).expect("there");
    for name in ["new", "empty/new"] {
        assert_eq!(read(name), None);
    }
    assert_eq!(fs::read_dir(mount.join("empty")).expect("there").count(), 0);
    mount.set_lane("auto");
    mount.wait_for_data_path(MOUNTED);

    write("changed", "afterwards");
    write("other", "another file");
    fs::rename(mount.join("other"), mount.join("replaced")).expect("renamed");
    fs::remove_file(mount.join("removed")).expect("removed");
    write("new", "a new file");
    write("empty/new", "a new file");
    mount.set_lane("off");
    wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
    assert_eq!(read("changed").as_deref(), Some("afterwards"));
    assert_eq!(read("replaced").as_deref(), Some("another file"));
    assert_eq!(read("removed"), None);
    assert_eq!(read("new").as_deref(), Some("a new file"));
    assert_eq!(read("empty/new").as_deref(), Some("a new file"));
    assert_eq!(fs::metadata(mount.join("changed")).expect("there").len(), 10);
    drop(open);
    mount.unmount();
}

#[test]
fn an_unmount_ends_both_filesystems_in_each_state() {
    let mut exported = Exported::new();
    for command in
        [&["umount"][..], &["umount", "--lazy"], &["samehost", "umount"], &["samehost", "umount", "--lazy"]]
    {
        // With the clone on top, and without it.
        let mount = exported.mounted();
        unmounted_by(command, &mount);
        wait_for_end(&mount);
        let mount = exported.mounted();
        mount.set_lane("off");
        wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
        unmounted_by(command, &mount);
        wait_for_end(&mount);
    }

    // A mount in use is busy.
    let mount = exported.mounted();
    let file = File::create(mount.join("file")).expect("a new file");
    for command in [&["umount"][..], &["samehost", "umount"]] {
        assert!(!run(&mut command_line(command, mount.path())).status.success());
        assert_eq!(mounts_on(mount.path()).len(), 2);
    }
    // A file that was opened while the clone was down keeps the FUSE filesystem alive.
    mount.set_lane("off");
    wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
    let below = File::open(mount.join("file")).expect("there");
    mount.set_lane("auto");
    mount.wait_for_data_path(MOUNTED);
    drop(file);
    unmounted_by(&["umount"], &mount);
    wait_for("the detached mounts", || (!mount.is_mounted()).then_some(()));
    (&below).read_to_end(&mut Vec::new()).expect("it is served until it is closed");
    drop(below);
    wait_for_end(&mount);

    // SIGTERM, while the clone is in use.
    let mount = exported.mounted();
    let mut file = File::create(mount.join("file")).expect("a new file");
    let pid = Pid::from_raw(mount.pid().cast_signed()).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    wait_for_end(&mount);
    file.write_all(b"x").expect("an open file lives on");
    drop(file);

    // A process that was killed leaves both.
    let mount = exported.mounted();
    let pid = Pid::from_raw(mount.pid().cast_signed()).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
    wait_for("the process's end", || mount.status().is_none().then_some(()));
    fs::write(mount.join("file"), "still there").expect("the clone needs no process");
    unmounted_by(&["samehost", "umount"], &mount);
    wait_for_end(&mount);

    // The server is down.
    let mount = exported.mounted();
    exported.server.kill();
    wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
    unmounted_by(&["umount", "--lazy"], &mount);
    wait_for_end(&mount);
}

#[test]
fn the_clone_has_the_options_of_the_mount_or_stays_away() {
    let exported = Exported::new();
    let mount = Mount::new(&exported.server, &exported.export, "ro,nosuid,noexec,noatime,nosymfollow");
    assert_eq!(road(&mount), MOUNTED);
    let (_, options) = mounts_on(mount.path()).pop().expect("two mounts");
    assert_eq!(options, "ro,nosuid,nodev,noexec,noatime,nosymfollow");
    unmounted_by(&["umount"], &mount);
    wait_for_end(&mount);

    let mount = Mount::new(&exported.server, &exported.export, "suid,devices");
    let (_, options) = mounts_on(mount.path()).pop().expect("two mounts");
    assert_eq!(options, "rw,relatime");
    // A remount concerns both, and is refused while the clone is on top.
    let remount = run(&mut mount.command("none", "remount,ro"));
    assert!(!remount.status.success());
    assert!(String::from_utf8_lossy(&remount.stderr).contains("lane off"), "{remount:?}");
    mount.set_lane("off");
    wait_for("the clone's end", || (mounts_on(mount.path()).len() == 1).then_some(()));
    run_ok(&mut mount.command("none", "remount,ro"));
    mount.set_lane("auto");
    mount.wait_for_data_path(MOUNTED);
    let (_, options) = mounts_on(mount.path()).pop().expect("two mounts");
    assert!(options.starts_with("ro"), "{options}");
    unmounted_by(&["umount"], &mount);
    wait_for_end(&mount);

    for (options, word) in [
        ("sync", "sync"),
        ("noac", "noac"),
        ("lookupcache=none", "lookupcache"),
        ("nopassthrough", "nopassthrough"),
        ("odirect=server", "odirect"),
        ("noallow_other", "noallow_other"),
        ("mountgrant=off", "mountgrant"),
    ] {
        let mount = Mount::new(&exported.server, &exported.export, options);
        assert_ne!(road(&mount), MOUNTED, "{options}");
        assert!(refusal(&mount).contains(word), "{options}: {}", refusal(&mount));
        mount.unmount();
    }
}

#[test]
fn filesystems_mounted_below_stay() {
    let exported = Exported::new();
    fs::create_dir(exported.export.join("below")).expect("own directory");
    let mount = exported.mounted();
    let tmpfs = |path: &Path| {
        run_ok(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(path));
        fs::write(path.join("file"), "below").expect("a tmpfs");
    };
    let below = mount.join("below");
    tmpfs(&below);
    let read = || fs::read_to_string(below.join("file")).expect("a file on the tmpfs");

    // The recall takes it to the FUSE filesystem, where it keeps the clone away.
    exported.export_with(OPTIONS);
    mount.wait_for_data_path(PASSED);
    assert_eq!(read(), "below");
    assert_eq!(mounts_on(&below).len(), 1);
    exported.export_with(&format!("{OPTIONS},mount_grant"));
    wait_for("the obstacle", || refusal(&mount).contains("mounted on the mountpoint or below").then_some(()));
    assert_eq!(read(), "below");
    run_ok(Command::new("umount").arg(&below));
    mount.wait_for_data_path(MOUNTED);
    assert!(!below.join("file").exists());

    // What is mounted over the whole is left alone, and the clone goes when that has gone.
    run_ok(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(mount.path()));
    exported.export_with(OPTIONS);
    fs::write(mount.join("covered"), "").expect("a tmpfs");
    unmounted_by(&["umount"], &mount);
    mount.wait_for_data_path(PASSED);
    assert!(!mount.join("covered").exists());
    unmounted_by(&["umount"], &mount);
    wait_for_end(&mount);
}

#[test]
fn only_root_of_the_host_gets_it() {
    let exported = Exported::new();
    // Root in another mount namespace, and root whom the export squashes.
    let mount = Mount::unmounted(&exported.server);
    let mut command = Command::new("unshare");
    let inner = mount.command(&exported.server.url(&exported.export), "");
    command.args(["--mount", "--"]).arg(inner.get_program()).args(inner.get_args()).arg("--foreground");
    command.env("SAMEHOST_RUN_DIR", exported.server.run_dir());
    let mut inside =
        Daemon::start("samehost mount", &mut command, &exported.scratch.join("log")).expect("it starts");
    wait_for("the mount", || mount.status());
    wait_for("the answer", || refusal(&mount).contains("mount namespace").then_some(()));
    assert_eq!(road(&mount), PASSED);
    inside.terminate();

    exported.export_with("rw,insecure,mount_grant");
    let mount = Mount::new(&exported.server, &exported.export, "");
    assert_ne!(road(&mount), MOUNTED);
    wait_for("the answer", || refusal(&mount).contains("squash").then_some(()));
    mount.unmount();
}

/// The locks and leases of both are the kernel's: of the applications' processes on one mount, and of the
/// server's for the other.
#[test]
fn locks_and_delegations_of_another_mount_exclude_each_other_with_the_grant() {
    let exported = Exported::new();
    let mount = exported.mounted();
    // Attributes that expire show whether a file is delegated: the others cost calls.
    let options = "vers=4.2,lane=off,mountgrant=off,acregmin=1,acregmax=1";
    let other = Mount::new(&exported.server, &exported.export, options);
    let contents = |length: usize| pattern(1, length);
    fs::write(mount.join("file"), contents(100)).expect("a new file");
    let open = |mount: &Mount| {
        File::options().read(true).write(true).open(mount.join("file")).expect("the file is there")
    };

    for (first, second) in [(&mount, &other), (&other, &mount)] {
        let (first, second) = (open(first), open(second));
        let lock = |file: &File| fcntl_lock(file, FlockOperation::NonBlockingLockExclusive);
        lock(&first).expect("not locked");
        assert_eq!(lock(&second), Err(Errno::AGAIN), "locked through the other mount");
        fcntl_lock(&first, FlockOperation::Unlock).expect("unlocked");
        // The server has unlocked it when the mount's reply is there; the grant needs no reply.
        lock(&second).expect("unlocked by the other mount");
        assert_eq!(lock(&first), Err(Errno::AGAIN), "locked through the other mount");
        // The end of a process, or of a file's last descriptor, ends its locks.
        drop(second);
        wait_for("the lock", || lock(&first).ok());
    }

    let calls = || other.status().expect("a mount")["wire"]["round_trips"].as_u64().expect("a number");
    let read = |name: &str| fs::read(other.join(name)).expect("the file is there");
    let delegated = |name: &str| {
        fs::write(mount.join(name), contents(100)).expect("a new file");
        wait_for("a delegation", || {
            read(name);
            let before = calls();
            std::thread::sleep(LONGER);
            read(name);
            (calls() == before).then_some(())
        });
    };
    delegated("written");
    let started = Instant::now();
    fs::write(mount.join("written"), contents(200)).expect("the delegation is recalled");
    assert!(started.elapsed() < LEASE_BREAK_TIME / 2, "the other mount has returned its delegation");
    assert_eq!(read("written"), contents(200), "nothing of before is believed");
    delegated("moved");
    let started = Instant::now();
    fs::rename(mount.join("moved"), mount.join("renamed")).expect("the delegation is recalled");
    assert!(started.elapsed() < LEASE_BREAK_TIME / 2, "the other mount has returned its delegation");
}
