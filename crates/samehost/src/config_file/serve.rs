//! The server's configuration file, samehost.toml(5). Its keys are the long options of `samehost serve`, so
//! an option without a key can't exist.
//!
//! The values of the file become defaults of the command line's definition, which is then parsed again. So
//! the command line wins, environment variables come next, then the file, and each value passes the parser of
//! its option.

use std::any::TypeId;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::OsStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use client::options::OptionError;
use server::config::{ConfigSource, NewConfig};
use toml::Spanned;
use toml::de::DeValue;

use super::{ConfigError, ConfigFile, Mistake, decimal, type_name};
use crate::cli::{Cli, Command as Subcommand, Global, ServeArgs};
use crate::commands;
use crate::exit::{Failure, Stop};

/// The file that `samehost check-config` checks by default.
pub const DEFAULT_FILE: &str = "/etc/samehost/samehost.toml";

/// The subcommands that have a configuration file.
const SERVE: &str = "serve";
const CLUSTER: &str = "cluster";

/// The option that names the file.
const OWN_OPTION: &str = "config";

/// The keys whose changes SIGHUP applies. All others need a restart.
pub const RELOADABLE: &[&str] = &["export", "exports", "grace", "read-io", "write-io"];

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    Boolean,
    Integer,
    Text,
    /// A string or an array of strings.
    Texts,
}

impl ValueType {
    fn of(option: &Arg) -> Self {
        let parsed = option.get_value_parser().type_id();
        match option.get_action() {
            ArgAction::Append => Self::Texts,
            ArgAction::Count => Self::Integer,
            _ if parsed == TypeId::of::<bool>() => Self::Boolean,
            _ if parsed == TypeId::of::<u16>() || parsed == TypeId::of::<u32>() => Self::Integer,
            _ => Self::Text,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "true or false",
            Self::Integer => "an integer",
            Self::Text => "a string",
            Self::Texts => "a string or an array of strings",
        })
    }
}

/// A key of the file.
pub struct ConfigKey {
    pub option: Arg,
    pub value: ValueType,
}

impl ConfigKey {
    pub fn name(&self) -> &str {
        self.option.get_long().unwrap_or_else(|| self.option.get_id().as_str())
    }

    /// Whether SIGHUP applies a change.
    pub fn is_reloadable(&self) -> bool {
        RELOADABLE.contains(&self.name())
    }

    /// The words of `value` as the command line would have them.
    fn words(&self, value: &DeValue<'_>) -> Result<Vec<String>, String> {
        let mismatch = || format!("{} must be {}, not {}", self.name(), self.value, type_name(value));
        let words = match (self.value, value) {
            (ValueType::Boolean, DeValue::Boolean(is_set)) => vec![is_set.to_string()],
            (ValueType::Integer, DeValue::Integer(number)) => {
                vec![decimal(number).ok_or_else(|| format!("{}: too large", self.name()))?]
            }
            (ValueType::Text | ValueType::Texts, DeValue::String(text)) => vec![text.to_string()],
            (ValueType::Texts, DeValue::Array(texts)) => {
                let texts = texts.iter().map(|text| text.get_ref().as_str().map(str::to_owned));
                texts.collect::<Option<_>>().ok_or_else(|| {
                    format!("{} must be {}, and this array has something else", self.name(), self.value)
                })?
            }
            _ => return Err(mismatch()),
        };
        words.iter().try_for_each(|word| self.check(word))?;
        Ok(words)
    }

    /// Parses one value as the option's.
    fn check(&self, word: &str) -> Result<(), String> {
        if matches!(self.option.get_action(), ArgAction::Count) {
            let parsed: Result<u8, _> = word.parse();
            return parsed.map(drop).map_err(|error| format!("{}: {error}", self.name()));
        }
        let alone = Command::new("samehost").no_binary_name(true).arg(self.option.clone());
        let parsed = alone.try_get_matches_from([format!("--{}={word}", self.name())]);
        parsed.map(drop).map_err(|error| format!("{}: {}", self.name(), reason(&error)))
    }
}

