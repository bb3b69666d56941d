//! From bytes to tokens: comments, continuation lines, quotes and octal escapes. Each token has its position.

use std::fmt;

/// A position in the text; line and column count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub line: usize,
    pub column: usize,
}

/// A mistake at a position.
pub(crate) type SyntaxError = (Position, String);

/// A token: its bytes after resolving quotes and escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub bytes: Vec<u8>,
    pub position: Position,
    /// Whether any of it was quoted or escaped, so that it has no special meaning.
    pub quoted: bool,
}

/// Bytes as part of a token: parsing the result gives the same bytes.
pub(crate) struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| match byte {
            b'!'..=b'~' if !matches!(byte, b'"' | b'\\' | b'#' | b'(' | b')' | b',') => {
                write!(f, "{}", char::from(*byte))
            }
            _ => write!(f, "\\{byte:03o}"),
        })
    }
}

/// A cursor over the text.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    rest: &'a [u8],
    position: Position,
}

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text, position: Position { line: 1, column: 1 } }
    }

    pub(crate) const fn position(&self) -> Position {
        self.position
    }

    /// The next byte.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes one byte.
    pub(crate) fn bump(&mut self) {
        if let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            self.position = match byte {
                b'\n' => Position { line: self.position.line + 1, column: 1 },
                _ => Position { line: self.position.line, column: self.position.column + 1 },
            };
        }
    }

    /// The length of a backslash followed by the line's end, if the text continues with one.
    fn continuation(&self) -> usize {
        match self.rest {
            [b'\\', b'\n', ..] => 2,
            [b'\\', b'\r', b'\n', ..] => 3,
            _ => 0,
        }
    }

    /// Whether a token ends here: at a blank, a line's end, a continuation or the end of the text.
    pub(crate) fn at_blank(&self) -> bool {
        self.continuation() > 0 || matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\n'))
    }

    /// Skips blanks, continuations and a comment, up to the line's end. At the end of the logical line
    /// [`Lexer::peek`] then returns a newline or `None`.
    pub(crate) fn skip_blanks(&mut self) {
        loop {
            let skip = match self.peek() {
                Some(b' ' | b'\t' | b'\r') => 1,
                Some(b'#') => self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len()),
                _ => self.continuation(),
            };
            if skip == 0 {
                return;
            }
            (0..skip).for_each(|_| self.bump());
        }
    }

    /// Skips the rest of the logical line, up to its newline.
    pub(crate) fn skip_line(&mut self) {
        while !matches!(self.peek(), None | Some(b'\n')) {
            (0..self.continuation().max(1)).for_each(|_| self.bump());
        }
    }

    /// Reads a token up to a blank or, outside quotes, one of `stops`; at most `longest` bytes.
    pub(crate) fn word(&mut self, stops: &[u8], longest: usize) -> Result<Token, SyntaxError> {
        let mut word = Token { bytes: Vec::new(), position: self.position, quoted: false };
        let mut open = None;
        loop {
            let here = self.position;
            let Some(byte) = self.peek() else { break };
            match byte {
                b'\n' => break,
                b'"' => {
                    open = if open.is_some() { None } else { Some(here) };
                    word.quoted = true;
                    self.bump();
                    continue;
                }
                _ if open.is_none() && (self.at_blank() || stops.contains(&byte)) => break,
                b'\\' => {
                    let byte = self.escape(here)?;
                    // A backslash that escapes nothing stands for itself.
                    word.quoted |= self.position.column > here.column + 1;
                    word.bytes.push(byte);
                }
                0 => return Err((here, "a NUL byte cannot stand here".into())),
                _ => {
                    word.bytes.push(byte);
                    self.bump();
                }
            }
            if word.bytes.len() > longest {
                return Err((word.position, format!("longer than {longest} bytes")));
            }
        }
        match open {
            Some(position) => Err((position, "a quote that is not closed on its line".into())),
            None => Ok(word),
        }
    }

    /// A backslash followed by three octal digits is a byte; otherwise it stands for itself.
    fn escape(&mut self, here: Position) -> Result<u8, SyntaxError> {
        let digits = match self.rest {
            [_, digits @ ..] if digits.len() >= 3 && digits[..3].iter().all(|d| matches!(d, b'0'..=b'7')) => {
                &digits[..3]
            }
            _ => {
                self.bump();
                return Ok(b'\\');
            }
        };
        let value = digits.iter().fold(0_u16, |value, digit| value * 8 + u16::from(digit - b'0'));
        match u8::try_from(value) {
            Ok(0) | Err(_) => Err((here, format!("\\{value:03o} is not a byte that can stand here"))),
            Ok(byte) => {
                (0..4).for_each(|_| self.bump());
                Ok(byte)
            }
        }
    }
}
