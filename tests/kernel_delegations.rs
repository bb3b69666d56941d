//! The Linux kernel's client in QEMU with delegations, in each minor version. A local process on the server
//! and an NFSv3 client cause recalls: the host reads what the guest has written and not sent yet, and the
//! guest sees what the host writes. A delegation that is held when the server is killed is reclaimed.
//! Versions 4.1 and 4.2 receive callbacks over their own connections; for 4.0 the server connects to the
//! guest.
//!
//! Locks that the guest has taken under a delegation survive its recall: no other owner gets them in between,
//! and a conflicting request waits no longer than the client takes to return the delegation. Two clients that
//! lock the same file in turn don't wait for each other's polls.
//!
//! Two mounts of Samehost, a guest and processes on the server's host wait for one lock, and recall a
//! delegation of a mount. The guest recalls a write delegation of a mount, and a mount one of the guest.
//!
//! Processes on the server's host that use a mount of Samehost, by a tree or the export's own mount, recall
//! delegations as every local process does. On the export's own mount their locks exclude the guest's.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use samehost_tests::qemu::{self, Job};
use samehost_tests::{
    Application, DataPath, Mount, Netns, Scratch, Serve, Server, need_root, run_ok, wait_for,
};
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

/// Opens a file and tries to lock some of its bytes as a process of this machine; the locked file, or `None`
/// if another process or client has a lock there.
fn try_lock(path: &Path, first: u64, length: u64) -> std::io::Result<Option<OwnedFd>> {
    let file = OwnedFd::from(File::options().read(true).write(true).open(path)?);
    let lock = FileLock { first, last: first + length - 1, exclusive: true };
    let is_locked = store::lock(&file, &lock).map_err(std::io::Error::other)?;
    Ok(is_locked.then_some(file))
}

/// Two mounts and two processes of this machine that use the same files as the guest.
struct Others<'a> {
    server: &'a Server,
    export: &'a Path,
    mounts: [Mount; 2],
    /// One on each mount.
    applications: [Application; 2],
    local: Application,
    /// What had been called when the guest was asked to act.
    before: u64,
}

impl<'a> Others<'a> {
    fn new(server: &'a Server, export: &'a Path) -> Self {
        let mounts = [(); 2].map(|()| Mount::new(server, export, "vers=4.2,lane=off"));
        let applications = [0, 1].map(|number: usize| Application::new(mounts[number].path()));
        Self { server, export, mounts, applications, local: Application::new(export), before: 0 }
    }

    fn calls(&self, operation: &str) -> u64 {
        self.server.status().calls("wire", operation)
    }

    /// Handles the guest's requests. `None` for those of another part.
    fn answer(&mut self, request: &str) -> Option<()> {
        match request {
            "holds" => {
                for application in self.applications.iter_mut().chain([&mut self.local]) {
                    assert_eq!(application.run("open queued"), "ok");
                }
                assert_eq!(self.applications[0].run("lock queued 0"), "ok");
                assert_eq!(self.applications[0].run("write queued mount"), "ok");
                self.before = self.calls("NFS4.LOCK");
            }
            "queues" => {
                self.server.wait_for_calls("NFS4.LOCK", self.before);
                self.wait_on(1);
                assert_eq!(self.applications[0].run("unlock queued"), "ok");
            }
            // The guest has the lock.
            "waits" => {
                self.wait_on(0);
                assert!(self.applications.iter().all(Application::is_waiting));
            }
            "takes_turns" => self.take_turns(),
            "delegated" => {
                // A call of something else may come between, such as a CLOSE.
                wait_for("a read without a call", || self.reads_without_a_call("by-guest").then_some(()));
                self.before = self.calls("NFS4.DELEGRETURN");
            }
            "returned" => self.expect_return("by-guest"),
            "writes" => self.delegate_for_writing("of-mount"),
            "has_returned" => {
                self.server.wait_for_calls("NFS4.DELEGRETURN", self.before);
                let locked = "lock of-mount 0";
                assert_eq!(self.applications[0].run("write of-mount more"), "ok");
                assert_eq!(self.applications[1].run("open of-mount"), "ok");
                assert_eq!(self.applications[1].run(locked), "EAGAIN", "the lock is the server's now");
                assert_eq!(self.applications[0].run("unlock of-mount"), "ok");
            }
            "reads_of_guest" => {
                self.before = self.calls("NFS4.DELEGRETURN");
                let read = fs::read_to_string(self.mounts[1].join("of-guest")).expect("read");
                assert_eq!(read, "kept\n", "what the guest has written under its delegation");
                self.server.wait_for_calls("NFS4.DELEGRETURN", self.before);
            }
            _ => return None,
        }
        Some(())
    }

