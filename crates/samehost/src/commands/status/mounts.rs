//! The status of the mounts on this host: the data path, since when, and why it isn't a faster one.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use client::DataPathCounters;
use control::{Answers, Metrics, ProcessKind};
use mount::process::{MountStatus, run_dirs};

use super::{cells, numbers, titles};
use crate::exit::Stop;
use crate::human;
use crate::output::Output;
use crate::table::{Align, TextTable};

/// Asks all mounts of this user; for root those of all users.
pub fn query(run_dir: &Path) -> io::Result<Answers<MountStatus>> {
    let mut all: Answers<MountStatus> = control::query_all(&run_dirs(run_dir)?, ProcessKind::Mount)?;
    all.answers.sort_by(|a, b| a.answer.mountpoint.cmp(&b.answer.mountpoint));
    Ok(all)
}

/// Prints the status of a mount.
pub fn show(output: &mut Output, status: &MountStatus) -> Result<(), Stop> {
    output.line(format!(
        "mount {} on {} (samehost {}, process {}), up {}",
        status.source,
        shown(&status.mountpoint),
        status.version,
        status.pid,
        human::seconds(status.uptime_seconds)
    ))?;
    output.line(format!("  server      {}", status.server))?;
    output.line(format!(
        "  data path   {}, for {}",
        status.data_path,
        human::seconds(status.since_seconds)
    ))?;
    for (index, reason) in status.reasons.iter().enumerate() {
        let label = if index == 0 { "because" } else { "" };
        output.line(format!("  {label:<10}  {reason}"))?;
    }
    let names = match &status.tree_refusal {
        _ if status.mounted => "local, by the export's own mount".to_owned(),
        _ if status.tree => "local, by the directory tree of the server's host".to_owned(),
        Some(reason) => format!("by calls to the server ({reason})"),
        None => "by calls to the server".to_owned(),
    };
    output.line(format!("  names       {names}"))?;
    if let Some(reason) = &status.mount_refusal {
        output.line(format!("  mount       not the export's own ({reason})"))?;
    }
    output.line(format!("  requests    by {}", status.transport))?;
    if let Some(reason) = &status.transport_reason {
        output.line(format!("  because     {reason}"))?;
    }
    output.line(format!("  kernel      {}", numbers(&status.kernel)))?;
    output.line(format!("  session     {}", numbers(&status.events)))?;
    output.line("")?;
    for line in data_paths(status).lines(2) {
        output.line(line)?;
    }
    output.line("  The kernel doesn't count what it passes through, and no process sees it.")?;
    if status.changes.len() > 1 {
        output.line("")?;
        for line in changes(status).lines(2) {
            output.line(line)?;
        }
    }
    Ok(())
}

fn data_paths(status: &MountStatus) -> TextTable {
    let mut columns = vec![("data path", Align::Left)];
    columns.extend(titles::<DataPathCounters>());
    let mut table = TextTable::new(&columns);
    // Of what is passed through only the opens are known.
    let passed = human::thousands(status.kernel.opens_passed_through);
    let unknown = DataPathCounters::METRICS.iter().skip(1).map(|_| "-".to_owned());
    table.row(["passed through".to_owned(), passed].into_iter().chain(unknown));
    for (data_path, counted) in [("lane", &status.lane), ("wire", &status.wire)] {
        table.row([data_path.to_owned()].into_iter().chain(cells::<DataPathCounters>(counted.values())));
    }
    table
}

fn changes(status: &MountStatus) -> TextTable {
    let mut table =
        TextTable::new(&[("changed", Align::Right), ("to", Align::Left), ("because", Align::Left)]);
    for change in status.changes.iter().rev() {
        table.row([
            format!("{} ago", human::seconds(change.age_seconds)),
            (if change.local { "lane" } else { "wire" }).to_owned(),
            change.reasons.join("; "),
        ]);
    }
    table
}

/// A path as text.
pub fn shown(path: &Path) -> String {
    human::name(path.as_os_str().as_bytes())
}
