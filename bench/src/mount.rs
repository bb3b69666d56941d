//! The mount as applications meet it: fio, small files and metadata, each on the plain directory, on a mount
//! with a lane and on one without; and the mount's wire beside somebody else's client.

mod beside;
mod fio;
mod material;
mod perf;
mod plot;
mod trees;

use anyhow::{Result, ensure};
use samehost_tests::{Mount, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figure::Table;
use crate::only::Only;
use crate::{Effort, Place};

/// What `mount(8)`'s options are by the data paths that aren't the plain directory.
const LANE: &str = "lane=required";
const WIRE: &str = "lane=off";

/// The three ways of a byte that are compared, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataPath {
    Raw,
    Lane,
    Wire,
}

impl DataPath {
    const ALL: [Self; 3] = [Self::Raw, Self::Lane, Self::Wire];

    /// The options of a mount that goes this way; the plain directory needs no mount.
    fn options(self) -> Option<&'static str> {
        match self {
            Self::Raw => None,
            Self::Lane => Some(LANE),
            Self::Wire => Some(WIRE),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Lane => "lane",
            Self::Wire => "wire",
        }
    }

    /// `export`, reached this way.
    fn open(self, server: &Server, export: &Path) -> Reached {
        match self.options() {
            None => Reached::Plain(export.to_owned()),
            Some(options) => Reached::Mounted(Mount::new(server, export, options)),
        }
    }
}

/// A directory that is measured.
enum Reached {
    Plain(PathBuf),
    Mounted(Mount),
}

impl Reached {
    fn path(&self) -> &Path {
        match self {
            Self::Plain(path) => path,
            Self::Mounted(mount) => mount.path(),
        }
    }
}

/// What was found.
#[derive(Default)]
pub struct Found {
    /// The tables.
    pub tables: Vec<Table>,
    /// A picture of fio's, as SVG, when the whole part was measured.
    pub plot: Option<String>,
}

/// Everything that `only` takes. `picture`: the name that the picture will have beside the tables. `on`: the
/// filesystems for small files.
pub fn measure(effort: &Effort, only: &Only, on: &[String], picture: &str) -> Result<Found> {
    let mut found = Found::default();
    let mut cells = Vec::new();
    for kind in ["tmpfs", "ext4", "xfs"] {
        if !fio::wanted(only, kind) {
            continue;
        }
        let place = Place::in_memory(kind)?;
        let of_kind = fio::cells(effort, only, kind, place.path())?;
        let mut table = fio::table(kind, &of_kind);
        if cells.is_empty() && only.is_whole() {
            table.about.push_str("\n\n![All of the mount's figures](");
            table.about.push_str(picture);
            table.about.push(')');
        }
        found.tables.push(table);
        cells.extend(of_kind);
    }
    if only.takes(&["libnfs"]) {
        found.tables.push(beside::measure(effort, Place::in_memory("tmpfs")?.path())?);
    }
    for kind in on {
        if only.takes(&["trees", kind]) {
            found.tables.push(trees::measure(effort, kind, Place::in_memory(kind)?.path())?);
        }
    }
    ensure!(!found.tables.is_empty(), "{only}: no cell has all of these words: {}", words(on));
    found.plot = only.is_whole().then(|| plot::svg(&cells));
    Ok(found)
}

/// Where the time of the cells that `only` takes goes, in words.
pub fn profile(effort: &Effort, only: &Only, on: &[String]) -> Result<String> {
    let mut text = String::new();
    for kind in ["tmpfs", "ext4", "xfs"] {
        if fio::wanted(only, kind) {
            text += &fio::profile(effort, only, kind, Place::in_memory(kind)?.path())?;
        }
    }
    for kind in on {
        if only.takes(&["trees", kind]) {
            text += &trees::profile(Place::in_memory(kind)?.path())?;
        }
    }
    ensure!(!text.is_empty(), "{only}: nothing to profile has all of these words: {}", words(on));
    Ok(text)
}

fn words(on: &[String]) -> String {
    format!("{}, libnfs, trees with {}", fio::WORDS, on.join(" or "))
}

/// Makes what is read next come from where it is kept.
fn drop_caches() -> Result<()> {
    use anyhow::Context as _;
    samehost_tests::run_ok(&mut Command::new("sync"));
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches")
}
