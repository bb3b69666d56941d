//! A mount with FUSE over io_uring: what the option `uring` does, requests that wait while others don't,
//! signals, unmounts, and the death of the mount's process.
//!
//! Many requests wait here because their server is stopped by a signal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use samehost_tests::disk::Disk;
use samehost_tests::samehost::binary;
use samehost_tests::{Mount, Scratch, Serve, Server, UringSwitch, need_root, run, run_ok, wait_for};

struct Share {
    server: Server,
    export: PathBuf,
    scratch: Scratch,
}

impl Share {
    fn new() -> Self {
        need_root();
        let scratch = Scratch::in_memory();
        let export = scratch.mkdir("export");
        fs::write(export.join("file"), "what the server has").expect("own directory");
        Self { server: Serve::openly(&export).start(), export, scratch }
    }

    fn mount(&self, options: &str) -> Option<Mount> {
        Mount::over_uring(&self.server, &self.export, options)
    }

    /// A mount over the wire with a run directory of its own: `samehost status` waits for a stopped server.
    fn mount_apart(&self, options: &str) -> Option<Mount> {
        let _on = UringSwitch::set(true)?;
        let mount = Mount::unmounted_with(&self.scratch.mkdir("run"));
        run_ok(
            &mut mount.command(&self.server.url(&self.export), &format!("lane=off,uring=required,{options}")),
        );
        Some(mount)
    }

    /// Stops the server until the result is dropped.
    fn stop(&self) -> Stopped<'_> {
        self.server.daemon().signal(Signal::STOP);
        // The signal stops one thread first, and that one the others.
        let tasks = format!("/proc/{}/task", self.server.daemon().pid());
        wait_for("all threads of the server to stop", || {
            let mut threads = fs::read_dir(&tasks).expect("the server is there").map_while(Result::ok);
            threads.all(|thread| is_stopped(&thread.path())).then_some(())
        });
        Stopped(&self.server)
    }
}

/// Whether a thread is stopped by a signal (proc(5)).
fn is_stopped(thread: &Path) -> bool {
    fs::read_to_string(thread.join("status")).is_ok_and(|status| status.contains("State:\tT (stopped)"))
}

struct Stopped<'a>(&'a Server);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.daemon().signal(Signal::CONT);
    }
}

fn waiting(mount: &Mount) -> u64 {
    mount.status().and_then(|status| status["requests_under_way"].as_u64()).expect("a mount")
}

fn wait_for_waiting(mount: &Mount, count: u64) {
    wait_for(&format!("{count} requests to wait"), || (waiting(mount) >= count).then_some(()));
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::KILL).expect("the process is there");
}

fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("cat")
}

