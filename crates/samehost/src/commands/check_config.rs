//! `check-config`: checks a server's configuration file and the exports that it names, or the defaults of
//! mounts.

use super::{exports, serve};
use crate::cli::CheckConfigArgs;
use crate::config_file::mount::MountDefaults;
use crate::config_file::serve::ServeFile;
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::Output;

/// Prints a line if the file is valid.
pub fn check_config(args: &CheckConfigArgs) -> CommandResult {
    let path = args.path();
    if args.mount {
        MountDefaults::read(Some(path)).map_err(Failure::from)?;
    } else {
        let (global, serve_args) = ServeFile::read(path).map_err(Failure::from)?.options()?;
        let exports = serve::config(&global, serve_args)?
            .read_exports()
            .map_err(|error| Failure::new("exports", error).next("samehost-exports(5) has the syntax"))?;
        exports::warn(&exports);
    }
    let mut output = Output::stdout();
    output.line(format!("{}: valid", path.display()))?;
    output.flush()?;
    Ok(Exit::Done)
}
