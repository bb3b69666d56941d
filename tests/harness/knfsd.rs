//! The NFS server of Debian 13's kernel in a QEMU guest, which runs commands for the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::{self, Disk};
use crate::qemu::{self, Guest};
use crate::{Netns, Scratch};

/// A server. Its export is `/srv/directory`, on the guest's disk, beside its records of clients.
#[derive(Debug)]
pub struct Knfsd<'a> {
    netns: &'a Netns,
    timeout: Duration,
    scratch: Scratch,
    /// `None` without power.
    guest: Option<Guest>,
}

impl Knfsd<'_> {
    /// The export's URL in the network namespace.
    pub const URL: &'static str = "nfs://127.0.0.1/srv/directory";

    /// Boots a guest with the server, whose ports are on the loopback of `netns`, runs `test` while it
    /// serves, and ends it. The guest may run for `timeout`, after each boot.
    ///
    /// # Panics
    /// As [`qemu::boot_knfsd`]; when the guest doesn't serve, or reports a failure.
    pub fn with(netns: &Netns, timeout: Duration, test: impl FnOnce(&mut Knfsd<'_>)) {
        let mut knfsd = Knfsd { netns, timeout, scratch: Scratch::new(), guest: None };
        disk::make_image("ext4", 256, &knfsd.image());
        knfsd.power_on();
        test(&mut knfsd);
        let mut guest = knfsd.guest.take().expect("the test leaves it running");
        guest.answer("ok");
        let report = guest.finish(|request| panic!("the guest says {request:?}"));
        println!("knfsd {}", report.kernel);
        report.assert_passed(9);
    }

    /// Cuts the power: the guest writes nothing more, and nothing of its end reaches its clients.
    ///
    /// # Panics
    /// When it has none, or has reported a failure.
    pub fn cut_power(&mut self) {
        let guest = self.guest.take().expect("a running guest");
        // Otherwise this machine's kernel would close QEMU's connections in its name.
        self.netns.set_loopback(false);
        let report = guest.cut_power();
        assert!(report.failed.is_empty(), "{}", report.failed.join("\n"));
    }

    /// Boots the guest with what is on its disk, and waits until it serves.
    ///
    /// # Panics
    /// When it doesn't.
    pub fn power_on(&mut self) {
        assert!(self.guest.is_none(), "it runs");
        self.guest = Some(qemu::boot_knfsd(&self.image(), self.netns, self.timeout));
        self.expect("serving");
        // What clients still send on their old connections is now refused.
        self.netns.set_loopback(true);
    }

    /// Calls `look` with the exported directory as it is on the disk while the guest has no power.
    ///
    /// # Panics
    /// When the guest runs, or its filesystem can't be mounted.
    pub fn on_disk<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        assert!(self.guest.is_none(), "a running guest changes its disk");
        // A copy, because mounting recovers the journal, and that is for the guest to do.
        let disk = Disk::copy_of(&self.image());
        look(&disk.path().join("directory"))
    }

    /// Runs a shell command in the guest; whether it succeeded.
    ///
    /// # Panics
    /// When the guest doesn't answer.
    pub fn succeeds(&mut self, command: &str) -> bool {
        self.answer(&format!("run {command}"));
        match self.request().as_str() {
            "ran" => true,
            "failed" => false,
            other => panic!("the guest says {other:?}"),
        }
    }

    /// Runs a shell command in the guest.
    ///
    /// # Panics
    /// When it fails or the guest doesn't answer.
    pub fn run(&mut self, command: &str) {
        assert!(self.succeeds(command), "{command}");
    }

    /// Ends the sessions and the state of all NFSv4 clients, as after a lease without a request.
    ///
    /// # Panics
    /// When the guest doesn't answer.
    pub fn expire_clients(&mut self) {
        self.answer("expire");
        self.expect("expired");
    }

    fn image(&self) -> PathBuf {
        self.scratch.join("disk")
    }

    fn answer(&mut self, words: &str) {
        self.guest.as_mut().expect("a running guest").answer(words);
    }

    fn request(&mut self) -> String {
        self.guest.as_mut().expect("a running guest").request().expect("the guest runs")
    }

    fn expect(&mut self, words: &str) {
        assert_eq!(self.request(), words);
    }
}
