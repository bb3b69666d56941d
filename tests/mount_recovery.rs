//! Recovery of NFSv4 mounts: what applications see when their server (ours, nfs-ganesha, knfsd) is killed,
//! when they cannot reach it for longer than their lease, and when it ends their session and state.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use samehost_tests::capture::{Capture, Packets};
use samehost_tests::ganesha::Ganesha;
use samehost_tests::knfsd::Knfsd;
use samehost_tests::samehost::binary;
use samehost_tests::{
    Application, Daemon, Mount, Netns, Scratch, Serve, Server, need_root, run_ok, wait_for,
};

/// The guest is slow on a busy machine.
const GUEST_TIMEOUT: Duration = Duration::from_secs(240);

/// A server that a test kills and restarts.
trait Killed {
    fn kill(&mut self);
    /// Starts it again, with what it has on stable storage.
    fn restart(&mut self);
    /// Whether the exported file `stream` begins with these blocks of a stream, also while it is down.
    fn has_blocks(&mut self, number: usize) -> bool;
}

/// Whether a file begins with these blocks of a stream.
fn has_blocks(file: &Path, number: usize) -> bool {
    let data = fs::read(file).expect("the exported file");
    let mut blocks = data.chunks(Application::BLOCK);
    (0..number).all(|block| blocks.next() == Some(&Application::block(block)))
}

/// An application writes a stream and holds locks on `mount` while its server is killed again and again. It
/// sees no error, what it was told is synced is in the exported directory after each kill, and its locks are
/// its own throughout, as `other`, another mount of the server, shows.
fn application_under_kills(server: &mut dyn Killed, mount: &Path, other: &Path) {
    const BLOCKS: usize = 400;
    let mut writer = Application::new(mount);
    for name in ["locked", "stream"] {
        assert_eq!(writer.run(&format!("open {name}")), "ok");
        assert_eq!(writer.run(&format!("lock {name} 0")), "ok");
    }
    assert_eq!(writer.run("write locked mine"), "ok");
    writer.begin(&format!("stream stream {BLOCKS}"));
    for round in 1..=2 {
        let synced = loop {
            let block: usize = writer.result().parse().expect("a block's number, no error");
            if block >= round * 100 {
                break block;
            }
        };
        server.kill();
        assert!(server.has_blocks(synced + 1), "{synced} blocks are synced");
        server.restart();
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
    assert!(server.has_blocks(BLOCKS));
    // The locks end with the process.
    drop(writer);
    let mut next = Application::new(other);
    assert_eq!(next.run("open locked"), "ok");
    assert_eq!(next.run("lock locked 1"), "ok");
}

/// Our server and its exported directory.
struct Ours<'a>(Server, &'a Path);

impl Killed for Ours<'_> {
    fn kill(&mut self) {
        self.0.kill();
    }

    fn restart(&mut self) {
        self.0.restart();
    }

    fn has_blocks(&mut self, number: usize) -> bool {
        has_blocks(&self.1.join("stream"), number)
    }
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
    application_under_kills(&mut Ours(server, &export), mount.path(), other.path());
}

/// The client owners of all EXCHANGE_IDs of a capture.
fn client_owners(packets: &Packets, port: u16) -> BTreeSet<String> {
    let lines = packets.fields(&[port], "nfs.opcode == 42 && rpc.msgtyp == 0", &["nfs.data"]);
    lines.into_iter().collect()
}

