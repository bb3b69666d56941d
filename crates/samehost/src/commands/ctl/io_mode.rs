//! `ctl io-mode`: changes how a server reads or writes its files.

use std::path::{Path, PathBuf};

use control::ProcessAnswer;
use server::{Change, Direction, IoMode, Status};

use super::report;
use crate::cli::{Global, IoModeArgs};
use crate::commands::status;
use crate::exit::{CommandResult, Exit, Failure};

pub fn io_mode(global: &Global, args: &IoModeArgs) -> CommandResult {
    let (export, direction, mode) = parse_words(&args.words)?;
    let path = server(global, args.server.as_deref(), export.as_deref())?;
    let change = Change::IoMode { export, direction, mode };
    let reply = control::tell(&path, &change).map_err(|error| Failure::new("io-mode", error))?;
    report("io-mode", reply)
}

/// `[EXPORT] read|write MODE`.
fn parse_words(words: &[String]) -> Result<(Option<PathBuf>, Direction, Option<String>), Failure> {
    let (export, direction, mode) = match words {
        [direction, mode] => (None, direction, mode),
        [export, direction, mode] => (Some(PathBuf::from(export)), direction, mode),
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

/// The socket of the one server that the arguments select.
fn server(global: &Global, instance: Option<&str>, export: Option<&Path>) -> Result<PathBuf, Failure> {
    let dir = global.run_dir.display().to_string();
    let asked = status::servers(&global.run_dir)
        .map_err(|error| Failure::new(&dir, error).next("run as the user of the server, or as root"))?;
    status::report_unresponsive(&asked.silent, "server");
    let asked: Vec<ProcessAnswer<Status>> = asked.answers;
    if asked.is_empty() {
        return Err(Failure::new(&dir, "no server is running here")
            .exit(Exit::Unreachable)
            .next("name its run directory with --run-dir or SAMEHOST_RUN_DIR"));
    }
    let exports =
        |status: &Status| export.is_none_or(|export| status.exports.iter().any(|other| other.path == export));
    let named = |status: &Status| instance.is_none_or(|start| status.instance.starts_with(start));
    let mut matching: Vec<_> =
        asked.into_iter().filter(|asked| named(&asked.answer) && exports(&asked.answer)).collect();
    match (matching.pop(), matching.is_empty()) {
        (Some(only), true) => Ok(only.path),
        (Some(_), false) => Err(Failure::new(&dir, "several servers match").next("name one with --server")),
        (None, _) => {
            let what = export.map_or_else(|| dir.clone(), |export| export.display().to_string());
            Err(Failure::new(what, "no matching server exports it")
                .next("`samehost status` lists the servers and their exports"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<(Option<PathBuf>, Direction, Option<String>), Failure> {
        parse_words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_export_is_optional() {
        assert_eq!(words("read direct").unwrap(), (None, Direction::Read, Some("direct".into())));
        let srv = Some(PathBuf::from("/srv"));
        assert_eq!(words("/srv write default").unwrap(), (srv, Direction::Write, None));
        for bad in ["/srv write", "read", "read fast", "/srv both direct"] {
            assert_eq!(words(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}