    /// An application on a mount begins to wait for the lock.
    fn wait_on(&mut self, number: usize) {
        let calls = || self.mounts[number].status().expect("a mount")["wire"]["round_trips"].as_u64();
        let before = calls().expect("a number");
        self.applications[number].begin("lock queued 1");
        wait_for("a mount's request", || (calls()? >= before + 3).then_some(()));
    }

    /// A process of this machine begins to wait for the lock.
    fn wait_locally(&mut self) {
        self.local.begin("lock queued 1");
        let pid = self.local.pid().to_string();
        wait_for("a waiting process", || {
            let locks = fs::read_to_string("/proc/locks").expect("the kernel's locks");
            let waits = |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == pid);
            locks.lines().any(waits).then_some(())
        });
    }

    /// The guest has unlocked the file. The others get it in the order of their requests, the process last.
    fn take_turns(&mut self) {
        for (number, before) in [(1, "guest"), (0, "other")] {
            assert_eq!(self.applications[number].result(), "ok");
            assert!(number == 0 || self.applications[0].is_waiting());
            assert_eq!(self.applications[number].run("read queued"), before);
            assert_eq!(self.applications[number].run("write queued other"), "ok");
            if number == 0 {
                self.wait_locally();
            }
            assert_eq!(self.applications[number].run("unlock queued"), "ok");
        }
        assert_eq!(self.local.result(), "ok");
        assert_eq!(self.local.run("read queued"), "other");
        assert_eq!(self.local.run("write queued local"), "ok");
        assert_eq!(self.local.run("unlock queued"), "ok");
    }

    fn reads_without_a_call(&self, file: &str) -> bool {
        let calls = || self.mounts[0].status().expect("a mount")["wire"]["round_trips"].as_u64();
        let before = calls();
        fs::read(self.mounts[0].join(file)).expect("read");
        calls() == before
    }

    /// Makes a file, and reads it on the first mount until that takes no call. A file whose delegation was
    /// recalled isn't delegated again soon.
    fn delegate(&mut self, file: &str) {
        fs::write(self.export.join(file), "new").expect("there is room");
        wait_for("a read without a call", || self.reads_without_a_call(file).then_some(()));
        self.before = self.calls("NFS4.DELEGRETURN");
    }

    /// Opens and locks a file on the first mount again and again, until that takes no call: it has a write
    /// delegation. Then an application writes and locks it.
    fn delegate_for_writing(&mut self, file: &str) {
        let path = self.mounts[0].join(file);
        fs::write(&path, "nothing").expect("written");
        wait_for("a use without a call", || {
            let calls = || self.mounts[0].status().expect("a mount")["wire"]["round_trips"].as_u64();
            let before = calls();
            for _ in 0..4 {
                let opened = File::options().read(true).write(true).open(&path).expect("opened");
                fcntl_lock(&opened, FlockOperation::NonBlockingLockExclusive).expect("locked");
            }
            (calls() == before).then_some(())
        });
        for command in ["open", "lock", "write"] {
            let argument = if command == "lock" { "0" } else { "by-mount" };
            assert_eq!(self.applications[0].run(&format!("{command} {file} {argument}")), "ok");
        }
        self.before = self.calls("NFS4.DELEGRETURN");
    }

    /// The first mount has returned the file's delegation, and reads what was written: the file's name.
    fn expect_return(&self, file: &str) {
        self.server.wait_for_calls("NFS4.DELEGRETURN", self.before);
        assert_eq!(fs::read_to_string(self.mounts[0].join(file)).expect("read"), file);
    }

    /// The other mount and a process recall a delegation of the first mount.
    fn recall_each(&mut self) {
        for (path, file) in
            [(self.mounts[1].path().to_owned(), "by-mount"), (self.export.to_owned(), "by-process")]
        {
            self.delegate(file);
            fs::write(path.join(file), file).expect("written");
            self.expect_return(file);
        }
    }
}

