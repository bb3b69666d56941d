//! Our server and command, started the way a user starts them.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Daemon, run_ok, wait_for};
use crate::{Netns, Scratch, TIMEOUT, workspace};

/// The `samehost` command, built in the profile of the tests. `SAMEHOST_BIN` names another one.
///
/// # Panics
/// When it can't be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("SAMEHOST_BIN") {
            return path.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(workspace()).args([
            "build",
            "--locked",
            "-p",
            "samehost",
            "--message-format=json",
        ]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let output = command.output().expect("cargo can be started");
        assert!(
            output.status.success(),
            "cargo build -p samehost:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|message| {
                let ours = message.pointer("/target/name")? == "samehost";
                message.get("executable")?.as_str().filter(|_| ours).map(PathBuf::from)
            })
            .expect("cargo names the executable")
    })
}

/// A copy of [`binary`] in `scratch`, where every user may run it.
///
/// # Panics
/// When it can't be copied.
pub fn reachable_binary(scratch: &Scratch) -> PathBuf {
    let path = scratch.join("samehost");
    if !path.exists() {
        // By cp(1): a child that another thread forks at the same time would inherit a descriptor open for
        // writing, and the kernel refuses to execute such a file.
        run_ok(Command::new("cp").arg(binary()).arg(&path));
    }
    path
}

/// The configuration of a server. Its directories are its own and survive restarts.
#[derive(Debug)]
pub struct Serve {
    scratch: Scratch,
    run_dir: PathBuf,
    state_dir: PathBuf,
    listen: String,
    exports: Vec<String>,
    arguments: Vec<String>,
    prefix: Vec<String>,
}

impl Serve {
    /// A server with one export, given as an exports(5) line.
    pub fn new(export: impl Into<String>) -> Self {
        let scratch = Scratch::new();
        Self {
            run_dir: scratch.mkdir("run"),
            state_dir: scratch.mkdir("state"),
            scratch,
            listen: "127.0.0.1:0".to_owned(),
            exports: vec![export.into()],
            arguments: vec!["--no-rpcbind".to_owned()],
            prefix: Vec::new(),
        }
    }

    /// A server of a directory on which every user of this machine has all rights
    /// (`rw,insecure,no_root_squash`).
    pub fn openly(directory: &Path) -> Self {
        Self::new(format!("{} *(rw,insecure,no_root_squash)", directory.display()))
    }

    /// Adds another export.
    #[must_use]
    pub fn export(mut self, line: impl Into<String>) -> Self {
        self.exports.push(line.into());
        self
    }

    /// The address to listen on (default: a free port on 127.0.0.1).
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Another run directory.
    #[must_use]
    pub fn run_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.run_dir = path.into();
        self
    }

    /// Further arguments of `samehost serve`.
    #[must_use]
    pub fn arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Lets it register with rpcbind; other servers are started with `--no-rpcbind`.
    #[must_use]
    pub fn with_rpcbind(mut self) -> Self {
        self.arguments.retain(|a| a != "--no-rpcbind");
        self
    }

    /// Starts it through another command (`nsenter ... --`, `unshare ...`, `setpriv ...`).
    #[must_use]
    pub fn through<S: Into<String>>(mut self, prefix: impl IntoIterator<Item = S>) -> Self {
        self.prefix = prefix.into_iter().map(Into::into).collect();
        self
    }

    /// Starts it in a network namespace.
    #[must_use]
    pub fn inside(self, netns: &Netns) -> Self {
        self.through(["nsenter".to_owned(), format!("--net={}", netns.path()), "--".to_owned()])
    }

    /// Its scratch directory.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server ended:\n{log}"))
    }

    /// As [`Serve::start`].
    ///
    /// # Errors
    /// What it wrote if it ended instead.
    ///
    /// # Panics
    /// When it neither gets ready nor ends.
    pub fn try_start(self) -> Result<Server, String> {
        let daemon = self.spawn();
        let mut server = Server { serve: self, daemon, port: 0 };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The command with the prefix. The prefix may change to a user without access to the build directory,
    /// so the command is a copy then.
    fn command(&self) -> Command {
        let Some((first, rest)) = self.prefix.split_first() else { return Command::new(binary()) };
        let mut command = Command::new(first);
        command.args(rest).arg(reachable_binary(&self.scratch));
        command
    }

    fn spawn(&self) -> Daemon {
        let mut command = self.command();
        command.args(["serve", "--listen", &self.listen]);
        command.arg("--run-dir").arg(&self.run_dir).arg("--state-dir").arg(&self.state_dir);
        for line in &self.exports {
            command.arg("--export").arg(line);
        }
        command.args(&self.arguments);
        let log = self.scratch.join("server.log");
        fs::write(&log, "").expect("own directory");
        Daemon::start("samehost serve", &mut command, &log).expect("the server can be started")
    }
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    serve: Serve,
    daemon: Daemon,
    port: u16,
}

impl Server {
    /// Its output if it ends instead.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        // The port may have been 0. A restart uses the same port, which clients know already.
        let daemon = &mut self.daemon;
        let line = wait_for("the server's ready line", || {
            let ready = daemon.log().lines().find(|l| l.starts_with("ready: ")).map(str::to_owned);
            let ended = ready.is_none() && !daemon.alive();
            if ended { Some(Err(daemon.log())) } else { ready.map(Ok) }
        })?;
        let address = line.split("; ").next().and_then(|l| l.split(" on ").last()).unwrap_or_default();
        let address = address.split(", ").next().unwrap_or_default();
        self.port = address
            .rsplit(':')
            .next()
            .and_then(|p| p.parse().ok())
            .unwrap_or_else(|| panic!("no port in the ready line: {line}"));
        if let Some((host, "0")) = self.serve.listen.rsplit_once(':') {
            self.serve.listen = format!("{host}:{}", self.port);
        }
        Ok(())
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its run directory.
    pub fn run_dir(&self) -> &Path {
        &self.serve.run_dir
    }

