//! The Linux kernel's own client in QEMU holding delegations, which a local process on the server and a
//! client of NFSv3 have recalled, in each minor version: what the guest has written and not sent is there
//! when the host reads it, and what the host writes the guest sees. One that is held when the server is
//! killed is reclaimed. Versions 4.1 and 4.2 are called over their own connections; for 4.0 the server
//! connects to the guest.
//!
//! And what the guest has locked under a delegation stays locked when that is recalled: nobody gets it in
//! between, and nobody waits for longer than the client takes to return it. Two clients that lock the same
//! file in turn don't wait for each other's polls.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Netns, Scratch, Serve, Server, need_root};
use store::FileLock;

const BOUND: Duration = Duration::from_secs(420);

/// How many delegations have been returned, once that is more than `than`, or after a while.
fn returned(server: &Server, than: u64, patience: Duration) -> u64 {
    let start = Instant::now();
    loop {
        let returned = server.status().calls("wire", "NFS4.DELEGRETURN");
        if returned > than || start.elapsed() > patience {
            return returned;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_kernels_client_gives_delegations_back() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    for minor in 0..3 {
        for name in ["read", "third", "held"] {
            fs::write(export.join(format!("{name}.{minor}")), "old\n").expect("there is room");
        }
    }
    let netns = Netns::new("delegations");
    // Whom 4.0 keeps waiting waits for a lease.
    let mut server = Serve::openly(&export).inside(&netns).arguments(["--lease", "15"]).start();
    // On its port from now on.
    server.restart();
    let plan = format!(
        "EXPORT={}\nCALLBACK_PORT={}\n{}",
        export.display(),
        qemu::CALLBACK_PORT,
        include_str!("guest/delegations.sh")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let (before, server) = (Cell::new(0), RefCell::new(server));
    let report = qemu::boot(&job, Some(&netns), BOUND, |request| {
        let done = match request.split_once(' ') {
            Some(("append", name)) => {
                before.set(returned(&server.borrow(), u64::MAX, Duration::ZERO));
                File::options()
                    .append(true)
                    .open(export.join(name))
                    .and_then(|mut file| file.write_all(b"new\n"))
                    .map(|()| returned(&server.borrow(), before.get(), Duration::from_secs(2)) > before.get())
                    .map(|lent| if lent { "ok" } else { "unlent" })
            }
            Some(("expect", name)) => fs::read(export.join(name)).and_then(|found| match &found[..] {
                b"kept\n" => Ok("ok"),
                _ => Err(std::io::Error::other(format!("{found:?}"))),
            }),
            // That file's, and one more of those that followed at least.
            None if request == "returned" => {
                let least = before.get() + 2;
                let returned = returned(&server.borrow(), least - 1, samehost_tests::TIMEOUT);
                if returned >= least { Ok("ok") } else { Err(std::io::Error::other("not returned")) }
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

/// Whether a process of this machine gets the lock on some bytes of a file, once it may open that.
fn gets(path: &Path, first: u64, length: u64) -> std::io::Result<bool> {
    let file = OwnedFd::from(File::options().read(true).write(true).open(path)?);
    let lock = FileLock { first, last: first + length - 1, exclusive: true };
    store::lock(&file, &lock).map_err(std::io::Error::other)
}

#[test]
fn what_the_kernels_client_has_locked_stays_so_while_it_is_recalled() {
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
    let report = qemu::boot(&job, None, BOUND, |request| {
        let words: Vec<&str> = request.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let returned = || server.status().calls("wire", "NFS4.DELEGRETURN");
        let before = returned();
        let done = gets(&export.join(words[1]), number(2), number(3));
        match (words[0], done) {
            ("competes", Ok(false)) if returned() == before => "unlent".to_owned(),
            ("competes" | "refused", Ok(false)) | ("granted", Ok(true)) => "ok".to_owned(),
            (_, done) => format!("a local process: {done:?}"),
        }
    });
    report.assert_passed(33);
}
