//! The container image, run by rootless podman: `packaging/container/test` with this build's command.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use samehost_tests::need_root;
use samehost_tests::process::run_within;
use samehost_tests::samehost::binary;

#[test]
fn rootless_podman_runs_server_and_mount_from_the_image() {
    need_root();
    let test = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/container/test");
    // It starts some twenty containers.
    let output = run_within(Command::new(test).arg(binary()), Duration::from_secs(600));
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("everything works\n"), "{said}{complaints}");
}
