//! Running the command as a user would, with a timeout for every wait.

// Each test file is a crate of its own and uses a part of this module.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The timeout of every wait, much longer than needed: it only ends a hang.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
}

impl Ran {
    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("output is UTF-8")
    }

    /// Asserts the exit code, and shows the output if it differs.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "\nstdout: {}\nstderr: {}",
            String::from_utf8_lossy(&self.stdout),
            self.stderr
        );
        self
    }

    /// Asserts that standard error contains all of `words`.
    #[track_caller]
    pub fn complains(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        self
    }
}

/// The command, with an environment that doesn't depend on the caller's.
pub fn samehost<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samehost"));
    command.args(args).env_remove("SAMEHOST_RUN_DIR").env_remove("SAMEHOST_LOG").env("TZ", "UTC");
    command.stdin(Stdio::null());
    command
}

/// Runs `command` until it ends.
pub fn run(command: &mut Command) -> Ran {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let stdout = collect(child.stdout.take().expect("a pipe"));
    let stderr = collect(child.stderr.take().expect("a pipe"));
    let code = wait(&mut child);
    let stderr = String::from_utf8_lossy(&stderr.join().expect("the reader ends")).into_owned();
    Ran { code, stdout: stdout.join().expect("the reader ends"), stderr }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Waits for a process and returns its exit code. Kills it after the timeout.
pub fn wait(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return status.code();
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the command took too long");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// `samehost serve` on a free port, with its files in a directory of its own.
pub struct Server {
    child: Child,
    scratch: tempfile::TempDir,
    /// Its port.
    pub port: u16,
    /// Its ready line.
    pub ready: String,
}

impl Server {
    /// Exports a new directory, read-write and without squashing.
    pub fn start() -> Self {
        Self::with(&[], "127.0.0.1(rw,no_root_squash,insecure,no_subtree_check)")
    }

    /// Starts a server with other options.
    pub fn with(args: &[&str], clients: &str) -> Self {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        fs::create_dir(scratch.path().join("export")).expect("an export");
        let line = format!("{} {clients}", scratch.path().join("export").display());
        let mut command =
            samehost(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--until-stdin-ends"]);
        command.args(["--export", &line]);
        command.arg("--run-dir").arg(scratch.path().join("run"));
        command.arg("--state-dir").arg(scratch.path().join("state"));
        command.args(args);
        let (child, ready) = ready(&mut command);
        let port = port(&ready).unwrap_or_else(|| panic!("no port in {ready:?}"));
        Self { child, scratch, port, ready }
    }

    /// The exported directory.
    pub fn export(&self) -> PathBuf {
        self.scratch.path().join("export")
    }

    /// A directory beside it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Its run directory.
    pub fn run_dir(&self) -> PathBuf {
        self.scratch.path().join("run")
    }

    /// The URL of `path` in the export.
    pub fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{}{}/{path}", self.port, self.export().display())
    }

    /// Runs a command; a `{}` at the beginning of an argument stands for the export's URL.
    pub fn run(&self, args: &[&str]) -> Ran {
        let args = args.iter().map(|arg| match arg.strip_prefix("{}") {
            Some(path) => self.url(path),
            None => (*arg).to_owned(),
        });
        run(samehost(args).env("SAMEHOST_RUN_DIR", self.run_dir()))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the server is there");
    }

    /// Waits until it ends and returns the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        wait(&mut self.child)
    }

    /// Closes its standard input.
    pub fn let_go(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its status.
    pub fn status(&self) -> serde_json::Value {
        let all: serde_json::Value =
            serde_json::from_slice(&self.run(&["status", "--json"]).exits(0).stdout).expect("status is JSON");
        all["servers"][0].clone()
    }

    /// The number of calls of a procedure of NFSv3, or of operations of NFSv4, on the wire.
    pub fn wire_calls(&self, procedure: &str) -> u64 {
        let status = self.status();
        let wire = status["counters"]["wire"].as_object().expect("counters of the wire");
        let is_it = |name: &str| name.strip_prefix("NFS4.").unwrap_or(name) == procedure;
        let found = wire.iter().filter(|(name, _)| is_it(name));
        found.map(|(_, count)| count["ops"].as_u64().expect("a count")).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.let_go();
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `ready` is true.
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !ready() {
        assert!(Instant::now() < deadline, "timeout waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a server and waits for its ready line, or until it ends.
pub fn ready(command: &mut Command) -> (Child, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server starts");
    let stdout = child.stdout.take().expect("a pipe");
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = sender.send(line);
    });
    let line = receiver.recv_timeout(TIMEOUT).expect("the server gets ready, or ends");
    (child, line.trim_end().to_owned())
}

fn port(ready: &str) -> Option<u16> {
    let (_, behind) = ready.rsplit_once(" on 127.0.0.1:")?;
    behind.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// All files below `root`, by path, with type, mode and contents as comparable text.
pub fn tree(root: &Path) -> std::collections::BTreeMap<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt;
    let mut all = std::collections::BTreeMap::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            let mode = metadata.permissions().mode() & 0o777;
            let what = if metadata.is_symlink() {
                format!("link to {}", fs::read_link(&path).expect("a link").display())
            } else if metadata.is_dir() {
                stack.push(path.clone());
                format!("directory {mode:o}")
            } else {
                format!("file {mode:o} {:?}", fs::read(&path).expect("a file"))
            };
            all.insert(path.strip_prefix(root).expect("below the root").to_path_buf(), what);
        }
    }
    all
}
