//! The Linux kernel's NFS client in QEMU, in namespaces of more than one filesystem: filesystems that are
//! mounted below an export, an export that refers to another server, and the exports file of exports(5)'s own
//! manual page.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use samehost_tests::qemu::{self, Job};
use samehost_tests::samehost::binary;
use samehost_tests::{Daemon, Netns, Scratch, Serve, Server, need_root, run_ok, wait_for};

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

/// Makes a root directory with the directories that the manual page's file exports, and runs the server there
/// with it: `sh -c SCRIPT sh ROOT SERVER EXPORTS`, in namespaces of its own.
const SERVE_THE_MANUAL_PAGE: &str = r#"
set -e
# The source ports of QEMU's connections, which stand for those of the guest: exports are `secure`.
echo 600 >/proc/sys/net/ipv4/ip_unprivileged_port_start
echo 600 1000 >/proc/sys/net/ipv4/ip_local_port_range
mount -t tmpfs -o mode=755 none "$1"
cd "$1"
mkdir -p usr proc dev etc/exports.d tmp var/lib projects home/joe pub srv/www foo build late
chmod 777 home/joe build late
cp "$2" samehost
for directory in lib lib64; do
    if [ -L /$directory ]; then
        cp -P /$directory .
    else
        mkdir $directory
        mount --bind /$directory $directory
    fi
done
mount --bind /usr usr
mount -t proc proc proc
mount --rbind /dev dev
echo public >pub/f
echo web >srv/www/f
cp "$3" etc/exports
echo '/late trusty(rw,wdelay,no_acl,insecure_locks,security_label)' >etc/exports.d/late.exports
echo 127.0.0.1 buildhost7.local.domain trusty pc001 >etc/hosts
echo 'trusted (elsewhere.local.domain,,)' >etc/netgroup
echo 'external (buildhost7.local.domain,,)' >>etc/netgroup
printf '%s: files\n' passwd group hosts netgroup >etc/nsswitch.conf
exec chroot . /samehost serve --listen 127.0.0.1:2049 --no-rpcbind --run-dir /run \
    --state-dir /var/lib/samehost
"#;

/// The file is served unchanged: each line admits the clients that it names, and treats them as it says.
#[test]
fn the_exports_of_the_manual_page_are_served_to_the_kernels_client() {
    need_root();
    let scratch = Scratch::new();
    let netns = Netns::new("manual");
    let exports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/exports/tests/manual_page.exports");
    let mut command = netns.command("unshare");
    command.args(["--mount", "sh", "-c", SERVE_THE_MANUAL_PAGE, "sh"]);
    command.arg(scratch.mkdir("root")).arg(binary()).arg(exports);
    let server = Daemon::start("the server", &mut command, &scratch.join("log")).expect("it starts");
    wait_for("the ready line", || {
        let log = server.log();
        assert!(log.contains("ready") || !log.contains("samehost:") && !log.contains("sh:"), "{log}");
        log.contains("ready: /").then_some(())
    });
    let plan = "\
         is() { [ \"$2\" = \"$3\" ] && echo \"PASS $1\" || echo \"FAIL $1: $2, not $3\"; }\n\
         unwritable() { is $1 \"$(touch $2/new 2>&1 | grep -o 'Read-only')\" Read-only; }\n\
         owner() { is $1 \"$(touch $2/new && stat -c %u:%g $2/new)\" $3; }\n\
         denied() { if \"$@\" 2>/tmp/why; then echo \"FAIL $2: mounted\"; else echo \"PASS $2\"; fi; }\n\
         mount_export root / rw && owner root /mnt/root 0:0\n\
         mount_export joe /home/joe rw && owner joe /mnt/joe 150:100\n\
         mount_export build /build rw && owner build /mnt/build 65534:65534\n\
         mount_export late /late rw && owner late /mnt/late 65534:65534\n\
         mount_export pub /pub rw && is pub \"$(cat /mnt/pub/f)\" public && unwritable pub.ro /mnt/pub\n\
         mount_export www /srv/www rw && is www \"$(cat /mnt/www/f)\" web && unwritable www.ro /mnt/www\n\
         mount_v4 four / 2 rw && is four.pub \"$(cat /mnt/four/pub/f)\" public\n\
         unwritable four.ro /mnt/four/usr\n\
         is four.usr \"$(ls -d /mnt/four/usr/bin)\" /mnt/four/usr/bin\n\
         owner four.joe /mnt/four/home/joe 150:100\n\
         denied mount_export projects /projects rw\n\
         denied mount_export foo /foo rw\n\
         denied mount_v4 projects4 /projects 2 rw\n\
         for name in root joe build late pub www four; do\n\
         umount /mnt/$name && echo PASS umount.$name; done\n";
    let job = Job { nfs_port: 2049, mount_port: 2049, anon_uid: 65534, plan };
    let report = qemu::boot(&job, Some(&netns), GUEST_TIMEOUT, |_| String::new());
    report.assert_passed(4 + 4 + 4 + 3 + 7);
    for option in ["wdelay", "no_acl", "insecure_locks", "security_label"] {
        assert!(server.log().contains(&format!("option {option} has no effect")), "{}", server.log());
    }
}
