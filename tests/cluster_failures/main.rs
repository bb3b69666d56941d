//! Gateways of one CephFS fail while applications on clients of all of them take and release locks.
//!
//! Ceph is that of `tests/ceph/run`, by the environment variable `SAMEHOST_TEST_CEPH`: `make test-cluster`
//! sets it. Without it the tests say so and pass. In each test no two applications ever have one lock, what
//! was written stably is read, and locks that can be reclaimed are.

mod applications;
mod gateways;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use applications::Applications;
use gateways::{CONDITION, Cluster, Gateway, Gateways, LEASE, LONG_LEASE};
use samehost_tests::qemu::{self, Job};
use samehost_tests::{Mount, Scratch, run_ok};

/// How often each application gets a lock until all is well again.
const MORE: usize = 5;

/// Three gateways that give opens and locks.
fn three(cluster: &Cluster) -> Gateways<'_> {
    let new = |(name, number)| Gateway::start_new(cluster, name, number);
    let mut gateways = Gateways { all: [("a", 11), ("b", 12), ("c", 13)].map(new).into() };
    gateways.until_normal();
    gateways
}

#[test]
fn gateways_that_are_killed_and_restarted_lose_no_locks() {
    let Some(cluster) = Cluster::new("killed", &["a", "b", "c"]) else { return };
    let mut gateways = three(&cluster);
    let applications = Applications::start(&mut gateways);

    gateways['a'].kill();
    gateways['a'].start();
    applications.until_granted(&mut gateways, "locks after a restart", MORE);
    gateways.until_normal();

    // The leases of its clients have expired, but no other client has got their locks.
    gateways['b'].kill();
    std::thread::sleep(Duration::from_secs(LEASE + 5));
    gateways['b'].start();
    applications.until_granted(&mut gateways, "locks after a late restart", MORE);
    gateways.until_normal();

    gateways['a'].kill();
    gateways['c'].kill();
    gateways['c'].start();
    gateways['a'].start();
    applications.until_granted(&mut gateways, "locks after two restarts", MORE);
    gateways.until_normal();
    applications.check(&[]);
}

#[test]
fn clients_of_a_gateway_that_ceph_has_given_up_are_told() {
    let Some(cluster) = Cluster::new("evicted", &["a", "b", "c"]) else { return };
    let mut gateways = three(&cluster);
    let applications = Applications::start(&mut gateways);
    let session = gateways['a'].session();
    gateways['a'].kill();
    cluster.ceph(&["tell", "mds.m", "client", "evict", &format!("id={session}")]);
    gateways['a'].unmount();
    gateways['a'].mount();
    gateways['a'].start();
    applications.until_granted(&mut gateways, "locks after an eviction", MORE);
    gateways.until_normal();
    applications.check(&[0]);
}

#[test]
fn gateways_that_are_cut_off_fall_silent_and_come_back() {
    let Some(cluster) = Cluster::new("cut", &["a", "b", "c"]) else { return };
    let mut gateways = three(&cluster);
    let applications = Applications::start(&mut gateways);

    // From the clients, for less than a lease: nothing but a delay.
    gateways['b'].link("clients", "down");
    std::thread::sleep(Duration::from_secs(LEASE / 3));
    gateways['b'].link("clients", "up");
    applications.until_granted(&mut gateways, "locks after the clients' network was down", MORE);

    // From Ceph, and another from both, for longer than they may vouch for their clients' locks.
    gateways['a'].link("ceph", "down");
    gateways['c'].link("ceph", "down");
    gateways['c'].link("clients", "down");
    std::thread::sleep(Duration::from_secs(60));
    gateways['a'].link("ceph", "up");
    gateways['c'].link("ceph", "up");
    gateways['c'].link("clients", "up");
    applications.until_granted(&mut gateways, "locks after Ceph was not to be reached", MORE);
    gateways.until_normal();
    applications.check(&[]);
}

