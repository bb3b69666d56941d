//! mount(8)'s external helper: the command under the name mount.samehost, started by `mount -t samehost` and
//! for entries of fstab(5).
//!
//! mount(8), "EXTERNAL HELPERS":
//! `mount.samehost SOURCE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Stop};
use crate::output::print_error;

/// The names of the helper: for the type that users give, and for the one in the mount table, by which
/// mount(8) remounts.
const NAMES: [&str; 2] = ["mount.samehost", "mount.fuse.samehost"];
/// Its name in messages.
const NAME: &str = NAMES[0];

/// mount(8)'s options, with what they mean here.
pub const HELPER_OPTIONS: [(&str, &str); 6] = [
    ("-o OPTIONS", "Mount options, separated by commas; may be repeated"),
    ("-s", "Ignore unknown mount options"),
    ("-f", "Check the options, and don't mount"),
    ("-v", "Log more to standard error; may be repeated"),
    ("-n", "No effect"),
    ("-t TYPE", "No effect"),
];

/// mount(8)'s exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Code {
    /// "incorrect invocation or permissions"
    Usage = 1,
    /// "mount failure"
    Failed = 32,
}

/// mount(8)'s arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct HelperArgs {
    source: OsString,
    directory: OsString,
    options: Vec<OsString>,
    /// `-s`: ignore unknown options.
    sloppy: bool,
    /// `-f`: do everything but mount.
    fake: bool,
    /// The number of `-v`.
    verbose: usize,
}

/// Whether this process was started as the helper.
pub fn is_helper_name(program: Option<&OsStr>) -> bool {
    let name = program.and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| NAMES.iter().any(|one| name == OsStr::new(one)))
}

/// Runs `mount` with mount(8)'s arguments, and returns its exit codes.
pub fn run(
    arguments: impl Iterator<Item = OsString>,
    mount: impl FnOnce(Cli) -> Result<Exit, Stop>,
) -> ExitCode {
    let args = match parse(arguments) {
        Ok(args) => args,
        Err(what) => {
            print_error(&format!(
                "{NAME}: {what}\n  next: it is started by mount(8): mount -t samehost SOURCE DIRECTORY [-o \
                 OPTIONS]"
            ));
            return (Code::Usage as u8).into();
        }
    };
    let fake = args.fake;
    let cli = match Cli::try_parse_from(command_line(args)) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return (Code::Usage as u8).into();
        }
    };
    if fake {
        let Command::Mount(args) = &cli.command else { return (Code::Usage as u8).into() };
        return match super::plan::plan(&cli.global, args) {
            Ok(_) => ExitCode::SUCCESS,
            Err(failure) => code(Err(failure.into())),
        };
    }
    code(mount(cli))
}

fn code(ended: Result<Exit, Stop>) -> ExitCode {
    match ended {
        Ok(_) | Err(Stop::ReaderGone) => ExitCode::SUCCESS,
        Err(Stop::Failed(failure)) => {
            print_error(&failure.to_string());
            let code = if failure.exit == Exit::Usage { Code::Usage } else { Code::Failed };
            (code as u8).into()
        }
    }
}

/// The same as a command line of `samehost`.
fn command_line(args: HelperArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["samehost".into(), "mount".into()];
    words.extend((0..args.verbose).map(|_| "-v".into()));
    if args.sloppy {
        words.extend(["-o".into(), "sloppy".into()]);
    }
    for options in args.options {
        words.extend(["-o".into(), without_default_rw(&options).to_owned()]);
    }
    words.extend(["--".into(), args.source, args.directory]);
    words
}

