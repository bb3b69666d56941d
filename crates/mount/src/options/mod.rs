//! Mount options: what `-o` says, in nfs(5)'s names and units, and what the mount does accordingly.
//!
//! Everything is decided here and nothing is done: [`parse()`] takes a text and says what it means, or which
//! option is wrong, why, and what to write instead. An option is never ignored in silence. What nfs(5) has
//! and a FUSE mount can't do is an error that says so; what it has and what is so anyway (`nolock`, `tcp`) is
//! taken.

mod error;
mod generic;
mod nearest;
mod nfs;
mod ours;
mod remount;
mod split;

use std::time::Duration;

pub use error::OptionError;
pub use remount::{Remount, remount};

use crate::settings::MountOptions;
use split::Item;

/// What a mount is told.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// How the filesystem behaves. Its source is left empty.
    pub mount: MountOptions,
    /// How the session with the server behaves.
    pub session: client::Options,
    /// NFS's port at the server, if one was given.
    pub port: Option<u16>,
    /// `bg`: when the first attempt fails, go on trying after the command has returned.
    pub background: bool,
    /// `retry`: how long to go on trying to reach the server; nfs(5): 2 minutes, 10,000 in the background.
    pub retry: Duration,
    /// With `sloppy`: the errors that were passed over.
    pub passed_over: Vec<OptionError>,
}

/// What is being put together. A later option wins over an earlier one, as in nfs(5).
struct Building {
    parsed: Parsed,
    retry: Option<Duration>,
    sloppy: bool,
}

/// Whether a family of options knew a name.
enum Known {
    /// It did, and has taken it.
    Yes,
    /// It didn't.
    No,
}

/// What the comma-separated list of options `text` means, on top of the session's own `defaults`.
/// `privileged`: root mounts, so every user may enter (`allow_other`), and set-id bits count unless they are
/// switched off, as mount(8) has it. Devices don't unless `dev` asks for them: the kernel opens them without
/// asking whether that user may. `sloppy`: as mount(8)'s `-s`, an option that is wrong is passed over and
/// reported in [`Parsed::passed_over`].
///
/// # Errors
/// [`OptionError`], for the first option that is wrong.
pub fn parse(
    text: &str,
    defaults: client::Options,
    privileged: bool,
    sloppy: bool,
) -> Result<Parsed, OptionError> {
    let mount = MountOptions {
        source: String::new(),
        allow_other: privileged,
        suid: privileged,
        ..MountOptions::default()
    };
    let mut building = Building {
        parsed: Parsed {
            mount,
            session: defaults,
            port: None,
            background: false,
            retry: Duration::ZERO,
            passed_over: Vec::new(),
        },
        retry: None,
        sloppy,
    };
    let items = split::split(text)?;
    building.sloppy |= items.iter().any(|item| item.name == "sloppy" && item.value.is_none());
    for item in &items {
        if let Err(error) = building.take(item) {
            if !building.sloppy {
                return Err(error);
            }
            building.parsed.passed_over.push(error);
        }
    }
    Ok(building.finish())
}

/// Every name that [`parse()`] knows, also those that it knows to be impossible.
pub fn names() -> impl Iterator<Item = &'static str> {
    [nfs::NAMES, ours::NAMES, generic::NAMES].into_iter().flatten().copied()
}

impl Building {
    fn take(&mut self, item: &Item) -> Result<(), OptionError> {
        for family in [nfs::take, ours::take, generic::take] {
            if let Known::Yes = family(self, item)? {
                return Ok(());
            }
        }
        Err(OptionError::Unknown {
            name: item.name.clone(),
            nearest: nearest::nearest(&item.name, names()).map(str::to_owned),
        })
    }

    fn finish(self) -> Parsed {
        let mut parsed = self.parsed;
        parsed.retry = self.retry.unwrap_or(if parsed.background { nfs::RETRY_BG } else { nfs::RETRY_FG });
        parsed
    }
}

#[cfg(test)]
mod tests;
