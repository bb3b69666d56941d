//! `top`.

use std::time::Duration;

use clap::Args;

pub const LONG_HELP: &str = "\
Shows what the servers and mounts of this host do now: the data paths side by side, the clients by \
what they do, the mounts, the exports, and the lanes that should be and aren't, with the reason. It reads \
the status that `samehost status` shows. What the kernel passes through, and what clients do with files \
and directories that they were given, is counted by no process and shown as a dash.

Keys: c clients, m mounts, e exports, l lanes, Tab the next list, < > choose the column by which clients \
are sorted, R reverses, space stops and continues, h all keys, q quits.

Examples:
  samehost top
  samehost top --once -d 5               # a text with the rates of five seconds
  samehost top --json | jq .clients      # one line of JSON every second

Exit codes:
  0  ended
  1  the terminal or the run directory can't be used
  2  the command line couldn't be understood; nothing was tried
  4  with --once: no server is running, and nothing is mounted";

/// Options of `samehost top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Seconds between two looks, from 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub delay: Duration,
    /// Show the rates of one interval as text, and end
    #[arg(long)]
    pub once: bool,
    /// Write JSON, one line for each interval
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of seconds with decimals.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("must be a number from 0.1 to 3600".to_owned()),
    }
}
