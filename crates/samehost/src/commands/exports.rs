//! `exports`: reads exports files as a server would, and prints the result.

use server::Config;

use crate::cli::ExportsArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::Output;

/// Prints the exports, or only their mistakes.
pub fn exports(args: &ExportsArgs) -> CommandResult {
    let config = Config {
        export_files: args.files.clone(),
        system_exports: args.files.is_empty(),
        ..Config::default()
    };
    let exports = config
        .read_exports()
        .map_err(|error| Failure::new("exports", error).next("samehost-exports(5) has the syntax"))?;
    if args.check {
        return Ok(Exit::Done);
    }
    let mut output = Output::stdout();
    for export in exports.list() {
        output.line(export.to_string())?;
        for option in export.ineffective_options() {
            output.line(format!("# note: {option}"))?;
        }
    }
    output.flush()?;
    Ok(Exit::Done)
}
