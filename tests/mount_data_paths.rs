//! A mount under load while its server restarts, loses its lane, and the lane is switched off and on: no
//! application sees an error, no byte differs, the mount returns to the lane without help, it doesn't
//! oscillate, and its log has one line per change.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use samehost_tests::process::run_ok;
use samehost_tests::scratch::pattern;
use samehost_tests::{Daemon, DataPath, Mount, Scratch, need_root, wait_for};

/// fio writing checksummed blocks and reading them back, with direct I/O or without.
fn fio(dir: &Path, name: &str, direct: bool, round: usize) -> Child {
    let engine = if direct { "libaio" } else { "psync" };
    Command::new("fio")
        .args([
            &format!("--name={name}"),
            &format!("--directory={}", dir.display()),
            &format!("--filename={name}-{round}"),
            &format!("--ioengine={engine}"),
            &format!("--direct={}", u32::from(direct)),
            "--rw=randwrite",
            "--bs=4k",
            "--size=8m",
            "--iodepth=8",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--fsync=512",
            "--unlink=1",
            "--allow_mounted_write=1",
            "--verify_state_save=0",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fio can be started")
}

/// Copies a tree to the mount, compares it, and removes it. After a kill a client can't know whether the
/// server has made a directory or removed a name. It asks again, and may hear that this is done already
/// (docs/mount.md), which the programs accept.
fn copy(tree: &Path, to: &Path) {
    let script = r#"
cd "$0"
find . -type d -print0 | (mkdir -p "$1" && cd "$1" && xargs -0 mkdir -p)
cp -a . "$1"
diff -r . "$1"
rm -rf "$1"
"#;
    run_ok(Command::new("sh").args(["-ec", script]).arg(tree).arg(to));
}

/// Creates a tree of some hundred files.
fn create_tree(tree: &Path) {
    for directory in 0..10 {
        let dir = tree.join(format!("dir-{directory}/sub"));
        fs::create_dir_all(&dir).expect("own directory");
        for file in 0..20_u64 {
            let len = [10, 3_000, 20_000, 150_000][(file % 4) as usize];
            fs::write(dir.join(format!("file-{file}")), pattern(directory * 100 + file, len))
                .expect("own file");
        }
    }
}

/// Runs three kinds of load over a data path, and `interrupt` `rounds` times meanwhile; after each round the
/// mount must return to its data path. `changes` is the most data path changes that this may cause.
fn under_load(
    path: &str,
    rounds: usize,
    changes: u64,
    mut interrupt: impl FnMut(&mut samehost_tests::Server, &Mount),
) {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let tree = scratch.mkdir("tree");
    create_tree(&tree);
    let path = DataPath::named(path);
    let mut server = path.serve(&export).start();
    // From now on it has a fixed port, and its successors are the same NFSv4 server.
    server.restart();
    let log = scratch.join("log");
    let mut daemon = None;
    let mount = path.mount_by(Mount::unmounted(&server), |mount, options| {
        let mut command = mount.command(&server.url(&export), options);
        command.arg("--foreground").env("SAMEHOST_LOG", "info");
        daemon = Daemon::start("samehost mount", &mut command, &log).ok();
        // It answers when it has its queues, for which the kernel's switch has to be on.
        wait_for("the mount's answer", || mount.status().map(drop));
    });
    let Some(mount) = mount else { return };
    let daemon = daemon.expect("samehost mount starts");
    if path.has_lane() {
        // With `required` opens fail while there is no lane.
        mount.set_lane("auto");
        mount.wait_for_data_path(path.status);
    }
    let stop = AtomicBool::new(false);
    let done = [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        let (stop, done, mount, tree) = (&stop, &done, &mount, &tree);
        for (kind, direct) in [(0, false), (1, true)] {
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let round = done[kind].load(SeqCst);
                    let output = fio(mount.path(), &format!("fio-{kind}"), direct, round).wait_with_output();
                    let output = output.expect("fio ends");
                    let words = String::from_utf8_lossy(&output.stderr);
                    assert!(output.status.success(), "fio {kind}: {}\n{words}", output.status);
                    done[kind].fetch_add(1, SeqCst);
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(SeqCst) {
                copy(tree, &mount.join("copy"));
                done[2].fetch_add(1, SeqCst);
            }
        });
        let stop_at_end = StopOnDrop(stop);
        for _ in 0..rounds {
            let before: Vec<usize> = done.iter().map(|count| count.load(SeqCst)).collect();
            wait_for("all loads to progress", || {
                let now = done.iter().map(|count| count.load(SeqCst));
                now.zip(&before).all(|(now, before)| now > *before).then_some(())
            });
            interrupt(&mut server, mount);
            mount.wait_for_data_path(path.status);
        }
        drop(stop_at_end);
    });
    // One log line for every change, and no more changes than expected.
    let status = mount.status().expect("a mount");
    let counted = status["changes"].as_array().map_or(0, Vec::len) as u64;
    println!(
        "{} fio runs, {} copies, {counted} changes",
        done[0].load(SeqCst) + done[1].load(SeqCst),
        done[2].load(SeqCst)
    );
    assert!(counted <= 1 + changes, "it oscillates: {}", status["changes"]);
    let log = daemon.log();
    let local =
        status["changes"].as_array().map_or(0, |all| all.iter().filter(|c| c["local"] == true).count());
    assert_eq!(log.lines().filter(|line| line.contains("on the lane")).count(), local, "{log}");
    // There are few other lines about the restarts: none for each of thousands of reads and writes.
    assert!(log.lines().count() as u64 <= 4 * (1 + changes), "{log}");
}

/// Stops the load, also when a test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn kill_and_restart(path: &str) {
    under_load(path, 2, 4, |server, _| {
        server.kill();
        server.restart();
    });
}

fn stop_and_restart(path: &str) {
    under_load(path, 2, 4, |server, _| {
        assert!(server.stop().success());
        server.restart();
    });
}

fn lose_and_regain_the_lane(path: &str) {
    under_load(path, 2, 8, |server, mount| {
        server.restart_without_lane();
        assert_uses_wire(mount);
        assert!(server.stop().success());
        server.restart();
    });
}

fn switch_the_lane(path: &str) {
    under_load(path, 3, 9, |_, mount| {
        mount.set_lane("off");
        assert_uses_wire(mount);
        mount.set_lane("auto");
    });
}

/// Declares a test for each data path.
macro_rules! test_paths {
    ($test:ident: $check:ident, $($path:ident),*) => {
        mod $test {
            $(#[test]
            fn $path() {
                super::$check(stringify!($path));
            })*
        }
    };
}

// Not by `mount_grant`: a file that is removed while it is open there is lost with its server
// (docs/mount.md), and fio removes its files so.
test_paths!(
    the_server_is_killed_and_restarted: kill_and_restart,
    wire, files, wire_v4, files_v4, served, tree, tree_served, tree_uring
);
test_paths!(the_server_is_stopped_and_restarted: stop_and_restart, files_v4, tree);
test_paths!(the_server_loses_its_lane_and_regains_it: lose_and_regain_the_lane, files_v4, tree);
test_paths!(the_lane_is_switched_off_and_on: switch_the_lane, files_v4, tree);

/// The mount uses the wire, and I/O over it works.
fn assert_uses_wire(mount: &Mount) {
    mount.wait_for_data_path("wire");
    fs::write(mount.join("by-wire"), b"over the wire").expect("a file over the wire");
    assert_eq!(fs::read(mount.join("by-wire")).expect("it is there"), b"over the wire");
    let status = mount.status().expect("a mount");
    assert!(status["wire"]["bytes_written"].as_u64() >= Some(13), "{status}");
}