/// Why a value is wrong, in words that don't speak of the command line.
fn reason(error: &clap::Error) -> String {
    if let Some(source) = std::error::Error::source(error) {
        return source.to_string();
    }
    match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(words))) if !words.is_empty() => {
            format!("must be one of {}", words.join(", "))
        }
        (ErrorKind::InvalidValue, _) => "needs a value".to_owned(),
        (kind, _) => kind.to_string(),
    }
}

/// The keys, in the order of the help.
pub fn keys() -> Vec<ConfigKey> {
    let mut command = Cli::command();
    command.build();
    let options = command.find_subcommand("serve").into_iter().flat_map(Command::get_arguments);
    options
        .filter(|option| option.get_long().is_some() && !option.is_hide_set())
        .filter(|option| !matches!(option.get_action(), ArgAction::Help | ArgAction::HelpLong))
        .filter(|option| !matches!(option.get_action(), ArgAction::HelpShort | ArgAction::Version))
        .filter(|option| option.get_id() != OWN_OPTION)
        .map(|option| ConfigKey { value: ValueType::of(option), option: option.clone() })
        .collect()
}

/// The values of a file: for each key its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeFile {
    values: Vec<(String, Vec<String>)>,
}

impl ServeFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`], with every mistake in the file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file = ConfigFile::read(path)?;
        let keys = keys();
        let values = file.parse(|table, mistakes| {
            let entries = table.iter();
            entries.filter_map(|(name, value)| entry(&file, &keys, name, value, mistakes)).collect()
        })?;
        Ok(Self { values })
    }

    /// The command line's definition with these values as defaults of the global options, and of those
    /// options of a subcommand that have such a key.
    fn set_defaults(&self, command: Command, subcommand: &'static str) -> Command {
        let ids = |command: &Command| -> Vec<_> {
            command.get_arguments().map(|option| option.get_id().clone()).collect()
        };
        let globals = ids(&command);
        let options = command.find_subcommand(subcommand).map(ids).unwrap_or_default();
        self.values.iter().fold(command, |command, (key, words)| {
            let words: Vec<OsStr> = words.iter().map(OsStr::from).collect();
            let option = key.replace('-', "_");
            let set = move |option: Arg| option.default_values(words);
            if globals.iter().any(|global| *global == option) {
                command.mut_arg(option, set)
            } else if options.iter().any(|known| *known == option) {
                command.mut_subcommand(subcommand, |found| found.mut_arg(option, set))
            } else {
                command
            }
        })
    }

    /// The options of `samehost serve` with nothing but this file.
    ///
    /// # Errors
    /// For values that contradict each other.
    pub fn options(&self) -> Result<(Global, ServeArgs), Failure> {
        let (_, cli) = parse(self, SERVE, &["samehost", SERVE].map(OsString::from))?;
        match cli.command {
            Subcommand::Serve(args) => Ok((cli.global, args)),
            _ => Err(Failure::usage("configuration", "belongs to no server")),
        }
    }

    /// Parses the words of a command line with these values as defaults.
    fn parse(&self, subcommand: &'static str, words: &[OsString]) -> Result<ArgMatches, clap::Error> {
        self.set_defaults(Cli::command(), subcommand).try_get_matches_from(words)
    }
}

/// One key with its value; `None` if it is wrong.
fn entry(
    file: &ConfigFile,
    keys: &[ConfigKey],
    name: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    mistakes: &mut Vec<Mistake>,
) -> Option<(String, Vec<String>)> {
    let Some(key) = keys.iter().find(|key| key.name() == name.get_ref().as_ref()) else {
        let known = keys.iter().map(ConfigKey::name);
        let mut message = OptionError::unknown(name.get_ref(), known).to_string();
        if matches!(value.get_ref(), DeValue::Table(_)) {
            message
                .push_str("; the server's file has no tables (check-config --mount checks that of mounts)");
        }
        mistakes.push(file.mistake(&name.span(), message));
        return None;
    };
    match key.words(value.get_ref()) {
        Ok(words) => Some((key.name().to_owned(), words)),
        Err(message) => {
            mistakes.push(file.mistake(&value.span(), message));
            None
        }
    }
}

/// Completes the command line of `samehost serve --config FILE`, or of `samehost cluster --config FILE`, with
/// the values of the file.
///
/// # Errors
/// The file's errors, or those of the command line with the file.
pub fn complete(cli: Cli) -> Result<Cli, Stop> {
    let (subcommand, path) = match &cli.command {
        Subcommand::Serve(args) => (SERVE, &args.config),
        Subcommand::Cluster(args) => (CLUSTER, &args.config),
        _ => return Ok(cli),
    };
    let Some(path) = path else { return Ok(cli) };
    let file = ServeFile::read(path).map_err(Failure::from)?;
    let words: Vec<_> = std::env::args_os().collect();
    parse(&file, subcommand, &words).map(|(_, cli)| cli).map_err(Stop::from)
}

fn parse(
    file: &ServeFile,
    subcommand: &'static str,
    words: &[OsString],
) -> Result<(ArgMatches, Cli), Failure> {
    let matches =
        file.parse(subcommand, words).map_err(|error| Failure::usage("configuration", reason(&error)))?;
    let cli =
        Cli::from_arg_matches(&matches).map_err(|error| Failure::usage("configuration", reason(&error)))?;
    Ok((matches, cli))
}

/// The configuration file of a running server, which a reload reads again.
#[derive(Debug)]
pub struct ServeConfigSource {
    path: PathBuf,
    words: Vec<OsString>,
    /// The words of each key when the server started.
    started: Vec<(String, Vec<OsString>)>,
}

impl ServeConfigSource {
    /// The source for this process's command line.
    ///
    /// # Errors
    /// As [`complete`].
    pub fn new(path: &Path) -> Result<Self, Stop> {
        let words: Vec<_> = std::env::args_os().collect();
        let file = ServeFile::read(path).map_err(Failure::from)?;
        let (matches, _) = parse(&file, SERVE, &words)?;
        Ok(Self { path: path.to_owned(), words, started: values(&matches) })
    }
}

/// The words of each key after command line, environment and file were joined.
fn values(matches: &ArgMatches) -> Vec<(String, Vec<OsString>)> {
    let Some(serve) = matches.subcommand_matches("serve") else { return Vec::new() };
    let words = |option: &Arg| {
        let words = serve.get_raw(option.get_id().as_str()).into_iter().flatten();
        words.map(std::ffi::OsStr::to_owned).collect()
    };
    keys().iter().map(|key| (key.name().to_owned(), words(&key.option))).collect()
}

impl ConfigSource for ServeConfigSource {
    fn read(&self) -> Result<NewConfig, String> {
        let file = ServeFile::read(&self.path).map_err(|error| error.to_string())?;
        let (matches, cli) = parse(&file, SERVE, &self.words).map_err(|failure| failure.to_string())?;
        let Subcommand::Serve(args) = cli.command else {
            return Err("this process is no server".to_owned());
        };
        let needs_restart = values(&matches)
            .into_iter()
            .zip(&self.started)
            .filter(|(now, started)| now != *started && !RELOADABLE.contains(&now.0.as_str()))
            .map(|((key, _), _)| key)
            .collect();
        let config = commands::serve::config(&cli.global, args).map_err(|failure| failure.to_string())?;
        Ok(NewConfig { config, needs_restart })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn read(text: &str) -> Result<ServeFile, ConfigError> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("samehost.toml");
        std::fs::write(&path, text).unwrap();
        ServeFile::read(&path)
    }

    fn mistakes(text: &str) -> Vec<(usize, usize, String)> {
        match read(text) {
            Err(ConfigError::Wrong(mistakes)) => {
                mistakes.into_iter().map(|mistake| (mistake.line, mistake.column, mistake.message)).collect()
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }

    /// A value of each key that differs from the option's default.
    const ALL_KEYS: &str = r#"
        listen = ["127.0.0.1:20490", "[::1]:20490"]
        export = "/srv *(ro)"
        exports = ["/etc/exports", "/etc/more"]
        state-dir = "/var/lib/other"
        lane = "files"
        lane-grants = 100
        read-io = "dontcache"
        write-io = "direct"
        threads = 32
        max-connections = 0x100
        metrics = "127.0.0.1:9464"
        cluster = "rados://pool/namespace"
        node = "alpha"
        address-hook = "/etc/samehost/address"
        cluster-nfs40 = true
        node-address = ["alpha=10.0.0.1/24%eth0", "beta=10.0.0.2/24%eth0"]
        ceph-conf = "/etc/ceph/other.conf"
        ceph-user = "nfs"
        no-rpcbind = true
        no-audit = true
        takeover = 0
        grace = 6
        lease = 30
        nfs4-owners = "names"
        nfs4-domain = "example.org"
        run-dir = "/run/other"
        verbose = 2
        log-format = "json"
    "#;

    fn serve(file: &ServeFile, words: &[&str]) -> (ArgMatches, Cli) {
        let words: Vec<_> = ["samehost", "serve"].iter().chain(words).map(OsString::from).collect();
        parse(file, SERVE, &words).unwrap()
    }

    #[test]
    fn each_option_has_a_key_which_changes_it() {
        let file = read(ALL_KEYS).unwrap();
        serve(&file, &[]);
        for key in keys() {
            let words = file.values.iter().find(|(name, _)| name == key.name()).map(|(_, words)| words);
            let words = words.unwrap_or_else(|| panic!("{} is missing in ALL_KEYS", key.name()));
            let words: Vec<_> = words.iter().map(OsStr::from).collect();
            assert_ne!(key.option.get_default_values(), words, "{}", key.name());
        }
        for name in RELOADABLE {
            assert!(keys().iter().any(|key| key.name() == *name), "{name} is no key");
        }
    }

    /// The file of the packages has each key once, behind `# `, with its default or an example, and says of
    /// each whether it needs a restart.
    #[test]
    fn the_installed_file_has_each_key_with_its_default() {
        let text = include_str!("../../../../packaging/samehost.toml");
        assert_eq!(read(text).unwrap().values, []);
        let is_key = |line: &&str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let lines = text.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_key);
        let file = read(&lines.collect::<Vec<_>>().join("\n")).unwrap();
        let mut names: Vec<_> = file.values.iter().map(|(name, _)| name.as_str()).collect();
        let keys = keys();
        assert_eq!(names.len(), keys.len());
        names.dedup();
        for key in &keys {
            let (_, words) = file.values.iter().find(|(name, _)| name == key.name()).unwrap();
            let defaults = key.option.get_default_values();
            let words: Vec<_> = words.iter().map(OsStr::from).collect();
            assert!(defaults.is_empty() || words == defaults, "{}: {words:?}", key.name());
            let (comment, _) = text.split_once(&format!("\n# {} = ", key.name())).unwrap();
            let (_, comment) = comment.rsplit_once("\n\n").unwrap();
            assert_eq!(comment.contains("[restart]"), !key.is_reloadable(), "{}", key.name());
        }
    }

    #[test]
    fn the_command_line_wins_for_each_option() {
        let file = read(ALL_KEYS).unwrap();
        let (_, cli) = serve(&file, &["--threads=8", "--listen=[::]:1", "--no-rpcbind=false", "-v"]);
        let Subcommand::Serve(args) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!((args.threads, args.lease, args.no_rpcbind, cli.global.verbose), (8, 30, false, 1));
        assert_eq!(args.listen, ["[::]:1".parse().unwrap()]);
        assert_eq!(args.exports, [PathBuf::from("/etc/exports"), PathBuf::from("/etc/more")]);
        assert!(Cli::try_parse_from(["samehost", "serve", "--no-rpcbind"]).is_ok());
    }

    #[test]
    fn the_command_for_clusters_uses_the_keys_that_it_has() {
        let file = read(ALL_KEYS).unwrap();
        let parse = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            let Subcommand::Cluster(args) = parse(&file, CLUSTER, &words).unwrap().1.command else {
                panic!()
            };
            (args.cluster.unwrap().to_string(), args.ceph)
        };
        let (cluster, ceph) = parse(&["samehost", "cluster", "status"]);
        assert_eq!((cluster.as_str(), ceph.ceph_user.as_str()), ("rados://pool/namespace", "nfs"));
        assert_eq!(ceph.ceph_conf, Some(PathBuf::from("/etc/ceph/other.conf")));
        let (cluster, ceph) =
            parse(&["samehost", "cluster", "add", "a", "--cluster", "rados://p/n", "--ceph-user", "admin"]);
        assert_eq!((cluster.as_str(), ceph.ceph_user.as_str()), ("rados://p/n", "admin"));
    }

    #[test]
    fn mistakes_have_their_positions_and_are_reported_together() {
        let text = "thread = 16\nlease = 90\n\nthreads = 300\n  read-io = 'fast'\ngrace = \"5\"\n\
                    listen = [1]\n[mount]\n";
        let found = mistakes(text);
        let positions: Vec<_> = found.iter().map(|(line, column, _)| (*line, *column)).collect();
        assert_eq!(positions, [(1, 1), (4, 11), (5, 13), (6, 9), (7, 10), (8, 2)], "{found:?}");
        for ((.., message), words) in found.iter().zip([
            "'thread' is not known; did you mean 'threads'?",
            "threads: 300 is not in 1..=256",
            "read-io: must be one of buffered, dontcache, direct",
            "grace must be an integer, not a string",
            "listen must be a string or an array of strings",
            "'mount' is not known; the server's file has no tables",
        ]) {
            assert!(message.contains(words), "{message}: {words}");
        }
    }

    #[test]
    fn errors_of_the_syntax_have_positions() {
        let found = mistakes("lease = 90\nthreads 16\n");
        assert_eq!((found[0].0, found.len()), (2, 1), "{found:?}");
        let twice = mistakes("lease = 90\nlease = 91\n");
        assert_eq!((twice[0].0, twice[0].1), (2, 1), "{twice:?}");
        // Columns count characters.
        let found = mistakes("nfs4-domain = 'ä', 1\n");
        assert_eq!((found[0].0, found[0].1), (1, 18), "{found:?}");
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = ServeFile::read(Path::new("/nowhere/samehost.toml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/samehost.toml: No such file"), "{error}");
    }

    #[test]
    fn changes_that_need_a_restart_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("samehost.toml");
        let words: Vec<_> = ["samehost", "serve", "--lease=20"].iter().map(OsString::from).collect();
        std::fs::write(&path, "threads = 3\nlease = 30\n").unwrap();
        let (matches, _) = parse(&ServeFile::read(&path).unwrap(), SERVE, &words).unwrap();
        let source = ServeConfigSource { path: path.clone(), words, started: values(&matches) };
        assert!(source.read().unwrap().needs_restart.is_empty());
        // The command line's lease stays, and SIGHUP applies the mode.
        std::fs::write(&path, "threads = 4\nlease = 40\nread-io = 'direct'\n").unwrap();
        let new = source.read().unwrap();
        assert_eq!(new.needs_restart, ["threads"]);
        assert_eq!(new.config.read_io, server::IoMode::Direct);
        std::fs::write(&path, "threads = 0\n").unwrap();
        let error = source.read().unwrap_err();
        assert!(error.contains("samehost.toml:1:11: threads: 0 is not in 1..=256"), "{error}");
    }
}
