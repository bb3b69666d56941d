//! A server in a process of its own, started as a user would.
//!
//! Its standard input is a pipe from this process, so the server ends with this process in any case.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::Failure;

/// How long the server may take to its ready line, and to its end.
const CHILD_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server.
pub struct Child {
    process: std::process::Child,
    /// Its ready line.
    pub ready: String,
    /// The port it listens on.
    pub port: u16,
}

impl Child {
    /// Serves `export` to this host on a free port, with its files below `scratch`.
    pub fn start(export: &Path, scratch: &Path) -> Result<Self, Failure> {
        let to_failure = |error| Failure::new("starting the server", error);
        let program = std::env::current_exe().map_err(to_failure)?;
        let mut process = Command::new(program)
            .arg("serve")
            .args(["--listen", "127.0.0.1:0", "--no-rpcbind", "--no-audit", "--until-stdin-ends"])
            .arg("--export")
            .arg(format!("{} 127.0.0.1(rw,no_root_squash,insecure,no_subtree_check)", escape(export)))
            .arg("--run-dir")
            .arg(scratch.join("run"))
            .arg("--state-dir")
            .arg(scratch.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(to_failure)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let stdout = process.stdout.take();
        thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut line);
            }
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(CHILD_TIMEOUT).unwrap_or_default();
        let mut child = Self { process, ready: line.trim_end().to_owned(), port: 0 };
        match port(&child.ready) {
            Some(port) => {
                child.port = port;
                Ok(child)
            }
            None => {
                child.stop();
                Err(Failure::new("starting the server", "it didn't get ready")
                    .next("its own message is above"))
            }
        }
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the server, by SIGKILL if it takes too long.
    pub fn stop(&mut self) {
        drop(self.process.stdin.take());
        let deadline = Instant::now() + CHILD_TIMEOUT;
        while Instant::now() < deadline {
            match self.process.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The port in `ready: /export on 127.0.0.1:PORT; ...`.
fn port(ready: &str) -> Option<u16> {
    let (_, behind) = ready.strip_prefix("ready: ")?.rsplit_once(" on 127.0.0.1:")?;
    let digits =
        behind.find(|character: char| !character.is_ascii_digit()).map_or(behind, |end| &behind[..end]);
    digits.parse().ok()
}

/// A path in exports(5): special characters are written as `\ooo`.
fn escape(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                text.push(char::from(*byte))
            }
            byte => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_in_the_ready_line() {
        assert_eq!(
            port("ready: /a on b on 127.0.0.1:4711; lane on, run directory /run/samehost"),
            Some(4711)
        );
        assert_eq!(port("ready: /a on 127.0.0.1:4711"), Some(4711));
        assert_eq!(port(""), None);
    }

    #[test]
    fn paths_are_escaped() {
        assert_eq!(escape(Path::new("/tmp/a b#c")), "/tmp/a\\040b\\043c");
    }
}