/// Options without the `rw` with which mount(8) begins them unless the user has written `ro`. As an option of
/// the user it would win over the defaults of /etc/samehost/mount.toml. A remount may need it, and has no
/// defaults.
fn without_default_rw(options: &OsStr) -> &OsStr {
    let bytes = options.as_bytes();
    if bytes.split(|byte| *byte == b',').any(|option| option == b"remount") {
        return options;
    }
    match bytes.strip_prefix(b"rw") {
        Some(b"") => OsStr::new(""),
        Some([b',', rest @ ..]) => OsStr::from_bytes(rest),
        _ => options,
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<HelperArgs, String> {
    let mut args = HelperArgs::default();
    let mut operands = Vec::new();
    let mut arguments = arguments;
    let mut only_operands = false;
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_bytes();
        if only_operands || bytes.len() < 2 || bytes[0] != b'-' {
            operands.push(argument);
            continue;
        }
        if bytes == b"--" {
            only_operands = true;
            continue;
        }
        let mut letters = &bytes[1..];
        while let Some((letter, rest)) = letters.split_first() {
            letters = rest;
            match letter {
                b's' => args.sloppy = true,
                b'f' => args.fake = true,
                // There is no mtab to keep out of.
                b'n' => {}
                b'v' => args.verbose += 1,
                // The value is the rest of the argument, or the next one.
                b'o' | b't' | b'N' => {
                    let value = if rest.is_empty() {
                        arguments.next().ok_or_else(|| format!("-{} needs a value", char::from(*letter)))?
                    } else {
                        OsStr::from_bytes(rest).to_owned()
                    };
                    letters = &[];
                    match letter {
                        b'o' => args.options.push(value),
                        // The type has selected this helper already.
                        b't' => {}
                        _ => return Err("mounting in another namespace (-N) isn't possible".to_owned()),
                    }
                }
                other => return Err(format!("-{} is not known", char::from(*other))),
            }
        }
    }
    match <[OsString; 2]>::try_from(operands) {
        Ok([source, directory]) => Ok(HelperArgs { source, directory, ..args }),
        Err(operands) => Err(format!("a source and a directory are needed, {} given", operands.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<HelperArgs, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn the_helper_is_recognised_by_its_name() {
        assert!(is_helper_name(Some(OsStr::new("/sbin/mount.samehost"))));
        assert!(is_helper_name(Some(OsStr::new("/sbin/mount.fuse.samehost"))));
        assert!(!is_helper_name(Some(OsStr::new("/usr/local/bin/samehost"))));
        assert!(!is_helper_name(None));
    }

    #[test]
    fn what_mount_passes_is_parsed() {
        let args = parsed(&["h:/s", "/mnt", "-sfnv", "-v", "-o", "ro,soft", "-t", "samehost", "-oport=7"]);
        let expected = HelperArgs {
            source: "h:/s".into(),
            directory: "/mnt".into(),
            options: vec!["ro,soft".into(), "port=7".into()],
            sloppy: true,
            fake: true,
            verbose: 2,
        };
        assert_eq!(args, Ok(expected));
        let expected =
            HelperArgs { source: "-x:/s".into(), directory: "/mnt".into(), ..HelperArgs::default() };
        assert_eq!(parsed(&["--", "-x:/s", "/mnt"]), Ok(expected));
        for wrong in [
            &["h:/s"][..],
            &[],
            &["a", "b", "c"],
            &["a", "b", "-o"],
            &["a", "b", "-q"],
            &["a", "b", "-N", "1"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_rw_of_mount_is_no_option_of_the_user() {
        for (passed, options) in [
            ("rw", ""),
            ("rw,_netdev,rw", "_netdev,rw"),
            ("ro,soft", "ro,soft"),
            ("rwx", "rwx"),
            ("rw,remount", "rw,remount"),
        ] {
            assert_eq!(without_default_rw(OsStr::new(passed)), options, "{passed}");
        }
        let words = command_line(parsed(&["h:/s", "/mnt", "-o", "rw"]).unwrap());
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Mount(args) = &cli.command else { panic!("{:?}", cli.command) };
        super::super::plan::plan(&cli.global, args).expect("no options");
    }

    #[test]
    fn it_becomes_a_command_line_of_samehost() {
        let args = parsed(&["-x:/s", "/mnt", "-sv", "-o", "ro"]);
        assert!(args.is_err(), "a source that looks like options must be behind --");
        let words = command_line(parsed(&["h:/s", "/mnt", "-sv", "-o", "ro"]).unwrap());
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Mount(args) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!((args.source.as_str(), args.options.len(), cli.global.verbose), ("h:/s", 2, 1));
        assert!(!args.foreground && !args.report);
    }
}
