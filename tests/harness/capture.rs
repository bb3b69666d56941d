//! Packet captures, decoded by tshark.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::process::{Daemon, run_ok, wait_for};
use crate::{Netns, Scratch};

/// The content of the packet that marks the end of a capture.
const LAST_PACKET: &str = "the-last-packet-of-this-capture";

/// A running capture of all packets on the loopback of a network namespace.
#[derive(Debug)]
pub struct Capture {
    daemon: Daemon,
    file: PathBuf,
}

impl Capture {
    /// Starts it, and returns when packets are being captured.
    ///
    /// # Panics
    /// When dumpcap doesn't come up.
    pub fn start(netns: &Netns, scratch: &Scratch) -> Self {
        let (file, log) = (scratch.join("capture.pcapng"), scratch.join("dumpcap.log"));
        // An earlier capture's would be taken for this one's.
        for earlier in [&file, &log] {
            let _ = std::fs::remove_file(earlier);
        }
        let mut command = netns.command("dumpcap");
        command.args(["-q", "-i", "lo", "-B", "64", "-w"]).arg(&file);
        let mut daemon = Daemon::start("dumpcap", &mut command, &log).expect("nsenter");
        // dumpcap prints its file's name once the capture is open.
        wait_for("dumpcap to begin", || {
            assert!(daemon.alive(), "dumpcap ended:\n{}", daemon.log());
            daemon.log().contains("File:").then_some(())
        });
        Self { daemon, file }
    }

    /// Ends it and returns all packets sent so far. The kernel delivers packets in batches and drops an
    /// incomplete batch at the end of a capture, so this waits until a last packet is in the file.
    ///
    /// # Panics
    /// When that packet doesn't arrive.
    pub fn finish(mut self, netns: &Netns) -> Packets {
        run_ok(netns.command("bash").args(["-c", &format!("echo {LAST_PACKET} >/dev/udp/127.0.0.1/9")]));
        wait_for("the last packet to be captured", || {
            let captured = std::fs::read(&self.file).ok()?;
            captured.windows(LAST_PACKET.len()).any(|part| part == LAST_PACKET.as_bytes()).then_some(())
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

    /// dumpcap's summary: the numbers of captured and dropped packets.
    pub fn summary(&self) -> &str {
        &self.log
    }

    /// Fields of all packets that match a display filter: one line per packet, separated by tabs.
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
        // tshark has no dissector for LOCALIO.
        command.args(["-o", "rpc.dissect_unknown_programs:TRUE"]);
        run_ok(&mut command).lines().map(str::to_owned).collect()
    }
}
