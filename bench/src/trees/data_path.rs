//! The data paths from an application to the files of a directory, as data, and directories opened over them.
//!
//! A data path that this build or this machine lacks is left out, with the reason. Each is proved by the
//! server's counters, which say how files were created.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use samehost_tests::samehost::binary;
use samehost_tests::{Mount, Scratch, Serve, Server, run, run_ok};

use crate::drop_caches;

/// The option of exports(5) for mount grants.
const MOUNT_GRANT: &str = "mount_grant";

/// One data path.
#[derive(Debug)]
pub struct DataPath {
    /// The column's heading.
    pub heading: &'static str,
    /// Its name in `--paths`.
    pub name: &'static str,
    /// How to open it, the first that succeeds; earlier builds need the later ones. None for the plain
    /// directory.
    setups: &'static [Setup],
    /// What proves it.
    proof: Proof,
}

/// A server and a client.
#[derive(Debug)]
struct Setup {
    /// The server's `--lane`.
    lane: &'static str,
    /// An option of the export, or none.
    export: &'static str,
    client: Client,
}

/// How an application reaches the server.
#[derive(Debug, Clone, Copy)]
enum Client {
    /// A mount with these options.
    Mount(&'static str),
    /// The commands with this `--lane`, by NFSv3.
    Command(&'static str),
}

/// What must be observed while [`PROBE_FILES`] files are created.
#[derive(Debug, Clone, Copy)]
enum Proof {
    /// Nothing: there is no server.
    Nothing,
    /// The mountpoint's filesystem isn't FUSE, and the client creates the files.
    NotFuse,
    /// The client creates the files, all but those that are created before it gets the tree.
    Local,
    /// The server creates each file for a request over the lane.
    OverLane,
    /// The server creates each file for a request over the wire.
    OverWire,
}

const fn setup(lane: &'static str, client: Client) -> Setup {
    Setup { lane, export: "", client }
}

const RAW: DataPath = DataPath { heading: "raw", name: "raw", setups: &[], proof: Proof::Nothing };

/// The data paths to a mounted directory, in the order of the tables.
pub const MOUNTED: [DataPath; 9] = [
    RAW,
    DataPath {
        heading: "mount grant",
        name: "mount-grant",
        setups: &[Setup { lane: "on", export: MOUNT_GRANT, client: Client::Mount("lane=required") }],
        proof: Proof::NotFuse,
    },
    DataPath {
        heading: "tree, io_uring",
        name: "tree-uring",
        setups: &[setup("on", Client::Mount("lane=required,uring=required,vers=4.2"))],
        proof: Proof::Local,
    },
    // Without the requests that locks at the server cost.
    DataPath {
        heading: "tree, io_uring, v3",
        name: "tree-uring-3",
        setups: &[setup("on", Client::Mount("lane=required,uring=required,vers=3"))],
        proof: Proof::Local,
    },
    DataPath {
        heading: "tree, /dev/fuse",
        name: "tree-fuse",
        setups: &[
            setup("on", Client::Mount("lane=required,uring=off,vers=4.2")),
            setup("on", Client::Mount("lane=required")),
        ],
        proof: Proof::Local,
    },
    DataPath {
        heading: "files only",
        name: "files",
        setups: &[
            setup("files", Client::Mount("lane=required,uring=off,vers=3")),
            setup("files", Client::Mount("lane=required")),
            setup("on", Client::Mount("lane=required")),
        ],
        proof: Proof::OverLane,
    },
    DataPath {
        heading: "files only, 4.2",
        name: "files-4.2",
        setups: &[setup("files", Client::Mount("lane=required,uring=off,vers=4.2"))],
        proof: Proof::OverLane,
    },
    DataPath {
        heading: "wire",
        name: "wire",
        setups: &[
            setup("on", Client::Mount("lane=off,uring=off,vers=3")),
            setup("on", Client::Mount("lane=off")),
        ],
        proof: Proof::OverWire,
    },
    DataPath {
        heading: "wire, 4.2",
        name: "wire-4.2",
        setups: &[setup("on", Client::Mount("lane=off,uring=off,vers=4.2"))],
        proof: Proof::OverWire,
    },
];

/// The data paths of the commands, in the order of the tables.
pub const COMMANDS: [DataPath; 4] = [
    RAW,
    DataPath {
        heading: "tree",
        name: "tree",
        setups: &[setup("on", Client::Command("required"))],
        proof: Proof::Local,
    },
    DataPath {
        heading: "files only",
        name: "files",
        setups: &[setup("files", Client::Command("required")), setup("on", Client::Command("required"))],
        proof: Proof::OverLane,
    },
    DataPath {
        heading: "wire",
        name: "wire",
        setups: &[setup("on", Client::Command("off"))],
        proof: Proof::OverWire,
    },
];

/// Files that are created to prove a data path.
const PROBE_FILES: u64 = 64;

/// How long a new client may take to get to its data path.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client with a tree must be without calls to count as done: it looks the handles of files up a
/// second after it has made them.
const QUIET_TIME: Duration = Duration::from_millis(1500);

/// How long its calls in the background may take.
const QUIET_TIMEOUT: Duration = Duration::from_secs(60);

/// statfs(2)'s number for FUSE.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// A column that isn't measured.
#[derive(Debug)]
pub struct LeftOut {
    /// Its heading.
    pub heading: &'static str,
    /// Why it isn't.
    pub reason: String,
}

/// Calls to the server, and what the kernel asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calls {
    /// Over the lane.
    pub lane: u64,
    /// Over the wire.
    pub wire: u64,
    /// The kernel's requests to a mount.
    pub requests: u64,
}

impl Calls {
    /// The calls since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            lane: self.lane.saturating_sub(earlier.lane),
            wire: self.wire.saturating_sub(earlier.wire),
            requests: self.requests.saturating_sub(earlier.requests),
        }
    }

    fn sum(self) -> u64 {
        self.lane + self.wire
    }

    /// The result of a probe as text.
    fn of_probe(self) -> String {
        let (lane, wire) = (self.lane, self.wire);
        format!("of {PROBE_FILES} files the server creates {lane} over the lane, {wire} over the wire")
    }
}

