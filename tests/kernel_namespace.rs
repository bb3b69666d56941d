//! The Linux kernel's NFS client in QEMU, in namespaces of more than one filesystem: filesystems that are
//! mounted below an export, and an export that refers to another server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Netns, Scratch, Serve, Server, need_root, run_ok, wait_for};

/// Debian's cloud kernel takes about 5 s to user space under emulation; the operations take seconds.
const GUEST_TIMEOUT: Duration = Duration::from_secs(420);

/// A tmpfs, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(path: PathBuf, text: &str) -> Self {
        std::fs::create_dir_all(&path).expect("own directory");
        run_ok(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755,size=1m", "none"]).arg(&path));
        std::fs::write(path.join("f"), text).expect("there is room");
        Self(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(&self.0).status();
    }
}

/// Both versions cross into a filesystem with another device number, and see another one that is mounted and
/// unmounted meanwhile.
#[test]
fn the_kernels_client_crosses_into_filesystems_below_an_export() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    std::fs::write(export.join("f"), "outer").expect("own directory");
    let _disk = Tmpfs::at(export.join("disk"), "disk");
    std::fs::create_dir(export.join("late")).expect("own directory");
    let path = export.display().to_string();
    let server = Serve::new(format!("{path} *(rw,insecure,no_root_squash,crossmnt)")).start();
    let plan = format!(
        "is() {{ if [ \"$2\" = \"$3\" ]; then echo \"PASS $1\"; else echo \"FAIL $1: $2, not $3\"; fi; }}\n\
         differ() {{ if [ \"$2\" != \"$3\" ]; then echo \"PASS $1\"; else echo \"FAIL $1: $2\"; fi; }}\n\
         ask() {{ echo \"HOST $1\" >/dev/console; read -r answer </dev/console; }}\n\
         check() {{\n\
         is $1.outer \"$(cat /mnt/$1/f)\" outer\n\
         is $1.inner \"$(cat /mnt/$1/disk/f)\" disk\n\
         differ $1.device \"$(stat -c %d /mnt/$1)\" \"$(stat -c %d /mnt/$1/disk)\"\n\
         echo new > /mnt/$1/disk/$1 && is $1.write \"$(cat /mnt/$1/disk/$1)\" new\n\
         ask mount\n\
         is $1.mounted \"$answer\" ok\n\
         is $1.late \"$(cat /mnt/$1/late/f)\" late\n\
         umount /mnt/$1/late\n\
         ask unmount\n\
         is $1.unmounted \"$answer\" ok\n\
         umount /mnt/$1/disk\n\
         umount /mnt/$1 && echo PASS $1.umount\n\
         }}\n\
         mount_export three {path} rw,noac,lookupcache=none && check three\n\
         mount_v4 four {path} 2 rw,noac,lookupcache=none && check four\n"
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let mut late = None;
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| {
        match request {
            "mount" => late = Some(Tmpfs::at(export.join("late"), "late")),
            _ => late = None,
        }
        // The server notices the change within moments.
        let is_served = |server: &Server| {
            let status = server.status();
            let exports = status.json()["exports"].as_array().expect("a list").clone();
            exports.iter().any(|export| export["path"] == format!("{path}/late"))
        };
        wait_for("the server to follow", || (is_served(&server) == (request == "mount")).then_some(()));
        "ok".to_owned()
    });
    report.assert_passed(2 * 8);
}

/// The client is sent to another server, and reads there.
#[test]
fn the_kernels_client_follows_a_referral() {
    need_root();
    let scratch = Scratch::new();
    let (export, target) = (scratch.mkdir("export"), scratch.mkdir("target"));
    std::fs::create_dir(export.join("moved")).expect("own directory");
    std::fs::write(export.join("moved/f"), "here").expect("own directory");
    std::fs::write(target.join("f"), "there").expect("own directory");
    let display = |path: &Path| path.display().to_string();
    let netns = Netns::new("referral");
    let options = "rw,insecure,no_root_squash";
    // The kernel goes to the standard port of the other server.
    let _other = Serve::new(format!("{} *({options})", display(&target)))
        .listen("127.0.0.1:2049")
        .inside(&netns)
        .start();
    let first = Serve::new(format!("{} *({options})", display(&export)))
        .export(format!(
            "{} *({options},refer={}@10.0.2.2)",
            display(&export.join("moved")),
            display(&target)
        ))
        .inside(&netns)
        .start();
    let plan = format!(
        "mount_v4 four {} 2 rw\n\
         ls -l /mnt/four > /dev/null && echo PASS list\n\
         [ \"$(cat /mnt/four/moved/f)\" = there ] && echo PASS followed\n\
         echo new > /mnt/four/moved/new && echo PASS written\n\
         umount /mnt/four/moved && umount /mnt/four && echo PASS umount\n",
        display(&export)
    );
    let job = Job { nfs_port: first.port(), mount_port: first.port(), anon_uid: 0, plan: &plan };
    let report = qemu::boot(&job, Some(&netns), GUEST_TIMEOUT, |_| String::new());
    report.assert_passed(4);
    assert_eq!(std::fs::read_to_string(target.join("new")).expect("written"), "new\n");
}