#[test]
fn the_kernels_client_shares_locks_and_delegations_with_mounts_and_processes() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    fs::write(export.join("queued"), "").expect("there is room");
    let server = Serve::openly(&export).start();
    let mut others = Others::new(&server, &export);
    others.recall_each();
    // The guest recalls this one.
    others.delegate("by-guest");
    let plan = format!(
        "EXPORT={}\n{}\n{}\n{}",
        export.display(),
        include_str!("guest/state.sh"),
        include_str!("guest/locks_recalled.sh"),
        include_str!("guest/beside_mounts.sh")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| {
        if others.answer(request).is_some() {
            return "ok".to_owned();
        }
        let words: Vec<&str> = request.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let before = returned(&server, u64::MAX, Duration::ZERO);
        let locked = try_lock(&export.join(words[1]), number(2), number(3));
        let is_recalled = || returned(&server, before, Duration::from_secs(2)) > before;
        match (words[0], locked) {
            ("competes", Ok(None)) if !is_recalled() => "not-delegated".to_owned(),
            ("competes" | "refused", Ok(None)) | ("granted", Ok(Some(_))) => "ok".to_owned(),
            (_, locked) => format!("a local process: {locked:?}"),
        }
    });
    report.assert_passed(33 + 13 + 7);
}

/// A process on the server's host opens files through a tree, by /dev/fuse and over io_uring, and through
/// the export's own mount. Each open waits until the client has returned its delegation.
#[test]
fn opens_through_mounts_of_the_host_recall_delegations() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("recalls");
    let server = DataPath::named("mount_grant").serve(&export).inside(&netns).arguments(["--lease", "15"]);
    let server = server.start();
    let mounts: Vec<(&str, Mount)> = ["tree", "tree_uring", "mount_grant"]
        .into_iter()
        .filter_map(|name| {
            let path = DataPath::named(name);
            let mount = path.mount_by(Mount::unmounted(&server), |mount, options| {
                let other = if path.is_local_filesystem() { "" } else { ",mountgrant=off" };
                let inner = mount.command(&server.url(&export), &format!("{options}{other}"));
                run_ok(&mut netns.inside(&inner));
            })?;
            Some((name, mount))
        })
        .collect();
    let names: Vec<&str> = mounts.iter().map(|(name, _)| *name).collect();
    for minor in 0..3 {
        for name in &names {
            for file in ["written", "appended", "read"] {
                fs::write(export.join(format!("{file}.{name}.{minor}")), "old\n").expect("there is room");
            }
        }
    }
    let plan = format!(
        "EXPORT={}\nCALLBACK_PORT={}\nMOUNTS='{}'\n{}",
        export.display(),
        qemu::CALLBACK_PORT,
        names.join(" "),
        include_str!("guest/delegations_through_mounts.sh")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let report = qemu::boot(&job, Some(&netns), GUEST_TIMEOUT, |request| {
        let words: Vec<&str> = request.split(' ').collect();
        let [verb, via, name] = words[..] else { return format!("{request}?") };
        let mount = mounts.iter().find(|(mount, _)| *mount == via);
        let path = mount.map_or_else(|| export.join(name), |(_, mount)| mount.join(name));
        let before = returned(&server, u64::MAX, Duration::ZERO);
        let done = match verb {
            "append" => File::options().append(true).open(path).and_then(|mut file| file.write_all(b"new\n")),
            _ => fs::read(path).and_then(|found| match &found[..] {
                b"kept\n" => Ok(()),
                _ => Err(std::io::Error::other(format!("{:?}", String::from_utf8_lossy(&found)))),
            }),
        };
        match done {
            Ok(()) if returned(&server, before, Duration::from_secs(2)) > before => "ok".to_owned(),
            Ok(()) => "not-delegated".to_owned(),
            Err(why) => why.to_string(),
        }
    });
    report.assert_passed(3 * (3 + 6 * names.len()));
    for (name, mount) in &mounts {
        mount.wait_for_data_path(DataPath::named(name).status);
    }
}

#[test]
fn locks_of_the_kernels_client_and_on_the_exports_own_mount_exclude_each_other() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let path = DataPath::named("mount_grant");
    let server = path.serve(&export).start();
    let Some(mount) = path.mount(&server, &export, "") else { return };
    let plan = format!(
        "EXPORT={}\n{}\n{}",
        export.display(),
        include_str!("guest/state.sh"),
        include_str!("guest/locks_through_mounts.sh")
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let mut held = None;
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| {
        let words: Vec<&str> = request.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        if words[0] == "releases" {
            held = None;
            return "ok".to_owned();
        }
        match (words[0], try_lock(&mount.join(words[1]), number(2), number(3))) {
            ("holds", Ok(Some(file))) => {
                held = Some(file);
                "ok".to_owned()
            }
            ("refused", Ok(None)) | ("granted", Ok(Some(_))) => "ok".to_owned(),
            (_, locked) => format!("a process on the mount: {locked:?}"),
        }
    });
    report.assert_passed(3 * 19);
    assert_eq!(mount.status().expect("a mount")["road"], path.status);
}
