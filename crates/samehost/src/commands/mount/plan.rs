//! What is to be done, complete and checked as far as that can be without the server.

use std::path::PathBuf;
use std::time::Duration;

use client::{Options, Url};
use mount::MountOptions;
use mount::options::{OptionError, Remount, parse};

use super::{place, source};
use crate::cli::{Global, MountArgs};
use crate::exit::Failure;

/// What to mount where and how.
pub struct Plan {
    /// What.
    pub url: Url,
    /// What, as the user wrote it.
    pub source: String,
    /// Where, absolute.
    pub at: PathBuf,
    /// How the filesystem behaves.
    pub mount: MountOptions,
    /// How the session behaves.
    pub session: Options,
    /// `bg`.
    pub background: bool,
    /// How long to try.
    pub retry: Duration,
    /// With `sloppy`: what was wrong.
    pub passed_over: Vec<OptionError>,
}

impl Plan {
    /// Reads the command line.
    pub fn make(global: &Global, args: &MountArgs) -> Result<Self, Failure> {
        let text = args.options.join(",");
        let defaults = Options { run_dir: global.run_dir.clone(), ..Options::default() };
        let privileged = rustix::process::geteuid().is_root();
        let parsed = parse(&text, defaults, privileged, false).map_err(|error| wrong(&error))?;
        let url = source::url(&args.source, parsed.port)?;
        let at = place::check(&args.mountpoint)?;
        Ok(Self {
            url,
            source: args.source.clone(),
            at,
            mount: MountOptions { source: args.source.clone(), ..parsed.mount },
            session: parsed.session,
            background: parsed.background,
            retry: parsed.retry,
            passed_over: parsed.passed_over,
        })
    }
}

/// What is to change about a filesystem that is mounted, if that is what the options ask for.
pub fn remount(args: &MountArgs) -> Result<Option<Remount>, Failure> {
    mount::options::remount(&args.options.join(",")).map_err(|error| wrong(&error))
}

fn wrong(error: &OptionError) -> Failure {
    Failure::usage("mount", error).next("`samehost mount --help` lists the options")
}
