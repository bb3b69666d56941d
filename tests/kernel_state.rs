//! The Linux kernel's NFSv4 client, in two guests at once: they and a process of this machine lock parts of
//! one file, and the server is killed under them while they hold it open and locked.
//!
//! A lease of an hour makes sure that nobody waits for a time to pass: what goes on after the restart does so
//! because all clients have come back. NFSv4.0's never say so, and wait for a short one.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Scratch, Serve, Server, need_root};
use store::FileLock;

/// Two guests share the processors, and each waits for the other.
const BOUND: Duration = Duration::from_secs(420);

/// A server, and the file that is held.
struct Held {
    server: Mutex<Server>,
    file: PathBuf,
}

impl Held {
    fn new(directory: &Path, lease: u16) -> Self {
        let mut server =
            Serve::openly(directory).arguments(["--lease".to_owned(), lease.to_string()]).start();
        // On its port from now on: another port's would be another server, which its clients have nothing to
        // reclaim from.
        server.restart();
        Self { server: Mutex::new(server), file: directory.join("file") }
    }

    fn port(&self) -> u16 {
        self.server.lock().expect("no panic").port()
    }

    /// kill -9, and a start on the same port.
    fn restart(&self) -> Result<(), String> {
        let mut server = self.server.lock().expect("no panic");
        server.kill();
        server.restart();
        Ok(())
    }

    /// Whether a process of this machine gets the lock; it has it as long as it keeps what is returned.
    fn lock(&self, first: u64, length: u64) -> Result<Option<OwnedFd>, String> {
        let file = File::options().read(true).write(true).open(&self.file).map_err(|e| e.to_string())?;
        let file = OwnedFd::from(file);
        let lock = FileLock { first, last: first + length - 1, exclusive: true };
        store::lock(&file, &lock).map(|got| got.then_some(file)).map_err(|e| e.to_string())
    }
}

/// What answers the guests.
struct Host {
    shared: Held,
    old: Held,
    signs: Mutex<BTreeSet<String>>,
    given: Condvar,
    local: Mutex<Option<OwnedFd>>,
}

impl Host {
    fn answer(&self, request: &str) -> String {
        let words: Vec<&str> = request.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let refused = |held: &Held| match held.lock(number(1), number(2)) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("a local process got the lock".to_owned()),
            Err(error) => Err(error),
        };
        let done = match words[0] {
            "sign" => {
                self.signs.lock().expect("no panic").insert(words[1].to_owned());
                self.given.notify_all();
                Ok(())
            }
            "await" => self.wait(words[1]),
            "restart" => self.shared.restart(),
            "restart-old" => self.old.restart(),
            "refused" => refused(&self.shared),
            "refused-old" => refused(&self.old),
            "granted" | "locks" => match self.shared.lock(number(1), number(2)) {
                Ok(Some(lock)) => {
                    *self.local.lock().expect("no panic") = (words[0] == "locks").then_some(lock);
                    Ok(())
                }
                Ok(None) => Err("a local process didn't get the lock".to_owned()),
                Err(error) => Err(error),
            },
            "unlocks" => {
                self.local.lock().expect("no panic").take();
                Ok(())
            }
            other => Err(format!("{other}?")),
        };
        done.map_or_else(|why| why, |()| "ok".to_owned())
    }

    /// Waits for the other guest, which may have failed.
    fn wait(&self, sign: &str) -> Result<(), String> {
        let signs = self.signs.lock().expect("no panic");
        let (signs, _) =
            self.given.wait_timeout_while(signs, BOUND / 2, |signs| !signs.contains(sign)).expect("no panic");
        if signs.contains(sign) { Ok(()) } else { Err(format!("the other guest didn't get to {sign}")) }
    }
}

#[test]
fn opens_and_locks_of_two_kernels_and_a_process_exclude_each_other_and_outlive_the_server() {
    need_root();
    let scratch = Scratch::new();
    let (shared, old) = (scratch.mkdir("shared"), scratch.mkdir("old"));
    let host = Host {
        shared: Held::new(&shared, 3600),
        old: Held::new(&old, 15),
        signs: Mutex::default(),
        given: Condvar::new(),
        local: Mutex::default(),
    };
    let common = format!(
        "SHARED={}\nOLD={}\nSECOND_PORT={}\n{}",
        shared.display(),
        old.display(),
        host.old.port(),
        include_str!("guest/state.sh")
    );
    let port = host.shared.port();
    let boot = |plan: &str| {
        let plan = format!("{common}{plan}");
        let job = Job { nfs_port: port, mount_port: port, anon_uid: 0, plan: &plan };
        qemu::boot(&job, None, BOUND, |request| host.answer(request))
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| boot(include_str!("guest/state_one.sh")));
        let two = scope.spawn(|| boot(include_str!("guest/state_two.sh")));
        (one.join(), two.join())
    });
    one.expect("the first guest comes to its end").assert_passed(35);
    two.expect("the second guest comes to its end").assert_passed(37);
    for held in [&host.shared, &host.old] {
        assert_eq!(std::fs::read(&held.file).expect("it is there"), b"again\0\0\0\0\0two");
    }
}
