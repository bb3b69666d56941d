//! Data of a mount as applications use it: fio on the plain directory, on a mount with a lane and on one
//! without; and the mount over the wire compared with libnfs. Names and small files are in [`crate::trees`].

mod fio;
mod libnfs;
mod plot;

use anyhow::{Result, ensure};
use samehost_tests::{Mount, Server};
use std::path::{Path, PathBuf};

use crate::figure::Table;
use crate::selection::Selection;
use crate::{Effort, Place};

/// MiB of a disk's image.
const DISK: u64 = 1024;

/// Mount options that select a data path.
const LANE: &str = "lane=required";
const WIRE: &str = "lane=off,vers=3";
const WIRE_4: &str = "lane=off,vers=4.2";

/// The compared ways to a file, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataPath {
    Raw,
    Lane,
    Wire,
    Wire4,
}

impl DataPath {
    const ALL: [Self; 4] = [Self::Raw, Self::Lane, Self::Wire, Self::Wire4];

    /// The mount options that select it; the plain directory needs no mount.
    fn options(self) -> Option<&'static str> {
        match self {
            Self::Raw => None,
            Self::Lane => Some(LANE),
            Self::Wire => Some(WIRE),
            Self::Wire4 => Some(WIRE_4),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Lane => "lane",
            Self::Wire => "wire",
            Self::Wire4 => "wire, 4.2",
        }
    }

    /// Opens `export` over this data path.
    fn open(self, server: &Server, export: &Path) -> Directory {
        match self.options() {
            None => Directory::Plain(export.to_owned()),
            Some(options) => Directory::Mounted(Mount::new(server, export, options)),
        }
    }
}

/// A directory on which a measurement runs.
enum Directory {
    Plain(PathBuf),
    Mounted(Mount),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Plain(path) => path,
            Self::Mounted(mount) => mount.path(),
        }
    }
}

/// The results of the part mount.
#[derive(Default)]
pub struct Found {
    /// The tables.
    pub tables: Vec<Table>,
    /// A plot of fio's results as SVG, if the whole part was measured.
    pub plot: Option<String>,
}

/// Measures everything that `only` selects. `picture` is the plot's file name.
pub fn measure(effort: &Effort, only: &Selection, picture: &str) -> Result<Found> {
    let mut found = Found::default();
    let mut cells = Vec::new();
    for kind in ["tmpfs", "ext4", "xfs"] {
        if !fio::wanted(only, kind) {
            continue;
        }
        let place = Place::in_memory(kind, DISK)?;
        let of_kind = fio::cells(effort, only, kind, place.path())?;
        let mut table = fio::table(kind, &of_kind);
        if cells.is_empty() && only.is_whole() {
            table.description.push_str("\n\n![All of the mount's figures](");
            table.description.push_str(picture);
            table.description.push(')');
        }
        found.tables.push(table);
        cells.extend(of_kind);
    }
    if only.takes(&["libnfs"]) {
        found.tables.push(libnfs::measure(effort, Place::in_memory("tmpfs", DISK)?.path())?);
    }
    ensure!(!found.tables.is_empty(), "{only}: no cell has all of these words: {}, libnfs", fio::WORDS);
    found.plot = only.is_whole().then(|| plot::svg(&cells));
    Ok(found)
}

/// Profiles the cells that `only` selects, as text.
pub fn profile(effort: &Effort, only: &Selection) -> Result<String> {
    let mut text = String::new();
    for kind in ["tmpfs", "ext4", "xfs"] {
        if fio::wanted(only, kind) {
            text += &fio::profile(effort, only, kind, Place::in_memory(kind, DISK)?.path())?;
        }
    }
    ensure!(!text.is_empty(), "{only}: nothing to profile has all of these words: {}", fio::WORDS);
    Ok(text)
}
