//! O_DIRECT opens beside opens that read through the page cache, on every transport.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_mount::{Direct, MountOptions};
use support::{Served, TRANSPORTS, Transport};

/// Rounds of the program. Without the invalidation every second one failed on the wire, and every one on the
/// other transports.
const ROUNDS: u32 = 30;

fn aio(file: &Path) -> (String, bool) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/aio.py");
    let output = Command::new("python3").arg(program).arg(file).arg(ROUNDS.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (said.into_owned(), output.status.success())
}

/// The kernel drops cached pages before an asynchronous direct write but not after it, so pages that a
/// buffered reader fills meanwhile would stay (fs/fuse/file.c, fuse_direct_IO).
#[test]
fn an_asynchronous_direct_write_leaves_no_stale_pages() {
    let served = Served::start();
    let server_side = MountOptions { direct: Direct::Server, ..MountOptions::default() };
    let end_to_end = MountOptions::default();
    let cases = TRANSPORTS
        .map(|transport| (transport, &end_to_end))
        .into_iter()
        .chain([(Transport::Passed, &server_side)]);
    for (transport, options) in cases {
        let mounted = served.mount_with(transport, options.clone());
        let file = mounted.path("file");
        fs::write(&file, vec![b'a'; 640 << 10]).unwrap();
        let (said, ok) = aio(&file);
        assert!(ok, "{transport:?}, {:?}: {said}", options.direct);
        let last = b'A' + ((ROUNDS - 1) % 26) as u8;
        assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == last), "{transport:?}: opened again");
        fs::remove_file(&file).unwrap();
    }
}
