//! Defaults for mount options, `/etc/samehost/mount.toml`: for all mounts, for a server, for a mountpoint.
//!
//! The sections and their order are those of nfsmount.conf(5). That file itself isn't read: it is the
//! kernel client's, and its usual content, such as `Defaultvers=4`, is refused by this client.

use std::path::{Path, PathBuf};

use mount::options::{OptionError, check, names};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, ConfigFile, Mistake, decimal, type_name};

/// The file that is read if it exists and no other is named.
pub const DEFAULT_FILE: &str = "/etc/samehost/mount.toml";

/// The options of all mounts.
const DEFAULTS: &str = "defaults";
/// Options of the mounts of a server, by its name.
const SERVER: &str = "server";
/// Options of a mount, by its mountpoint.
const MOUNTPOINT: &str = "mountpoint";

/// Mount options in the order of their precedence, the last winning.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MountDefaults {
    all: Vec<String>,
    servers: Vec<(String, Vec<String>)>,
    mountpoints: Vec<(PathBuf, Vec<String>)>,
}

impl MountDefaults {
    /// Reads the file, or [`DEFAULT_FILE`], which may be missing.
    ///
    /// # Errors
    /// [`ConfigError`], with every mistake in the file.
    pub fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let file = match ConfigFile::read(path.unwrap_or(Path::new(DEFAULT_FILE))) {
            Err(ConfigError::Unreadable { source, .. })
                if path.is_none() && source.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(Self::default());
            }
            file => file?,
        };
        file.parse(|table, mistakes| Self::interpret(&file, table, mistakes))
    }

    fn interpret(file: &ConfigFile, table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Self {
        let mut defaults = Self::default();
        for (name, value) in table {
            let section = match value.get_ref() {
                DeValue::Table(section) if [DEFAULTS, SERVER, MOUNTPOINT].contains(&&**name.get_ref()) => {
                    section
                }
                DeValue::Table(_) => {
                    let known = [DEFAULTS, SERVER, MOUNTPOINT].into_iter();
                    let unknown = OptionError::unknown(name.get_ref(), known).to_string();
                    mistakes.push(file.mistake(&name.span(), unknown.replacen("option", "table", 1)));
                    continue;
                }
                _ => {
                    let message = format!(
                        "write mount options into the table [{DEFAULTS}], [{SERVER}.\"HOST\"] \
                                           or [{MOUNTPOINT}.\"PATH\"]"
                    );
                    mistakes.push(file.mistake(&name.span(), message));
                    continue;
                }
            };
            if name.get_ref() == DEFAULTS {
                defaults.all = options(file, section, mistakes);
                continue;
            }
            for (whose, value) in section {
                let DeValue::Table(section) = value.get_ref() else {
                    let message = format!("write [{}.\"...\"] above the options of one {0}", name.get_ref());
                    mistakes.push(file.mistake(&whose.span(), message));
                    continue;
                };
                let options = options(file, section, mistakes);
                if name.get_ref() == SERVER {
                    defaults.servers.push((whose.get_ref().to_string(), options));
                } else if whose.get_ref().starts_with('/') {
                    defaults.mountpoints.push((PathBuf::from(whose.get_ref().as_ref()), options));
                } else {
                    mistakes.push(file.mistake(&whose.span(), "a mountpoint is an absolute path"));
                }
            }
        }
        defaults
    }

    /// The options of a mount, as they would stand in front of those of its command line.
    pub fn options(&self, server: &str, mountpoint: &Path) -> Vec<String> {
        let servers = self.servers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(server));
        let mountpoints = self.mountpoints.iter().filter(|(path, _)| path == mountpoint);
        let sections = std::iter::once(&self.all)
            .chain(servers.map(|(_, options)| options))
            .chain(mountpoints.map(|(_, options)| options));
        sections.flatten().cloned().collect()
    }
}

