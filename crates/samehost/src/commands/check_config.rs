//! `check-config`: checks a server's configuration file and the exports that it names.

use super::serve;
use crate::cli::CheckConfigArgs;
use crate::config_file::serve::ServeFile;
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::Output;

/// Prints a line if the file is valid.
pub fn check_config(args: &CheckConfigArgs) -> CommandResult {
    let name = args.file.display();
    let (global, serve_args) = ServeFile::read(&args.file).map_err(Failure::from)?.options()?;
    serve::config(&global, serve_args)
        .check_exports()
        .map_err(|error| Failure::new("exports", error).next("exports(5) has the syntax"))?;
    let mut output = Output::stdout();
    output.line(format!("{name}: valid"))?;
    output.flush()?;
    Ok(Exit::Done)
}
