//! The Linux kernel's NFS client in QEMU with our server: as root and as an ordinary user, with and without
//! squashing, and with local changes of the server's directory.

use std::path::Path;
use std::time::Duration;

use samehost_tests::disk::Disk;
use samehost_tests::qemu::{self, Job};
use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, Serve, need_root, wait_for};

/// Debian's cloud kernel takes about 5 s to user space under emulation, and the workload less than a minute
/// per user.
const GUEST_TIMEOUT: Duration = Duration::from_secs(420);

const ANON_UID: u32 = 4321;

fn create_exports(parent: &Scratch, names: &[&'static str]) -> Vec<(&'static str, std::path::PathBuf)> {
    names
        .iter()
        .map(|name| {
            let export = parent.mkdir(name);
            qemu::create_workload_files(&export);
            (*name, export)
        })
        .collect()
}

#[test]
fn the_kernels_client_runs_the_workload_over_nfs3() {
    need_root();
    let scratch = Scratch::new();
    let exports = create_exports(&scratch, &["plain", "squash", "all", "readonly"]);
    let path = |name: &str| scratch.join(name).display().to_string();
    let server = Serve::new(format!("{} *(rw,insecure,no_root_squash)", path("plain")))
        .export(format!(
            "{} *(rw,insecure,root_squash,anonuid={ANON_UID},anongid={ANON_UID})",
            path("squash")
        ))
        .export(format!("{} *(rw,insecure,all_squash,anonuid={ANON_UID},anongid={ANON_UID})", path("all")))
        .export(format!("{} *(ro,insecure,no_root_squash)", path("readonly")))
        .start();
    let plan = format!(
        "mount_export plain {} rw\nmount_export squash {} rw\nmount_export all {} rw\nmount_export readonly \
         {} rw\nas root root /mnt/plain\nas tester user /mnt/plain\nas root squashed /mnt/squash\nas tester \
         user /mnt/squash\nas tester all /mnt/all\nrefused() {{ if \"$@\" 2>/tmp/why; then echo \"FAIL \
         readonly: $* was done\"; else grep -q 'Read-only' /tmp/why && echo \"PASS readonly.$1\" || echo \
         \"FAIL readonly: $(cat /tmp/why)\"; fi; }}\ncat /mnt/readonly/private && refused touch \
         /mnt/readonly/work/new && refused rm -f /mnt/readonly/public && refused chmod 777 \
         /mnt/readonly/work && refused mkdir /mnt/readonly/d\nfor name in plain squash all readonly; do \
         umount /mnt/$name && echo PASS umount.$name; done\n",
        path("plain"),
        path("squash"),
        path("all"),
        path("readonly")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: ANON_UID, plan: &plan };
    let exports: Vec<(&str, &Path)> = exports.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| qemu::change_on_host(&exports, request));
    println!("kernel {}: {} passed", report.kernel, report.passed.len());
    // Twenty tests for each of five users, four operations that a read-only export refuses, and the unmounts.
    report.assert_passed(5 * 20 + 4 + 4);
    let status = server.status();
    assert!(
        status.calls("wire", "READDIRPLUS") > 0 && status.calls("wire", "COMMIT") > 0,
        "{:?}",
        status.json()
    );
}

/// An export with direct I/O: the server writes blocks from the kernel's client without copying them.
#[test]
fn the_kernels_client_writes_to_a_direct_export_without_a_copy() {
    need_root();
    let disk = Disk::new("ext4", 96);
    let path = disk.path().display().to_string();
    let data: Vec<u8> = (0..5_000_001_u32).map(|at| (at >> 5) as u8 ^ at as u8).collect();
    std::fs::write(disk.path().join("from"), &data).expect("there is room");
    let server =
        Serve::new(format!("{path} *(rw,insecure,no_root_squash,read_io=direct,write_io=direct)")).start();
    let plan = format!(
        "mount_export direct {path} rw\n\
         cp /mnt/direct/from /mnt/direct/cached && echo PASS cached\n\
         dd if=/mnt/direct/from of=/mnt/direct/synced bs=65536 conv=fsync 2>/dev/null && echo PASS synced\n\
         dd if=/mnt/direct/from of=/mnt/direct/odd bs=47008 conv=fsync 2>/dev/null && echo PASS odd\n\
         umount /mnt/direct && echo PASS umount\n\
         mount_v4 four {path} 1 rw\n\
         dd if=/mnt/four/from of=/mnt/four/fourth bs=65536 conv=fsync 2>/dev/null && echo PASS fourth\n\
         umount /mnt/four && echo PASS umount4\n"
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: ANON_UID, plan: &plan };
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |_| String::new());
    report.assert_passed(6);
    for name in ["cached", "synced", "odd", "fourth"] {
        assert!(std::fs::read(disk.path().join(name)).expect("copied") == data, "{name}");
    }
    let status = server.status();
    let export = &status.json()["exports"][0];
    assert_eq!(export["copied_writes"], 0, "{export}");
    assert_eq!(export["io_notes"].as_array().map(Vec::len), Some(0), "{export}");
}

/// Commands for `holder` on a file that shares another file's blocks, and the expected replies.
const SHARING: &str = "clone /mnt/disk/a,hole 65536 65536,seek hole 0,seek data 65536,room 1048576 4096";
const SHARED: &str = "ok ok 65536 131072 ok ";

