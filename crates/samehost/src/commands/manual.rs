//! `completions` and `man`: shell completions and manual pages, generated from the command line's definition.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::Roff;

use crate::cli::{Cli, help_parts, put_sections};
use crate::commands::mount;
use crate::config_file;
use crate::exit::{CommandResult, Exit, Failure, Stop};
use crate::exports_manual;
use crate::output::Output;

/// Writes the completion script for `shell`.
pub fn completions(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "samehost", &mut script);
    let mut output = Output::stdout();
    output.bytes(&script)?;
    output.flush()?;
    Ok(Exit::Done)
}

/// Writes samehost(1), or all pages into `dir`.
pub fn man(dir: Option<&Path>) -> CommandResult {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(dir) = dir else {
        let mut output = Output::stdout();
        output.bytes(&page(command)?)?;
        output.flush()?;
        return Ok(Exit::Done);
    };
    let to_failure = |error| Failure::new(dir.display().to_string(), error);
    std::fs::create_dir_all(dir).map_err(to_failure)?;
    let write = |name: String, page: Vec<u8>| {
        std::fs::write(dir.join(name), page).map_err(|error| to_failure(error).into())
    };
    pages(command, &write)?;
    write(config_file::manual::FILE_NAME.to_owned(), config_file::manual::page())?;
    write(exports_manual::FILE_NAME.to_owned(), exports_manual::page())?;
    write(mount::manual::FILE_NAME.to_owned(), mount::manual::page())?;
    Ok(Exit::Done)
}

/// Calls `write` with the file name and the page of a command, and of its subcommands.
fn pages(command: Command, write: &dyn Fn(String, Vec<u8>) -> Result<(), Stop>) -> Result<(), Stop> {
    for subcommand in command.get_subcommands().filter(|each| !each.is_hide_set()) {
        pages(subcommand.clone(), write)?;
    }
    write(Man::new(command.clone()).get_filename(), page(command)?)
}

/// A command's page. [`Man::render`] would run the help's lists together.
fn page(command: Command) -> Result<Vec<u8>, Stop> {
    let mut notes = Roff::new();
    put_sections(&mut notes, &help_parts(&command));
    let has_arguments = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_subcommands = command.get_subcommands().any(|each| !each.is_hide_set());
    let man = Man::new(command);
    let mut page = Vec::new();
    let mut render = || {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        if has_arguments {
            man.render_options_section(&mut page)?;
        }
        if has_subcommands {
            man.render_subcommands_section(&mut page)?;
        }
        notes.to_writer(&mut page)?;
        man.render_version_section(&mut page)
    };
    render().map_err(|error| Failure::new("man page", error))?;
    Ok(page)
}
