//! Every packet of two mounts, by vers=4.2 and 4.1, of one server, decoded by tshark: names, files, holes,
//! copies, extended attributes, access control lists, locks, delegations with their callbacks, and a restart
//! of the server.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_tests::capture::{Capture, Packets};
use samehost_tests::disk::Disk;
use samehost_tests::{Application, Mount, Netns, Scratch, Serve, Server, need_root, run_ok, wait_for};

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
const OPERATIONS: [(&str, u32); 35] = [
    ("ACCESS", 3),
    ("CLOSE", 4),
    ("COMMIT", 5),
    ("CREATE", 6),
    ("DELEGRETURN", 8),
    ("GETATTR", 9),
    ("LINK", 11),
    ("LOCK", 12),
    ("LOCKU", 14),
    ("LOOKUP", 15),
    ("OPEN", 18),
    ("OPEN_DOWNGRADE", 21),
    ("READ", 25),
    ("READDIR", 26),
    ("READLINK", 27),
    ("REMOVE", 28),
    ("RENAME", 29),
    ("SETATTR", 34),
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

/// The callbacks, likewise.
const CALLBACKS: [(&str, u32); 5] =
    [("CB_GETATTR", 3), ("CB_RECALL", 4), ("CB_SEQUENCE", 11), ("CB_NOTIFY_LOCK", 13), ("CB_OFFLOAD", 15)];

fn run_script(dir: &Path, script: &str) {
    run_ok(Command::new("sh").args(["-c", &format!("set -e\n{script}")]).current_dir(dir));
}

/// Reads a file on a mount until that takes no call, and lets a process of the server's host change it.
fn recall_a_delegation(server: &Server, mount: &Mount, export: &Path, file: &str) {
    fs::write(export.join(file), "before").expect("written");
    let calls = || mount.status().expect("a mount")["wire"]["round_trips"].as_u64();
    wait_for("a read without a call", || {
        let before = calls();
        fs::read(mount.join(file)).expect("read");
        (calls() == before).then_some(())
    });
    let before = server.status().calls("wire", "NFS4.DELEGRETURN");
    fs::write(export.join(file), "after").expect("written");
    server.wait_for_calls("NFS4.DELEGRETURN", before);
    assert_eq!(fs::read_to_string(mount.join(file)).expect("read"), "after");
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
    server.kill();
    server.restart();
    assert_eq!(one.run("write locked kept"), "ok");
    assert_eq!(two.run("lock locked 0"), "EAGAIN");
    drop((one, two));
    for mount in &mounts {
        run_script(mount.path(), "rm -rf 4.*");
        mount.unmount();
    }

    let (packets, port) = (capture.finish(&netns), server.port());
    let bad = packets.fields(
        &[port],
        "_ws.malformed || rpc.fragment.error || _ws.expert.group == \"Malformed\" \
         || _ws.expert.severity == \"Error\"",
        &["frame.number", "tcp.srcport", "rpc.xid", "_ws.col.Info", "_ws.expert.message"],
    );
    assert!(bad.is_empty(), "tshark reports malformed packets ({}):\n{}", packets.summary(), bad.join("\n"));
    // It has decoded them all.
    let called = numbers(&packets, port, "nfs.opcode");
    let missing = OPERATIONS.iter().filter(|(_, number)| !called.contains(number));
    assert_eq!(missing.collect::<Vec<_>>(), [] as [&(&str, u32); 0]);
    let called = numbers(&packets, port, "nfs.cb.operation");
    let missing = CALLBACKS.iter().filter(|(_, number)| !called.contains(number));
    assert_eq!(missing.collect::<Vec<_>>(), [] as [&(&str, u32); 0]);
}
