//! `serve`: runs a server in the foreground until a signal stops it.

mod requests;

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use server::config::ConfigSource;
use server::{AddressHook, Config, LaneOffer, LockStore, MetricsAddress, Server, StartError, Status};
use signal_hook::consts::SIGTERM;

use self::requests::{Requests, ServeRequest};
use crate::cli::{Global, Owners, ServeArgs};
use crate::config_file::serve::ServeConfigSource;
use crate::exit::{CommandResult, Exit, Failure, Stop};
use crate::output::{Output, print_error};
use crate::{descriptors, human, notify};

/// How long a start that was cancelled may still take. A hung disk can keep it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between two looks at whether a start was cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a server's process needs from its first moments.
pub struct Prepared {
    lock_store: Option<Arc<LockStore>>,
    requests: Arc<Requests>,
}

/// Takes the descriptors that the service manager has passed, and catches signals from now on. Called before
/// anything else opens descriptors or starts threads.
///
/// # Errors
/// When signals can't be caught.
pub fn prepare() -> Result<Prepared, Failure> {
    let lock_store = notify::lock_store();
    descriptors::prepare();
    Ok(Prepared { lock_store, requests: Requests::watch()? })
}

/// Serves until SIGTERM, SIGINT or, if asked for, the end of standard input. Without `prepared` it begins
/// with [`prepare`].
pub fn serve(global: &Global, args: ServeArgs, prepared: Option<Prepared>) -> CommandResult {
    let Prepared { lock_store, requests } = prepared.map_or_else(prepare, Ok)?;
    let until_stdin_ends = args.until_stdin_ends;
    let source = args.config.as_deref().map(ServeConfigSource::new).transpose()?;
    let source = source.map(|source| Arc::new(source) as Arc<dyn ConfigSource>);
    let config = config(global, args)?;
    let (lane, run_dir) = (config.lane, config.run_dir.clone());
    let Some(server) = start(Config { lock_store, source, ..config }, &requests)? else {
        return Ok(Exit::Done);
    };
    requests.started(server.stale_sockets());
    let ready_line = ReadyLine { lane, run_dir, metrics: server.metrics_address().cloned() };
    if requests.stop_asked().is_none() {
        announce(&server, &ready_line)?;
        if until_stdin_ends {
            stop_when_stdin_ends()?;
        }
        run(&server, ready_line, &requests)?;
    }
    notify::stopping_within(server.longest_stop());
    server.stop();
    requests.stopped();
    Ok(Exit::Done)
}

/// Starts the server; `None` if a signal ended the start. It runs on a thread of its own, because it can hang
/// where an exported filesystem does.
fn start(config: Config, requests: &Arc<Requests>) -> Result<Option<Server>, Failure> {
    requests.starting();
    let (sender, receiver) = sync_channel(1);
    let monitor = Arc::clone(requests);
    thread::Builder::new()
        .name("start".to_owned())
        .spawn(move || {
            // Without a receiver the process ends.
            let _ = sender.send(Server::start_monitored(config, &*monitor));
        })
        .map_err(|source| explain(StartError::Threads { source }))?;
    loop {
        match receiver.recv_timeout(LOOK_AGAIN) {
            Ok(Ok(server)) => return Ok(Some(server)),
            Ok(Err(StartError::Cancelled)) => return Ok(None),
            Ok(Err(error)) => return Err(explain(error)),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("serve", "the start has failed")),
            Err(RecvTimeoutError::Timeout) => {
                if requests.stop_asked().is_some_and(|asked| asked.elapsed() >= CANCEL_TIMEOUT) {
                    print_error("serve: the start didn't end within 5 s of the signal, and was abandoned");
                    return Ok(None);
                }
            }
        }
    }
}

/// Reloads when asked to, until a stop is asked for.
fn run(server: &Server, ready_line: ReadyLine, requests: &Requests) -> Result<(), Failure> {
    let ready_line = Arc::new(ready_line);
    let reload = || {
        notify::reloading();
        let ready_line = Arc::clone(&ready_line);
        server.reload_in_background(move |status| notify::ready(&ready_line.of(status)));
    };
    let (running, ended) = sync_channel(0);
    thread::scope(|scope| {
        if let Some(interval) = notify::watchdog_interval() {
            let report = move || report_life(server, interval / 2, &ended);
            thread::Builder::new()
                .name("watchdog".to_owned())
                .spawn_scoped(scope, report)
                .map_err(|error| Failure::new("a thread for the watchdog", error))?;
        }
        while requests.next() == ServeRequest::Reload {
            reload();
        }
        drop(running);
        Ok(())
    })
}