/// A mount's process is killed, and its lease lasts for far longer than this test. The mount that is then
/// made on the same mount point is the same client, so the server releases the locks of the former one at
/// once. One in another mount namespace, on the same mount point of the same host, is another client, and
/// takes nothing from the first one.
#[test]
fn a_mount_after_a_killed_one_is_the_same_client_and_one_in_a_container_another() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("owners");
    let server = Serve::openly(&export).arguments(["--lease", "3600"]).inside(&netns).start();
    let (url, options) = (server.url(&export), "vers=4.2,lane=off");
    let (mount, other) = (Mount::unmounted(&server), Mount::unmounted(&server));
    run_ok(&mut netns.inside(&other.command(&url, options)));
    let mut beside = Application::new(other.path());
    assert_eq!(beside.run("open locked"), "ok");

    let capture = Capture::start(&netns, &scratch);
    run_ok(&mut netns.inside(&mount.command(&url, options)));
    let mut killed = Application::new(mount.path());
    assert_eq!(killed.run("open locked"), "ok");
    assert_eq!(killed.run("lock locked 0"), "ok");
    run_ok(Command::new("kill").args(["-9", &mount.pid().to_string()]));
    drop(killed);
    mount.unmount();
    assert_eq!(beside.run("lock locked 0"), "EAGAIN", "the server doesn't know of the kill");
    run_ok(&mut netns.inside(&mount.command(&url, options)));
    assert_eq!(beside.run("lock locked 0"), "ok");
    assert_eq!(beside.run("unlock locked"), "ok");
    let owners = client_owners(&capture.finish(&netns), server.port());
    assert_eq!(owners.len(), 1, "{owners:?}");

    let mut holder = Application::new(mount.path());
    assert_eq!(holder.run("open locked"), "ok");
    assert_eq!(holder.run("lock locked 0"), "ok");
    let capture = Capture::start(&netns, &scratch);
    let in_container = mount.command(&url, options);
    let arguments = in_container.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let (samehost, at) = (binary().display(), mount.path().display());
    let script = format!(
        "set -e; umount --lazy {at}; {samehost} {arguments}; echo container >{at}/from-container; \
         {samehost} umount {at}"
    );
    let mut command = netns.command("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("SAMEHOST_RUN_DIR", server.run_dir());
    run_ok(&mut command);
    let others = client_owners(&capture.finish(&netns), server.port());
    assert_eq!((others.len(), owners.is_disjoint(&others)), (1, true), "{owners:?}, {others:?}");
    assert_eq!(fs::read_to_string(mount.join("from-container")).expect("read"), "container\n");
    assert_eq!(beside.run("lock locked 0"), "EAGAIN", "the first client has its lock");
    assert_eq!(holder.run("write locked mine"), "ok");
    drop((holder, beside));
    mount.unmount();
    other.unmount();
}

/// nfs-ganesha and its exported directory.
struct Foreign<'a>(Ganesha, &'a Path);

impl Killed for Foreign<'_> {
    fn kill(&mut self) {
        self.0.kill();
    }

    fn restart(&mut self) {
        self.0.restart();
    }

    fn has_blocks(&mut self, number: usize) -> bool {
        has_blocks(&self.1.join("stream"), number)
    }
}

#[test]
fn an_application_notices_no_killed_ganesha() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("ganesha");
    let ganesha = Ganesha::start_with_grace(&netns, &export);
    let url = format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, Ganesha::PSEUDO);
    let run_dir = scratch.mkdir("run");
    let mounts = [Mount::unmounted_with(&run_dir), Mount::unmounted_with(&run_dir)];
    for mount in &mounts {
        run_ok(&mut netns.inside(&mount.command(&url, "vers=4.2,lane=off")));
    }
    application_under_kills(&mut Foreign(ganesha, &export), mounts[0].path(), mounts[1].path());
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

/// Whether a file in the export begins with these blocks of a stream, for the server's own processes.
fn knfsd_has_blocks(knfsd: &mut Knfsd<'_>, file: &str, number: usize) -> bool {
    let mut expected = Command::new("md5sum");
    let blocks: Vec<u8> = (0..number).flat_map(Application::block).collect();
    let scratch = Scratch::new();
    fs::write(scratch.join("blocks"), blocks).expect("own directory");
    let sum = run_ok(expected.arg(scratch.join("blocks")));
    let sum = sum.split_whitespace().next().expect("a checksum");
    let length = number * Application::BLOCK;
    knfsd.succeeds(&format!("head -c {length} /srv/directory/{file} | md5sum | grep -q {sum}"))
}

