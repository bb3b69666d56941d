//! `exports`: reads exports files as a server would, and prints the result.

use std::collections::BTreeMap;
use std::io;
use std::net::ToSocketAddrs as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;

use ::exports::{ClientSpec, Exports};
use server::Config;

use crate::cli::ExportsArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::human;
use crate::output::{Output, print_error};

/// The most host names that are looked up at the same time: each can take the resolver's whole timeout.
const LOOKUPS_AT_ONCE: usize = 16;

/// Prints the exports, or only their mistakes.
pub fn exports(args: &ExportsArgs) -> CommandResult {
    let config = Config {
        export_files: args.files.clone(),
        system_exports: args.files.is_empty(),
        ..Config::default()
    };
    let exports = config
        .read_exports()
        .map_err(|error| Failure::new("exports", error).next("samehost-exports(5) has the syntax"))?;
    if args.check {
        warn(&exports);
        return Ok(Exit::Done);
    }
    let mut output = Output::stdout();
    for export in exports.list() {
        output.line(export.to_string())?;
        for option in export.ineffective_options() {
            output.line(format!("# note: {option}"))?;
        }
    }
    output.flush()?;
    warn(&exports);
    Ok(Exit::Done)
}

/// Writes a warning to standard error for each thing that keeps an export from being served as it may be
/// meant, as exportfs(8) does.
pub fn warn(exports: &Exports) {
    let directories = exports.list().iter().filter_map(|export| directory(export.path()));
    let everybody = exports.without_clients().iter().map(|path| {
        Failure::new(shown(path), "its line names no client, so it is exported to everybody")
            .next("write *(OPTIONS) if that is meant, else name the clients")
    });
    let linked = server::path_obstacles(exports).into_iter().map(|(path, obstacle)| {
        Failure::new(shown(path), format!("it can't be served: {}", obstacle.reason)).next(obstacle.next)
    });
    for warning in directories.chain(linked).chain(everybody).chain(unknown_hosts(exports)) {
        print_error(&format!("warning: {warning}"));
    }
}

fn shown(path: &Path) -> String {
    human::name(path.as_os_str().as_bytes())
}

/// What keeps a directory from being served.
fn directory(path: &Path) -> Option<Failure> {
    let warning = |reason: &str| Failure::new(shown(path), format!("it can't be served: {reason}"));
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some(warning("it isn't a directory").next("export the directory that contains it")),
        Err(error) => Some(match error.kind() {
            io::ErrorKind::NotFound => {
                warning("it doesn't exist").next("create the directory, or correct its path")
            }
            io::ErrorKind::PermissionDenied => {
                warning("this user may not look at it").next("run as the user of the server")
            }
            _ => warning(&error.to_string()).next("correct its path"),
        }),
    }
}

/// The host names of clients that have no address, each with the first export that has it.
fn unknown_hosts(exports: &Exports) -> Vec<Failure> {
    let mut hosts: BTreeMap<&str, &Path> = BTreeMap::new();
    for export in exports.list() {
        for client in export.clients() {
            if let ClientSpec::Host(host) = &client.spec {
                hosts.entry(host).or_insert(export.path());
            }
        }
    }
    let hosts: Vec<_> = hosts.into_iter().collect();
    let mut warnings = Vec::new();
    for some in hosts.chunks(LOOKUPS_AT_ONCE) {
        thread::scope(|scope| {
            let lookups: Vec<_> = some.iter().map(|(host, _)| scope.spawn(|| look_up(host))).collect();
            for ((host, path), lookup) in some.iter().zip(lookups) {
                if let Ok(Err(reason)) = lookup.join() {
                    let reason =
                        format!("its client {host} isn't found, so the name admits no host: {reason}");
                    let next = "correct the name, or add it to /etc/hosts or the DNS";
                    warnings.push(Failure::new(shown(path), reason).next(next));
                }
            }
        });
    }
    warnings
}

/// Looks a host up; the error is the resolver's words.
fn look_up(host: &str) -> Result<(), String> {
    (host, 0).to_socket_addrs().map(drop).map_err(|error| {
        let text = error.to_string(); // failed to lookup address information: Name or service not known
        text.rsplit_once(": ").map_or_else(|| text.clone(), |(_, words)| words.to_owned())
    })
}