#[test]
fn the_option_decides_and_the_status_says_why() {
    let share = Share::new();
    let mount = Mount::unmounted(&share.server);
    let url = share.server.url(&share.export);
    for (is_on, option, transport, reason) in [
        (true, "auto", "io_uring", ""),
        (true, "required", "io_uring", ""),
        (true, "off", "/dev/fuse", "uring=off"),
        (false, "auto", "/dev/fuse", "echo Y > /sys/module/fuse/parameters/enable_uring"),
        (false, "off", "/dev/fuse", "uring=off"),
    ] {
        let Some(_switch) = UringSwitch::set(is_on) else { return };
        run_ok(&mut mount.command(&url, &format!("uring={option}")));
        let status = mount.status().expect("a mount");
        assert_eq!(status["transport"], transport, "uring={option}: {status}");
        let said = status["transport_reason"].as_str().unwrap_or_default();
        assert!(said.contains(reason) && said.is_empty() == reason.is_empty(), "uring={option}: {said}");
        assert_eq!(fs::read(mount.join("file")).expect("it reads"), b"what the server has");
        let text = String::from_utf8(run(&mut share.server.client(&["status"])).stdout).expect("text");
        assert!(text.contains(&format!("requests    by {transport}")) && text.contains(reason), "{text}");
        let pid = mount.pid();
        mount.unmount();
        // Its status would be taken for the next one's.
        wait_for("the end of the mount's process", || (!is_alive(pid)).then_some(()));
    }
    let Some(_off) = UringSwitch::set(false) else { return };
    let refused = run(&mut mount.command(&url, "uring=required"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("enable_uring") && said.contains("uring=auto"),
        "{said}"
    );
    assert!(!mount.is_mounted());
}

/// The threads that serve a queue have a greater weight than the programs that wait for them.
#[test]
fn the_threads_of_queues_have_a_lower_nice_value() {
    let share = Share::new();
    let Some(mount) = share.mount("uring=required") else { return };
    let tasks = fs::read_dir(format!("/proc/{}/task", mount.pid())).expect("the mount's process");
    let (mut queues, mut others) = (0, 0);
    for task in tasks {
        let stat = fs::read_to_string(task.expect("a thread").path().join("stat")).unwrap_or_default();
        let Some((name, fields)) = stat.split_once(") ") else { continue };
        let nice: i32 = fields.split(' ').nth(16).expect("proc(5)").parse().expect("a number");
        if name.contains("(fuse-queue-") {
            queues += 1;
            assert_eq!(nice, own_nice() - 5, "{name}");
        } else if !name.contains("(disk-") {
            others += 1;
            assert_eq!(nice, own_nice(), "{name}");
        }
    }
    assert!(queues > 0 && others > 0);
}

/// How often the threads of these names have waited.
fn waits(mount: &Mount, name: &str) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", mount.pid())).expect("the mount's process");
    let read = |task: &Path, file| fs::read_to_string(task.join(file)).unwrap_or_default();
    let tasks = tasks.map(|task| task.expect("a thread").path());
    tasks
        .filter(|task| read(task, "comm").starts_with(name))
        .filter_map(|task| {
            let status = read(&task, "status");
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count?.trim().parse::<u64>().ok()
        })
        .sum()
}

/// A thread that has waited for a disk commits the reply, and so gets the caller's next requests.
#[test]
fn changes_of_names_on_a_disk_wake_one_thread_each() {
    const DIRECTORIES: u64 = 500;
    need_root();
    let disk = Disk::in_directory("ext4", 64, Path::new("/dev/shm"));
    let export = disk.path().join("export");
    fs::create_dir(&export).expect("an empty disk");
    let server = Serve::openly(&export).start();
    let Some(mount) = Mount::over_uring(&server, &export, "lane=required") else { return };
    let make = |prefix: &str| {
        for number in 0..DIRECTORIES {
            fs::create_dir(mount.join(format!("{prefix}{number}"))).expect("there is room");
        }
    };
    make("first");
    let (queues, disks) = (waits(&mount, "fuse-queue-"), waits(&mount, "disk-"));
    make("second");
    let (queues, disks) = (waits(&mount, "fuse-queue-") - queues, waits(&mount, "disk-") - disks);
    assert!(disks >= DIRECTORIES && queues < DIRECTORIES / 4, "{disks} by disk threads, {queues} by queues'");
}

fn own_nice() -> i32 {
    rustix::process::getpriority_process(None).expect("getpriority(2)")
}

/// A queue has few entries at first. With hundreds of requests that wait for the server, those that don't
/// need it are served all the same, and in the end every one has its reply.
#[test]
fn hundreds_of_waiting_requests_do_not_block_others() {
    const STEPS: u64 = 16;
    const STEP: u64 = 20;
    let share = Share::new();
    for number in 0..STEPS * STEP {
        fs::write(share.export.join(number.to_string()), number.to_string()).expect("own directory");
    }
    // In a directory that not everybody may search, the kernel asks for each name, and the mount answers
    // from its cache.
    let private = share.export.join("private");
    fs::create_dir(&private).expect("own directory");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("own directory");
    fs::write(private.join("known"), "cached").expect("own directory");
    let Some(mount) = share.mount_apart("actimeo=3600") else { return };
    let known = mount.join("private/known");
    assert_eq!(fs::metadata(&known).expect("it is there").len(), 6);
    assert_eq!(fs::metadata(&known).expect("it is there").len(), 6);
    std::thread::scope(|scope| {
        let stopped = share.stop();
        let mut readers = Vec::new();
        for step in 0..STEPS {
            for number in step * STEP..(step + 1) * STEP {
                let path = mount.join(number.to_string());
                readers.push(scope.spawn(move || fs::read_to_string(path).expect("it reads")));
            }
            wait_for_waiting(&mount, (step + 1) * STEP);
            assert_eq!(fs::metadata(&known).expect("it is cached").len(), 6);
        }
        drop(stopped);
        for (number, reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.join().expect("it ends"), number.to_string());
        }
    });
    wait_for("the last reply", || (waiting(&mount) == 0).then_some(()));
}

