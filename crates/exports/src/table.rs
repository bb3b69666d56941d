//! All exports of a server, from one or several texts.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::lexer::{Lexer, Place};
use crate::parse::{self, MOST_CLIENTS};
use crate::{Client, Fsid, Names, NotKnownYet, Options, ParseError, client};

/// The longest text, in bytes.
const LONGEST_TEXT: usize = 1 << 20;
/// The most exports.
const MOST_EXPORTS: usize = 4096;
/// The most errors that are reported of one text.
const MOST_ERRORS: usize = 100;

/// One exported directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    path: PathBuf,
    clients: Vec<Client>,
}

/// All exports, each path once, in the order of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exports {
    exports: Vec<Export>,
}

impl Exports {
    /// Reads a text in exports(5) syntax, at most 1 MiB; `source_name` is what errors call it.
    ///
    /// # Errors
    /// Every mistake with its place, the first 100 at most.
    pub fn parse(text: impl AsRef<[u8]>, source_name: &str) -> Result<Self, Vec<ParseError>> {
        let text = text.as_ref();
        let located = |(place, message): (Place, String)| ParseError {
            source_name: source_name.to_owned(),
            line: place.line,
            column: place.column,
            message,
        };
        let mut lexer = Lexer::new(text);
        if text.len() > LONGEST_TEXT {
            return Err(vec![located((lexer.place(), format!("longer than {LONGEST_TEXT} bytes")))]);
        }
        let (mut all, mut errors) = (Self::default(), Vec::new());
        while let Some(line) = parse::next_line(&mut lexer) {
            let added = line.and_then(|line| {
                let place = line.place;
                all.add(line).map_err(|(at, message)| (at.unwrap_or(place), message))
            });
            if let Err(mistake) = added {
                errors.push(located(mistake));
                if errors.len() == MOST_ERRORS {
                    break;
                }
            }
        }
        if errors.is_empty() { Ok(all) } else { Err(errors) }
    }

    /// Joins the exports of another text to these. A path may be in both, with different clients.
    ///
    /// # Errors
    /// What contradicts: a client named twice for a path, an fsid used twice. Nothing is changed then.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        let mut joined = self.clone();
        for export in other.exports {
            let clients =
                export.clients.into_iter().map(|client| (client, Place { line: 1, column: 1 })).collect();
            let line = parse::Line { path: export.path, place: Place { line: 1, column: 1 }, clients };
            joined.add(line).map_err(|(_, message)| message)?;
        }
        *self = joined;
        Ok(())
    }

    /// The exports.
    #[must_use]
    pub fn list(&self) -> &[Export] {
        &self.exports
    }

    fn add(&mut self, line: parse::Line) -> Result<(), (Option<Place>, String)> {
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
        let Some(existing) = self.exports.iter_mut().find(|export| export.path == new.path) else {
            if self.exports.len() == MOST_EXPORTS {
                return Err((None, format!("more than {MOST_EXPORTS} exports")));
            }
            self.exports.push(new);
            return Ok(());
        };
        for (client, place) in &line.clients {
            if existing.clients.iter().any(|other| other.spec == client.spec) {
                let message =
                    format!("{}: exported to {} already: join the two", new.path.display(), client.spec);
                return Err((Some(*place), message));
            }
        }
        if existing.clients.len() + new.clients.len() > MOST_CLIENTS {
            return Err((None, format!("{}: more than {MOST_CLIENTS} clients", new.path.display())));
        }
        existing.clients.extend(new.clients);
        Ok(())
    }
}

impl Export {
    /// The directory, absolute, without `.`, `..` or superfluous slashes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The clients, in the order of the text; never empty.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The `fsid=` option, which all clients share.
    #[must_use]
    pub fn fsid(&self) -> Option<Fsid> {
        self.clients.first().and_then(|client| client.options.fsid)
    }

    /// Whether no client may write.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.clients.iter().all(|client| client.options.read_only)
    }

    /// Whether any client asked for subtree checks.
    #[must_use]
    pub fn subtree_check(&self) -> bool {
        self.clients.iter().any(|client| client.options.subtree_check)
    }

    /// How `peer` may use this export; `None` if not at all. The most specific kind of entry decides: a
    /// single host before a network, before a pattern, before everybody; and of one kind the first.
    ///
    /// # Errors
    /// When it takes a name that isn't known yet to say.
    pub fn options_for(&self, peer: IpAddr, names: &dyn Names) -> Result<Option<&Options>, NotKnownYet> {
        Ok(client::select(&self.clients, peer, names)?.map(|client| &client.options))
    }
}

impl fmt::Display for Export {
    /// As a line in exports(5) syntax: what parsing it again gives the same export.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.path.as_os_str().as_bytes() {
            match byte {
                b'!'..=b'~' if !matches!(byte, b'"' | b'\\' | b'#' | b'(' | b')') => {
                    write!(f, "{}", char::from(*byte))?
                }
                _ => write!(f, "\\{byte:03o}")?,
            }
        }
        self.clients.iter().try_for_each(|client| write!(f, " {client}"))
    }
}
