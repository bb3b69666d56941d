//! Logs: structured, to standard error, quiet unless asked.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::exit::{Failure, Stop};

/// The environment variable with filters in tracing's syntax; it wins over `-v`.
const VARIABLE: &str = "SAMEHOST_LOG";

/// Switches logging on for the rest of the process.
pub fn start(verbose: u8) -> Result<(), Stop> {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => EnvFilter::try_new(text).map_err(|error| {
            Failure::usage(VARIABLE, error).next(format!("write a filter such as {VARIABLE}=info"))
        })?,
        Err(_) => EnvFilter::default().add_directive(level.into()),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .finish();
    tracing::subscriber::set_global_default(subscriber).map_err(|error| Failure::new("logging", error).into())
}