/// The configuration that the options stand for.
///
/// # Errors
/// For options that contradict each other.
pub fn config(global: &Global, args: ServeArgs) -> Result<Config, Failure> {
    if args.cluster.is_some() != args.node.is_some() {
        return Err(Failure::usage("serve", "a node of a cluster needs both --cluster and --node"));
    }
    let cluster = args.cluster.as_ref().zip(args.node).map(|(address, node)| {
        let settings = args.ceph.settings(address);
        let address_hook = match &args.address_hook {
            Some(program) => AddressHook::Program(program.clone()),
            None => AddressHook::Interface(args.node_address.clone()),
        };
        server::ClusterConfig { settings, node, address_hook, has_v40: args.cluster_nfs40 }
    });
    let system_exports = args.exports.is_empty() && args.export.is_empty();
    Ok(Config {
        listen: args.listen,
        exports: args.export,
        export_files: args.exports,
        system_exports,
        run_dir: global.run_dir.clone(),
        state_dir: args.state_dir,
        lane: args.lane,
        read_io: args.read_io,
        write_io: args.write_io,
        rpcbind: !args.no_rpcbind,
        threads: args.threads.into(),
        max_connections: usize::try_from(args.max_connections).unwrap_or(usize::MAX),
        lane_grants: usize::try_from(args.lane_grants).unwrap_or(usize::MAX),
        lease: Duration::from_secs(args.lease.into()),
        nfs4_domain: args.nfs4_domain,
        nfs4_names: args.nfs4_owners == Owners::Names,
        lock_store: None,
        cluster,
        source: None,
        metrics: args.metrics,
        takeover: Duration::from_secs(args.takeover.into()),
        grace: Duration::from_secs(args.grace.into()),
    })
}

/// Notifies the service manager until `ended`, each time after it has collected a status: that takes the
/// locks of exports, connections, lanes and NFSv4 state, so a server that has deadlocked falls silent. It
/// doesn't touch the exported filesystems, so one whose disk hangs goes on.
fn report_life(server: &Server, interval: Duration, ended: &Receiver<()>) {
    while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let _ = server.status();
        notify::alive();
    }
}

/// What the ready line says besides the status: `ready: /srv on [::]:2049; lane on, run directory
/// /run/samehost`.
struct ReadyLine {
    lane: LaneOffer,
    run_dir: PathBuf,
    metrics: Option<MetricsAddress>,
}

impl ReadyLine {
    fn of(&self, status: &Status) -> String {
        let exports: Vec<String> = status
            .exports
            .iter()
            .filter(|export| export.problem.is_none() && !export.crossed)
            .map(|export| human::name(export.path.as_os_str().as_bytes()))
            .collect();
        let mut line = format!("ready: {} on {}", exports.join(", "), status.listen.join(", "));
        line.push_str(&format!("; lane {}", self.lane));
        if self.lane != LaneOffer::Off {
            line.push_str(&format!(", run directory {}", self.run_dir.display()));
        }
        if let Some(address) = &self.metrics {
            line.push_str(&format!(", metrics at {address}"));
        }
        line
    }
}

/// Prints the ready line, and a line for each limitation of this server. Scripts wait for the first word.
fn announce(server: &Server, ready_line: &ReadyLine) -> Result<(), Stop> {
    let line = ready_line.of(&server.status());
    notify::ready(&line);
    let mut output = Output::stdout();
    let mut print_ready = || {
        output.line(&line)?;
        for notice in server.notices() {
            output.line(format!("note: {notice}"))?;
        }
        output.flush()
    };
    match print_ready() {
        // Nothing has to read the output.
        Err(Stop::ReaderGone) => Ok(()),
        other => other,
    }
}

/// Turns the end of standard input into a SIGTERM to this process, so that there is one way to stop.
fn stop_when_stdin_ends() -> Result<(), Stop> {
    let wait = || {
        let mut scrap = [0; 512];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut scrap) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let _ = signal_hook::low_level::raise(SIGTERM);
    };
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(wait)
        .map(drop)
        .map_err(|error| Failure::new("watching standard input", error).into())
}

/// The next steps for directories that can't be served, each once.
fn hints(reasons: &[String]) -> String {
    let mut hints: Vec<&str> = Vec::new();
    for reason in reasons {
        let hint = if reason.ends_with("isn't a directory") {
            "export the directory that contains it"
        } else if reason.contains(": Permission denied") {
            "run as root, or export a directory that this user may enter"
        } else {
            "create the directory, or correct its path in the exports"
        };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints.join("; ")
}

/// The next step for each failure of a start.
pub fn explain(error: StartError) -> Failure {
    let failure = Failure::new("serve", &error);
    match &error {
        StartError::Exports(_) => failure.next("correct the line; samehost-exports(5) has the options"),
        StartError::ExportsFile { .. } => failure
            .next("write lines such as `/srv 192.0.2.0/24(rw)` into it, or name another with --exports"),
        StartError::NoExports => failure.next("for example: samehost serve --export '/srv *(ro)'"),
        StartError::NothingServed(reasons) => failure.next(hints(reasons)),
        StartError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => failure.next(
                "stop the other NFS server (systemctl stop nfs-server), or choose a port with --listen",
            ),
            io::ErrorKind::PermissionDenied => failure.next("choose a port above 1023 with --listen"),
            _ => failure.next("choose an address of this host with --listen"),
        },
        StartError::StateDirInUse { holder, .. } => failure.next(match holder.local_pid() {
            Some(pid) => format!(
                "stop it (kill {pid}), wait longer for it with --takeover, or choose another directory with \
                 --state-dir"
            ),
            None => "stop it, or choose another directory with --state-dir".to_owned(),
        }),
        StartError::Metrics { .. } => failure.next("choose another address with --metrics"),
        StartError::Threads { .. } => failure.next(
            "raise it (ulimit -u, TasksMax= of the unit, pids.max of the container), or lower --threads",
        ),
        _ => failure, // their reasons include it
    }
}
