//! The status of the mounts on this host: the data path, since when, and why it isn't a faster one.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use control::{Answers, MOUNT};
use mount::process::{MountStatus, run_dirs};

use crate::exit::Stop;
use crate::human;
use crate::output::Output;
use crate::table::{Align, TextTable};

/// Asks all mounts of this user; for root those of all users.
pub fn query(run_dir: &Path) -> io::Result<Answers<MountStatus>> {
    let mut all: Answers<MountStatus> = Answers::default();
    for dir in run_dirs(run_dir) {
        all.extend(control::query(&dir, MOUNT)?);
    }
    all.answers.sort_by(|a, b| a.answer.mountpoint.cmp(&b.answer.mountpoint));
    Ok(all)
}

/// Prints the status of a mount.
pub fn show(output: &mut Output, status: &MountStatus) -> Result<(), Stop> {
    output.line(format!(
        "mount {} on {} (samehost {}, process {}), up {}",
        human::name(status.source.as_bytes()),
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
        output.line(format!("  {label:<10}  {}", human::name(reason.as_bytes())))?;
    }
    output.line(format!(
        "  open files  {}; {} passed through so far",
        human::thousands(status.open_files),
        human::count(status.opens_passed_through, "open")
    ))?;
    output.line(format!(
        "  requests    {} of the kernel, {} under way",
        human::thousands(status.requests),
        human::thousands(status.requests_under_way)
    ))?;
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
    let mut table = TextTable::new(&[
        ("data path", Align::Left),
        ("opens", Align::Right),
        ("reads", Align::Right),
        ("bytes read", Align::Right),
        ("writes", Align::Right),
        ("bytes written", Align::Right),
        ("round trips", Align::Right),
    ]);
    let passed = human::thousands(status.opens_passed_through);
    table.row(["passed through", &passed, "-", "-", "-", "-", "-"]);
    for (data_path, counted) in [("lane", &status.lane), ("wire", &status.wire)] {
        table.row([
            data_path.to_owned(),
            human::thousands(counted.opens),
            human::thousands(counted.reads),
            human::bytes(counted.bytes_read),
            human::thousands(counted.writes),
            human::bytes(counted.bytes_written),
            human::thousands(counted.round_trips),
        ]);
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
            human::name(change.reasons.join("; ").as_bytes()),
        ]);
    }
    table
}

/// A path as text.
pub fn shown(path: &Path) -> String {
    human::name(path.as_os_str().as_bytes())
}
