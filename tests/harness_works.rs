//! The harness with a foreign server, so that faults of the harness aren't taken for faults of ours.

use samehost_tests::ganesha::Ganesha;
use samehost_tests::{Netns, Scratch, need_root, run_ok};

/// libnfs's tools reach ganesha and list its files.
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
