//! The Linux kernel's NFSv4 client, in two guests at once: they and a process of this machine lock parts of
//! one file, and the server is killed while the guests hold it open and locked.
//!
//! A lease of an hour makes sure that no client waits for time to pass: the grace period after the restart
//! ends because all clients have sent RECLAIM_COMPLETE. NFSv4.0 has no such operation, so its server has a
//! short lease.

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
const GUEST_TIMEOUT: Duration = Duration::from_secs(420);

/// A server, and the file that the guests hold open.
struct ServedFile {
    server: Mutex<Server>,
    file: PathBuf,
}

impl ServedFile {
    fn new(directory: &Path, lease: u16) -> Self {
        let mut server =
            Serve::openly(directory).arguments(["--lease".to_owned(), lease.to_string()]).start();
        // From now on it has a fixed port: clients reclaim nothing from another port, which is another server
        // to them.
        server.restart();
        Self { server: Mutex::new(server), file: directory.join("file") }
    }

    fn port(&self) -> u16 {
        self.server.lock().expect("no panic").port()
    }

    /// Kills it, and starts it on the same port.
    fn restart(&self) -> Result<(), String> {
        let mut server = self.server.lock().expect("no panic");
        server.kill();
        server.restart();
        Ok(())
    }

    /// Tries to lock bytes for a process of this machine; the lock lasts as long as the returned descriptor.
    fn lock(&self, first: u64, length: u64) -> Result<Option<OwnedFd>, String> {
        let file = File::options().read(true).write(true).open(&self.file).map_err(|e| e.to_string())?;
        let file = OwnedFd::from(file);
        let lock = FileLock { first, last: first + length - 1, exclusive: true };
        store::lock(&file, &lock).map(|locked| locked.then_some(file)).map_err(|e| e.to_string())
    }
}

/// Handles the guests' requests.
struct Host {
    shared: ServedFile,
    old: ServedFile,
    signs: Mutex<BTreeSet<String>>,
    sign_given: Condvar,
    local: Mutex<Option<OwnedFd>>,
}

impl Host {
    fn answer(&self, request: &str) -> String {
        let words: Vec<&str> = request.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let refused = |file: &ServedFile| match file.lock(number(1), number(2)) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("a local process got the lock".to_owned()),
            Err(error) => Err(error),
        };
        let done = match words[0] {
            "sign" => {
                self.signs.lock().expect("no panic").insert(words[1].to_owned());
                self.sign_given.notify_all();
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
        let (signs, _) = self
            .sign_given
            .wait_timeout_while(signs, GUEST_TIMEOUT / 2, |signs| !signs.contains(sign))
            .expect("no panic");
        if signs.contains(sign) { Ok(()) } else { Err(format!("the other guest didn't get to {sign}")) }
    }
}

#[test]
fn opens_and_locks_of_two_guests_and_a_process_conflict_and_survive_server_restarts() {
    need_root();
    let scratch = Scratch::new();
    let (shared, old) = (scratch.mkdir("shared"), scratch.mkdir("old"));
    let host = Host {
        shared: ServedFile::new(&shared, 3600),
        old: ServedFile::new(&old, 15),
        signs: Mutex::default(),
        sign_given: Condvar::new(),
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
        qemu::boot(&job, None, GUEST_TIMEOUT, |request| host.answer(request))
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| boot(include_str!("guest/state_one.sh")));
        let two = scope.spawn(|| boot(include_str!("guest/state_two.sh")));
        (one.join(), two.join())
    });
    one.expect("the first guest ends").assert_passed(35);
    two.expect("the second guest ends").assert_passed(37);
    for served in [&host.shared, &host.old] {
        assert_eq!(std::fs::read(&served.file).expect("it is there"), b"again\0\0\0\0\0two");
    }
}
