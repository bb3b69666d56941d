//! Mount options: the text behind `-o`, with nfs(5)'s names and units, and what it sets.
//!
//! [`parse()`] has no effect beside its result. Each option either sets something, is accepted because the
//! mount behaves that way in any case (`nolock`, `tcp`), or is an error with the reason and a way out.

mod remount;
mod split;
mod table;

use std::time::Duration;

use client::Version;
pub use client::options::OptionError;
use client::options::{Descriptor, SESSION, Setting, Source};

use control::exposition::MetricsAddress;
pub use remount::{Remount, remount};
pub use table::MOUNT;

use crate::settings::{LocalLocks, MountOptions};
use split::Item;

/// [`Parsed::retry`] in the foreground unless the option `retry` is given, as in nfs(5).
const RETRY_FG: Duration = Duration::from_secs(2 * 60);
/// [`Parsed::retry`] in the background unless the option `retry` is given, as in nfs(5).
const RETRY_BG: Duration = Duration::from_secs(10_000 * 60);

/// What a list of mount options sets.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// How the filesystem behaves. Its source is empty.
    pub mount: MountOptions,
    /// How the session with the server behaves.
    pub session: client::Options,
    /// `bg`: when the first attempt fails, go on trying after the command has returned.
    pub background: bool,
    /// `retry`: how long to go on trying to reach the server; nfs(5): 2 minutes, 10,000 in the background.
    pub retry: Duration,
    /// `metrics`: where metrics for Prometheus are served by HTTP; nowhere without it.
    pub metrics: Option<MetricsAddress>,
    /// With `sloppy`: the errors of the options that were skipped.
    pub skipped: Vec<OptionError>,
    /// The option that asks for locks of the server.
    server_locks: Option<&'static str>,
}

impl Parsed {
    /// Keeps these locks on this host; `option` is the one that asks for the others to be the server's.
    const fn keep_locks(&mut self, local: LocalLocks, option: Option<&'static str>) {
        (self.mount.local_locks, self.server_locks) = (local, option);
    }
}

const LOCAL_LOCKS: &str = "with vers=3 locks are kept on this host. Use nolock, vers=4.1 or vers=4.2";

/// An option that was read.
enum Read {
    Session(Setting<client::Options>),
    Mount(Setting<Parsed>),
    /// An option for programs that read fstab(5), `x-...`.
    Program,
}

/// Parses the comma-separated list of options `text`. Session options that it doesn't set are those of
/// `defaults`. A later option wins over an earlier one, as in nfs(5).
///
/// `privileged`: root mounts. Every user may then enter (`allow_other`), and set-id bits count unless they
/// are switched off, as in mount(8). Devices need the option `dev` or `devices` in any case: the kernel opens
/// device files of a FUSE mount without a check of their modes.
///
/// `sloppy`: an option that is wrong is skipped and reported in [`Parsed::skipped`], as with mount(8)'s `-s`.
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
    let mut parsed = Parsed {
        mount,
        session: defaults.retry(None),
        background: false,
        retry: Duration::ZERO,
        metrics: None,
        skipped: Vec::new(),
        server_locks: None,
    };
    let items = split::split(text)?;
    let sloppy = sloppy || items.iter().any(|item| item.name == "sloppy" && item.value.is_none());
    for item in &items {
        match read(item) {
            Ok(Read::Session(setting)) => setting.apply(&mut parsed.session),
            Ok(Read::Mount(setting)) => setting.apply(&mut parsed),
            Ok(Read::Program) => {}
            Err(error) if sloppy => parsed.skipped.push(error),
            Err(error) => return Err(error),
        }
    }
    match (parsed.server_locks, parsed.session.version) {
        (Some(option), Version::V3) => {
            let error = OptionError::Refused { option: option.to_owned(), reason: LOCAL_LOCKS };
            if !sloppy {
                return Err(error);
            }
            parsed.skipped.push(error);
        }
        // NFSv3 wouldn't do.
        (Some(_), Version::Highest) => parsed.session.version = Version::V4,
        _ => {}
    }
    parsed.mount.softerr = parsed.session.softerr;
    let default = if parsed.background { RETRY_BG } else { RETRY_FG };
    parsed.retry = parsed.session.retry.take().unwrap_or(default);
    Ok(parsed)
}

/// Checks one option alone.
///
/// # Errors
/// [`OptionError`], apart from `Quote`.
pub fn check(name: &str, value: Option<&str>) -> Result<(), OptionError> {
    read(&Item { name: name.to_owned(), value: value.map(str::to_owned) }).map(drop)
}

/// What an option sets. No setting is applied.
fn read(item: &Item) -> Result<Read, OptionError> {
    let (name, value) = (item.name.as_str(), item.value.as_deref());
    if name.starts_with("x-") || name.starts_with("X-") {
        return Ok(Read::Program);
    }
    if let Some(descriptor) = Descriptor::find(SESSION, Source::Mount, name) {
        return descriptor.read(name, value).map(Read::Session);
    }
    match Descriptor::find(MOUNT, Source::Mount, name) {
        Some(descriptor) => descriptor.read(name, value).map(Read::Mount),
        None => Err(OptionError::unknown(name, names())),
    }
}

/// Every name that [`parse()`] knows, including those of options that it refuses.
pub fn names() -> impl Iterator<Item = &'static str> {
    let session = SESSION.iter().filter(|each| each.sources.contains(&Source::Mount));
    session.flat_map(Descriptor::names).chain(MOUNT.iter().flat_map(Descriptor::names))
}

/// The options that change something, for help texts: usage and description.
pub fn entries() -> impl Iterator<Item = (String, String)> {
    Descriptor::entries(SESSION, Source::Mount).chain(Descriptor::entries(MOUNT, Source::Mount))
}

/// The names of options that are accepted because the mount behaves that way in any case.
pub fn implied() -> impl Iterator<Item = &'static str> {
    MOUNT.iter().filter(|each| !each.has_effect() && !each.is_refused()).flat_map(Descriptor::names)
}

/// The names of options that are refused, apart from `remount`, which has a meaning of its own.
pub fn refused() -> impl Iterator<Item = &'static str> {
    MOUNT.iter().filter(|each| each.is_refused() && each.name != "remount").flat_map(Descriptor::names)
}

/// What can be completed behind `-o`.
pub fn completions() -> impl Iterator<Item = String> {
    let session = SESSION.iter().filter(|each| each.sources.contains(&Source::Mount));
    let mount = MOUNT.iter().filter(|each| !each.is_refused());
    session.flat_map(Descriptor::completions).chain(mount.flat_map(Descriptor::completions))
}

#[cfg(test)]
mod tests;
