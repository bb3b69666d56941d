//! `check-config`: finds what keeps a server from starting with a configuration file, or checks the defaults
//! of mounts.

use super::{exports, serve};
use crate::cli::CheckConfigArgs;
use crate::config_file::mount::MountDefaults;
use crate::config_file::serve::ServeFile;
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::{Output, print_error};

/// Prints a line if the file is valid.
pub fn check_config(args: &CheckConfigArgs) -> CommandResult {
    let path = args.path();
    if args.mount {
        MountDefaults::read(Some(path)).map_err(Failure::from)?;
    } else {
        let (global, serve_args) = ServeFile::read(path).map_err(Failure::from)?.options()?;
        let config = serve::config(&global, serve_args)?;
        if let Ok(exports) = config.read_exports() {
            exports::warn(&exports);
        }
        let refused = config.check();
        let is_valid = refused.is_empty();
        refused.into_iter().for_each(|error| print_error(&serve::explain(error).to_string()));
        if !is_valid {
            return Ok(Exit::Failed);
        }
    }
    let mut output = Output::stdout();
    output.line(format!("{}: valid", path.display()))?;
    output.flush()?;
    Ok(Exit::Done)
}
