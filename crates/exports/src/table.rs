//! All exports of a server, from one or more texts.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::lexer::{Lexer, Position, Quoted};
use crate::parse::{self, MAX_CLIENTS};
use crate::{
    ExportClient, ExportOptions, Fsid, Ineffective, IneffectiveOptions, MountPoint, Names, NotKnownYet,
    ParseError, client,
};

/// Maximum length of a text in bytes.
const MAX_TEXT: usize = 1 << 20;
/// Maximum number of exports.
const MAX_EXPORTS: usize = 4096;
/// Maximum number of errors reported for a text.
const MAX_ERRORS: usize = 100;

/// One exported directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub(crate) path: PathBuf,
    pub(crate) clients: Vec<ExportClient>,
}

/// All exports, each path once, in the order of the text. Equal ones may be written in different ways.
#[derive(Debug, Clone, Default, Eq)]
pub struct Exports {
    pub(crate) exports: Vec<Export>,
    pub(crate) without_clients: Vec<PathBuf>,
}

impl PartialEq for Exports {
    fn eq(&self, other: &Self) -> bool {
        self.exports == other.exports
    }
}

impl Exports {
    /// Parses a text in exports(5) syntax, at most 1 MiB; `source_name` is its name in errors.
    ///
    /// # Errors
    /// All mistakes with their positions, at most the first 100.
    pub fn parse(text: impl AsRef<[u8]>, source_name: &str) -> Result<Self, Vec<ParseError>> {
        let text = text.as_ref();
        let located = |(position, message): (Position, String)| ParseError {
            source_name: source_name.to_owned(),
            line: position.line,
            column: position.column,
            message,
        };
        let mut lexer = Lexer::new(text);
        if text.len() > MAX_TEXT {
            return Err(vec![located((lexer.position(), format!("longer than {MAX_TEXT} bytes")))]);
        }
        let (mut all, mut errors) = (Self::default(), Vec::new());
        while let Some(line) = parse::next_line(&mut lexer) {
            let added = line.and_then(|line| {
                let position = line.position;
                all.add(line).map_err(|(at, message)| (at.unwrap_or(position), message))
            });
            if let Err(mistake) = added {
                errors.push(located(mistake));
                if errors.len() == MAX_ERRORS {
                    break;
                }
            }
        }
        if errors.is_empty() { Ok(all) } else { Err(errors) }
    }

    /// Adds the exports of another text. A path may occur in both, with different clients.
    ///
    /// # Errors
    /// A client that occurs twice for a path, or an fsid that is used twice. Nothing is changed then.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        let mut joined = self.clone();
        for export in other.exports {
            let clients =
                export.clients.into_iter().map(|client| (client, Position { line: 1, column: 1 })).collect();
            let line = parse::ExportLine {
                path: export.path,
                position: Position { line: 1, column: 1 },
                clients,
                names_clients: true, // the others are added below
            };
            joined.add(line).map_err(|(_, message)| message)?;
        }
        joined.without_clients.extend(other.without_clients);
        *self = joined;
        Ok(())
    }

    /// The exports.
    #[must_use]
    pub fn list(&self) -> &[Export] {
        &self.exports
    }

    /// The directories of lines that name no client (`/srv`, `/srv (rw)`), and so export to everybody.
    #[must_use]
    pub fn without_clients(&self) -> &[PathBuf] {
        &self.without_clients
    }

    fn add(&mut self, line: parse::ExportLine) -> Result<(), (Option<Position>, String)> {
        let without_clients = (!line.names_clients).then(|| line.path.clone());
        let fsid = |export: &Export| export.fsid();
        let new = Export {
            path: line.path,
            clients: line.clients.iter().map(|(client, _)| client.clone()).collect(),
        };
        if new.clients.iter().any(|client| client.options.fsid != fsid(&new)) {
            return Err((
                None,
                format!(
                    "{}: its clients have different fsid= options: give all the same",
                    new.path.display()
                ),
            ));
        }
        for other in &self.exports {
            if other.path == new.path && fsid(other) != fsid(&new) {
                return Err((None, format!("{}: exported above with another fsid=", new.path.display())));
            }
            if other.path != new.path && new.fsid().is_some() && other.fsid() == new.fsid() {
                return Err((
                    None,
                    format!("{}: its fsid= is that of {}", new.path.display(), other.path.display()),
                ));
            }
        }
        let existing = self.exports.iter_mut().find(|export| export.path == new.path);
        let before = existing.as_ref().map_or(0, |export| export.clients.len());
        if before + new.clients.len() > MAX_CLIENTS {
            return Err((None, format!("{}: more than {MAX_CLIENTS} clients", new.path.display())));
        }
        let Some(existing) = existing else {
            if self.exports.len() == MAX_EXPORTS {
                return Err((None, format!("more than {MAX_EXPORTS} exports")));
            }
            self.exports.push(new);
            self.without_clients.extend(without_clients);
            return Ok(());
        };
        for (client, position) in &line.clients {
            if existing.clients.iter().any(|other| other.spec == client.spec) {
                let message =
                    format!("{}: exported to {} already: join the two", new.path.display(), client.spec);
                return Err((Some(*position), message));
            }
        }
        existing.clients.extend(new.clients);
        self.without_clients.extend(without_clients);
        Ok(())
    }
}

