//! The sources of exports: lines of the command line and files, read at start and at every reload.

use std::io;
use std::path::{Path, PathBuf};

use exports::{Exports, ParseError};

use crate::lifecycle::config::Config;

/// How much of an exports file is read, in bytes: one more than the parser accepts.
const MAX_FILE_SIZE: u64 = (1 << 20) + 1;

/// Lines and files.
#[derive(Debug, Clone)]
pub(crate) struct ExportSources {
    lines: Vec<String>,
    files: Vec<PathBuf>,
}

/// Why the sources can't be read.
#[derive(Debug)]
pub(crate) enum SourcesError {
    Wrong(Vec<ParseError>),
    File(PathBuf, io::Error),
}

impl ExportSources {
    pub(crate) fn of(config: &Config) -> Self {
        Self { lines: config.exports.clone(), files: config.export_files.clone() }
    }

    /// Reads and joins all sources. The errors of all of them are reported together.
    pub(crate) fn read(&self) -> Result<Exports, SourcesError> {
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
            // A single line needs no number.
            let name = if self.lines.len() == 1 { "--export".into() } else { format!("--export#{number}") };
            join(line.as_bytes(), &name);
        }
        for file in &self.files {
            let text = read(file).map_err(|error| SourcesError::File(file.clone(), error))?;
            join(&text, &file.display().to_string());
        }
        if errors.is_empty() { Ok(all) } else { Err(SourcesError::Wrong(errors)) }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_SIZE).read_to_end(&mut text)?;
    Ok(text)
}
