//! `status`: the status of all servers and mounts on this host, and in particular whether they are local, and
//! if not, why not.

pub mod mounts;

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use control::{Answers, AskError, MetricUnit, Metrics, ProcessKind, Unresponsive};
use serde::Serialize;
use server::Status;
use server::status::{ConnectionStatus, LaneStatus, ProcedureStatus};

use crate::cli::{Global, StatusArgs};
use crate::exit::{CommandResult, Exit, Failure, Stop};
use crate::human;
use crate::output::{Output, print_error};
use crate::table::{Align, TextTable};
use mount::process::MountStatus;

/// What `--json` writes.
#[derive(Serialize)]
struct StatusJson<'a> {
    servers: Vec<&'a Status>,
    mounts: Vec<&'a MountStatus>,
    silent: Vec<SilentProcess>,
}

/// A process that didn't answer, for `--json`.
#[derive(Serialize)]
struct SilentProcess {
    what: &'static str,
    #[serde(with = "control::path_text")]
    socket: PathBuf,
    reason: String,
}

/// Asks all servers in a run directory. Without such a directory there are none.
pub fn servers(run_dir: &Path) -> io::Result<Answers<Status>> {
    match control::query(run_dir, ProcessKind::Server) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Answers::default()),
        asked => asked,
    }
}

/// Complains about processes that didn't answer.
pub fn report_unresponsive(silent: &[Unresponsive], what: &str) {
    for Unresponsive { path, error } in silent {
        print_error(&unanswered(path, error, what).to_string());
    }
}

/// The failure of a query or request to the process with this socket: a server or a mount.
pub fn unanswered(socket: &Path, error: &AskError, what: &str) -> Failure {
    let next = match error {
        error if error.is_gone() || matches!(error, AskError::Ended) => {
            "it has ended meanwhile: `samehost status` shows what runs".to_owned()
        }
        error if error.is_denied() => format!("run as the user of the {what}, or as root"),
        error if error.is_timeout() => {
            "it hangs or is stopped: see what it waits for (in its log, in /proc/PID/stack), or restart it"
                .to_owned()
        }
        AskError::Untrusted { .. } => "see what this process is: another user may not answer for the \
                                       owner of this directory"
            .to_owned(),
        AskError::TooMany { .. } => "its user can show the others with `samehost status`".to_owned(),
        AskError::NoTimeLeft => "end those that hang, which are named here, too".to_owned(),
        _ => "its answer isn't understood: use the `samehost` of its own version".to_owned(),
    };
    let object = format!("{what} at {}", human::name(socket.as_os_str().as_bytes()));
    Failure::new(object, human::line(&error.to_string())).next(next)
}

/// The failure to read a run directory.
pub fn unreadable(run_dir: &Path, error: &io::Error) -> Failure {
    let next = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as the user who started the servers and mounts, or as root",
        _ => "name the run directory with --run-dir or SAMEHOST_RUN_DIR",
    };
    Failure::new(human::name(run_dir.as_os_str().as_bytes()), error).next(next)
}

/// Erases the terminal and moves the cursor to its first column (ECMA-48).
const ERASE_TERMINAL: &str = "\x1b[H\x1b[2J";

/// Prints the status of all processes, with `--watch` again and again.
pub fn status(global: &Global, args: &StatusArgs) -> CommandResult {
    let mut output = Output::stdout();
    let Some(delay) = args.watch else { return once(&mut output, global, args) };
    loop {
        if output.is_terminal() {
            output.bytes(ERASE_TERMINAL.as_bytes())?;
        }
        match once(&mut output, global, args) {
            Ok(_) => {}
            // Servers and mounts may come back.
            Err(Stop::Failed(failure)) => {
                output.flush()?;
                print_error(&failure.to_string());
            }
            Err(stop) => return Err(stop),
        }
        std::thread::sleep(delay);
    }
}