impl Killed for Knfsd<'_> {
    fn kill(&mut self) {
        self.run("rpc.nfsd 0");
    }

    fn restart(&mut self) {
        self.run("serve");
    }

    fn has_blocks(&mut self, number: usize) -> bool {
        knfsd_has_blocks(self, "stream", number)
    }
}

/// Mounts the export of the kernel's server. The mount's process has its files in a directory of this name.
fn mount_of_knfsd(netns: &Netns, scratch: &Scratch, name: &str) -> (Mount, Daemon) {
    let directory = scratch.mkdir(name);
    let mount = Mount::unmounted_with(&directory);
    let mut command = mount.command(Knfsd::URL, "vers=4.2,lane=off");
    command.arg("--foreground");
    let mut command = netns.inside(&command);
    let daemon = Daemon::start("samehost mount", &mut command, &directory.join("log")).expect("a mount");
    wait_for("the mount", || mount.is_mounted().then_some(()));
    (mount, daemon)
}

/// The machine of the kernel's server loses power while it has data that it hasn't written to its disk. It
/// sends nothing more, not even the end of its connections. Afterwards it knows of its clients what is on its
/// disk. The data is written again, and the locks are the application's own throughout.
#[test]
fn an_application_notices_no_power_cut_of_knfsd() {
    need_root();
    const BLOCKS: usize = 400;
    const UNSYNCED: usize = 16;
    let netns = Netns::new("power");
    Knfsd::with(&netns, GUEST_TIMEOUT, |knfsd| {
        let scratch = Scratch::new();
        let (mount, mut daemon) = mount_of_knfsd(&netns, &scratch, "one");
        let (other, mut other_daemon) = mount_of_knfsd(&netns, &scratch, "two");
        // What nobody syncs stays in its memory.
        knfsd.run("echo 0 >/proc/sys/vm/dirty_writeback_centisecs");
        knfsd.run("cp /proc/sys/kernel/random/boot_id /srv/boot_id && sync");

        let mut writer = Application::new(mount.path());
        for name in ["unsynced", "locked", "flocked", "stream"] {
            assert_eq!(writer.run(&format!("open {name}")), "ok");
        }
        assert_eq!(writer.run(&format!("fill unsynced {UNSYNCED}")), "ok");
        let unsynced = (UNSYNCED * Application::BLOCK) as u64;
        let is_answered = || (mount.status()?["wire"]["bytes_written"] == unsynced).then_some(());
        wait_for("the answers to all WRITEs", is_answered);
        assert_eq!(writer.run("lock locked 0"), "ok");
        assert_eq!(writer.run("flock flocked"), "ok");
        assert_eq!(writer.run("write locked mine"), "ok");
        writer.begin(&format!("stream stream {BLOCKS}"));
        let synced = loop {
            let block: usize = writer.result().parse().expect("a block's number, no error");
            if block >= BLOCKS / 8 {
                break block;
            }
        };

        knfsd.cut_power();
        knfsd.on_disk(|export| {
            let stream = export.join("stream");
            assert!(has_blocks(&stream, synced + 1), "{synced} blocks are synced");
            assert!(!has_blocks(&stream, BLOCKS), "the stream isn't at its end");
            assert!(!has_blocks(&export.join("unsynced"), 1), "nobody has asked the server to sync this");
        });
        knfsd.power_on();
        knfsd.run("[ -s /srv/boot_id ] && ! cmp -s /proc/sys/kernel/random/boot_id /srv/boot_id");

        let mut reader = Application::new(other.path());
        for (name, lock) in [("locked", "lock locked 0"), ("flocked", "flock flocked")] {
            assert_eq!(reader.run(&format!("open {name}")), "ok");
            assert_eq!(reader.run(lock), "EAGAIN", "{name}");
        }
        let last = loop {
            match writer.result() {
                result if result.parse::<usize>().is_ok() => {}
                result => break result,
            }
        };
        assert_eq!(last, "ok");
        assert!(knfsd_has_blocks(knfsd, "stream", BLOCKS));
        assert_eq!(writer.run("sync unsynced"), "ok");
        let resent = mount.status().expect("the mount answers")["bytes_resent"].as_u64();
        assert!(resent >= Some(unsynced), "{resent:?}");
        assert!(knfsd_has_blocks(knfsd, "unsynced", UNSYNCED));
        assert_eq!(writer.run("read locked"), "mine");
        for lock in ["lock locked 0", "flock flocked"] {
            assert_eq!(reader.run(lock), "EAGAIN");
        }
        // The locks end with the process.
        drop(writer);
        assert_eq!(reader.run("lock locked 1"), "ok");
        wait_for("the other lock", || (reader.run("flock flocked") == "ok").then_some(()));
        drop(reader);
        for (mount, daemon) in [(&mount, &mut daemon), (&other, &mut other_daemon)] {
            mount.unmount();
            assert!(daemon.wait().success(), "{}", daemon.log());
            assert!(!daemon.log().contains("lost"), "{}", daemon.log());
        }
    });
}