/// An empty directory, opened over a data path.
pub struct Site {
    /// The data path.
    pub data_path: &'static DataPath,
    export: PathBuf,
    prefix: &'static [&'static str],
    remote: Option<Remote>,
}

/// What a command needs to reach a file.
pub struct ReachedByCommand {
    /// Its URL.
    pub url: String,
    /// The value of `--lane`.
    pub lane: &'static str,
    /// The run directory.
    pub run_dir: PathBuf,
}

/// The server of a directory and its client.
struct Remote {
    setup: &'static Setup,
    server: Server,
    mount: Option<Mount>,
}

impl Site {
    /// Opens a new directory in `place`; server and client run through the command `prefix`. Without this
    /// data path the reason.
    pub fn open(
        data_path: &'static DataPath,
        place: &Path,
        prefix: &'static [&'static str],
    ) -> Result<Result<Self, String>> {
        let export = place.join(data_path.name);
        fs::create_dir(&export).with_context(|| export.display().to_string())?;
        let mut site = Self { data_path, export, prefix, remote: None };
        let mut reason = None;
        for setup in data_path.setups {
            site.remote = match Remote::start(setup, &site.export, prefix)? {
                Ok(remote) => Some(remote),
                Err(why) => {
                    reason = Some(why);
                    continue;
                }
            };
            reason = site.disproved()?;
            if reason.is_none() {
                break;
            }
        }
        if let Some(reason) = reason {
            site.clear()?;
            return Ok(Err(reason));
        }
        fs::create_dir(site.export.join("work"))?;
        Ok(Ok(site))
    }

    /// The directory to work in, as applications reach it; for commands on the server's own path.
    pub fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    fn root(&self) -> &Path {
        self.remote.as_ref().and_then(|remote| remote.mount.as_ref()).map_or(&self.export, Mount::path)
    }

    /// What the commands need to reach `name` in the directory; `None` for a mount or the plain directory.
    pub fn reached_by_command(&self, name: &str) -> Option<ReachedByCommand> {
        let remote = self.remote.as_ref()?;
        let Client::Command(lane) = remote.setup.client else { return None };
        let (url, run_dir) = (remote.server.url(self.export.join(name)), remote.server.run_dir().to_owned());
        Some(ReachedByCommand { url, lane, run_dir })
    }

    /// The calls to the server so far; none without a server. One round trip over the lane may open several
    /// files: those of a mount count once. The server counts the calls on a lane's call socket with those of
    /// the wire, a mount with those of the lane.
    pub fn calls(&self) -> Calls {
        let Some(remote) = &self.remote else { return Calls::default() };
        let counted = remote.server.status();
        let wire = counted.all_calls("wire");
        let of_mount = || {
            let status = remote.mount.as_ref()?.status()?;
            let on_call_socket = status["lane_calls"].as_u64()?;
            let lane = status["lane"]["round_trips"].as_u64()?;
            let requests = status["requests"].as_u64()?;
            Some(Calls { lane, wire: wire.saturating_sub(on_call_socket), requests })
        };
        of_mount().unwrap_or_else(|| Calls { lane: counted.all_calls("lane"), wire, requests: 0 })
    }

    /// Waits until a mount with a tree calls the server no more in the background, which would count for and
    /// slow down what is measured next.
    pub fn wait_until_quiet(&self) -> Result<()> {
        let (Proof::Local, Some(Remote { server, mount: Some(_), .. })) =
            (self.data_path.proof, &self.remote)
        else {
            return Ok(());
        };
        let calls = || server.status().all_calls("wire");
        let start = Instant::now();
        let mut last = (start, calls());
        while last.0.elapsed() < QUIET_TIME {
            ensure!(start.elapsed() < QUIET_TIMEOUT, "{} isn't quiet", self.data_path.heading);
            std::thread::sleep(Duration::from_millis(50));
            let now = calls();
            if now != last.1 {
                last = (Instant::now(), now);
            }
        }
        Ok(())
    }

    /// Empties the caches of the kernel, the server and the client.
    pub fn restart_cold(&mut self) -> Result<()> {
        let Some(remote) = &mut self.remote else { return drop_caches() };
        if let Some(mount) = &remote.mount {
            mount.unmount();
        }
        ensure!(remote.server.stop().success(), "the server failed at its stop");
        drop_caches()?;
        remote.server.restart();
        if let (Some(mount), Client::Mount(options)) = (&remote.mount, remote.setup.client) {
            run_ok(&mut through(self.prefix, &mount.command(&remote.server.url(&self.export), options)));
        }
        match self.disproved()? {
            Some(reason) => bail!("{} was lost: {reason}", self.data_path.heading),
            None => Ok(()),
        }
    }

    /// Removes all files, directly rather than through the client: this isn't measured.
    pub fn clear(self) -> Result<()> {
        drop(self.remote);
        fs::remove_dir_all(&self.export).with_context(|| self.export.display().to_string())
    }

    /// Why this isn't the data path that it should be; `None` if it is.
    fn disproved(&self) -> Result<Option<String>> {
        if matches!(self.data_path.proof, Proof::Nothing) {
            return Ok(None);
        }
        let start = Instant::now();
        loop {
            let created = self.probe()?;
            let reason = match self.data_path.proof {
                Proof::NotFuse if is_fuse(self.root())? => {
                    Some("the directory isn't mounted itself".to_owned())
                }
                Proof::NotFuse | Proof::Local if created.sum() >= PROBE_FILES / 2 => Some(created.of_probe()),
                Proof::OverLane if created.lane < PROBE_FILES => Some(created.of_probe()),
                Proof::OverWire if created.wire < PROBE_FILES => Some(created.of_probe()),
                _ => None,
            };
            if reason.is_none() || start.elapsed() > SETTLE_TIMEOUT {
                return Ok(reason);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Creates files and removes them; the calls by which the server created them.
    fn probe(&self) -> Result<Calls> {
        let creations = || self.remote.as_ref().map(Remote::creations).unwrap_or_default();
        let before = creations();
        if let Some(reached) = self.reached_by_command("probe") {
            let files = Scratch::in_memory();
            create_files(files.path())?;
            let mut command = Command::new(binary());
            command.args(["cp", "-r", "--quiet", "--vers", "3", "--lane", reached.lane]);
            command.arg(files.path()).arg(reached.url);
            run_ok(command.env("SAMEHOST_RUN_DIR", reached.run_dir));
        } else {
            let files = self.root().join("probe");
            fs::create_dir(&files)?;
            create_files(&files)?;
        }
        let created = creations().since(before);
        fs::remove_dir_all(self.root().join("probe"))?;
        Ok(created)
    }
}

impl Remote {
    /// The calls so far that create or open files.
    fn creations(&self) -> Calls {
        let status = self.server.status();
        let wire = status.calls("wire", "CREATE") + status.calls("wire", "NFS4.OPEN");
        Calls { lane: status.calls("lane", "OPEN"), wire, requests: 0 }
    }

    /// Starts the server and mounts; the reason if one of the two doesn't know its options, or says that it
    /// can't.
    fn start(
        setup: &'static Setup,
        export: &Path,
        prefix: &'static [&'static str],
    ) -> Result<Result<Self, String>> {
        let mut options = "rw,insecure,no_root_squash".to_owned();
        if !setup.export.is_empty() {
            options = format!("{options},{}", setup.export);
        }
        let serve = Serve::new(format!("{} *({options})", export.display()));
        let serve = serve.arguments(["--lane", setup.lane]).through(prefix.iter().copied());
        let server = match serve.try_start() {
            Ok(server) => server,
            Err(log) => return Ok(Err(first_line(&log))),
        };
        let Client::Mount(options) = setup.client else {
            return Ok(Ok(Self { setup, server, mount: None }));
        };
        let mount = Mount::unmounted(&server);
        let output = run(&mut through(prefix, &mount.command(&server.url(export), options)));
        if !output.status.success() {
            return Ok(Err(first_line(&String::from_utf8_lossy(&output.stderr))));
        }
        Ok(Ok(Self { setup, server, mount: Some(mount) }))
    }
}

/// The sites of the data paths that `wanted` selects, and those that this build or machine lacks.
pub fn open_all(
    data_paths: &'static [DataPath],
    wanted: &[String],
    place: &Path,
    prefix: &'static [&'static str],
) -> Result<(Vec<Site>, Vec<LeftOut>)> {
    let (mut sites, mut left_out) = (Vec::new(), Vec::new());
    for data_path in data_paths {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == data_path.name) {
            continue;
        }
        match Site::open(data_path, place, prefix)? {
            Ok(site) => sites.push(site),
            Err(reason) => left_out.push(LeftOut::new(data_path.heading, reason)),
        }
    }
    Ok((sites, left_out))
}

