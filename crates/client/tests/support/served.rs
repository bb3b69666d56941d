//! A server in its own process, which tests can kill, freeze and restart. The tests of `mount` use it, too,
//! by `#[path]`.
//!
//! The process is the test program itself. It runs only the test [`server_process`], which serves if an
//! environment variable is set, and otherwise does nothing.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PORT: &str = "SAMEHOST_TEST_SERVER_PORT";
const BASE: &str = "SAMEHOST_TEST_SERVER_BASE";
const LANE: &str = "SAMEHOST_TEST_SERVER_LANE";

/// The time limit of every wait in these tests.
pub const BOUND: Duration = Duration::from_secs(60);

#[test]
fn server_process() {
    let (Ok(port), Ok(base)) = (std::env::var(PORT), std::env::var(BASE)) else { return };
    let base = PathBuf::from(base);
    let port = port.parse().unwrap();
    let also = fs::read_to_string(base.join("address")).ok().map(|address| address.parse().unwrap());
    let addresses = [Ipv4Addr::LOCALHOST].into_iter().chain(also);
    let config = server::Config {
        listen: addresses.map(|address| SocketAddr::from((address, port))).collect(),
        export_files: vec![base.join("exports")],
        run_dir: base.join("run"),
        state_dir: Some(base.join("state")),
        lane: if std::env::var(LANE).is_ok() { server::LaneOffer::On } else { server::LaneOffer::Off },
        rpcbind: false,
        ..server::Config::default()
    };
    let config = match fs::read_to_string(base.join("lane_grants")) {
        Ok(number) => server::Config { lane_grants: number.parse().unwrap(), ..config },
        Err(_) => config,
    };
    let config = match fs::read_to_string(base.join("lease")) {
        Ok(seconds) => server::Config { lease: Duration::from_secs(seconds.parse().unwrap()), ..config },
        Err(_) => config,
    };
    let server = server::Server::start(config).expect("the server starts");
    println!("\nserving");
    // Until a command to stop, or the end of the test's process.
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.trim() {
            "reload" => {
                server.reload().expect("good exports");
                println!("\nreloaded");
            }
            "stop" => {
                server.stop();
                println!("\nstopped");
                return;
            }
            _ => {}
        }
    }
}

/// A port that is free also between a kill and a restart: below those that the kernel gives to connections.
fn free_port() -> u16 {
    loop {
        let random = RandomState::new().hash_one(()) % 20_000;
        let port = 10_000 + u16::try_from(random).expect("it is less than 20,000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A server process with a scratch export.
pub struct Served {
    dir: TempDir,
    port: u16,
    lane: bool,
    child: Option<Child>,
    said: Option<Receiver<String>>,
}

impl Served {
    /// Starts a server with or without a lane. The export has these options (exports(5)) beside
    /// `rw,sync,insecure`.
    pub fn new(lane: bool, options: &str) -> Self {
        // On tmpfs if there is one, since the disk isn't tested.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self::new_in(dir, lane, options)
    }

    /// As [`Served::new`], with the export in this scratch directory.
    pub fn new_in(dir: TempDir, lane: bool, options: &str) -> Self {
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["export", "run", "state"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let port = free_port();
        let mut served = Self { dir, port, lane, child: None, said: None };
        served.export_with(options);
        served.restart();
        served
    }

    /// Restarts the server with this limit of grants.
    pub fn limit_grants(&mut self, number: usize) {
        self.stop();
        fs::write(self.dir.path().join("lane_grants"), number.to_string()).unwrap();
        self.restart();
    }

    /// Restarts the server with another address.
    pub fn listen_also(&mut self, address: Ipv4Addr) {
        self.stop();
        fs::write(self.dir.path().join("address"), address.to_string()).unwrap();
        self.restart();
    }

    /// Restarts the server with this lease in seconds.
    pub fn set_lease(&mut self, seconds: u64) {
        self.stop();
        fs::write(self.dir.path().join("lease"), seconds.to_string()).unwrap();
        self.restart();
    }

    /// The exported directory.
    pub fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// The server's run directory.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// The server's port, which a restart doesn't change.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Drains and stops the server, and waits for its end.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if let Some(mut stdin) = child.stdin.take() {
                let _ = stdin.write_all(b"stop\n");
            }
            let _ = child.wait();
        }
    }

    /// Starts the server, or starts it again, and waits until it serves.
    pub fn restart(&mut self) {
        self.kill();
        // The path of the test without the test program's name, as the test harness expects it.
        let (_, module) = module_path!().split_once("::").expect("a module of a test program");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", &format!("{module}::server_process"), "--nocapture"])
            .env(PORT, self.port.to_string())
            .env(BASE, self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if self.lane {
            command.env(LANE, "1");
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (say, said) = std::sync::mpsc::channel();
        // Reads all output, so that a full pipe can't block the server.
        std::thread::spawn(move || {
            lines.by_ref().map_while(Result::ok).for_each(|line| drop(say.send(line)));
        });
        self.child = Some(child);
        self.said = Some(said);
        self.wait_for_line("serving");
    }

    /// Waits until the server has printed this line.
    fn wait_for_line(&self, what: &str) {
        let said = self.said.as_ref().expect("a server");
        while said.recv_timeout(BOUND).unwrap_or_else(|_| panic!("the server never printed {what:?}")).trim()
            != what
        {}
    }

    fn export_with(&self, options: &str) {
        self.export_to("*", options);
    }

    fn export_to(&self, clients: &str, options: &str) {
        let line = format!("{} {clients}(rw,sync,insecure,fsid=7,{options})\n", self.export().display());
        fs::write(self.dir.path().join("exports"), line).unwrap();
    }

    /// Replaces the options of the export and reloads.
    pub fn reload_with(&mut self, options: &str) {
        self.export_with(options);
        self.reload();
    }

    /// Replaces all exports by these lines of exports(5) and reloads.
    pub fn reload_lines(&mut self, lines: &str) {
        fs::write(self.dir.path().join("exports"), lines).unwrap();
        self.reload();
    }

    /// Replaces the clients of the export and reloads.
    pub fn reload_for(&mut self, clients: &str, options: &str) {
        self.export_to(clients, options);
        self.reload();
    }

    fn reload(&mut self) {
        let child = self.child.as_mut().expect("a server");
        child.stdin.as_mut().expect("its input").write_all(b"reload\n").unwrap();
        self.wait_for_line("reloaded");
    }

    /// Offers a lane from the next restart on.
    pub fn allow_lane(&mut self) {
        self.lane = true;
    }

    /// Offers no lane from the next restart on.
    pub fn forbid_lane(&mut self) {
        self.lane = false;
    }

    fn signal(&self, signal: rustix::process::Signal) -> u32 {
        let child = self.child.as_ref().expect("a server");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("it is there");
        child.id()
    }

    /// Stops all threads of the server (SIGSTOP), and returns when the last one has stopped.
    pub fn freeze(&self) {
        let tasks = format!("/proc/{}/task", self.signal(rustix::process::Signal::STOP));
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        };
        let start = Instant::now();
        while !fs::read_dir(&tasks).unwrap().flatten().all(is_stopped) {
            assert!(start.elapsed() < BOUND, "it doesn't stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Continues the server after [`Served::freeze`].
    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Test data that differs for every offset and seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at.wrapping_add(seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}