    /// Its scratch directory.
    pub fn scratch(&self) -> &Scratch {
        &self.serve.scratch
    }

    /// The URL of a path on it.
    pub fn url(&self, path: impl AsRef<Path>) -> String {
        self.url_at("127.0.0.1", path)
    }

    /// The URL of a path on it, with another of its addresses.
    pub fn url_at(&self, host: &str, path: impl AsRef<Path>) -> String {
        format!("nfs://{host}:{}{}", self.port, path.as_ref().display())
    }

    /// The URL of a path in the format of libnfs's tools.
    pub fn libnfs_url(&self, path: impl AsRef<Path>) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1{}?nfsport={port}&mountport={port}&version=3", path.as_ref().display())
    }

    /// A `samehost` command of a client that looks for the lane in this server's run directory.
    pub fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).env("SAMEHOST_RUN_DIR", &self.serve.run_dir);
        command
    }

    /// Its status.
    ///
    /// # Panics
    /// When it doesn't answer.
    pub fn status(&self) -> Status {
        status_in(&self.serve.run_dir).expect("a running server answers on its status socket")
    }

    /// Waits until it has counted more than `before` calls of a procedure over the wire. It counts a call
    /// after its effect, which another process may already have seen.
    ///
    /// # Panics
    /// When it doesn't in [`TIMEOUT`](crate::TIMEOUT).
    pub fn wait_for_calls(&self, procedure: &str, before: u64) {
        let has_counted = || (self.status().calls("wire", procedure) > before).then_some(());
        wait_for(&format!("more than {before} calls of {procedure}"), has_counted);
    }

    /// Sends SIGTERM and waits for its exit.
    ///
    /// # Panics
    /// When it doesn't.
    pub fn stop(&mut self) -> ExitStatus {
        self.daemon.terminate()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Sends SIGHUP: it reads its exports again.
    pub fn reload(&self) {
        self.daemon.signal(Signal::HUP);
    }

    /// As [`Server::restart`], with its lane off: clients see it as a server on another host. The next
    /// `restart` enables the lane again.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn restart_without_lane(&mut self) {
        let arguments = self.serve.arguments.clone();
        self.serve.arguments.extend(["--lane".to_owned(), "off".to_owned()]);
        self.restart();
        self.serve.arguments = arguments;
    }

    /// Starts it again, on the same port with the same directories, after a stop or a kill.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = self.serve.spawn();
        self.wait_until_ready().unwrap_or_else(|log| panic!("the server ended:\n{log}"));
    }
}

/// A server's status, from its status socket.
#[derive(Debug, Clone)]
pub struct Status(Value);

impl Status {
    /// From the output of `samehost status --json`, when one server runs.
    pub fn of_command(text: &str) -> Option<Self> {
        let mut all: Value = serde_json::from_str(text).ok()?;
        all["servers"].as_array_mut()?.pop().map(Self)
    }

    /// The number of calls of a procedure over a data path (`wire` or `lane`).
    pub fn calls(&self, data_path: &str, procedure: &str) -> u64 {
        let pointer = format!("/counters/{data_path}/{procedure}/ops");
        self.0.pointer(&pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// All calls over a data path (`wire` or `lane`) except those that establish a mount or a lane. A
    /// COMPOUND is one call, by its SEQUENCE.
    pub fn all_calls(&self, data_path: &str) -> u64 {
        let procedures = self.0.pointer(&format!("/counters/{data_path}")).and_then(Value::as_object);
        let counted = procedures.into_iter().flatten();
        let of_files = counted.filter(|(name, _)| match name.split_once('.') {
            Some(("MOUNT" | "LOCALIO", _)) => false,
            Some(("NFS4", operation)) => operation == "SEQUENCE",
            _ => true,
        });
        of_files.filter_map(|(_, procedure)| procedure["ops"].as_u64()).sum()
    }

    /// READs, WRITEs and COMMITs over the wire together: 0 if all data went over the lane.
    pub fn data_calls(&self) -> u64 {
        let names = ["READ", "WRITE", "COMMIT", "NFS4.READ", "NFS4.READ_PLUS", "NFS4.WRITE", "NFS4.COMMIT"];
        names.iter().map(|name| self.calls("wire", name)).sum()
    }

    /// Number of lanes that are up.
    pub fn lanes(&self) -> usize {
        self.0["lanes"]
            .as_array()
            .map_or(0, |lanes| lanes.iter().filter(|l| !l["nfs_peer"].is_null()).count())
    }

    /// Number of open grants.
    pub fn grants(&self) -> u64 {
        self.0.pointer("/grants/open").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Number of grants ever given.
    pub fn granted(&self) -> u64 {
        self.0.pointer("/grants/granted").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Number of TCP connections.
    pub fn connections(&self) -> usize {
        self.0["connections"].as_array().map_or(0, Vec::len)
    }

    /// The whole status.
    pub fn json(&self) -> &Value {
        &self.0
    }
}

/// Asks the first server that replies in a run directory; `None` without one.
pub fn status_in(run_dir: &Path) -> Option<Status> {
    let mut sockets: Vec<PathBuf> = fs::read_dir(run_dir)
        .ok()?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "status"))
        .collect();
    sockets.sort();
    sockets.iter().find_map(|path| {
        let mut stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        // An empty request asks for the status.
        stream.shutdown(std::net::Shutdown::Write).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok().map(Status)
    })
}
