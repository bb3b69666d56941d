//! The harness against somebody else's server: what our own tests blame on us must not be the harness's doing.

use std::time::Duration;

use samehost_tests::ganesha::Ganesha;
use samehost_tests::qemu::{self, Job};
use samehost_tests::{Netns, Scratch, need_root, run_ok};

/// The kernel's client passes the workload on nfs-ganesha, but for what ganesha is known to do its own way.
#[test]
fn kernel_client_on_ganesha() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    qemu::furnish(&export);
    let netns = Netns::new("kg");
    let _ganesha = Ganesha::start(&netns, &export);
    let path = export.display();
    let plan = format!("mount_export plain {path} ''\nas root root /mnt/plain\nas tester user /mnt/plain\n");
    let job =
        Job { nfs_port: Ganesha::NFS_PORT, mount_port: Ganesha::MOUNT_PORT, anon_uid: 65534, plan: &plan };
    let report = qemu::boot(&job, Some(&netns), Duration::from_secs(150), |request| {
        qemu::behind_its_back(&[("plain", &export)], request)
    });
    println!("{}", report.console);
    report.assert_passed(38);
}

/// libnfs's tools reach ganesha, and see what is there.
#[test]
fn libnfs_on_ganesha() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    std::fs::write(export.join("hello"), "world").expect("own directory");
    let netns = Netns::new("lg");
    let ganesha = Ganesha::start(&netns, &export);
    assert!(run_ok(ganesha.command("nfs-ls").arg(ganesha.libnfs_url(""))).contains("hello"));
    assert_eq!(run_ok(ganesha.command("nfs-cat").arg(ganesha.libnfs_url("/hello"))), "world");
}