#[test]
fn waiting_processes_can_be_killed() {
    let share = Share::new();
    let Some(mount) = share.mount_apart("noac") else { return };
    let stopped = share.stop();
    let mut reader = cat(&mount.join("file"));
    wait_for_waiting(&mount, 1);
    kill(reader.id());
    assert!(!reader.wait().expect("it ends").success());
    // Signals that come at any moment of a request's way.
    for _ in 0..50 {
        let mut reader = cat(&mount.join("file"));
        kill(reader.id());
        assert!(!reader.wait().expect("it ends").success());
    }
    wait_for("the aborted requests", || (waiting(&mount) == 0).then_some(()));
    drop(stopped);
    assert_eq!(fs::read(mount.join("file")).expect("it reads"), b"what the server has");
}

#[test]
fn a_mount_with_waiting_requests_can_be_unmounted_by_force() {
    let share = Share::new();
    let Some(mount) = share.mount_apart("noac") else { return };
    let pid = mount.pid();
    let stopped = share.stop();
    let mut readers: Vec<Child> = (0..10).map(|_| cat(&mount.join("file"))).collect();
    // The others wait in the kernel for the first one's LOOKUP.
    wait_for_waiting(&mount, 1);
    let refused = run(Command::new(binary()).arg("umount").arg(mount.path()));
    assert!(!refused.status.success());
    run_ok(Command::new(binary()).args(["umount", "--force", "--lazy"]).arg(mount.path()));
    for reader in &mut readers {
        assert!(!reader.wait().expect("it ends").success());
    }
    wait_for("the end of the mount's process", || (!is_alive(pid)).then_some(()));
    drop(stopped);
}

#[test]
fn the_death_of_the_process_ends_waiting_requests() {
    let share = Share::new();
    let Some(mount) = share.mount_apart("noac") else { return };
    let stopped = share.stop();
    let mut reader = cat(&mount.join("file"));
    wait_for_waiting(&mount, 1);
    kill(mount.pid());
    assert!(!reader.wait().expect("it ends").success());
    wait_for("the end of the connection", || fs::metadata(mount.path()).is_err().then_some(()));
    drop(stopped);
    mount.unmount();
    assert!(!mount.is_mounted());
    let Some(_on) = UringSwitch::set(true) else { return };
    run_ok(&mut mount.command(&share.server.url(&share.export), "uring=required"));
    assert_eq!(fs::read(mount.join("file")).expect("it reads"), b"what the server has");
}

/// Data of READ and WRITE of all sizes around those of the buffers, on each data path that has requests.
#[test]
fn data_of_every_size_arrives() {
    let share = Share::new();
    for options in ["lane=off", "lane=required,nopassthrough"] {
        let Some(mount) = share.mount(options) else { return };
        for size in [1, 4095, 4096, 4097, 65_535, 65_536, 100_000, (1 << 20) - 1, 1 << 20, (4 << 20) + 1] {
            let data = samehost_tests::scratch::pattern(size as u64, size);
            fs::write(mount.join("data"), &data).expect("it is written");
            assert!(fs::read(share.export.join("data")).expect("it is there") == data, "{options}: {size}");
            fs::write(share.export.join("other"), &data).expect("own directory");
            assert!(fs::read(mount.join("other")).expect("it reads") == data, "{options}: {size}");
            fs::remove_file(mount.join("data")).expect("it is removed");
            fs::remove_file(mount.join("other")).expect("it is removed");
        }
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
