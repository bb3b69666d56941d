//! `completions` and `man`: shell completions and manual pages, generated from the command line's definition.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::{Ended, Exit, Failure, Stop};
use crate::output::Output;

/// Writes the completion script for `shell`.
pub fn completions(shell: Shell) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "samehost", &mut script);
    let mut output = Output::stdout();
    output.bytes(&script)?;
    output.flush()?;
    Ok(Exit::Done)
}

/// Writes samehost(1), or all pages into `dir`.
pub fn man(dir: Option<&Path>) -> Ended {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(dir) = dir else {
        let mut output = Output::stdout();
        output.bytes(&page(command)?)?;
        output.flush()?;
        return Ok(Exit::Done);
    };
    let say = |error| Failure::new(dir.display().to_string(), error);
    std::fs::create_dir_all(dir).map_err(say)?;
    clap_mangen::generate_to(command, dir).map_err(say)?;
    Ok(Exit::Done)
}

fn page(command: clap::Command) -> Result<Vec<u8>, Stop> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text).map_err(|error| Failure::new("man page", error))?;
    Ok(text)
}