/// The kernel's server restarts, and then ends its clients, with their sessions and state, while one doesn't
/// answer. Another one gets a lock that it held. Only files with locks fail, and the log names them.
#[test]
fn an_application_notices_no_restart_of_knfsd_and_loses_locks_that_it_expires() {
    need_root();
    let netns = Netns::new("knfsd");
    Knfsd::with(&netns, GUEST_TIMEOUT, |knfsd| {
        let scratch = Scratch::new();
        let (mount, mut daemon) = mount_of_knfsd(&netns, &scratch, "one");
        let (other, mut other_daemon) = mount_of_knfsd(&netns, &scratch, "two");
        application_under_kills(knfsd, mount.path(), other.path());

        let (mut one, mut two) = (Application::new(mount.path()), Application::new(other.path()));
        for name in ["contended", "taken", "untouched"] {
            assert_eq!(one.run(&format!("open {name}")), "ok");
            assert_eq!(one.run(&format!("write {name} mine_")), "ok");
        }
        assert_eq!(one.run("lock contended 0"), "ok");
        assert_eq!(one.run("lock taken 0"), "ok");
        assert_eq!(two.run("open contended"), "ok");
        daemon.signal(Signal::STOP);
        knfsd.expire_clients();
        // The other mount begins another session by itself.
        assert_eq!(two.run("lock contended 1"), "ok");
        assert_eq!(two.run("write contended yours"), "ok");
        daemon.signal(Signal::CONT);
        assert_eq!(one.run("read untouched"), "mine_");
        assert_eq!(one.run("write untouched still"), "ok");
        assert_eq!(one.run("write contended mine_"), "EIO");
        assert_eq!(one.run("read contended"), "EIO");
        // Without a reclaim nobody knows whether the lock was another's meanwhile.
        assert_eq!(one.run("read taken"), "EIO");
        assert_eq!(two.run("read contended"), "yours");
        let log = daemon.log();
        for name in ["contended", "taken"] {
            assert!(log.lines().any(|line| line.contains("locks are lost") && line.contains(name)), "{log}");
            assert_eq!(one.run(&format!("unlock {name}")), "ok");
        }
        assert!(!log.contains("untouched"), "{log}");
        assert_eq!(one.run("read taken"), "mine_");
        assert_eq!(two.run("unlock contended"), "ok");
        assert_eq!(one.run("lock contended 1"), "ok");
        assert_eq!(one.run("read contended"), "yours");
        drop((one, two));
        for (mount, daemon) in [(&mount, &mut daemon), (&other, &mut other_daemon)] {
            mount.unmount();
            assert!(daemon.wait().success(), "{}", daemon.log());
        }
    });
}
