//! `status`: asks every server and every mount on this host what it is doing, and answers "is it local, and if not, why
//! not?".

pub mod mounts;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use server::Status;
use server::status::{ConnectionStatus, LaneStatus, ProcedureStatus};

use crate::cli::{Global, StatusArgs};
use crate::commands::mount::MountStatus;
use crate::exit::{Ended, Exit, Failure, Stop};
use crate::human;
use crate::output::Output;
use crate::table::{Align, Table};

/// What `--json` writes.
#[derive(Serialize)]
struct Everything {
    servers: Vec<Status>,
    mounts: Vec<MountStatus>,
}

/// Asks and prints.
pub fn status(global: &Global, args: &StatusArgs) -> Ended {
    let dir = global.run_dir.display().to_string();
    let servers = server::status::query(&global.run_dir)
        .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(Vec::new()) } else { Err(error) })
        .map_err(|error| explain(&dir, error, "server"))?;
    let mounts: Vec<MountStatus> = mounts::query(&global.run_dir)
        .map_err(|error| explain(&dir, error, "mount"))?
        .into_iter()
        .map(|asked| asked.answer)
        .collect();
    let none = servers.is_empty() && mounts.is_empty();
    let mut output = Output::stdout();
    if args.json {
        output.json(&Everything { servers, mounts })?;
        output.flush()?;
        return Ok(if none { Exit::Unreachable } else { Exit::Done });
    }
    if none {
        return Err(Failure::new(&dir, "no server is running here, and nothing is mounted")
            .exit(Exit::Unreachable)
            .next("start one with `samehost serve`, or name its run directory with --run-dir or SAMEHOST_RUN_DIR")
            .into());
    }
    for (index, status) in servers.iter().enumerate() {
        if index > 0 {
            output.line("")?;
        }
        show(&mut output, status, args.procedures)?;
    }
    for (index, status) in mounts.iter().enumerate() {
        if index > 0 || !servers.is_empty() {
            output.line("")?;
        }
        mounts::show(&mut output, status)?;
    }
    output.flush()?;
    Ok(Exit::Done)
}

fn explain(dir: &str, error: std::io::Error, what: &str) -> Failure {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            Failure::new(dir, error).next(format!("run as the user of the {what}, or as root"))
        }
        ErrorKind::TimedOut => Failure::new(dir, error).next(
            "it hangs or is stopped: see what it waits for (in its log, in /proc/PID/stack), or restart it",
        ),
        _ => Failure::new(dir, error)
            .next(format!("a {what} answered with something else than a status: is it another version?")),
    }
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
    output.line(format!(
        "  memory      {} resident, {} at the peak",
        human::bytes(status.memory.resident),
        human::bytes(status.memory.peak)
    ))?;
    output.line(format!(
        "  I/O modes   {} for reads, {} for writes, where no export says otherwise",
        status.io.read, status.io.write
    ))?;
    for notice in &status.notices {
        output.line(format!("  note        {notice}"))?;
    }
    exports(output, status)?;
    clients(output, status)?;
    roads(output, status)?;
    if procedures {
        counters(output, status)?;
    }
    Ok(())
}

fn exports(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let mut table = Table::new(&[
        ("export", Align::Left),
        ("read I/O", Align::Left),
        ("write I/O", Align::Left),
        ("clients", Align::Left),
    ]);
    for export in &status.exports {
        let mut clients = export.clients.join(" ");
        if let Some(problem) = &export.problem {
            clients.push_str(&format!("  NOT SERVED: {problem}"));
        }
        let name = human::name(export.path.as_os_str().as_bytes());
        table.row([name, export.io.read.clone(), export.io.write.clone(), clients]);
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
        return output.line("  no client is connected");
    }
    let lanes: HashMap<&str, &LaneStatus> =
        status.lanes.iter().filter_map(|lane| Some((lane.nfs_peer.as_deref()?, lane))).collect();
    let mut table = Table::new(&[
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
    if status.connections.iter().any(|connection| !connection.local) {
        output.line("  `samehost probe URL`, run where a client runs, looks at the other end of it.")?;
    }
    Ok(())
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

/// One line a road: what went over it since the start.
fn roads(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let mut table = Table::new(&[
        ("road", Align::Left),
        ("calls", Align::Right),
        ("errors", Align::Right),
        ("payload", Align::Right),
    ]);
    for (road, procedures) in &status.counters {
        let sum = procedures.values().fold(ProcedureStatus::default(), |sum, one| ProcedureStatus {
            ops: sum.ops.saturating_add(one.ops),
            errors: sum.errors.saturating_add(one.errors),
            bytes: sum.bytes.saturating_add(one.bytes),
        });
        table.row([
            road.clone(),
            human::thousands(sum.ops),
            human::thousands(sum.errors),
            human::bytes(sum.bytes),
        ]);
    }
    section(output, &table)?;
    output.line(format!(
        "  grants: {} open, {} given, {} refused, {} asked for of files that aren't there. What a client reads and \
         writes through a grant never passes the server and isn't counted here.",
        human::thousands(status.grants.open),
        human::thousands(status.grants.granted),
        human::thousands(status.grants.refused),
        human::thousands(status.grants.not_found)
    ))
}

fn counters(output: &mut Output, status: &Status) -> Result<(), Stop> {
    let mut table = Table::new(&[
        ("road", Align::Left),
        ("procedure", Align::Left),
        ("calls", Align::Right),
        ("errors", Align::Right),
        ("payload", Align::Right),
    ]);
    for (road, procedures) in &status.counters {
        for (procedure, count) in procedures.iter().filter(|(_, count)| count.ops > 0) {
            table.row([
                road.clone(),
                procedure.clone(),
                human::thousands(count.ops),
                human::thousands(count.errors),
                human::bytes(count.bytes),
            ]);
        }
    }
    section(output, &table)
}

fn section(output: &mut Output, table: &Table) -> Result<(), Stop> {
    output.line("")?;
    table.lines(2).iter().try_for_each(|line| output.line(line))
}