#[test]
fn ceph_itself_may_fail_for_a_while() {
    let Some(cluster) = Cluster::new("daemons", &["a", "b", "c"]) else { return };
    let mut gateways = three(&cluster);
    let applications = Applications::start(&mut gateways);

    cluster.signal("osd.0", "-STOP");
    std::thread::sleep(Duration::from_secs(30));
    cluster.signal("osd.0", "-CONT");
    applications.until_granted(&mut gateways, "locks after the OSD was stopped", MORE);
    gateways.until_normal();

    cluster.signal("mds.m", "-KILL");
    cluster.start_mds();
    applications.until_granted(&mut gateways, "locks with another metadata server", MORE);
    gateways.until_normal();
    applications.check(&[]);
}

#[test]
fn gateways_join_and_leave_under_load() {
    let Some(cluster) = Cluster::new("members", &["a", "b", "c"]) else { return };
    let mut gateways = three(&cluster);
    let mut applications = Applications::start(&mut gateways);

    cluster.command(&["add", "d"]);
    gateways.all.push(Gateway::start_new(&cluster, "d", 14));
    gateways.until_normal();
    applications.add(&gateways['d']);
    applications.until_granted(&mut gateways, "locks on the fourth gateway, too", MORE);

    // The address moves; the client at it reclaims from the successor.
    let session = gateways['a'].session();
    cluster.command(&["drain", "a", "--to", "b"]);
    gateways['a'].until_ended();
    applications.until_granted(&mut gateways, "locks after a was drained", MORE);
    // The drained server has released everything itself: nothing evicts its mount.
    let sessions = cluster.ceph(&["tell", "mds.m", "session", "ls"]);
    assert!(sessions.contains(&format!("\"id\": {session},")), "{session} isn't among {sessions}");
    gateways.all.retain(|gateway| !gateway.is("a"));
    gateways.until_normal();
    applications.check(&[]);
}

#[test]
fn clients_of_a_dead_host_reclaim_from_the_server_that_takes_over() {
    let Some(mut cluster) = Cluster::new("dead", &["a", "b"]) else { return };
    cluster.lease = LONG_LEASE;
    let new = |(name, number)| Gateway::start_new(&cluster, name, number);
    let mut gateways = Gateways { all: [("a", 11), ("b", 12)].map(new).into() };
    gateways.until_normal();
    let client = applications::Holder::of(&gateways['a'], "held");
    assert!(!applications::try_lock(&gateways['b'], "held"));
    gateways['a'].crash_host();
    cluster.command(&["drain", "a", "--to", "b"]);
    gateways.all.retain(|gateway| !gateway.is("a"));
    client.write();
    gateways.until_normal();
    assert!(!applications::try_lock(&gateways['b'], "held"));
    client.release();
    assert!(applications::try_lock(&gateways['b'], "held"));
}

/// A program that has a file open and locks it, as tests/guest/holder.c says. It is a process of its own: one
/// that this process starts would wait for a mount on which this one has a file open.
struct Program {
    process: Child,
    commands: ChildStdin,
    replies: mpsc::Receiver<String>,
}

