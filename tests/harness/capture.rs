//! What went over a wire, as tshark understands it.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::process::{Daemon, run_ok, wait_for};
use crate::{Netns, Scratch};

/// What the last packet says.
const LAST: &str = "the-last-packet-of-this-capture";

/// A running capture of everything on the loopback of a network namespace.
#[derive(Debug)]
pub struct Capture {
    daemon: Daemon,
    file: PathBuf,
}

impl Capture {
    /// Starts it, and returns when packets are really being taken.
    ///
    /// # Panics
    /// When dumpcap doesn't come up.
    pub fn start(netns: &Netns, scratch: &Scratch) -> Self {
        let file = scratch.join("capture.pcapng");
        let mut command = netns.command("dumpcap");
        command.args(["-q", "-i", "lo", "-B", "64", "-w"]).arg(&file);
        let mut daemon =
            Daemon::start("dumpcap", &mut command, &scratch.join("dumpcap.log")).expect("nsenter");
        // dumpcap says its file's name once the capture is open.
        wait_for("dumpcap to begin", || {
            assert!(daemon.alive(), "dumpcap ended:\n{}", daemon.log());
            daemon.log().contains("File:").then_some(())
        });
        Self { daemon, file }
    }

    /// Ends it and gives what was taken: all that was sent before. What the kernel keeps back to hand over
    /// together is lost with the end of a capture, so a last packet must be in the file first.
    ///
    /// # Panics
    /// When that packet doesn't arrive.
    pub fn finish(mut self, netns: &Netns) -> Packets {
        run_ok(netns.command("bash").args(["-c", &format!("echo {LAST} >/dev/udp/127.0.0.1/9")]));
        wait_for("the last packet to be captured", || {
            let taken = std::fs::read(&self.file).ok()?;
            taken.windows(LAST.len()).any(|part| part == LAST.as_bytes()).then_some(())
        });
        self.daemon.signal(Signal::INT);
        self.daemon.wait();
        let log = self.daemon.log();
        Packets { file: self.file.clone(), log }
    }
}

/// A finished capture.
#[derive(Debug)]
pub struct Packets {
    file: PathBuf,
    log: String,
}

impl Packets {
    /// The capture file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What dumpcap said at the end: how many packets were taken and how many were lost.
    pub fn summary(&self) -> &str {
        &self.log
    }

    /// The fields of all packets that match a display filter, a line a packet, tabs between.
    ///
    /// # Panics
    /// When tshark fails.
    pub fn fields(&self, ports: &[u16], filter: &str, fields: &[&str]) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.arg("-n").arg("-r").arg(&self.file).args(["-Y", filter, "-T", "fields"]);
        for port in ports {
            command.arg("-d").arg(format!("tcp.port=={port},rpc"));
        }
        for field in fields {
            command.args(["-e", field]);
        }
        // LOCALIO is a program that tshark has no dissector for.
        command.args(["-o", "rpc.dissect_unknown_programs:TRUE"]);
        run_ok(&mut command).lines().map(str::to_owned).collect()
    }
}
