//! The Linux kernel's client in QEMU with delegations, in each minor version. A local process on the server
//! and an NFSv3 client cause recalls: the host reads what the guest has written and not sent yet, and the
//! guest sees what the host writes. A delegation that is held when the server is killed is reclaimed.
//! Versions 4.1 and 4.2 receive callbacks over their own connections; for 4.0 the server connects to the
//! guest.
//!
//! Locks that the guest has taken under a delegation survive its recall: no other owner gets them in between,
//! and a conflicting request waits no longer than the client takes to return the delegation. Two clients that
//! lock the same file in turn don't wait for each other's polls.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Netns, Scratch, Serve, Server, need_root};
use store::FileLock;

const GUEST_TIMEOUT: Duration = Duration::from_secs(420);

/// The number of returned delegations, as soon as it exceeds `than`, or when `timeout` has passed.
fn returned(server: &Server, than: u64, timeout: Duration) -> u64 {
    let start = Instant::now();
    loop {
        let returned = server.status().calls("wire", "NFS4.DELEGRETURN");
        if returned > than || start.elapsed() > timeout {
            return returned;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_kernels_client_returns_recalled_delegations() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    for minor in 0..3 {
        for name in ["read", "third", "held"] {
            fs::write(export.join(format!("{name}.{minor}")), "old\n").expect("there is room");
        }
    }
    let netns = Netns::new("delegations");
    // Conflicts with clients of 4.0 may have to wait for a lease.
    let mut server = Serve::openly(&export).inside(&netns).arguments(["--lease", "15"]).start();
    // From now on it has a fixed port.
    server.restart();
    let plan = format!(
        "EXPORT={}\nCALLBACK_PORT={}\n{}",
        export.display(),
        qemu::CALLBACK_PORT,
        include_str!("guest/delegations.sh")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let (before, server) = (Cell::new(0), RefCell::new(server));
    let report = qemu::boot(&job, Some(&netns), GUEST_TIMEOUT, |request| {
        let done = match request.split_once(' ') {
            Some(("append", name)) => {
                before.set(returned(&server.borrow(), u64::MAX, Duration::ZERO));
                File::options()
                    .append(true)
                    .open(export.join(name))
                    .and_then(|mut file| file.write_all(b"new\n"))
                    .map(|()| returned(&server.borrow(), before.get(), Duration::from_secs(2)) > before.get())
                    .map(|recalled| if recalled { "ok" } else { "not-delegated" })
            }
            Some(("expect", name)) => fs::read(export.join(name)).and_then(|found| match &found[..] {
                b"kept\n" => Ok("ok"),
                _ => Err(std::io::Error::other(format!("{found:?}"))),
            }),
            // That file's delegation, and at least one more of those that followed.
            None if request == "returned" => {
                let min = before.get() + 2;
                let returned = returned(&server.borrow(), min - 1, samehost_tests::TIMEOUT);
                if returned >= min { Ok("ok") } else { Err(std::io::Error::other("not returned")) }
            }
            None if request == "restart" => {
                server.borrow_mut().kill();
                server.borrow_mut().restart();
                Ok("ok")
            }
            _ => Err(std::io::Error::other(format!("{request}?"))),
        };
        done.map_or_else(|why| why.to_string(), str::to_owned)
    });
    report.assert_passed(3 * 15 + 2);
}

/// Opens a file and tries to lock some of its bytes as a process of this machine; whether it got the lock.
fn try_lock(path: &Path, first: u64, length: u64) -> std::io::Result<bool> {
    let file = OwnedFd::from(File::options().read(true).write(true).open(path)?);
    let lock = FileLock { first, last: first + length - 1, exclusive: true };
    store::lock(&file, &lock).map_err(std::io::Error::other)
}

#[test]
fn locks_of_the_kernels_client_survive_a_recall() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let plan = format!(
        "EXPORT={}\n{}\n{}",
        export.display(),
        include_str!("guest/state.sh"),
        include_str!("guest/locks_recalled.sh")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| {
        let words: Vec<&str> = request.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let returned = || server.status().calls("wire", "NFS4.DELEGRETURN");
        let before = returned();
        let locked = try_lock(&export.join(words[1]), number(2), number(3));
        match (words[0], locked) {
            ("competes", Ok(false)) if returned() == before => "not-delegated".to_owned(),
            ("competes" | "refused", Ok(false)) | ("granted", Ok(true)) => "ok".to_owned(),
            (_, locked) => format!("a local process: {locked:?}"),
        }
    });
    report.assert_passed(33);
}