impl Program {
    fn of(file: &Path) -> Self {
        let scratch = Scratch::new();
        let path = scratch.join("holder");
        std::fs::write(&path, qemu::guest_program("holder")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(path);
        let mut process = command.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (send, replies) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { process, commands, replies }
    }

    fn must(&mut self, command: &str, reply: &str) {
        writeln!(self.commands, "{command}").unwrap();
        assert_eq!(self.replies.recv_timeout(CONDITION).expect("an answer of the mount"), reply, "{command}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn programs_on_a_mount_keep_their_locks_when_its_gateway_fails_and_is_drained() {
    let Some(cluster) = Cluster::new("mount", &["a", "b"]) else { return };
    let new = |(name, number)| Gateway::start_new(&cluster, name, number);
    let mut gateways = Gateways { all: [("a", 11), ("b", 12)].map(new).into() };
    gateways.until_normal();
    let scratch = Scratch::new();
    let mount = Mount::unmounted_with(&scratch.mkdir("run"));
    // As on another host: what a lane grants ends with the host.
    run_ok(&mut mount.command(&gateways['a'].url(), "vers=4.2,lane=off"));
    let mut program = Program::of(&mount.join("mounted"));
    program.must("lock w 0 10", "ok");
    assert!(!applications::try_lock(&gateways['b'], "mounted"));
    for event in ["kill", "crash", "drain"] {
        match event {
            "kill" => {
                gateways['a'].kill();
                gateways['a'].start();
            }
            "crash" => {
                gateways['a'].crash_host();
                gateways['a'].boot_host();
            }
            _ => {
                cluster.command(&["drain", "a", "--to", "b"]);
                gateways['a'].until_ended();
                gateways.all.retain(|gateway| !gateway.is("a"));
            }
        }
        // The mount reclaims meanwhile.
        gateways.until_normal();
        program.must(&format!("write 0 {event}"), "ok");
        assert!(!applications::try_lock(&gateways['b'], "mounted"), "{event}");
    }
    program.must("read 0 5", "drain");
    program.must("unlock 0 10", "ok");
    assert!(applications::try_lock(&gateways['b'], "mounted"));
}

#[test]
fn linux_keeps_its_locks_when_its_gateway_fails_and_is_drained() {
    let Some(cluster) = Cluster::new("linux", &["a", "b"]) else { return };
    let new = |(name, number)| Gateway::start_new(&cluster, name, number);
    let mut gateways = Gateways { all: [("a", 11), ("b", 12)].map(new).into() };
    gateways.until_normal();
    let plan = format!(
        "ADDRESS={}\n{}{}",
        gateways['a'].address(),
        include_str!("../guest/state.sh"),
        include_str!("../guest/cluster.sh")
    );
    let job = Job { nfs_port: 2049, mount_port: 2049, anon_uid: 0, plan: &plan };
    let report = qemu::boot(&job, None, 3 * CONDITION, |event| {
        match event {
            "denied" | "granted" => {
                let is_granted = applications::try_lock(&gateways['b'], "linux");
                return if is_granted == (event == "granted") { "ok" } else { "not so" }.to_owned();
            }
            "kill" => {
                gateways['a'].kill();
                gateways['a'].start();
            }
            "crash" => {
                gateways['a'].crash_host();
                gateways['a'].boot_host();
            }
            "drain" => {
                cluster.command(&["drain", "a", "--to", "b"]);
                gateways['a'].until_ended();
                gateways.all.retain(|gateway| !gateway.is("a"));
            }
            other => return format!("{other}?"),
        }
        // The guest's client reclaims meanwhile.
        gateways.until_normal();
        "ok".to_owned()
    });
    report.assert_passed(22);
}

#[test]
fn a_mount_of_the_kernels_ceph_client_is_served_too() {
    let Some(cluster) = Cluster::new("kernel", &["b", "kernel"]) else { return };
    let gateway = Gateway::start_new(&cluster, "b", 12);
    let plan = format!(
        "MONITOR=10.91.0.1:3300\nSECRET={}\nCLUSTER={}\n{}{}",
        cluster.ceph(&["auth", "get-key", "client.admin"]),
        cluster.address(),
        include_str!("../guest/state.sh"),
        include_str!("../guest/ceph.sh")
    );
    let job = Job { nfs_port: 2049, mount_port: 2049, anon_uid: 0, plan: &plan };
    let report = qemu::boot_ceph(&job, cluster.configuration(), 2 * CONDITION, |event| {
        let is_granted = applications::try_lock(&gateway, "kernel");
        if is_granted == (event == "granted") { "ok" } else { "not so" }.to_owned()
    });
    report.assert_passed(12);
}