impl LeftOut {
    /// Leaves a column out, and says so.
    pub fn new(heading: &'static str, reason: String) -> Self {
        eprintln!("bench: left out: {heading}: {reason}");
        Self { heading, reason }
    }
}

/// `command`, run through the command `prefix`.
pub fn through(prefix: &[&str], command: &Command) -> Command {
    let mut words = prefix.iter().map(std::ffi::OsStr::new).chain([command.get_program()]);
    let mut all = Command::new(words.next().unwrap_or_default());
    all.args(words).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.env(name, value),
            None => all.env_remove(name),
        };
    }
    all
}

fn create_files(directory: &Path) -> Result<()> {
    (0..PROBE_FILES).try_for_each(|number| fs::write(directory.join(number.to_string()), b"x"))?;
    Ok(())
}

fn is_fuse(path: &Path) -> Result<bool> {
    Ok(rustix::fs::statfs(path)?.f_type == FUSE_SUPER_MAGIC)
}

/// The first line of a program's output, without the program's name and the list of what else there is.
fn first_line(output: &str) -> String {
    let line = output.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason was given");
    let line = line.strip_prefix("samehost: ").or_else(|| line.strip_prefix("error: ")).unwrap_or(line);
    line.split("; ").next().unwrap_or(line).to_owned()
}
