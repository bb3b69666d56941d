//! Where exports come from: the command line's lines and the files, read together at start and at every
//! reload.

use std::io;
use std::path::{Path, PathBuf};

use exports::{Exports, ParseError};

use crate::lifecycle::config::Config;

/// The longest exports file that is read; the parser refuses what is longer than its own bound.
const LONGEST: u64 = (1 << 20) + 1;

/// The sources.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    lines: Vec<String>,
    files: Vec<PathBuf>,
}

/// Why they can't be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    Wrong(Vec<ParseError>),
    File(PathBuf, io::Error),
}

impl Sources {
    pub(crate) fn of(config: &Config) -> Self {
        Self { lines: config.exports.clone(), files: config.export_files.clone() }
    }

    /// Reads and joins all sources; mistakes of all of them are told at once.
    pub(crate) fn read(&self) -> Result<Exports, Unreadable> {
        let (mut all, mut errors) = (Exports::default(), Vec::new());
        let mut join = |text: &[u8], name: &str| match Exports::parse(text, name) {
            Ok(more) => {
                if let Err(message) = all.merge(more) {
                    errors.push(ParseError { source_name: name.to_owned(), line: 1, column: 1, message });
                }
            }
            Err(more) => errors.extend(more),
        };
        for (line, number) in self.lines.iter().zip(1..) {
            // One alone needs no number.
            let name = if self.lines.len() == 1 { "--export".into() } else { format!("--export#{number}") };
            join(line.as_bytes(), &name);
        }
        for file in &self.files {
            let text = read(file).map_err(|error| Unreadable::File(file.clone(), error))?;
            join(&text, &file.display().to_string());
        }
        if errors.is_empty() { Ok(all) } else { Err(Unreadable::Wrong(errors)) }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}
