//! `samehost mount`: it returns when mounted or reports why not; mount(8)'s helper and fstab(5), systemd's
//! conventions, status and `ctl`, and unmounting when the server or the mount's own process is gone.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use samehost_tests::process::run_within;
use samehost_tests::samehost::{binary, reachable_binary};
use samehost_tests::{Daemon, Mount, Scratch, Serve, Server, need_root, run, run_ok, wait_for};

/// A server and the directory that it exports.
struct Share {
    server: Server,
    export: PathBuf,
    scratch: Scratch,
}

impl Share {
    fn new(arguments: &[&str]) -> Self {
        need_root();
        let scratch = Scratch::new();
        let export = scratch.mkdir("export");
        fs::write(export.join("file"), "what the server has").expect("own directory");
        let server = Serve::openly(&export).arguments(arguments.iter().copied()).start();
        Self { server, export, scratch }
    }

    fn url(&self) -> String {
        self.server.url(&self.export)
    }

    fn mount(&self, options: &str) -> Mount {
        Mount::new(&self.server, &self.export, options)
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts a command's exit code, and that its output contains all `words`.
#[track_caller]
fn assert_output(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The session of a process, from proc(5): 0 if its leader is outside of this process-id namespace, which
/// rustix's getsid treats as impossible.
fn session(pid: u32) -> u32 {
    let stat = read(&Path::new("/proc").join(pid.to_string()).join("stat"));
    let (_, after_the_name) = stat.rsplit_once(") ").expect("a name in parentheses");
    after_the_name.split(' ').nth(3).and_then(|field| field.parse().ok()).expect("a session id")
}

fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// A mount shows old attributes for a while after a change by others. A copy onto the same file, or of a
/// directory into itself, is refused nevertheless.
#[test]
fn nothing_is_copied_onto_itself_through_a_mount() {
    for options in ["", "lane=off", "vers=3,lane=off"] {
        let share = Share::new(&[]);
        let (file, url) = (share.export.join("file"), format!("{}/file", share.url()));
        fs::create_dir_all(share.export.join("deep/er")).expect("own directory");
        let mount = share.mount(options);
        let through = mount.join("file");
        let copy = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.arg("cp").args(arguments).env("SAMEHOST_RUN_DIR", share.server.run_dir());
            run(&mut command)
        };
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        for (from, to) in [(path(&through), url.clone()), (url, path(&through))] {
            fs::metadata(&through).expect("mounted");
            let changed = format!("{} and more", read(&file));
            fs::write(&file, &changed).expect("own file");
            assert_output(&copy(&[&from, &to]), 1, &["is the same file as"]);
            assert_eq!(read(&file), changed);
        }
        for into in ["new", "deep/er/"] {
            let to = format!("{}/{into}", share.url());
            assert_output(&copy(&["-r", &path(mount.path()), &to]), 1, &["can't be copied into itself"]);
        }
        let left = run_ok(Command::new("find").arg(&share.export).args(["-name", ".samehost*"]));
        assert_eq!(left, "", "markers are removed");
    }
}

#[test]
fn mount_returns_when_mounted_and_unmount_removes_everything() {
    let share = Share::new(&[]);
    let mount = share.mount("lane=required");
    assert_eq!(read(&mount.join("file")), "what the server has");
    let status = mount.status().expect("a mount");
    assert_eq!(status["source"], share.url());
    assert_eq!(status["road"], "lane, passed through");
    assert_eq!(status["reasons"].as_array().map(Vec::len), Some(0));
    assert_eq!(status["opens_passed_through"], 1);
    assert_eq!(status["wire"]["reads"], 0);
    // The process is reparented and has left the test's session and directory.
    let pid = mount.pid();
    assert_ne!(session(pid), session(std::process::id()));
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(fs::read_link(format!("/proc/{pid}/fd/2")).unwrap(), Path::new("/dev/null"));
    // ps(1) shows the command's name.
    assert_eq!(read(&Path::new("/proc").join(pid.to_string()).join("comm")), "samehost\n");
    let words = read(&Path::new("/proc").join(pid.to_string()).join("cmdline"));
    assert!(words.starts_with("samehost\0mount\0"), "{words:?}");
    let text = String::from_utf8(run(&mut share.server.client(&["status"])).stdout).unwrap();
    for words in
        [&*format!("mount {} on {}", share.url(), mount.path().display()), "data path   lane, passed through"]
    {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    mount.unmount();
    assert!(!mount.is_mounted());
    wait_for("the end of the mount's process", || (!is_alive(pid)).then_some(()));
    let left = fs::read_dir(share.server.run_dir()).unwrap().flatten();
    assert!(!left.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|end| end == "mount")));
    // The same with mount(8)'s notation of a server, and with umount(8).
    run_ok(&mut mount.command(
        &format!("127.0.0.1:{}", share.export.display()),
        &format!("port={},lane=off", share.server.port()),
    ));
    assert_eq!(read(&mount.join("file")), "what the server has");
    assert_eq!(mount.status().expect("a mount")["road"], "wire");
    run_ok(Command::new("umount").arg(mount.path()));
}

#[test]
fn errors_name_the_reason_and_the_remedy() {
    let share = Share::new(&["--lane", "off"]);
    let url = share.url();
    let mount = Mount::unmounted(&share.server);
    let attempt = |source: &str, options: &str| run(&mut mount.command(source, options));
    assert_output(&attempt(&url, "rsiz=1"), 2, &["'rsiz'", "'rsize'", "next:"]);
    assert_output(&attempt(&url, "vers=4.0"), 2, &["vers=4.0", "no sessions", "vers=4.1"]);
    assert_output(&attempt("/nowhere", ""), 2, &["/nowhere", "HOST:/PATH"]);
    assert_output(&attempt(&format!("{url}?soft"), ""), 2, &["-o"]);
    assert_output(&attempt(&url, "lane=required"), 3, &["no lane came up", "lane=auto"]);
    assert_output(&attempt("nfs://127.0.0.1:1/srv", "retry=0"), 4, &["Connection refused", "next:"]);
    assert_output(&attempt(&share.server.url("/nowhere"), ""), 1, &["permission denied", "showmount"]);
    assert_output(&attempt(&share.server.url(share.export.join("file")), ""), 1, &["not a directory"]);
    let on = |directory: &Path| {
        let mut command = share.server.client(&["mount", &url]);
        run(command.arg(directory))
    };
    assert_output(&on(Path::new("/nowhere/at/all")), 1, &["no such directory", "mkdir"]);
    assert_output(&on(&share.export.join("file")), 1, &["isn't a directory"]);
    assert!(!mount.is_mounted());
    run_ok(&mut mount.command(&url, ""));
    assert_output(&attempt(&url, ""), 1, &["mounted here already", "samehost umount"]);
    let status = mount.status().expect("a mount");
    assert_eq!(status["road"], "wire");
    assert!(!status["reasons"].as_array().unwrap().is_empty(), "{status}");

    // Errors of unmounting, too.
    let umount = |directory: &Path| run(Command::new(binary()).arg("umount").arg(directory));
    assert_output(&umount(share.scratch.path()), 1, &["nothing is mounted here"]);
    assert_output(&umount(Path::new("/proc")), 1, &["type proc", "umount(8)"]);
    let open = fs::File::open(mount.join("file")).unwrap();
    assert_output(&umount(mount.path()), 1, &["in use", "--lazy"]);
    drop(open);
    mount.unmount();
}

#[test]
fn mount_waits_for_a_server_that_is_starting() {
    let mut share = Share::new(&[]);
    let url = share.url();
    let _ = share.server.stop();
    let mount = Mount::unmounted(&share.server);
    let log = share.scratch.join("mount.log");
    let mut waiting = Daemon::start("samehost mount", &mut mount.command(&url, "retry=5"), &log).unwrap();
    wait_for("the message about the next attempt", || {
        waiting.log().contains("trying for another").then_some(())
    });
    // With `bg` it returns at once.
    let other = Mount::unmounted(&share.server);
    let output = run(&mut other.command(&url, "bg"));
    assert_output(&output, 0, &["Connection refused", "in the background"]);
    assert!(!other.is_mounted());
    share.server.restart();
    assert!(waiting.wait().success(), "{}", waiting.log());
    assert_eq!(read(&mount.join("file")), "what the server has");
    wait_for("the mount in the background", || other.is_mounted().then_some(()));
    assert_eq!(read(&other.join("file")), "what the server has");
}

/// Runs a shell script in a mount namespace where /sbin contains nothing but our mount helper.
fn with_helper(share: &Share, script: &str) -> Output {
    let sbin = share.scratch.mkdir("sbin");
    for name in ["mount.samehost", "mount.fuse.samehost"] {
        let helper = sbin.join(name);
        if fs::symlink_metadata(&helper).is_err() {
            symlink(binary(), &helper).expect("own directory");
        }
    }
    let script = format!(
        "set -e\nmount --bind {} $(readlink -f /sbin)\ncd {}\nmkdir -p mnt\n\
         trap 'umount --lazy mnt 2>/dev/null || true' EXIT\n{script}",
        sbin.display(),
        share.scratch.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("SAMEHOST_RUN_DIR", share.server.run_dir());
    run_within(&mut command, Duration::from_secs(120))
}

#[test]
fn mount_and_fstab_use_the_helper() {
    let share = Share::new(&[]);
    let (url, port, export) = (share.url(), share.server.port(), share.export.display().to_string());
    let at = share.scratch.join("mnt").display().to_string();
    let output = with_helper(
        &share,
        &format!(
            "mount -t samehost {url} mnt -o lane=required,nodev\n\
             grep file mnt/file >/dev/null && exit 70; cat mnt/file; echo\n\
             findmnt --noheadings --output SOURCE,FSTYPE,OPTIONS mnt\n\
             umount mnt\n\
             mount -t samehost {url} mnt -o devices\n\
             findmnt --noheadings --output OPTIONS mnt | grep nodev && exit 71\n\
             umount mnt\n\
             mount -t samehost 127.0.0.1:{export} mnt -o port={port},ro,x-what=ever\n\
             touch mnt/new 2>&1 || echo read-only\n\
             umount mnt"
        ),
    );
    assert_output(&output, 0, &["what the server has", &url, "fuse.samehost", "nodev", "read-only"]);

    let fstab = share.scratch.join("fstab");
    fs::write(
        &fstab,
        format!("127.0.0.1:{export} {at} samehost port={port},nofail,_netdev,user,x-systemd.automount 0 0\n"),
    )
    .unwrap();
    let fstab = fstab.display();
    let output = with_helper(
        &share,
        &format!(
            "mount -T {fstab} -a\nmount -T {fstab} -a\ngrep -c ' {at} ' /proc/self/mounts\ncat mnt/file; \
             echo\numount -T {fstab} {at} 2>/dev/null || umount {at}\nmount -T {fstab} {at}\ncat \
             mnt/file\numount {at}"
        ),
    );
    assert_output(&output, 0, &["1\nwhat the server has\nwhat the server has"]);

    // mount(8)'s exit codes: 32 for a failed mount, 1 for a usage error; -f does everything except mounting;
    // -s ignores unknown options.
    let script =
        |words: &str| with_helper(&share, &format!("set +e\n/sbin/mount.samehost {words}; echo code $?"));
    assert_output(&script(&format!("nfs://127.0.0.1:1{export} mnt -o retry=0")), 0, &["code 32", "refused"]);
    assert_output(&script(&format!("{url} mnt -o quota")), 0, &["code 1", "'quota' is not known"]);
    assert_output(&script("mnt"), 0, &["code 1", "mount -t samehost"]);
    assert_output(
        &script(&format!("{url} mnt -f -o rw; findmnt mnt; echo nothing $?")),
        0,
        &["code 0", "nothing 1"],
    );
    assert_output(
        &script(&format!("{url} mnt -s -o quota,lane=off; cat mnt/file")),
        0,
        &["what the server has"],
    );
}

#[test]
fn a_foreground_mount_notifies_systemd_and_ends_on_a_signal() {
    let share = Share::new(&[]);
    let mount = Mount::unmounted(&share.server);
    let socket = share.scratch.join("notify");
    let notify = UnixDatagram::bind(&socket).unwrap();
    notify.set_read_timeout(Some(samehost_tests::TIMEOUT)).unwrap();
    let notification = || {
        let mut message = [0; 4096];
        let length = notify.recv(&mut message).expect("a notification");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut command = mount.command(&share.url(), "");
    command.arg("--foreground").env("NOTIFY_SOCKET", &socket);
    let mut daemon = Daemon::start("samehost mount", &mut command, &share.scratch.join("log")).unwrap();
    let ready = notification();
    assert!(
        ready.starts_with("READY=1\nSTATUS=ready: ") && ready.contains("lane, passed through"),
        "{ready}"
    );
    wait_for("the ready line", || daemon.log().contains("ready: nfs://").then_some(()));
    assert_eq!(read(&mount.join("file")), "what the server has");
    daemon.signal(Signal::TERM);
    assert_eq!(notification(), "STOPPING=1");
    assert!(daemon.wait().success());
    assert!(!mount.is_mounted());

    // A mount in use leaves the tree at once, and the process serves its open files.
    let mut command = mount.command(&share.url(), "lane=off");
    command.arg("--foreground");
    let mut daemon = Daemon::start("samehost mount", &mut command, &share.scratch.join("log")).unwrap();
    wait_for("the mount", || mount.is_mounted().then_some(()));
    let file = fs::File::open(mount.join("file")).unwrap();
    daemon.signal(Signal::TERM);
    wait_for("the mount to leave the tree", || (!mount.is_mounted()).then_some(()));
    assert!(daemon.alive());
    assert_eq!(std::io::read_to_string(&file).unwrap(), "what the server has");
    drop(file);
    assert!(daemon.wait().success());
}

#[test]
fn switching_the_lane_shows_in_the_status() {
    let share = Share::new(&[]);
    let mount = share.mount("");
    mount.wait_for_data_path("lane, passed through");
    mount.set_lane("off");
    mount.wait_for_data_path("wire");
    let status = mount.status().expect("a mount");
    assert!(status["reasons"][0].as_str().unwrap().contains("switched off"), "{status}");
    assert_eq!(read(&mount.join("file")), "what the server has");
    assert_eq!(mount.status().expect("a mount")["opens_passed_through"], 0);
    mount.set_lane("auto");
    mount.wait_for_data_path("lane, passed through");
    assert_eq!(read(&mount.join("file")), "what the server has");
    let status = mount.status().expect("a mount");
    assert_eq!(status["opens_passed_through"], 1);
    let changes = status["changes"].as_array().unwrap();
    let local: Vec<bool> = changes.iter().map(|change| change["local"] == true).collect();
    assert_eq!((local.first(), local.last()), (Some(&true), Some(&true)), "{status}");
    assert!(local.contains(&false), "{status}");
    let nowhere = run(share.server.client(&["ctl", "lane", "off", "--mount"]).arg(share.scratch.path()));
    assert_output(&nowhere, 4, &["no mount of Samehost is here", "samehost status"]);
    let other = share.mount("");
    assert_output(&run(&mut share.server.client(&["ctl", "lane", "off"])), 1, &["several", "--mount"]);
    drop(other);
}

#[test]
fn a_mount_can_be_unmounted_while_the_server_is_down() {
    let mut share = Share::new(&[]);
    let mount = share.mount("");
    assert_eq!(read(&mount.join("file")), "what the server has");
    let pid = mount.pid();
    share.server.kill();
    mount.wait_for_data_path("wire");
    mount.unmount();
    wait_for("the end of the mount's process", || (!is_alive(pid)).then_some(()));

    // By force also while a process waits for the server indefinitely.
    share.server.restart();
    run_ok(&mut mount.command(&share.url(), "lane=off,hard,noac"));
    let pid = mount.pid();
    share.server.kill();
    let mut reader = Command::new("cat").arg(mount.join("file")).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the reader's request", || {
        mount.status().is_some_and(|status| status["requests_under_way"] != 0).then_some(())
    });
    assert_output(&run(Command::new(binary()).arg("umount").arg(mount.path())), 1, &["in use"]);
    run_ok(Command::new(binary()).args(["umount", "--force", "--lazy"]).arg(mount.path()));
    assert!(!reader.wait().unwrap().success());
    wait_for("the end of the mount's process", || (!is_alive(pid)).then_some(()));
}

/// If the server ends during the unmount, in any way, the mount's process doesn't wait long for it.
#[test]
fn the_process_exits_soon_when_the_server_ends_during_the_unmount() {
    const MAX_DELAY: Duration = Duration::from_secs(30);
    let check = |options: &str, end: Signal| {
        let share = Share::new(&[]);
        let mount = share.mount(options);
        // The removed open file has a hidden name, which the process has to remove at the end.
        let open = fs::File::create(mount.join("gone")).unwrap();
        fs::remove_file(mount.join("gone")).unwrap();
        assert_eq!(read(&mount.join("file")), "what the server has");
        let pid = mount.pid();
        share.server.daemon().signal(end);
        drop(open);
        run_ok(Command::new(binary()).args(["umount", "--lazy"]).arg(mount.path()));
        let unmounted = Instant::now();
        wait_for("the end of the mount's process", || (!is_alive(pid)).then_some(()));
        let took = unmounted.elapsed();
        assert!(took < MAX_DELAY, "{options}, server's signal {end:?}: the process ended after {took:?}");
    };
    // A stopped server keeps its connections and replies to nothing.
    std::thread::scope(|scope| {
        for options in ["lane=off,hard", "lane=required", "lane=required,nopassthrough"] {
            for end in [Signal::STOP, Signal::KILL, Signal::TERM] {
                scope.spawn(move || check(options, end));
            }
        }
    });
}

/// With 64 descriptors, the minimum with which the process starts, files that it can't open over the lane go
/// over the wire, or fail with ENFILE if a lane is required. It answers `samehost status` meanwhile.
#[test]
fn a_mount_with_few_descriptors_works_and_reports_its_status() {
    const FILES: usize = 200;
    let share = Share::new(&[]);
    for number in 0..FILES {
        fs::write(share.export.join(number.to_string()), number.to_string()).expect("own directory");
    }
    let mount = Mount::unmounted(&share.server);
    for lane in ["auto", "required", "off"] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]).arg(binary());
        command.args(["mount", &share.url()]).arg(mount.path()).args(["-o", &format!("lane={lane}")]);
        run_ok(command.env("SAMEHOST_RUN_DIR", share.server.run_dir()));
        let opened: Vec<_> =
            (0..FILES).map(|number| fs::File::open(mount.join(number.to_string()))).collect();
        for (number, file) in opened.iter().enumerate() {
            match file {
                Ok(file) => {
                    let text = std::io::read_to_string(file).expect("an open file can be read");
                    assert_eq!(text, number.to_string());
                }
                Err(error) => {
                    assert_eq!((error.raw_os_error(), lane), (Some(Errno::NFILE.raw_os_error()), "required"));
                }
            }
        }
        assert_eq!(opened.iter().all(Result::is_ok), lane != "required");
        assert!(mount.status().is_some(), "lane={lane}: it has a status");
        drop(opened);
        mount.unmount();
    }
}

