//! The grammar: `path [-defaults] client(options) client(options) ...`, one export per line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::lexer::{Lexer, Position, SyntaxError, Token};
use crate::security::OptionReader;
use crate::{ClientSpec, ExportClient};

/// Maximum length of a path in the MOUNT protocol (RFC 1813 section 5.1.1, MNTPATHLEN).
const MAX_PATH: usize = 1024;
/// Maximum length of a client or option.
const MAX_TOKEN: usize = 1024;
/// Maximum number of clients of an export.
pub(crate) const MAX_CLIENTS: usize = 4096;

/// The export of one line, with the positions for later errors.
#[derive(Debug)]
pub(crate) struct ExportLine {
    pub path: PathBuf,
    pub position: Position,
    /// Without clients in the text: everybody, at the path's position.
    pub clients: Vec<(ExportClient, Position)>,
    /// Whether the text names all clients: neither none nor only options.
    pub names_clients: bool,
}

/// Reads the next line with an export; `None` at the end of the text. After an error the rest of the line is
/// skipped.
pub(crate) fn next_line(lexer: &mut Lexer<'_>) -> Option<Result<ExportLine, SyntaxError>> {
    loop {
        lexer.skip_blanks();
        match lexer.peek() {
            None => return None,
            Some(b'\n') => lexer.bump(),
            Some(_) => break,
        }
    }
    let line = line(lexer);
    lexer.skip_line();
    Some(line)
}

fn line(lexer: &mut Lexer<'_>) -> Result<ExportLine, SyntaxError> {
    let word = lexer.word(b"", MAX_PATH)?;
    let position = word.position;
    let path = path(word)?;
    let mut defaults = OptionReader::default();
    let mut clients: Vec<(ExportClient, Position)> = Vec::new();
    let mut names_clients = true;
    loop {
        lexer.skip_blanks();
        match lexer.peek() {
            None | Some(b'\n') => break,
            Some(b'-') => {
                lexer.bump();
                options(lexer, &mut defaults, b"")?;
            }
            Some(next) => {
                names_clients &= next != b'(';
                let client = client(lexer, &defaults, clients.is_empty())?;
                if clients.iter().any(|(other, _)| other.spec == client.0.spec) {
                    return Err((
                        client.1,
                        format!("client {} is named twice: join its options", client.0.spec),
                    ));
                }
                clients.push(client);
                if clients.len() > MAX_CLIENTS {
                    return Err((
                        position,
                        format!("more than {MAX_CLIENTS} clients: export to a network or pattern"),
                    ));
                }
            }
        }
    }
    if clients.is_empty() {
        names_clients = false;
        clients.push((ExportClient { spec: ClientSpec::Anybody, options: defaults.finish()? }, position));
    }
    Ok(ExportLine { path, position, clients, names_clients })
}

/// Checks an export's path and removes superfluous slashes.
fn path(word: Token) -> Result<PathBuf, SyntaxError> {
    let shown = String::from_utf8_lossy(&word.bytes).into_owned();
    let wrong = |message: String| Err((word.position, message));
    if word.bytes.first() != Some(&b'/') {
        return wrong(format!("{shown:?} is not an absolute path: an export begins with one"));
    }
    if !word.quoted && word.bytes.ends_with(b")") {
        return wrong(format!("{shown}: write a blank between the path and the client, or quote the path"));
    }
    let mut clean = Vec::with_capacity(word.bytes.len());
    for part in word.bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if part == b"." || part == b".." {
            return wrong(format!("{shown}: write the path without . and .."));
        }
        clean.push(b'/');
        clean.extend_from_slice(part);
    }
    if clean.is_empty() {
        clean.push(b'/');
    }
    Ok(PathBuf::from(OsString::from_vec(clean)))
}

fn client(
    lexer: &mut Lexer<'_>,
    defaults: &OptionReader,
    first: bool,
) -> Result<(ExportClient, Position), SyntaxError> {
    let word = lexer.word(b"(", MAX_TOKEN)?;
    if word.bytes.is_empty() && lexer.peek() == Some(b'(') && !first {
        // A common mistake with exports(5): "host (rw)" is the host with default options, and all hosts with
        // rw.
        return Err((
            word.position,
            "a blank before '(': remove it, or write *(...) if everybody is meant".into(),
        ));
    }
    let Ok(name) = std::str::from_utf8(&word.bytes) else {
        return Err((word.position, "a client's name is ASCII".into()));
    };
    let spec = ClientSpec::parse(name).map_err(|message| (word.position, message))?;
    let mut own = OptionReader::with_defaults(defaults);
    if lexer.peek() == Some(b'(') {
        let opened = lexer.position();
        lexer.bump();
        if lexer.peek() == Some(b')') {
            lexer.bump();
        } else {
            options(lexer, &mut own, b")")?;
            match lexer.peek() {
                Some(b')') => lexer.bump(),
                _ => {
                    return Err((
                        opened,
                        "a '(' without its ')': options stand between them without blanks".into(),
                    ));
                }
            }
        }
        if !lexer.at_blank() {
            return Err((lexer.position(), "a blank is missing behind ')'".into()));
        }
    }
    Ok((ExportClient { spec, options: own.finish()? }, word.position))
}

/// Reads options between commas up to a blank or `end`.
fn options(lexer: &mut Lexer<'_>, to: &mut OptionReader, end: &[u8]) -> Result<(), SyntaxError> {
    let stops = [b",", end].concat();
    loop {
        let word = lexer.word(&stops, MAX_TOKEN)?;
        let Ok(option) = std::str::from_utf8(&word.bytes) else {
            return Err((word.position, "an option is UTF-8".into()));
        };
        to.read(option, word.position)?;
        match lexer.peek() {
            Some(b',') => lexer.bump(),
            _ => return Ok(()),
        }
    }
}
