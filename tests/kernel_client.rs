//! The Linux kernel's own NFSv3 client, in QEMU, against our server: as root and as an ordinary user, with squashing on
//! and off, with the server's directory changed behind its back.

use std::path::Path;
use std::time::Duration;

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Scratch, Serve, need_root};

/// Debian's cloud kernel takes about 5 s to user space under emulation, and the workload less than a minute a user.
const BOUND: Duration = Duration::from_secs(420);

const ANON: u32 = 4321;

fn work(parent: &Scratch, names: &[&'static str]) -> Vec<(&'static str, std::path::PathBuf)> {
    names
        .iter()
        .map(|name| {
            let export = parent.mkdir(name);
            qemu::furnish(&export);
            (*name, export)
        })
        .collect()
}

#[test]
fn kernel_client_does_everything() {
    need_root();
    let scratch = Scratch::new();
    let exports = work(&scratch, &["plain", "squash", "all", "readonly"]);
    let path = |name: &str| scratch.join(name).display().to_string();
    let server = Serve::new(format!("{} *(rw,insecure,no_root_squash)", path("plain")))
        .export(format!("{} *(rw,insecure,root_squash,anonuid={ANON},anongid={ANON})", path("squash")))
        .export(format!("{} *(rw,insecure,all_squash,anonuid={ANON},anongid={ANON})", path("all")))
        .export(format!("{} *(ro,insecure,no_root_squash)", path("readonly")))
        .start();
    let plan = format!(
        "mount_export plain {} rw\nmount_export squash {} rw\nmount_export all {} rw\nmount_export readonly {} rw\n\
         as root root /mnt/plain\nas tester user /mnt/plain\nas root squashed /mnt/squash\nas tester user /mnt/squash\n\
         as tester all /mnt/all\n\
         refused() {{ if \"$@\" 2>/tmp/why; then echo \"FAIL readonly: $* was done\"; \
         else grep -q 'Read-only' /tmp/why && echo \"PASS readonly.$1\" || echo \"FAIL readonly: $(cat /tmp/why)\"; fi; }}\n\
         cat /mnt/readonly/private && refused touch /mnt/readonly/work/new && refused rm -f /mnt/readonly/public \
         && refused chmod 777 /mnt/readonly/work && refused mkdir /mnt/readonly/d\n\
         for name in plain squash all readonly; do umount /mnt/$name && echo PASS umount.$name; done\n",
        path("plain"),
        path("squash"),
        path("all"),
        path("readonly")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: ANON, plan: &plan };
    let exports: Vec<(&str, &Path)> = exports.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let report = qemu::boot(&job, None, BOUND, |request| qemu::behind_its_back(&exports, request));
    println!("kernel {}: {} passed", report.kernel, report.passed.len());
    // Twenty tests for each of five users, four things that a read-only export refuses, and the unmounts.
    report.assert_passed(5 * 20 + 4 + 4);
    let status = server.status();
    assert!(
        status.calls("wire", "READDIRPLUS") > 0 && status.calls("wire", "COMMIT") > 0,
        "{:?}",
        status.json()
    );
}