/// The same workload over NFSv4, through the pseudo-filesystem.
#[test]
fn the_kernels_client_runs_the_workload_over_nfs4() {
    need_root();
    let scratch = Scratch::new();
    let exports = create_exports(&scratch, &["zero", "one", "two"]);
    let disk = Disk::new("xfs", 320);
    let data = pattern(5, 1 << 20);
    std::fs::write(disk.path().join("a"), &data).expect("own disk");
    let path = |name: &str| scratch.join(name).display().to_string();
    let server = Serve::new(format!("{} *(rw,insecure,no_root_squash)", path("one")))
        .export(format!("{} *(rw,insecure,no_root_squash)", path("zero")))
        .export(format!("{} *(rw,insecure,root_squash,anonuid={ANON_UID},anongid={ANON_UID})", path("two")))
        .export(format!("{} *(rw,insecure,no_root_squash)", disk.path().display()))
        .start();
    let plan = format!(
        "mount_v4 disk {disk} 2 rw && [ \"$(echo \"{SHARING}\" | tr , '\\n' | holder /mnt/disk/b | tr '\\n' \
         ' ')\" = '{SHARED}' ] && umount /mnt/disk && echo PASS clone\nmount_v4 zero {zero} 0 rw && echo \
         PASS mount.zero\nmount_v4 one {one} 1 rw && echo PASS mount.one\nmount_v4 two {two} 2 rw && echo \
         PASS mount.two\nas tester user /mnt/zero\nas root root /mnt/one\nas tester user /mnt/one\nas root \
         squashed /mnt/two\nas tester user /mnt/two\nmount_v4 whole / 2 rw && [ \"$(cat \
         /mnt/whole{one}/public)\" = everybody ] && echo PASS root || echo FAIL root\nfor minor in 0 1 2; do \
         mount_v4 top$minor / $minor rw; timeout 60 ls /mnt/top$minor >/tmp/listed; [ $? = 0 ] && grep -qx \
         {first} /tmp/listed && [ $(timeout 60 find /mnt/top$minor -name public | wc -l) = 3 ] && echo PASS \
         listed.$minor || echo FAIL listed.$minor: $(cat /tmp/listed); touch /mnt/top$minor/new 2>&1 | grep \
         -q Read-only && echo PASS pseudo.$minor || echo FAIL pseudo.$minor; umount /mnt/top$minor; \
         done\nfor name in zero one two whole; do umount /mnt/$name && echo PASS umount.$name; done\n",
        zero = path("zero"),
        one = path("one"),
        two = path("two"),
        disk = disk.path().display(),
        first = path("one").split('/').nth(1).expect("an absolute path"),
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: ANON_UID, plan: &plan };
    let exports: Vec<(&str, &Path)> = exports.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| qemu::change_on_host(&exports, request));
    println!("kernel {}: {} passed", report.kernel, report.passed.len());
    report.assert_passed(5 * 20 + 4 + 4 + 1 + 2 * 3);
    let shared = std::fs::read(disk.path().join("b")).expect("own disk");
    assert_eq!(shared.len(), (1 << 20) + 4096);
    assert!(shared[..64 << 10] == data[..64 << 10] && shared[128 << 10..1 << 20] == data[128 << 10..]);
    assert!(shared[64 << 10..128 << 10].iter().all(|byte| *byte == 0));
}

/// A client whose export is withdrawn is denied everything, and continues when the export is back: its mount
/// is unharmed.
#[test]
fn the_kernels_client_survives_the_withdrawal_of_its_export() {
    need_root();
    let scratch = Scratch::new();
    let _ = create_exports(&scratch, &["ours"]);
    let path = scratch.join("ours").display().to_string();
    let list = scratch.join("exports");
    let export_to = |clients: &str| {
        let line = format!("{path} {clients}(rw,insecure,no_root_squash)\n");
        std::fs::write(&list, line).expect("own directory");
    };
    export_to("*");
    let theirs = scratch.mkdir("theirs").display().to_string();
    let server = Serve::new(format!("{theirs} 192.0.2.1(ro)"))
        .arguments(["--exports", &list.display().to_string()])
        .start();
    let plan = format!(
        "host() {{ echo \"HOST $*\" >/dev/console; read -r answer </dev/console; }}\ndenied() {{ what=$1; \
         shift; if \"$@\" 2>/tmp/why; then echo \"FAIL denied.$what: it was done\"; else grep -qi \
         'permission denied' /tmp/why && echo \"PASS denied.$what\" || echo \"FAIL denied.$what: $(cat \
         /tmp/why)\"; fi; }}\nmount_export three {path} rw && mount_v4 four {path} 2 rw && echo PASS \
         mounts\ncat /mnt/three/public /mnt/four/public && echo PASS before\nhost close\necho 3 \
         >/proc/sys/vm/drop_caches\ndenied three.read cat /mnt/three/private\ndenied three.make touch \
         /mnt/three/new\ndenied four.read cat /mnt/four/private\ndenied four.make touch \
         /mnt/four/new\ndenied three.mount mount_export other {path} rw,nosharecache\ndenied four.mount \
         mount_v4 other {theirs} 2 rw,nosharecache\nhost open\ncat /mnt/three/private && touch \
         /mnt/three/three && echo PASS three.again\ncat /mnt/four/private && touch /mnt/four/four && echo \
         PASS four.again\nfor name in three four; do umount /mnt/$name && echo PASS umount.$name; done\n",
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: ANON_UID, plan: &plan };
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| {
        let clients = if request == "close" { "192.0.2.1" } else { "*" };
        export_to(clients);
        server.reload();
        wait_for("the exports to be read", || {
            let exports = server.status().json()["exports"].clone();
            let shown = exports.as_array()?.iter().find(|export| export["path"] == path.as_str())?.clone();
            shown["clients"][0].as_str()?.starts_with(clients).then_some(())
        });
        "ok".to_owned()
    });
    report.assert_passed(2 + 6 + 2 + 2);
}
