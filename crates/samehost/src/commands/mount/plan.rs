//! From the command line to a plan, checked as far as that is possible without the server.

use client::Options;
use mount::MountOptions;
use mount::options::{OptionError, Remount, parse};
use mount::process::MountPlan;

use super::{mountpoint, source};
use crate::cli::{Global, MountArgs};
use crate::config_file::mount::MountDefaults;
use crate::exit::Failure;

/// What to mount, where and how; with `sloppy` also the errors of the options that are skipped.
pub fn plan(global: &Global, args: &MountArgs) -> Result<(MountPlan, Vec<OptionError>), Failure> {
    let at = mountpoint::check(&args.mountpoint)?;
    let server = source::url(&args.source, None)?;
    let mut options = MountDefaults::read(args.config.as_deref())?.options(server.host(), &at);
    options.extend(args.options.iter().cloned());
    let text = options.join(",");
    let defaults = Options::new().run_dir(&global.run_dir);
    let privileged = rustix::process::geteuid().is_root();
    let parsed = parse(&text, defaults, privileged, false).map_err(|error| option_failure(&error))?;
    let plan = MountPlan {
        url: source::url(&args.source, parsed.session.port)?,
        source: args.source.clone(),
        at,
        options: MountOptions { source: args.source.clone(), ..parsed.mount },
        session: parsed.session,
        background: parsed.background,
        retry: parsed.retry,
        metrics: parsed.metrics,
    };
    Ok((plan, parsed.skipped))
}

/// The change of a mounted filesystem, if the options ask for one.
pub fn remount(args: &MountArgs) -> Result<Option<Remount>, Failure> {
    mount::options::remount(&args.options.join(",")).map_err(|error| option_failure(&error))
}

fn option_failure(error: &OptionError) -> Failure {
    Failure::usage("mount", error).next("`samehost mount --help` lists the options")
}
