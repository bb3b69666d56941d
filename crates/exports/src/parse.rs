//! The grammar: `path [-defaults] client(options) client(options) ...`, one export a line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::lexer::{Lexer, Mistake, Place, Word};
use crate::{Client, ClientSpec, Options};

/// The longest path: the MOUNT protocol has no room for more (RFC 1813 section 5.1.1, MNTPATHLEN).
const LONGEST_PATH: usize = 1024;
/// The longest client or option word.
const LONGEST_WORD: usize = 1024;
/// The most clients of one export.
pub(crate) const MOST_CLIENTS: usize = 4096;

/// One line's export, with the places that later errors need.
#[derive(Debug)]
pub(crate) struct Line {
    pub path: PathBuf,
    pub place: Place,
    pub clients: Vec<(Client, Place)>,
}

/// Reads the next line that has an export; `None` at the text's end. After an error the rest of the line is
/// skipped.
pub(crate) fn next_line(lexer: &mut Lexer<'_>) -> Option<Result<Line, Mistake>> {
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

fn line(lexer: &mut Lexer<'_>) -> Result<Line, Mistake> {
    let word = lexer.word(b"", LONGEST_PATH)?;
    let place = word.place;
    let path = path(word)?;
    let mut defaults = Options::default();
    let mut clients: Vec<(Client, Place)> = Vec::new();
    loop {
        lexer.skip_blanks();
        match lexer.peek() {
            None | Some(b'\n') => break,
            Some(b'-') => {
                lexer.bump();
                options(lexer, &mut defaults, b"")?;
            }
            Some(_) => {
                let client = client(lexer, &defaults, clients.is_empty())?;
                if clients.iter().any(|(other, _)| other.spec == client.0.spec) {
                    return Err((
                        client.1,
                        format!("client {} is named twice: join its options", client.0.spec),
                    ));
                }
                clients.push(client);
                if clients.len() > MOST_CLIENTS {
                    return Err((
                        place,
                        format!("more than {MOST_CLIENTS} clients: export to a network or pattern"),
                    ));
                }
            }
        }
    }
    if clients.is_empty() {
        clients.push((Client { spec: ClientSpec::Anybody, options: defaults }, place));
    }
    Ok(Line { path, place, clients })
}

/// Checks an export's path and takes superfluous slashes out.
fn path(word: Word) -> Result<PathBuf, Mistake> {
    let shown = String::from_utf8_lossy(&word.bytes).into_owned();
    let wrong = |message: String| Err((word.place, message));
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

fn client(lexer: &mut Lexer<'_>, defaults: &Options, first: bool) -> Result<(Client, Place), Mistake> {
    let word = lexer.word(b"(", LONGEST_WORD)?;
    if word.bytes.is_empty() && lexer.peek() == Some(b'(') && !first {
        // The trap of exports(5): "host (rw)" is the host with defaults, and everybody else with rw.
        return Err((
            word.place,
            "a blank before '(': remove it, or write *(...) if everybody is meant".into(),
        ));
    }
    let Ok(name) = std::str::from_utf8(&word.bytes) else {
        return Err((word.place, "a client's name is ASCII".into()));
    };
    let spec = ClientSpec::parse(name).map_err(|message| (word.place, message))?;
    let mut own = defaults.clone();
    if lexer.peek() == Some(b'(') {
        let opened = lexer.place();
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
            return Err((lexer.place(), "a blank is missing behind ')'".into()));
        }
    }
    Ok((Client { spec, options: own }, word.place))
}

/// Reads options between commas up to a blank or `end`, and applies them.
fn options(lexer: &mut Lexer<'_>, to: &mut Options, end: &[u8]) -> Result<(), Mistake> {
    let stops = [b",", end].concat();
    loop {
        let word = lexer.word(&stops, LONGEST_WORD)?;
        let shown = String::from_utf8_lossy(&word.bytes);
        to.apply(&shown).map_err(|message| (word.place, message))?;
        match lexer.peek() {
            Some(b',') => lexer.bump(),
            _ => return Ok(()),
        }
    }
}
