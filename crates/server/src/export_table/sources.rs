//! The sources of exports: lines of the command line, files and directories, read at start and at every
//! reload.
//!
//! Of a directory those files are read whose names end in `.exports` and don't begin with a dot, in the order
//! of their names (exports(5)).

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use exports::{Exports, ParseError};

use crate::lifecycle::config::Config;

/// How much of an exports file is read, in bytes: one more than the parser accepts.
const MAX_FILE_SIZE: u64 = (1 << 20) + 1;

/// The files of exports(5), which are read where they exist.
const SYSTEM_FILES: [&str; 2] = ["/etc/exports", "/etc/exports.d"];
/// The end of the names of files that are read in a directory.
const SUFFIX: &[u8] = b".exports";

/// Lines and files.
#[derive(Debug, Clone)]
pub(crate) struct ExportSources {
    lines: Vec<String>,
    files: Vec<PathBuf>,
    system_files: bool,
}

/// Why the sources can't be read.
#[derive(Debug)]
pub(crate) enum SourcesError {
    Wrong(Vec<ParseError>),
    File(PathBuf, io::Error),
}

impl ExportSources {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            lines: config.exports.clone(),
            files: config.export_files.clone(),
            system_files: config.system_exports,
        }
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
        for file in self.files()? {
            let text = read(&file).map_err(|error| SourcesError::File(file.clone(), error))?;
            join(&text, &file.display().to_string());
        }
        if errors.is_empty() { Ok(all) } else { Err(SourcesError::Wrong(errors)) }
    }
}

impl ExportSources {
    /// All files, in the order in which they are read.
    fn files(&self) -> Result<Vec<PathBuf>, SourcesError> {
        let mut named = self.files.clone();
        if self.system_files {
            let found = SYSTEM_FILES.iter().map(PathBuf::from).filter(|path| path.exists());
            let before = named.len();
            named.extend(found);
            if named.len() == before {
                // The error names the file that is expected.
                named.push(PathBuf::from(SYSTEM_FILES[0]));
            }
        }
        let mut files = Vec::new();
        for path in named {
            if path.is_dir() {
                files.extend(in_directory(&path).map_err(|error| SourcesError::File(path, error))?);
            } else {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// The exports files in a directory.
fn in_directory(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.as_bytes();
        if name.ends_with(SUFFIX) && !name.starts_with(b".") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_SIZE).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exports_files_of_a_directory_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("20-b.exports", "/b *(ro)\n"),
            ("10-a.exports", "/a *(ro)\n"),
            (".hidden.exports", "nonsense\n"),
            ("backup.exports~", "nonsense\n"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::fs::create_dir(dir.path().join("directory.exports")).unwrap();
        let sources =
            ExportSources { lines: Vec::new(), files: vec![dir.path().to_owned()], system_files: false };
        let paths = |exports: &Exports| exports.list().iter().map(|one| one.path().to_owned()).collect();
        let read: Vec<PathBuf> = paths(&sources.read().unwrap());
        assert_eq!(read, [Path::new("/a"), Path::new("/b")]);
        std::fs::write(dir.path().join("30-c.exports"), "/c *(bogus)\n").unwrap();
        let Err(SourcesError::Wrong(errors)) = sources.read() else { panic!("an error") };
        assert!(errors[0].source_name.ends_with("30-c.exports"), "{errors:?}");
    }
}
