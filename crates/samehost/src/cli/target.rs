//! Operands of commands: a file on a server, or a file anywhere.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use client::Url;

/// What every NFS URL begins with, in any case.
const SCHEME: &[u8] = b"nfs://";

/// `nfs://host[:port]/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The server and the path on it.
    pub url: Url,
}

impl FromStr for Remote {
    type Err = client::UrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { url: text.parse()? })
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// A file on a server or on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `nfs://...`
    Remote(Remote),
    /// A path. What looks like a URL can be written `./nfs:/...`.
    Local(PathBuf),
}

impl clap::builder::ValueParserFactory for Operand {
    type Parser = OperandParser;

    fn value_parser() -> OperandParser {
        OperandParser
    }
}

/// Distinguishes URLs from paths. A path may be any bytes, so this can't be a `FromStr`.
#[derive(Clone, Copy, Debug)]
pub struct OperandParser;

impl TypedValueParser for OperandParser {
    type Value = Operand;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Operand, clap::Error> {
        let is_url =
            value.as_bytes().get(..SCHEME.len()).is_some_and(|head| head.eq_ignore_ascii_case(SCHEME));
        if is_url {
            let parser =
                clap::builder::StringValueParser::new().try_map(|text: String| text.parse::<Remote>());
            return parser.parse_ref(command, argument, value).map(Operand::Remote);
        }
        let parser = clap::builder::PathBufValueParser::new();
        parser.parse(command, argument, OsString::from(value)).map(Operand::Local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(text: &[u8]) -> Result<Operand, clap::Error> {
        OperandParser.parse_ref(&clap::Command::new("test"), None, OsStr::from_bytes(text))
    }

    #[test]
    fn urls_and_paths_are_told_apart() {
        assert!(matches!(operand(b"NFS://host/a").unwrap(), Operand::Remote(_)));
        assert_eq!(operand(b"./nfs:/host").unwrap(), Operand::Local("./nfs:/host".into()));
        assert!(matches!(operand(b"/tmp/\xff").unwrap(), Operand::Local(_)));
        assert!(operand(b"nfs:///no-host").is_err());
    }
}
