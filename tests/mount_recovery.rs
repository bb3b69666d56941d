//! Recovery of NFSv4 mounts: what applications see when their server (ours, nfs-ganesha) is killed, when they
//! cannot reach it for longer than their lease, and when it (knfsd) ends their session and state.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;
use samehost_tests::ganesha::Ganesha;
use samehost_tests::qemu::{self, Job};
use samehost_tests::{Daemon, Mount, Netns, Scratch, Serve, TIMEOUT, need_root, run_ok, wait_for};

/// The guest is slow on a busy machine.
const GUEST_TIMEOUT: Duration = Duration::from_secs(240);

/// The bytes of a block of the stream.
const BLOCK: usize = 64 << 10;

/// Opens files in a directory and does what it reads, one command a line: `open NAME`, `lock NAME WAITS`,
/// `unlock NAME`, `read NAME`, `write NAME TEXT`, and `stream NAME BLOCKS`, which writes numbered blocks and
/// tells of every eighth, synced. Prints the result of each.
const APPLICATION: &str = r"
import errno, fcntl, os, sys
fds = {}
for line in sys.stdin:
    what, name, *rest = line.split()
    try:
        result = 'ok'
        if what == 'open':
            fds[name] = os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT)
        elif what == 'lock':
            fcntl.lockf(fds[name], fcntl.LOCK_EX | (0 if int(rest[0]) else fcntl.LOCK_NB))
        elif what == 'unlock':
            fcntl.lockf(fds[name], fcntl.LOCK_UN)
        elif what == 'read':
            result = os.pread(fds[name], 100, 0).decode()
        elif what == 'write':
            os.pwrite(fds[name], rest[0].encode(), 0)
            os.fsync(fds[name])
        elif what == 'stream':
            for block in range(int(rest[0])):
                os.pwrite(fds[name], bytes([block % 251]) * 65536, block * 65536)
                if block % 8 == 7:
                    os.fsync(fds[name])
                    print(block, flush=True)
        print(result, flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

struct Application {
    child: Child,
    commands: ChildStdin,
    results: Receiver<String>,
}

impl Application {
    fn new(directory: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", APPLICATION]).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let commands = child.stdin.take().expect("its input");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (send, results) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(send.send(line))));
        Self { child, commands, results }
    }

    fn begin(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("a running application");
    }

    fn result(&self) -> String {
        self.results.recv_timeout(TIMEOUT).expect("a result")
    }

    fn run(&mut self, command: &str) -> String {
        self.begin(command);
        self.result()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An application writes a stream and holds locks on `mount` while its server is killed again and again. It
/// sees no error, what it was told is synced is in the exported directory after each kill, and its locks are
/// its own throughout, as `other`, another mount of the server, shows.
fn application_under_kills(
    export: &Path,
    mount: &Path,
    other: &Path,
    mut kill: impl FnMut(),
    mut restart: impl FnMut(),
) {
    const BLOCKS: usize = 400;
    let mut writer = Application::new(mount);
    for name in ["locked", "stream"] {
        assert_eq!(writer.run(&format!("open {name}")), "ok");
        assert_eq!(writer.run(&format!("lock {name} 0")), "ok");
    }
    assert_eq!(writer.run("write locked mine"), "ok");
    writer.begin(&format!("stream stream {BLOCKS}"));
    let good_blocks = |number: usize| {
        let data = fs::read(export.join("stream")).expect("the exported file");
        let blocks = data.chunks(BLOCK).take(number).enumerate();
        let is_good = |(block, data): &(usize, &[u8])| {
            data.len() == BLOCK && data.iter().all(|byte| usize::from(*byte) == block % 251)
        };
        blocks.filter(is_good).count()
    };
    for round in 1..=2 {
        let synced = loop {
            let block: usize = writer.result().parse().expect("a block's number, no error");
            if block >= round * 100 {
                break block;
            }
        };
        kill();
        assert_eq!(good_blocks(synced + 1), synced + 1);
        restart();
        let mut reader = Application::new(other);
        for name in ["locked", "stream"] {
            assert_eq!(reader.run(&format!("open {name}")), "ok");
            assert_eq!(reader.run(&format!("lock {name} 0")), "EAGAIN", "after kill {round}");
        }
    }
    let last = loop {
        match writer.result() {
            result if result.parse::<usize>().is_ok() => {}
            result => break result,
        }
    };
    assert_eq!(last, "ok");
    assert_eq!(writer.run("read locked"), "mine");
    assert_eq!(good_blocks(BLOCKS), BLOCKS);
    // The locks end with the process.
    drop(writer);
    let mut next = Application::new(other);
    assert_eq!(next.run("open locked"), "ok");
    assert_eq!(next.run("lock locked 1"), "ok");
}

#[test]
fn an_application_notices_no_killed_server() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("killed");
    // The records of clients are those of an address, so the port can't be one that the first start chooses.
    let server = Serve::openly(&export).listen("127.0.0.1:2049").inside(&netns).start();
    let mount = |options: &str| {
        let mount = Mount::unmounted(&server);
        run_ok(&mut netns.inside(&mount.command(&server.url(&export), options)));
        mount
    };
    let (mount, other) = (mount("vers=4.2,lane=off"), mount("vers=4.1,lane=off"));
    let server = RefCell::new(server);
    let (kill, restart) = (|| server.borrow_mut().kill(), || server.borrow_mut().restart());
    application_under_kills(&export, mount.path(), other.path(), kill, restart);
}

#[test]
fn an_application_notices_no_killed_ganesha() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("ganesha");
    let ganesha = RefCell::new(Ganesha::start_with_grace(&netns, &export));
    let url = format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, Ganesha::PSEUDO);
    let run_dir = scratch.mkdir("run");
    let mounts = [Mount::unmounted_with(&run_dir), Mount::unmounted_with(&run_dir)];
    for mount in &mounts {
        run_ok(&mut netns.inside(&mount.command(&url, "vers=4.2,lane=off")));
    }
    let (kill, restart) = (|| ganesha.borrow_mut().kill(), || ganesha.borrow_mut().restart());
    application_under_kills(&export, mounts[0].path(), mounts[1].path(), kill, restart);
}

