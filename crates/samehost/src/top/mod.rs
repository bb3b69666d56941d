//! `samehost top`: what the servers and mounts of this host do now.
//!
//! A [`Sample`] is the status of all processes at one moment, the same that `samehost status` shows. Two
//! samples make a [`View`](view::View), which has all numbers and no layout. [`screen`] lays a view out in
//! lines of text, for a terminal and for `--once`, and [`keys`] changes what the screen shows.

pub mod keys;
pub mod screen;
pub mod view;

use std::io;
use std::path::Path;
use std::time::Instant;

use control::{Answers, Unresponsive, path_text};
use mount::process::MountStatus;
use server::Status;

use crate::commands::status;

/// The status of all processes at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When they answered.
    pub at: Instant,
    /// The servers.
    pub servers: Vec<Status>,
    /// The mounts.
    pub mounts: Vec<MountStatus>,
    /// Processes that didn't answer, in words.
    pub silent: Vec<String>,
}

impl Sample {
    /// Asks all processes.
    ///
    /// # Errors
    /// When a run directory can't be read.
    pub fn take(run_dir: &Path) -> io::Result<Self> {
        let servers = status::servers(run_dir)?;
        let mounts = status::mounts::query(run_dir)?;
        let mut silent = unresponsive(&servers);
        silent.extend(unresponsive(&mounts));
        Ok(Self {
            at: Instant::now(),
            servers: servers.answers.into_iter().map(|asked| asked.answer).collect(),
            mounts: mounts.answers.into_iter().map(|asked| asked.answer).collect(),
            silent,
        })
    }
}

fn unresponsive<T>(answers: &Answers<T>) -> Vec<String> {
    let words = |silent: &Unresponsive| {
        format!(
            "{}: {}",
            path_text::text(&silent.path),
            sys::without_error_numbers(&silent.error.to_string())
        )
    };
    answers.silent.iter().map(words).collect()
}
