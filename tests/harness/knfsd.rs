//! The NFS server of Debian 13's kernel in a QEMU guest, and a test beside it that runs commands there.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::Netns;
use crate::qemu::{self, Job};

/// A running server. Its export is `/srv/directory`, in the guest's memory.
#[derive(Debug)]
pub struct Knfsd {
    requests: Sender<String>,
    reports: Receiver<String>,
    timeout: Duration,
}

impl Knfsd {
    /// The export's URL in the network namespace.
    pub const URL: &str = "nfs://127.0.0.1/srv/directory";

    /// Boots a guest with the server, whose ports are on the loopback of `netns`, runs `test` while it
    /// serves, and ends it. All of it may take `timeout`.
    ///
    /// # Panics
    /// As [`qemu::boot_knfsd`]; when the guest doesn't serve, or reports a failure.
    pub fn with(netns: &Netns, timeout: Duration, test: impl FnOnce(&Self)) {
        let report = std::thread::scope(|scope| {
            let ((report, reports), (requests, answers)) = (channel(), channel());
            let guest = scope.spawn(move || {
                let plan = include_str!("../guest/knfsd.sh");
                let job = Job { nfs_port: 0, mount_port: 0, anon_uid: 0, plan };
                qemu::boot_knfsd(&job, netns, timeout, |said| {
                    let _ = report.send(said.to_owned());
                    // A test that has failed sends nothing.
                    answers.recv().unwrap_or_default()
                })
            });
            let knfsd = Self { requests, reports, timeout };
            knfsd.expect("serving");
            test(&knfsd);
            knfsd.request("ok");
            guest.join().expect("the guest ends")
        });
        println!("knfsd {}", report.kernel);
        report.assert_passed(9);
    }

    /// Runs a shell command in the guest; whether it succeeded.
    ///
    /// # Panics
    /// When the guest doesn't answer.
    pub fn succeeds(&self, command: &str) -> bool {
        self.request(&format!("run {command}"));
        match self.report().as_str() {
            "ran" => true,
            "failed" => false,
            other => panic!("the guest says {other:?}"),
        }
    }

    /// Runs a shell command in the guest.
    ///
    /// # Panics
    /// When it fails or the guest doesn't answer.
    pub fn run(&self, command: &str) {
        assert!(self.succeeds(command), "{command}");
    }

    /// Ends the sessions and the state of all NFSv4 clients, as after a lease without a request.
    ///
    /// # Panics
    /// When the guest doesn't answer.
    pub fn expire_clients(&self) {
        self.request("expire");
        self.expect("expired");
    }

    fn request(&self, words: &str) {
        self.requests.send(words.to_owned()).expect("a running guest");
    }

    fn report(&self) -> String {
        self.reports.recv_timeout(self.timeout).expect("a report of the guest")
    }

    fn expect(&self, words: &str) {
        assert_eq!(self.report(), words);
    }
}