/// Asks all processes and prints their status.
fn once(output: &mut Output, global: &Global, args: &StatusArgs) -> CommandResult {
    let dir = global.run_dir.display().to_string();
    let unread = |error: io::Error| unreadable(&global.run_dir, &error);
    let servers = servers(&global.run_dir).map_err(unread)?;
    let mounts = mounts::query(&global.run_dir).map_err(unread)?;
    let none = servers.answers.is_empty() && mounts.answers.is_empty();
    let all_answered = servers.silent.is_empty() && mounts.silent.is_empty();
    if args.json {
        let status = StatusJson {
            servers: servers.answers.iter().map(|asked| &asked.answer).collect(),
            mounts: mounts.answers.iter().map(|asked| &asked.answer).collect(),
            silent: unresponsive(&servers, "server").chain(unresponsive(&mounts, "mount")).collect(),
        };
        if args.watch.is_some() { output.json_line(&status) } else { output.json(&status) }?;
    } else if none && all_answered {
        return Err(Failure::new(&dir, "no server is running here, and nothing is mounted")
            .exit(Exit::Unreachable)
            .next(
                "start one with `samehost serve`, or name its run directory with --run-dir or \
                   SAMEHOST_RUN_DIR",
            )
            .into());
    } else {
        for (index, asked) in servers.answers.iter().enumerate() {
            if index > 0 {
                output.line("")?;
            }
            show(output, &asked.answer, args.procedures)?;
        }
        for (index, asked) in mounts.answers.iter().enumerate() {
            if index > 0 || !servers.answers.is_empty() {
                output.line("")?;
            }
            mounts::show(output, &asked.answer)?;
        }
    }
    output.flush()?;
    report_unresponsive(&servers.silent, "server");
    report_unresponsive(&mounts.silent, "mount");
    Ok(match (none, all_answered) {
        (_, false) => Exit::Failed,
        (true, true) => Exit::Unreachable,
        (false, true) => Exit::Done,
    })
}

fn unresponsive<T>(asked: &Answers<T>, what: &'static str) -> impl Iterator<Item = SilentProcess> {
    asked.silent.iter().map(move |silent| SilentProcess {
        what,
        socket: silent.path.clone(),
        reason: sys::without_error_numbers(&silent.error.to_string()),
    })
}

fn show(output: &mut Output, status: &Status, procedures: bool) -> Result<(), Stop> {
    output.line(format!(
        "server {} (samehost {}, process {}), up {}",
        status.instance,
        status.version,
        status.pid,
        human::seconds(status.uptime_seconds)
    ))?;
    output.line(format!("  listens on  {}", status.listen.join(", ")))?;
    output.line(format!("  memory      {}", numbers(&status.memory)))?;
    output.line(format!(
        "  I/O modes   {} for reads, {} for writes, where no export says otherwise",
        status.io.read, status.io.write
    ))?;
    for notice in &status.notices {
        output.line(format!("  note        {notice}"))?;
    }
    exports(output, status)?;
    clients(output, status)?;
    data_paths(output, status)?;
    if procedures {
        counters(output, status)?;
    }
    Ok(())
}

fn exports(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let mut table = TextTable::new(&[
        ("export", Align::Left),
        ("read I/O", Align::Left),
        ("write I/O", Align::Left),
        ("tree", Align::Left),
        ("clients", Align::Left),
    ]);
    for export in &status.exports {
        let mut clients = export.clients.join(" ");
        if let Some(problem) = &export.problem {
            clients.push_str(&format!("  NOT SERVED: {problem}"));
        }
        let name = human::name(export.path.as_os_str().as_bytes());
        table.row([name, export.io.read.clone(), export.io.write.clone(), export.tree.clone(), clients]);
    }
    section(output, &table)?;
    for export in &status.exports {
        let name = human::name(export.path.as_os_str().as_bytes());
        for note in &export.io_notes {
            output.line(format!("  {name}: {note}"))?;
        }
        if export.copied_writes > 0 {
            let count = human::thousands(export.copied_writes);
            output
                .line(format!("  {name}: {count} direct writes had to be copied to aligned memory first"))?;
        }
    }
    Ok(())
}