#[test]
fn the_mount_of_a_killed_process_can_be_unmounted() {
    let share = Share::new(&[]);
    let mount = share.mount("");
    let pid = mount.pid();
    kill(pid, Signal::KILL);
    wait_for("the end of the connection", || fs::metadata(mount.path()).is_err().then_some(()));
    let again = run(&mut mount.command(&share.url(), ""));
    assert_output(&again, 1, &["process of a mount that is here has died", "samehost umount"]);
    assert!(mount.status().is_none());
    mount.unmount();
    run_ok(&mut mount.command(&share.url(), ""));
    assert_eq!(read(&mount.join("file")), "what the server has");
}

#[test]
fn a_remount_changes_options_that_the_kernel_enforces() {
    let share = Share::new(&[]);
    let url = share.url();
    let mnt = share.scratch.mkdir("remounted");
    let script = format!(
        "set -e\ncd /\nm={}\nmount -t samehost {url} $m -o ro,lane=off,nosuid\n! touch $m/new\n\
         mount -o remount,rw $m\ntouch $m/new\n\
         exec 3>>$m/new\n! mount -o remount,ro $m\nexec 3>&-\n\
         until mount -o remount,ro,noexec $m; do sleep 0.1; done\n! touch $m/new\n\
         grep $m /proc/self/mounts\nmount -o remount,rw $m\n\
         ln -s new $m/link\n: <$m/link\nmount -o remount,nosymfollow $m\n! cat $m/link\nrm $m/link $m/new\n\
         ! mount -o remount,rwx $m\numount $m",
        mnt.display()
    );
    let output = with_helper(&share, &script);
    assert_output(
        &output,
        0,
        &[
            "Read-only file system",
            "files are open for writing",
            "nosuid,nodev,noexec",
            "symbolic links",
            "rwx",
        ],
    );
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    let share = Share::new(&[]);
    let home = share.scratch.mkdir("home");
    fs::create_dir_all(home.join("mnt")).unwrap();
    fs::create_dir_all(home.join("run")).unwrap();
    run_ok(Command::new("chown").args(["-R", "65534:65534"]).arg(&home));
    fs::set_permissions(share.export.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let samehost = reachable_binary(&share.scratch).display().to_string();
    let home = home.display();
    // A device that every user may open, as udev creates it. The user is nobody: fusermount3 requires a user
    // with a name. As umount(8) does, `samehost umount` returns when nothing is mounted any more, and the
    // mount's process ends soon after.
    let script = format!(
        "set -e\nmknod {0}/fuse c 10 229\nchmod 666 {0}/fuse\nmount --bind {0}/fuse /dev/fuse\nexec setpriv \
         --reuid 65534 --regid 65534 --clear-groups sh -ec '\ncode=0\n{samehost} mount {1} {home}/mnt\n\
         {samehost} status\ncat {home}/mnt/file; echo\n{samehost} status\n{samehost} umount {home}/mnt\n\
         if grep -q {home}/mnt /proc/self/mounts; then exit 9; fi\nuntil [ $code = 4 ]; do code=0; \
         {samehost} status || code=$?; sleep 0.1; done; echo ended $code'",
        share.scratch.path().display(),
        share.url(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    command
        .env("XDG_RUNTIME_DIR", format!("{home}/run"))
        .env("SAMEHOST_RUN_DIR", share.scratch.join("no-run-dir"));
    let output = run_within(&mut command, Duration::from_secs(120));
    // The status before and after the first open.
    let served = "served by the mount's process";
    assert_output(&output, 0, &["what the server has", &format!("{home}/mnt"), "ended 4", served]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("lane, passed through"), "{said}");
}

#[test]
fn a_device_that_is_closed_to_users_is_a_matter_for_an_admin() {
    let share = Share::new(&[]);
    let mnt = share.scratch.mkdir("mnt");
    run_ok(Command::new("chown").arg("65534:65534").arg(&mnt));
    let samehost = reachable_binary(&share.scratch).display().to_string();
    let script = format!(
        "set -e\nmknod -m 600 {0}/fuse c 10 229\nmount --bind {0}/fuse /dev/fuse\nexec setpriv --reuid \
         65534 --regid 65534 --clear-groups {samehost} mount {1} {0}/mnt",
        share.scratch.path().display(),
        share.url(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("SAMEHOST_RUN_DIR", share.scratch.join("no-run-dir"));
    let output = run_within(&mut command, Duration::from_secs(120));
    let words = ["/dev/fuse: Permission denied", "closed to this user", "ask an admin", "chmod 666"];
    assert_output(&output, 1, &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("directory of your own"), "{said}");
}
