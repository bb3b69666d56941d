//! `ctl io-mode`: changes how a server reads or writes its files.

use std::path::PathBuf;

use control::path_text;
use server::{Change, Direction, IoMode};

use super::server::server;
use super::{report, tell};
use crate::cli::{Global, IoModeArgs};
use crate::exit::{CommandResult, Failure};

pub fn io_mode(global: &Global, args: &IoModeArgs) -> CommandResult {
    let (export, direction, mode) = parse_words(&args.words)?;
    let socket = server(global, args.server.as_deref(), export.as_deref())?;
    let change = Change::IoMode { export, direction, mode };
    report("io-mode", tell(&socket, &change)?)
}

/// `[EXPORT] read|write MODE`.
fn parse_words(words: &[String]) -> Result<(Option<PathBuf>, Direction, Option<String>), Failure> {
    let (export, direction, mode) = match words {
        [direction, mode] => (None, direction, mode),
        [export, direction, mode] => (Some(path_text::path(export)), direction, mode),
        _ => return Err(Failure::usage("io-mode", "takes [EXPORT] read|write MODE")),
    };
    let direction = match direction.as_str() {
        "read" => Direction::Read,
        "write" => Direction::Write,
        other => {
            return Err(
                Failure::usage(other, "is neither read nor write").next("samehost ctl io-mode --help")
            );
        }
    };
    if mode == "default" {
        return Ok((export, direction, None));
    }
    mode.parse::<IoMode>().map_err(|why| {
        Failure::usage(mode, why).next("or `default`, which undoes an earlier `ctl io-mode`")
    })?;
    Ok((export, direction, Some(mode.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use std::os::unix::ffi::OsStrExt as _;

    fn words(line: &str) -> Result<(Option<PathBuf>, Direction, Option<String>), Failure> {
        parse_words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_export_is_optional() {
        assert_eq!(words("read direct").unwrap(), (None, Direction::Read, Some("direct".into())));
        let bytes = Some(std::ffi::OsStr::from_bytes(b"/srv/\xff").into());
        assert_eq!(words(r"/srv/\xff read direct").unwrap(), (bytes, Direction::Read, Some("direct".into())));
        let srv = Some(PathBuf::from("/srv"));
        assert_eq!(words("/srv write default").unwrap(), (srv, Direction::Write, None));
        for bad in ["/srv write", "read", "read fast", "/srv both direct"] {
            assert_eq!(words(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}