/// A client's network is cut for longer than its lease, and another client gets the lock that it held. It
/// doesn't believe in the lock any more: its I/O to that file fails, to no other, and its log names the file.
#[test]
fn a_lock_that_was_lost_during_a_partition_is_not_believed() {
    need_root();
    const SERVER: &str = "10.83.7.1";
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let (served, cut) = (Netns::new("server"), Netns::new("cut"));
    served.add_veth(SERVER, &cut, "10.83.7.2", 24);
    let server = Serve::openly(&export)
        .listen(format!("{SERVER}:0"))
        .arguments(["--lease", "5"])
        .inside(&served)
        .start();
    let start = |netns: &Netns, mount: &Mount, log: &str| {
        let mut command = mount.command(&server.url_at(SERVER, &export), "vers=4.2,lane=off");
        command.arg("--foreground");
        let mut command = netns.inside(&command);
        let daemon = Daemon::start("samehost mount", &mut command, &scratch.join(log)).expect("a mount");
        wait_for("the mount", || mount.is_mounted().then_some(()));
        daemon
    };
    let (mount, other) = (Mount::unmounted(&server), Mount::unmounted(&server));
    let mut daemon = start(&cut, &mount, "cut.log");
    let mut other_daemon = start(&served, &other, "other.log");
    let (mut one, mut two) = (Application::new(mount.path()), Application::new(other.path()));
    for name in ["contended", "untouched"] {
        assert_eq!(one.run(&format!("open {name}")), "ok");
        assert_eq!(one.run(&format!("write {name} mine_")), "ok");
    }
    assert_eq!(one.run("lock contended 0"), "ok");
    let route = |what| {
        run_ok(Command::new("ip").args(["-n", cut.name(), "route", what, "blackhole", SERVER]));
    };
    route("add");
    assert_eq!(two.run("open contended"), "ok");
    assert_eq!(two.run("lock contended 1"), "ok");
    assert_eq!(two.run("write contended yours"), "ok");
    route("del");
    assert_eq!(one.run("write contended mine_"), "EIO");
    assert_eq!(one.run("read untouched"), "mine_");
    assert_eq!(one.run("write untouched still"), "ok");
    assert_eq!(two.run("read contended"), "yours");
    let log = daemon.log();
    assert!(log.lines().any(|line| line.contains("locks are lost") && line.contains("contended")), "{log}");
    assert!(!log.contains("untouched"), "{log}");
    // Without the lock the file is as good as any.
    assert_eq!(one.run("unlock contended"), "ok");
    assert_eq!(two.run("unlock contended"), "ok");
    assert_eq!(one.run("lock contended 1"), "ok");
    assert_eq!(one.run("read contended"), "yours");
    drop((one, two));
    for (mount, daemon) in [(&mount, &mut daemon), (&other, &mut other_daemon)] {
        mount.unmount();
        assert!(daemon.wait().success(), "{}", daemon.log());
    }
}

