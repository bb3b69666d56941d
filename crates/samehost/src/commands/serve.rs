//! `serve`: runs a server in the foreground until a signal stops it.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use server::config::ConfigSource;
use server::{AddressHook, Config, LaneOffer, MetricsAddress, Server, StartError, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{Global, Owners, ServeArgs};
use crate::config_file::serve::ServeConfigSource;
use crate::exit::{CommandResult, Exit, Failure, Stop};
use crate::output::{Output, print_error};
use crate::{human, notify};

/// Signals within this time are one request to stop: timeout(1) sends two, one to the command and one to its
/// process group, and so does a terminal together with the shell.
const REPEATED_SIGNAL_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until SIGTERM, SIGINT or, if asked for, the end of standard input.
pub fn serve(global: &Global, args: ServeArgs) -> CommandResult {
    let lock_store = notify::lock_store();
    // The handlers come first, so that no signal during the start is lost.
    let mut signals =
        Signals::new([SIGHUP, SIGTERM, SIGINT]).map_err(|error| Failure::new("signal handlers", error))?;
    if args.cluster.is_some() != args.node.is_some() {
        let failure = Failure::usage("serve", "a node of a cluster needs both --cluster and --node");
        return Err(failure.into());
    }
    let until_stdin_ends = args.until_stdin_ends;
    let source = args.config.as_deref().map(ServeConfigSource::new).transpose()?;
    let source = source.map(|source| Arc::new(source) as Arc<dyn ConfigSource>);
    let config = config(global, args);
    let (lane, run_dir) = (config.lane, config.run_dir.clone());
    let server = Server::start(Config { lock_store, source, ..config }).map_err(explain)?;
    let ready_line = ReadyLine { lane, run_dir, metrics: server.metrics_address().cloned() };
    announce(&server, &ready_line)?;
    if until_stdin_ends {
        stop_when_stdin_ends()?;
    }
    let ready_line = Arc::new(ready_line);
    let reload = || {
        notify::reloading();
        let ready_line = Arc::clone(&ready_line);
        server.reload_in_background(move |status| notify::ready(&ready_line.of(status)));
    };
    let (running, ended) = sync_channel(0);
    thread::scope(|scope| {
        if let Some(interval) = notify::watchdog_interval() {
            let server = &server;
            let report = move || report_life(server, interval / 2, &ended);
            thread::Builder::new()
                .name("watchdog".to_owned())
                .spawn_scoped(scope, report)
                .map_err(|error| Failure::new("a thread for the watchdog", error))?;
        }
        signals.forever().take_while(|signal| *signal == SIGHUP).for_each(|_| reload());
        drop(running);
        Ok::<_, Failure>(())
    })?;
    let asked = Instant::now();
    notify::stopping();
    let signal_handle = signals.handle();
    let stale_sockets = server.stale_sockets();
    let watch = move || {
        // A second request stops the server at once.
        if signals.forever().any(|signal| signal != SIGHUP && asked.elapsed() >= REPEATED_SIGNAL_INTERVAL) {
            stale_sockets.remove();
            print_error("serve: stopped by a second signal before everything was drained");
            std::process::exit(Exit::Failed as i32);
        }
    };
    // If the thread can't be started, the server stops without it.
    let watcher = thread::Builder::new().name("signals".to_owned()).spawn(watch);
    server.stop();
    signal_handle.close();
    let _ = watcher.map(thread::JoinHandle::join);
    Ok(Exit::Done)
}

/// The configuration that the options stand for.
pub fn config(global: &Global, args: ServeArgs) -> Config {
    let cluster = args.cluster.as_ref().zip(args.node).map(|(address, node)| {
        let settings = args.ceph.settings(address);
        let address_hook = match &args.address_hook {
            Some(program) => AddressHook::Program(program.clone()),
            None => AddressHook::Interface(args.node_address.clone()),
        };
        server::ClusterConfig { settings, node, address_hook, has_v40: args.cluster_nfs40 }
    });
    let system_exports = args.exports.is_empty() && args.export.is_empty();
    Config {
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
    }
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
            // A path in it may have newlines.
            output.line(format!("note: {}", human::name(notice.as_bytes())))?;
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
fn explain(error: StartError) -> Failure {
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