fn clients(output: &mut Output, status: &Status) -> Result<(), Stop> {
    if status.connections.is_empty() {
        output.line("")?;
        output.line("  no client is connected")?;
        return refused_calls(output, status);
    }
    let lanes: HashMap<&str, &LaneStatus> =
        status.lanes.iter().filter_map(|lane| Some((lane.nfs_peer.as_deref()?, lane))).collect();
    let mut table = TextTable::new(&[
        ("client", Align::Left),
        ("local", Align::Left),
        ("process", Align::Right),
        ("user", Align::Right),
        ("grants", Align::Right),
        ("calls", Align::Right),
        ("received", Align::Right),
        ("sent", Align::Right),
        ("since", Align::Right),
        ("why", Align::Left),
    ]);
    for connection in &status.connections {
        table.row(client_row(connection, lanes.get(connection.peer.as_str()).copied()));
    }
    section(output, &table)?;
    refused_calls(output, status)?;
    if status.connections.iter().any(|connection| !connection.local) {
        output.line("  `samehost probe URL`, run where a client runs, looks at the other end of it.")?;
    }
    Ok(())
}

/// A line about calls that weren't served normally, if there were any.
fn refused_calls(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let wire = &status.wire;
    if wire.refused + wire.displaced + wire.broken + wire.denied == 0 {
        return Ok(());
    }
    output.line(format!("  connections: {}", numbers(wire)))
}

fn client_row(connection: &ConnectionStatus, lane: Option<&LaneStatus>) -> [String; 10] {
    let (local, process, user, grants, why) = match lane {
        Some(lane) => {
            let process = if lane.pid == 0 { "-".to_owned() } else { lane.pid.to_string() };
            let why = format!("for {}, {}", human::seconds(lane.age_seconds), connection.reason);
            ("yes", process, lane.uid.to_string(), lane.grants.to_string(), why)
        }
        None => ("no", "-".to_owned(), "-".to_owned(), "-".to_owned(), connection.reason.clone()),
    };
    [
        connection.peer.clone(),
        local.to_owned(),
        process,
        user,
        grants,
        human::thousands(connection.calls),
        human::bytes(connection.bytes_in),
        human::bytes(connection.bytes_out),
        human::seconds(connection.age_seconds),
        why,
    ]
}

/// A line for each data path: what was transferred since the start.
fn data_paths(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let mut columns = vec![("data path", Align::Left)];
    columns.extend(titles::<ProcedureStatus>());
    let mut table = TextTable::new(&columns);
    for (data_path, procedures) in &status.counters {
        let mut sums = vec![0_u64; ProcedureStatus::METRICS.len()];
        for procedure in procedures.values() {
            for (sum, value) in sums.iter_mut().zip(procedure.values()) {
                *sum = sum.saturating_add(value);
            }
        }
        table.row([data_path.clone()].into_iter().chain(cells::<ProcedureStatus>(sums)));
    }
    section(output, &table)?;
    output.line(format!(
        "  grants: {}. What a client reads and writes through a grant never passes the server and isn't \
         counted here.",
        numbers(&status.grants)
    ))
}

fn counters(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let mut columns = vec![("data path", Align::Left), ("procedure", Align::Left)];
    columns.extend(titles::<ProcedureStatus>());
    let mut table = TextTable::new(&columns);
    for (data_path, procedures) in &status.counters {
        for (procedure, count) in procedures.iter().filter(|(_, count)| count.ops > 0) {
            let names = [data_path.clone(), procedure.clone()].into_iter();
            table.row(names.chain(cells::<ProcedureStatus>(count.values())));
        }
    }
    section(output, &table)
}

/// The columns of declared numbers.
fn titles<M: Metrics>() -> impl Iterator<Item = (&'static str, Align)> {
    M::METRICS.iter().map(|metric| (metric.title, Align::Right))
}

/// The values of declared numbers as they are shown.
fn cells<M: Metrics>(values: impl IntoIterator<Item = u64>) -> impl Iterator<Item = String> {
    M::METRICS.iter().zip(values).map(|(metric, value)| match metric.unit {
        MetricUnit::Count => human::thousands(value),
        MetricUnit::Bytes => human::bytes(value),
    })
}

/// Declared numbers in a line, each with its title.
fn numbers<M: Metrics>(of: &M) -> String {
    let cells = cells::<M>(of.values()).zip(M::METRICS);
    cells.map(|(cell, metric)| format!("{cell} {}", metric.title)).collect::<Vec<_>>().join(", ")
}

fn section(output: &mut Output, table: &TextTable) -> Result<(), Stop> {
    output.line("")?;
    table.lines(2).iter().try_for_each(|line| output.line(line))
}
