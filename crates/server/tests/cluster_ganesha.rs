//! A Samehost and an nfs-ganesha (FSAL_CEPH, recovery backend rados_cluster) as nodes of one cluster.
//!
//! Without a cluster (`tests/ceph/run`) the test says so and passes.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::gateways::*;
use common::v4::Session;
use common::wait_for;
use proto::nfs4::*;
use xdr::Opaque;

/// An nfs-ganesha with the root of CephFS as /srv, and its network namespace.
struct Ganesha<'a> {
    rig: &'a Rig,
    address: SocketAddr,
    process: Option<Child>,
}

impl<'a> Ganesha<'a> {
    /// The name of its node, and of its network namespace.
    const NAME: &'static str = "ganesha";

    fn new(rig: &'a Rig, number: u8) -> Self {
        let address = format!("{}:2049", rig.network(Self::NAME, number)).parse().unwrap();
        Self { rig, address, process: None }
    }

    fn start(&mut self) {
        let directory = self.rig.directory.path();
        let (configuration, ceph) = (directory.join("ganesha.conf"), &self.rig.ceph);
        let text = format!(
            "NFS_CORE_PARAM {{ Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = {}; }}\n\
             NFSV4 {{ RecoveryBackend = rados_cluster; Minor_Versions = 1, 2; Delegations = false; }}\n\
             RADOS_KV {{ ceph_conf = {ceph}; UserId = admin; pool = cephfs.a.meta; namespace = {}; \
             nodeid = {}; }}\n\
             CEPH {{ ceph_conf = {ceph}; }}\n\
             EXPORT_DEFAULTS {{ SecType = sys; }}\n\
             EXPORT {{ Export_Id = 1; Path = /; Pseudo = /srv; Access_Type = RW; Squash = No_Root_Squash; \
             Protocols = 4; Transports = TCP; PrivilegedPort = false; FSAL {{ Name = CEPH; }} }}\n\
             LOG {{ Default_Log_Level = EVENT; Components {{ CLIENTID = DEBUG; }} }}\n",
            self.address.ip(),
            self.rig.namespace,
            Self::NAME
        );
        std::fs::write(&configuration, text).unwrap();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/gateway-{}", Self::NAME)).args(["ganesha.nfsd", "-F", "-f"]);
        command.arg(configuration).arg("-L").arg(directory.join("ganesha.log"));
        command.arg("-p").arg(directory.join("ganesha.pid"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.rig.directory.path().join("ganesha.log")).unwrap_or_default()
    }

    fn session(&self, owner: &[u8]) -> Session {
        session_with(self.address, owner, &|| self.log())
    }
}

impl Drop for Ganesha<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("ganesha: {}", self.log());
        }
        if self.process.is_some() {
            self.kill();
        }
        Rig::remove_network(Self::NAME);
    }
}

/// Whether the database has these flags of a node, by nfs-ganesha's tool.
fn has_flags(rig: &Rig, node: &str, flags: &str) -> bool {
    rig.ganesha(&["dump"]).lines().any(|line| {
        line.split_once('\t').is_some_and(|(name, shown)| {
            name.trim() == node && shown.split_whitespace().collect::<String>() == flags
        })
    })
}

/// Checks that a server gives no new state.
fn assert_in_grace(session: &mut Session, file: &[u8]) {
    wait_for("a refusal because of the grace period", || match open(session, file, OpenClaim4::Fh) {
        Err(GRACE) => true,
        Err(DELAY) => false,
        other => panic!("not in grace: {other:?}"),
    });
}

/// Creates a file, and locks it.
fn create_and_lock(session: &mut Session, directory: &[u8], name: &[u8]) -> Vec<u8> {
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    let claim = || OpenClaim4::Null(Opaque(name));
    let (opened, file) = until_decided(|| session.open_shared(directory, claim(), true, access, 0)).unwrap();
    until_decided(|| session.lock(&file, opened, false)).unwrap();
    file
}

/// Reclaims an open and a lock, which ends what the client has to reclaim.
fn reclaim(session: &mut Session, file: &[u8]) {
    let again = until_decided(|| open(session, file, OpenClaim4::Previous(0))).unwrap();
    until_decided(|| session.lock(file, again, true)).unwrap();
    session.reclaim_complete();
}

#[test]
fn each_enforces_the_grace_period_of_the_other() {
    let Some(rig) = Rig::new("ganesha") else { return };
    rig.cluster(&["add", "a", Ganesha::NAME]);
    let (mut a, mut ganesha) = (Gateway::new(&rig, "a", 11), Ganesha::new(&rig, 14));
    a.start();
    ganesha.start();
    wait_for("two servers that give state", || rig.is_normal(2));
    let (mut one, mut two) = (a.session(b"one"), ganesha.session(b"two"));
    one.reclaim_complete();
    two.reclaim_complete();

    // The locks of each exclude the other's.
    let srv = Path::new("/srv");
    let (ours, theirs) = (one.walk(srv), two.walk(srv));
    let file_one = create_and_lock(&mut one, &ours, b"one");
    let file_two = create_and_lock(&mut two, &theirs, b"two");
    let one_at_ganesha = two.lookup(&theirs, b"one").unwrap();
    let two_at_a = one.lookup(&ours, b"two").unwrap();
    assert_eq!(open_and_lock(&mut two, &one_at_ganesha).unwrap_err(), DENIED);
    assert_eq!(open_and_lock(&mut one, &two_at_a).unwrap_err(), DENIED);

    // A grace period that ganesha's tool begins, for a node that only the tool knows.
    rig.ganesha(&["add", "tool"]);
    rig.ganesha(&["start", "tool"]);
    wait_for("both servers to enforce", || has_flags(&rig, "a", "E") && has_flags(&rig, Ganesha::NAME, "E"));
    assert_in_grace(&mut one, &two_at_a);
    assert_in_grace(&mut two, &one_at_ganesha);
    rig.ganesha(&["lift", "tool"]);
    rig.ganesha(&["remove", "tool"]);
    wait_for("two servers that give state", || rig.is_normal(2));
    assert_eq!(open_and_lock(&mut one, &two_at_a).unwrap_err(), DENIED);

    // Ours was killed: ganesha gives nothing until the client of ours has reclaimed.
    a.kill();
    a.start();
    one = a.session(b"one");
    wait_for("our node to recover", || has_flags(&rig, "a", "NE") && has_flags(&rig, Ganesha::NAME, "E"));
    assert_in_grace(&mut two, &one_at_ganesha);
    reclaim(&mut one, &file_one);
    wait_for("two servers that give state", || rig.is_normal(2));
    assert_eq!(open_and_lock(&mut two, &one_at_ganesha).unwrap_err(), DENIED);

    // And the other way round.
    ganesha.kill();
    ganesha.start();
    two = ganesha.session(b"two");
    wait_for("ganesha to recover", || has_flags(&rig, Ganesha::NAME, "NE") && has_flags(&rig, "a", "E"));
    assert_in_grace(&mut one, &two_at_a);
    reclaim(&mut two, &file_two);
    wait_for("two servers that give state", || rig.is_normal(2));
    assert_eq!(open_and_lock(&mut one, &two_at_a).unwrap_err(), DENIED);
}