impl Export {
    /// The directory, absolute, without `.`, `..` or superfluous slashes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The export of a filesystem that is mounted below this one: the same clients and options, except those
    /// that are about the directory itself (`fsid=`, `mountpoint=`, `refer=`, `replicas=`).
    #[must_use]
    pub fn below(&self, path: PathBuf) -> Self {
        let mut clients = self.clients.clone();
        for client in &mut clients {
            client.options.fsid = None;
            client.options.mountpoint = None;
            client.options.locations = None;
        }
        Self { path, clients }
    }

    /// The clients, in the order of the text; never empty.
    #[must_use]
    pub fn clients(&self) -> &[ExportClient] {
        &self.clients
    }

    /// The `fsid=` option, which all clients share.
    #[must_use]
    pub fn fsid(&self) -> Option<Fsid> {
        self.clients.first().and_then(|client| client.options.fsid)
    }

    /// The options without effect of all clients, each once.
    #[must_use]
    pub fn ineffective_options(&self) -> Vec<Ineffective> {
        let mut all = IneffectiveOptions::default();
        self.clients.iter().for_each(|client| all.join(client.options.ineffective));
        all.iter().collect()
    }

    /// The directories that must be mount points (`mountpoint=`) for the export to be served to any client.
    pub fn mount_points(&self) -> impl Iterator<Item = &Path> {
        self.clients.iter().filter_map(|client| match client.options.mountpoint.as_ref()? {
            MountPoint::Export => Some(self.path()),
            MountPoint::Path(path) => Some(path.as_path()),
        })
    }

    /// Whether no client may write.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.clients.iter().all(|client| client.options.read_only)
    }

    /// Whether any client has `subtree_check`.
    #[must_use]
    pub fn subtree_check(&self) -> bool {
        self.clients.iter().any(|client| client.options.subtree_check)
    }

    /// The options for `peer`; `None` if it has no access. The most specific kind of entry applies: a single
    /// host before a network, a pattern, and everyone; and the first of one kind.
    ///
    /// # Errors
    /// When that depends on a name that isn't known yet.
    pub fn options_for(
        &self,
        peer: IpAddr,
        names: &dyn Names,
    ) -> Result<Option<&ExportOptions>, NotKnownYet> {
        Ok(client::select(&self.clients, peer, names)?.map(|client| &client.options))
    }
}

impl fmt::Display for Export {
    /// As a line in exports(5) syntax; parsing the result gives the same export.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Quoted(self.path.as_os_str().as_bytes()))?;
        self.clients.iter().try_for_each(|client| write!(f, " {client}"))
    }
}
