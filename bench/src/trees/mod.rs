//! Names, attributes and small files over every data path: file trees as programs use them (`trees`), single
//! operations (`operations`), and the commands on whole trees (`commands`).
//!
//! The data paths take turns within each run, in one order and in the other by turns, so that a disturbance
//! of the machine affects all of them.

mod commands;
mod comparison;
mod data_path;
mod fixture;
mod operations;
mod passthrough_ll;
mod steps;
mod subject;

use std::path::Path;

use anyhow::Result;

pub use operations::Timed;

use crate::enable_uring::EnableUring;
use crate::figure::Table;
use crate::{Effort, Place};

/// The parts of this module.
pub const PARTS: [&str; 3] = ["trees", "operations", "commands"];

/// The filesystems on which the parts measure.
pub const FILESYSTEMS: [&str; 3] = ["tmpfs", "ext4", "xfs"];

/// MiB of a disk's image, in memory. All data paths have their files on one disk.
const DISK: u64 = 4096;

/// Measures one of [`PARTS`] on the filesystems `on`: one table for each.
pub fn measure(effort: &Effort, part: &str, on: &[&str]) -> Result<Vec<Table>> {
    let _switched_on = EnableUring::new()?;
    let measure: fn(&Effort, &str, &Path) -> Result<Table> = match part {
        "trees" => steps::measure,
        "operations" => operations::measure,
        _ => commands::measure,
    };
    let mut tables = Vec::new();
    for kind in on {
        eprintln!("bench: {part} on {kind}");
        tables.push(measure(effort, kind, Place::in_memory(kind, DISK)?.path())?);
    }
    Ok(tables)
}

/// Profiles the steps of the part `trees` on the filesystems `on`, as text.
pub fn profile(effort: &Effort, on: &[&str]) -> Result<String> {
    let _switched_on = EnableUring::new()?;
    on.iter().map(|kind| steps::profile(effort, Place::in_memory(kind, DISK)?.path())).collect()
}
