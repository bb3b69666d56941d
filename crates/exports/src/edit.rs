//! Changes of single exports, as exportfs(8) makes them.

use std::path::PathBuf;

use crate::lexer::Lexer;
use crate::parse::{self, ExportLine};
use crate::{ClientSpec, Export, Exports, ParseError};

/// The name of a line in errors.
const LINE: &str = "line";

/// Why an export isn't changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The line has errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Parse(Vec<ParseError>),
    /// The text isn't one export.
    #[error("write one export: PATH CLIENT(OPTIONS)...")]
    NotOneExport,
    /// The line contradicts other exports.
    #[error("{0}")]
    Conflict(String),
    /// The directory isn't exported.
    #[error("{} is not exported", .0.display())]
    NotExported(PathBuf),
    /// The directory is exported, but not to this client.
    #[error("{} is not exported to {}", .0.display(), .1)]
    NotExportedTo(PathBuf, ClientSpec),
}

impl Exports {
    /// Adds the export of one line of exports(5). Clients to whom the directory is exported already get the
    /// options of the line. Returns the directory.
    ///
    /// # Errors
    /// [`EditError`]; nothing is changed then.
    pub fn export(&mut self, line: &str) -> Result<PathBuf, EditError> {
        let (new, _) = one_export(line)?;
        let path = new.path.clone();
        let mut edited = self.clone();
        match edited.exports.iter_mut().find(|export| export.path == path) {
            Some(export) => {
                for client in new.clients {
                    // A host gets the options of the first entry that fits it, so an entry keeps its place.
                    match export.clients.iter_mut().find(|old| old.spec == client.spec) {
                        Some(old) => old.options = client.options,
                        None => export.clients.push(client),
                    }
                }
            }
            None => edited.exports.push(new),
        }
        let mut checked = Self::default();
        checked.merge(edited).map_err(EditError::Conflict)?;
        *self = checked;
        Ok(path)
    }

    /// Removes the clients of one line of exports(5) from the exports. Options in the line are ignored. A
    /// line without clients removes all of the directory's. Returns the directory.
    ///
    /// # Errors
    /// [`EditError`]; nothing is changed then.
    pub fn unexport(&mut self, line: &str) -> Result<PathBuf, EditError> {
        let (old, has_clients) = one_export(line)?;
        let Some(at) = self.exports.iter().position(|export| export.path == old.path) else {
            return Err(EditError::NotExported(old.path));
        };
        let clients = &mut self.exports[at].clients;
        if has_clients {
            let is_exported = |spec: &ClientSpec| clients.iter().any(|client| client.spec == *spec);
            if let Some(stranger) = old.clients.iter().find(|client| !is_exported(&client.spec)) {
                return Err(EditError::NotExportedTo(old.path, stranger.spec.clone()));
            }
            clients.retain(|client| !old.clients.iter().any(|other| other.spec == client.spec));
        } else {
            clients.clear();
        }
        if clients.is_empty() {
            self.exports.remove(at);
            self.without_clients.retain(|path| *path != old.path);
        }
        Ok(old.path)
    }
}

impl FromIterator<Export> for Exports {
    /// The exports of a table that was checked before.
    fn from_iter<T: IntoIterator<Item = Export>>(exports: T) -> Self {
        Self { exports: exports.into_iter().collect(), without_clients: Vec::new() }
    }
}

/// The only export of a line, and whether the line names clients.
fn one_export(line: &str) -> Result<(Export, bool), EditError> {
    let mut exports = Exports::parse(line, LINE).map_err(EditError::Parse)?.exports;
    let mut lexer = Lexer::new(line.as_bytes());
    let Some(Ok(ExportLine { position, clients, .. })) = parse::next_line(&mut lexer) else {
        return Err(EditError::NotOneExport);
    };
    // Where a line has no client, that of everybody has the position of the path.
    let has_clients = clients.iter().any(|(_, at)| *at != position);
    match (exports.pop(), exports.is_empty() && parse::next_line(&mut lexer).is_none()) {
        (Some(export), true) => Ok((export, has_clients)),
        _ => Err(EditError::NotOneExport),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(exports: &Exports) -> Vec<String> {
        let client = |export: &Export| {
            let specs: Vec<_> = export.clients().iter().map(|client| client.spec.to_string()).collect();
            format!("{} {}", export.path().display(), specs.join(" "))
        };
        exports.list().iter().map(client).collect()
    }

    #[test]
    fn clients_are_added_replaced_and_removed() {
        let mut exports = Exports::parse("/a 10.0.0.1(ro) 10.0.0.2(ro)\n", "t").unwrap();
        exports.export("/b *(ro)").unwrap();
        exports.export("/a 10.0.0.2(rw) 10.0.0.3(rw)").unwrap();
        assert_eq!(lines(&exports), ["/a 10.0.0.1 10.0.0.2 10.0.0.3", "/b *"]);
        let read_only = |at: usize| exports.list()[0].clients()[at].options.read_only;
        assert_eq!([read_only(0), read_only(1), read_only(2)], [true, false, false]);

        exports.unexport("/a 10.0.0.1(rw)").unwrap();
        assert_eq!(lines(&exports), ["/a 10.0.0.2 10.0.0.3", "/b *"]);
        exports.unexport("/b *").unwrap();
        exports.unexport("/a").unwrap();
        assert_eq!(exports, Exports::default());
    }

    /// A host would get other options than before if the entry went behind a wider one.
    #[test]
    fn a_client_keeps_its_place() {
        let mut exports = Exports::parse("/a 10.1.0.0/16(ro) 10.0.0.0/8(rw)\n", "t").unwrap();
        exports.export("/a 10.1.0.0/16(ro,no_lane) 10.2.0.0/16(ro)").unwrap();
        assert_eq!(lines(&exports), ["/a 10.1.0.0/16 10.0.0.0/8 10.2.0.0/16"]);
        assert!(exports.list()[0].clients()[0].options.read_only);
    }

    #[test]
    fn all_clients_can_be_replaced_with_another_fsid() {
        let mut exports = Exports::parse("/a *(ro,fsid=7)\n", "t").unwrap();
        exports.export("/a *(ro,fsid=8)").unwrap();
        assert_eq!(exports.list()[0].fsid(), Some(crate::Fsid::Number(8)));
    }

    #[test]
    fn an_error_changes_nothing() {
        let mut exports = Exports::parse("/a 10.0.0.1(ro,fsid=7)\n", "t").unwrap();
        let before = exports.clone();
        assert_eq!(exports.export("/b *(ro)\n/c *(ro)"), Err(EditError::NotOneExport));
        assert_eq!(exports.export("# nothing"), Err(EditError::NotOneExport));
        assert!(matches!(exports.export("/b *(bogus)"), Err(EditError::Parse(_))));
        assert!(matches!(exports.export("/b *(ro,fsid=7)"), Err(EditError::Conflict(_))));
        assert_eq!(exports.unexport("/c"), Err(EditError::NotExported("/c".into())));
        let stranger = ClientSpec::Anybody;
        assert_eq!(exports.unexport("/a 10.0.0.1 *"), Err(EditError::NotExportedTo("/a".into(), stranger)));
        assert_eq!(exports, before);
    }
}
