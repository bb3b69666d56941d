//! Every packet between clients and a server, decoded by tshark. Of two mounts, by vers=4.2 and 4.1: names,
//! files, holes, copies, extended attributes, access control lists, locks, delegations with their callbacks,
//! and a restart of the server. Of another one: a lost connection, revoked state, and a copy that is
//! cancelled; and what only the library sends.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use samehost_tests::capture::{Capture, Packets};
use samehost_tests::disk::{Disk, Frozen};
use samehost_tests::scratch::pattern;
use samehost_tests::{
    Application, Daemon, Mount, Netns, Scratch, Serve, Server, need_root, run_ok, wait_for,
};

const VERSIONS: [&str; 2] = ["4.2", "4.1"];

/// What a program can do by both versions, in a directory of its own.
const BY_BOTH: &str = r"
mkdir -p d/e
for i in $(seq 150); do echo $i >d/e/file-$i; done
ls -lR d >/dev/null
cat d/e/* >/dev/null
mv d/e/file-1 d/renamed
ln d/renamed d/hard
ln -s renamed d/link
test $(readlink d/link) = renamed
mkfifo d/pipe
chmod 600 d/renamed
chown 12:34 d/renamed
touch -d 2001-02-03 d/renamed
df d >/dev/null
dd if=/dev/urandom of=large bs=100001 count=50 conv=fsync status=none
cp large copy
cmp large copy
echo more >>copy
truncate -s 5M sparse
echo end >>sparse
tail -c 4 sparse | grep -q end
# Of these two opens the one for writing ends first.
exec 3<>copy 4<copy
exec 3>&-
cat <&4 >/dev/null
exec 4<&-
nfs4_getfacl d/renamed >/dev/null
nfs4_setfacl -a A::1234:RW d/renamed
! cat missing 2>/dev/null
! rmdir d 2>/dev/null
rm -r d
";

/// And by 4.2.
const BY_4_2: &str = r"
setfattr -n user.one -v 1 large
setfattr -n user.two -v 2 large
getfattr -d large | grep -q user.two
setfattr -x user.one large
fallocate -l 8M large
fallocate -p -o 64K -l 1M large
cp --sparse=always sparse again
cmp sparse again
";

/// The operations that are called, by their numbers.
const OPERATIONS: [(&str, u32); 44] = [
    ("ACCESS", 3),
    ("CLOSE", 4),
    ("COMMIT", 5),
    ("CREATE", 6),
    ("DELEGRETURN", 8),
    ("GETATTR", 9),
    ("GETFH", 10),
    ("LINK", 11),
    ("LOCK", 12),
    ("LOCKT", 13),
    ("LOCKU", 14),
    ("LOOKUP", 15),
    ("LOOKUPP", 16),
    ("NVERIFY", 17),
    ("OPEN", 18),
    ("OPEN_DOWNGRADE", 21),
    ("PUTFH", 22),
    ("PUTROOTFH", 24),
    ("READ", 25),
    ("READDIR", 26),
    ("READLINK", 27),
    ("REMOVE", 28),
    ("RENAME", 29),
    ("RESTOREFH", 31),
    ("SAVEFH", 32),
    ("SETATTR", 34),
    ("VERIFY", 37),
    ("WRITE", 38),
    ("EXCHANGE_ID", 42),
    ("CREATE_SESSION", 43),
    ("DESTROY_SESSION", 44),
    ("FREE_STATEID", 45),
    ("SEQUENCE", 53),
    ("DESTROY_CLIENTID", 57),
    ("RECLAIM_COMPLETE", 58),
    ("ALLOCATE", 59),
    ("COPY", 60),
    ("DEALLOCATE", 62),
    ("READ_PLUS", 68),
    ("SEEK", 69),
    ("GETXATTR", 72),
    ("SETXATTR", 73),
    ("LISTXATTRS", 74),
    ("REMOVEXATTR", 75),
];

/// Those after failures and by the library, likewise.
const OF_RECOVERIES: [(&str, u32); 7] = [
    ("BIND_CONN_TO_SESSION", 41),
    ("FREE_STATEID", 45),
    ("TEST_STATEID", 55),
    ("IO_ADVISE", 63),
    ("OFFLOAD_CANCEL", 66),
    ("OFFLOAD_STATUS", 67),
    ("CLONE", 71),
];

/// The callbacks, likewise.
const CALLBACKS: [(&str, u32); 5] =
    [("CB_GETATTR", 3), ("CB_RECALL", 4), ("CB_SEQUENCE", 11), ("CB_NOTIFY_LOCK", 13), ("CB_OFFLOAD", 15)];

/// Asks who excludes a lock (F_GETLK), which somebody on another mount does.
const ASK_FOR_LOCK: &str = r#"
import fcntl, struct
lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
with open("locked", "r+") as file:
    answer = fcntl.fcntl(file, fcntl.F_GETLK, lock)
    assert struct.unpack_from("h", answer)[0] == fcntl.F_WRLCK
"#;

fn run_script(dir: &Path, script: &str) {
    run_ok(Command::new("sh").args(["-c", &format!("set -e\n{script}")]).current_dir(dir));
}

/// A mount has the delegation of a file, and a process of the server's host changes it.
fn recall_a_delegation(server: &Server, mount: &Mount, export: &Path, file: &str) {
    fs::write(export.join(file), "before").expect("written");
    read_until_delegated(mount, || drop(fs::read(mount.join(file)).expect("read")));
    let before = server.status().calls("wire", "NFS4.DELEGRETURN");
    fs::write(export.join(file), "after").expect("written");
    server.wait_for_calls("NFS4.DELEGRETURN", before);
    assert_eq!(fs::read_to_string(mount.join(file)).expect("read"), "after");
}

/// Reads a file on a mount until that takes no call.
fn read_until_delegated(mount: &Mount, read: impl Fn()) {
    let calls = || mount.status().expect("a mount")["wire"]["round_trips"].as_u64();
    wait_for("a read without a call", || {
        let before = calls();
        read();
        (calls() == before).then_some(())
    });
}

/// An application on one mount waits for a lock that one on the other has, and is notified.
fn lock_in_turn(server: &Server, one: &mut Application, two: &mut Application) {
    assert_eq!(one.run("lock locked 1"), "ok");
    let before = server.status().calls("wire", "NFS4.LOCK");
    two.begin("lock locked 1");
    server.wait_for_calls("NFS4.LOCK", before);
    assert_eq!(one.run("write locked text"), "ok");
    assert_eq!(one.run("unlock locked"), "ok");
    assert_eq!(two.result(), "ok");
    assert_eq!(two.run("read locked"), "text");
    assert_eq!(two.run("unlock locked"), "ok");
}

/// An application on one mount gets a write delegation, and the other mount asks for the file's size, which
/// the server has to ask of the first one.
fn ask_a_holder_for_attributes(one: &mut Application, two: &Mount) {
    // Files that are opened again and again for writing are delegated.
    for _ in 0..4 {
        assert_eq!(one.run("open written"), "ok");
        assert_eq!(one.run("write written text"), "ok");
    }
    assert_eq!(fs::metadata(two.join("written")).expect("there").len(), 4);
}

/// The numbers that a field has in all packets.
fn numbers(packets: &Packets, port: u16, field: &str) -> BTreeSet<u32> {
    let lines = packets.fields(&[port], field, &[field]);
    lines.iter().flat_map(|line| line.split(',').filter_map(|number| number.parse().ok())).collect()
}

/// tshark has decoded all packets, and these operations were called.
fn assert_well_formed(packets: &Packets, port: u16, operations: &[(&str, u32)]) {
    let bad = packets.fields(
        &[port],
        "_ws.malformed || rpc.fragment.error || _ws.expert.group == \"Malformed\" \
         || _ws.expert.severity == \"Error\"",
        &["frame.number", "tcp.srcport", "rpc.xid", "_ws.col.Info", "_ws.expert.message"],
    );
    assert!(bad.is_empty(), "tshark reports malformed packets ({}):\n{}", packets.summary(), bad.join("\n"));
    let called = numbers(packets, port, "nfs.opcode");
    let missing = operations.iter().filter(|(_, number)| !called.contains(number));
    assert_eq!(missing.collect::<Vec<_>>(), [] as [&(&str, u32); 0]);
}

#[test]
fn tshark_finds_no_malformed_packet_of_mounts() {
    need_root();
    let disk = Disk::in_directory("ext4", 200, Path::new("/dev/shm"));
    let export = disk.path().join("export");
    fs::create_dir(&export).expect("a directory");
    let (scratch, netns) = (Scratch::new(), Netns::new("packets"));
    let mut server = Serve::openly(&export).listen("127.0.0.1:2049").inside(&netns).start();
    let capture = Capture::start(&netns, &scratch);
    let mounts = VERSIONS.map(|version| {
        let mount = Mount::unmounted(&server);
        let options = format!("lane=off,vers={version},acregmin=1,acregmax=1");
        run_ok(&mut netns.inside(&mount.command(&server.url(&export), &options)));
        mount
    });
    for (version, mount) in VERSIONS.iter().zip(&mounts) {
        let own = mount.join(version);
        fs::create_dir(&own).expect("a directory");
        run_script(&own, BY_BOTH);
        if *version == "4.2" {
            run_script(&own, BY_4_2);
        }
        // A file whose delegation was recalled isn't delegated again soon.
        recall_a_delegation(&server, mount, &export, &format!("delegated-{version}"));
    }
    let [mut one, mut two] = mounts.each_ref().map(|mount| Application::new(mount.path()));
    for application in [&mut one, &mut two] {
        assert_eq!(application.run("open locked"), "ok");
    }
    lock_in_turn(&server, &mut one, &mut two);
    lock_in_turn(&server, &mut two, &mut one);
    ask_a_holder_for_attributes(&mut one, &mounts[1]);
    assert_eq!(one.run("lock locked 0"), "ok");
    run_ok(Command::new("python3").args(["-c", ASK_FOR_LOCK]).current_dir(mounts[1].path()));
    server.kill();
    server.restart();
    assert_eq!(one.run("write locked kept"), "ok");
    assert_eq!(two.run("lock locked 0"), "EAGAIN");
    drop((one, two));
    for mount in &mounts {
        run_script(mount.path(), "rm -rf 4.*");
        mount.unmount();
    }

    let packets = capture.finish(&netns);
    assert_well_formed(&packets, server.port(), &OPERATIONS);
    let called = numbers(&packets, server.port(), "nfs.cb.operation");
    let missing = CALLBACKS.iter().filter(|(_, number)| !called.contains(number));
    assert_eq!(missing.collect::<Vec<_>>(), [] as [&(&str, u32); 0]);
}

/// The connection of a mount is closed.
fn cut_connection(netns: &Netns, server: &Server, mount: &Mount) {
    let before = server.status().calls("wire", "NFS4.BIND_CONN_TO_SESSION");
    run_ok(netns.command("ss").args(["--kill", "--tcp", &format!("dport = :{}", server.port())]));
    fs::metadata(mount.path()).expect("there");
    server.wait_for_calls("NFS4.BIND_CONN_TO_SESSION", before);
}

/// A mount has a delegation, and state besides, and doesn't hear that a process of the server's host wants
/// the file. The server revokes the delegation.
fn revoke_a_delegation(server: &Server, (mount, daemon): (&Mount, &Daemon), export: &Path) {
    let mut holder = Application::new(mount.path());
    assert_eq!(holder.run("open held"), "ok");
    assert_eq!(holder.run("lock held 0"), "ok");
    // The server waits less long for one who can't write the file.
    let user = ["--reuid", "1234", "--regid", "1234", "--clear-groups"];
    let file = mount.join("delegated");
    read_until_delegated(mount, || drop(run_ok(Command::new("setpriv").args(user).arg("cat").arg(&file))));
    let before = server.status().calls("wire", "NFS4.TEST_STATEID");
    daemon.signal(Signal::STOP);
    fs::write(export.join("delegated"), "after").expect("written");
    daemon.signal(Signal::CONT);
    assert_eq!(fs::read_to_string(&file).expect("read"), "after");
    server.wait_for_calls("NFS4.TEST_STATEID", before);
    assert_eq!(holder.run("write held kept"), "ok");
}

/// An application is killed that waits for a copy, which can't end meanwhile.
fn cancel_a_copy(server: &Server, mount: &Mount, disk: &Disk) {
    let copy = "import os; os.copy_file_range(os.open('large', os.O_RDONLY), \
                os.open('copy', os.O_WRONLY), 8 << 20)";
    let frozen = Frozen::new(disk);
    let mut copy =
        Command::new("python3").args(["-c", copy]).current_dir(mount.path()).spawn().expect("python3");
    server.wait_for_calls("NFS4.OFFLOAD_STATUS", 0);
    copy.kill().expect("it waits");
    server.wait_for_calls("NFS4.OFFLOAD_CANCEL", 0);
    drop(frozen);
    assert_eq!(copy.wait().expect("it has ended").signal(), Some(9));
}

#[test]
fn tshark_finds_no_malformed_packet_of_recoveries() {
    need_root();
    let disk = Disk::in_directory("btrfs", 200, Path::new("/dev/shm"));
    let export = disk.path().join("export");
    fs::create_dir(&export).expect("a directory");
    fs::write(export.join("large"), pattern(1, 8 << 20)).expect("written");
    fs::write(export.join("copy"), "").expect("written");
    fs::write(export.join("delegated"), "before").expect("written");
    fs::set_permissions(export.join("delegated"), Permissions::from_mode(0o644)).expect("own file");
    let (scratch, netns) = (Scratch::new(), Netns::new("recoveries"));
    let server = Serve::openly(&export).inside(&netns).start();
    let capture = Capture::start(&netns, &scratch);
    let mount = Mount::unmounted(&server);
    let url = server.url(&export);
    let mut command = mount.command(&url, "lane=off,vers=4.2,acregmin=1,acregmax=1");
    command.arg("--foreground");
    let mut command = netns.inside(&command);
    let mut daemon =
        Daemon::start("samehost mount", &mut command, &scratch.join("mount.log")).expect("a mount");
    wait_for("the mount", || mount.is_mounted().then_some(()));
    cut_connection(&netns, &server, &mount);
    revoke_a_delegation(&server, (&mount, &daemon), &export);
    let mut client = netns.command(env!("CARGO_BIN_EXE_samehost-test-client"));
    run_ok(client.args(["clone", &url]).arg(server.run_dir()).args(["large", "cloned"]));
    assert_eq!(fs::read(mount.join("cloned")).expect("read"), pattern(1, 8 << 20));
    cancel_a_copy(&server, &mount, &disk);
    mount.unmount();
    assert!(daemon.wait().success(), "{}", daemon.log());
    assert_well_formed(&capture.finish(&netns), server.port(), &OF_RECOVERIES);
}