/// The kernel's server ends its clients, with their sessions and state, while one doesn't answer. Another one
/// gets a lock that it held. Only files with locks fail, and the log names them.
#[test]
fn clients_that_knfsd_expires_lose_locks_and_nothing_else() {
    need_root();
    let scratch = Scratch::new();
    let netns = Netns::new("expire");
    let run_dir = scratch.mkdir("empty");
    let (mount, other) = (Mount::unmounted_with(&run_dir), Mount::unmounted_with(&run_dir));
    let start = |mount: &Mount, log: &str| {
        let mut command = mount.command("nfs://127.0.0.1/srv/directory", "vers=4.2,lane=off");
        command.arg("--foreground");
        let mut command = netns.inside(&command);
        let daemon = Daemon::start("samehost mount", &mut command, &scratch.join(log)).expect("a mount");
        wait_for("the mount", || mount.is_mounted().then_some(()));
        daemon
    };
    let mut started = None;
    let job = Job { nfs_port: 0, mount_port: 0, anon_uid: 0, plan: include_str!("guest/knfsd.sh") };
    let report = qemu::boot_knfsd(&job, &netns, GUEST_TIMEOUT, |said| {
        if said == "serving" {
            let daemons = (start(&mount, "one.log"), start(&other, "two.log"));
            let (mut one, mut two) = (Application::new(mount.path()), Application::new(other.path()));
            for name in ["contended", "locked", "untouched"] {
                assert_eq!(one.run(&format!("open {name}")), "ok");
                assert_eq!(one.run(&format!("write {name} mine_")), "ok");
            }
            assert_eq!(one.run("lock contended 0"), "ok");
            assert_eq!(one.run("lock locked 0"), "ok");
            assert_eq!(two.run("open contended"), "ok");
            daemons.0.signal(Signal::STOP);
            started = Some((daemons, one, two));
            return "expire".to_owned();
        }
        let ((mut daemon, mut other_daemon), mut one, mut two) = started.take().expect("it has served");
        // The other mount begins another session by itself.
        assert_eq!(two.run("lock contended 1"), "ok");
        assert_eq!(two.run("write contended yours"), "ok");
        daemon.signal(Signal::CONT);
        assert_eq!(one.run("read untouched"), "mine_");
        assert_eq!(one.run("write untouched still"), "ok");
        assert_eq!(one.run("write contended mine_"), "EIO");
        assert_eq!(one.run("read contended"), "EIO");
        // Without a reclaim nobody knows whether the lock was another's meanwhile.
        assert_eq!(one.run("read locked"), "EIO");
        assert_eq!(two.run("read contended"), "yours");
        let log = daemon.log();
        for name in ["contended", "locked"] {
            assert!(log.lines().any(|line| line.contains("locks are lost") && line.contains(name)), "{log}");
            assert_eq!(one.run(&format!("unlock {name}")), "ok");
        }
        assert!(!log.contains("untouched"), "{log}");
        assert_eq!(one.run("read locked"), "mine_");
        assert_eq!(two.run("unlock contended"), "ok");
        assert_eq!(one.run("lock contended 1"), "ok");
        assert_eq!(one.run("read contended"), "yours");
        drop((one, two));
        for (mount, daemon) in [(&mount, &mut daemon), (&other, &mut other_daemon)] {
            mount.unmount();
            assert!(daemon.wait().success(), "{}", daemon.log());
        }
        "ok".to_owned()
    });
    report.assert_passed(7);
}
