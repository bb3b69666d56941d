//! Files opened with O_DIRECT beside ones that read through the page cache, on every road.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_mount::{Direct, MountOptions};
use support::{ROADS, Road, Served};

/// Rounds of the program: on the old code one in two failed on the wire, every one elsewhere.
const ROUNDS: u32 = 30;

fn aio(file: &Path) -> (String, bool) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/aio.py");
    let output = Command::new("python3").arg(program).arg(file).arg(ROUNDS.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (said.into_owned(), output.status.success())
}

/// The kernel drops cached pages before an asynchronous direct write and not after it, so that what a
/// buffered reader caches meanwhile would stay (fs/fuse/file.c, fuse_direct_IO).
#[test]
fn an_asynchronous_direct_write_leaves_no_old_pages_behind() {
    let served = Served::start();
    let server_side = MountOptions { direct: Direct::Server, ..MountOptions::default() };
    let end_to_end = MountOptions::default();
    let ways = ROADS.map(|road| (road, &end_to_end)).into_iter().chain([(Road::Passed, &server_side)]);
    for (road, options) in ways {
        let mounted = served.mount_with(road, options.clone());
        let file = mounted.path("file");
        fs::write(&file, vec![b'a'; 640 << 10]).unwrap();
        let (said, ok) = aio(&file);
        assert!(ok, "{road:?}, {:?}: {said}", options.direct);
        let last = b'A' + ((ROUNDS - 1) % 26) as u8;
        assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == last), "{road:?}: opened again");
        fs::remove_file(&file).unwrap();
    }
}