/// The options of one section as they would stand behind `-o`.
fn options(file: &ConfigFile, section: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Vec<String> {
    let mut section: Vec<_> = section.iter().collect();
    // Of options that exclude each other the last one counts, as behind `-o`.
    section.sort_by_key(|(name, _)| name.span().start);
    let mut options = Vec::new();
    for (name, value) in section {
        match option(name.get_ref(), value.get_ref()) {
            Ok(option) => options.push(option),
            Err(message) => {
                let at = if is_known(name.get_ref()) { Spanned::span(value) } else { name.span() };
                mistakes.push(file.mistake(&at, message));
            }
        }
    }
    options
}

fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// One option. A flag is `name = true`; `name = false` stands for the flag of the opposite, as in
/// nfsmount.conf(5).
fn option(name: &str, value: &DeValue<'_>) -> Result<String, String> {
    let (name, value) = match value {
        DeValue::Boolean(true) => (name.to_owned(), None),
        DeValue::Boolean(false) => {
            let opposite = name.strip_prefix("no").map_or_else(|| format!("no{name}"), str::to_owned);
            if is_known(name) && !is_known(&opposite) {
                return Err(format!(
                    "there is no option {opposite}: leave {name} out, or set the option that \
                                    excludes it"
                ));
            }
            (if is_known(name) { opposite } else { name.to_owned() }, None)
        }
        DeValue::Integer(number) => (name.to_owned(), Some(decimal(number).ok_or("too large")?)),
        DeValue::String(text) if text.contains('"') => {
            return Err("a value has no quotation marks".to_owned());
        }
        DeValue::String(text) => (name.to_owned(), Some(text.to_string())),
        other => {
            return Err(format!(
                "{name} must be true, false, an integer or a string, not {}",
                type_name(other)
            ));
        }
    };
    check(&name, value.as_deref()).map_err(|error| error.to_string())?;
    Ok(match value {
        Some(value) if value.contains(',') => format!("{name}=\"{value}\""),
        Some(value) => format!("{name}={value}"),
        None => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MountDefaults, ConfigError> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("mount.toml");
        std::fs::write(&path, text).unwrap();
        MountDefaults::read(Some(&path))
    }

    #[test]
    fn the_more_specific_section_comes_last() {
        let text = "[mountpoint.'/mnt/data']\nro = true\n[defaults]\ntimeo = 100\nsoft = true\nac = false\n\
                    noacl = false\n[server.'fileserver']\ntimeo = 600\nx-note = 'a,b'\n\
                    [server.other]\nbg = true\n";
        let defaults = read(text).unwrap();
        let all = ["timeo=100", "soft", "noac", "acl"];
        assert_eq!(defaults.options("elsewhere", Path::new("/mnt")), all);
        let options = defaults.options("FileServer", Path::new("/mnt/data"));
        assert_eq!(options, [&all[..], &["timeo=600", "x-note=\"a,b\"", "ro"]].concat());
        let parsed = mount::options::parse(&options.join(","), client::Options::new(), false, false).unwrap();
        assert!(parsed.mount.read_only && !parsed.mount.attributes.on && parsed.mount.acl);
    }

    #[test]
    fn mistakes_have_their_positions() {
        let text = "timeo = 1\n[defaults]\ntimoe = 100\ntimeo = 'slow'\nsoft = false\nvers = 2\n[servers.a]\n\
                    [server]\nro = true\n[mountpoint.mnt]\n";
        let Err(ConfigError::Wrong(mistakes)) = read(text) else { panic!() };
        let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        let expected = [
            ":1:1: write mount options into the table [defaults]",
            ":3:1: option 'timoe' is not known; did you mean 'timeo'?",
            ":4:9: option timeo=slow: it must be",
            ":5:8: there is no option nosoft",
            ":6:8: option 'vers=2' is not supported",
            ":7:2: table 'servers' is not known; did you mean 'server'?",
            ":9:1: write [server.\"...\"] above",
            ":10:13: a mountpoint is an absolute path",
        ];
        assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
        for (mistake, expected) in mistakes.iter().zip(expected) {
            assert!(mistake.contains(expected), "{mistake}: {expected}");
        }
    }

    #[test]
    fn only_the_default_file_may_be_missing() {
        assert!(matches!(
            MountDefaults::read(Some(Path::new("/nowhere/mount.toml"))),
            Err(ConfigError::Unreadable { .. })
        ));
    }
}
