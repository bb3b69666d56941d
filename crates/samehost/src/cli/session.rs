//! Options of every command that talks to a server.

use std::ffi::OsStr;
use std::str::FromStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use client::options::{Descriptor, Kind, SESSION, Setting, Source};
use client::{Credential, Options};

const HEADING: &str = "Reaching the server";
const USER: &str = "as";

/// How to reach the server: the options of [`SESSION`] that the command line has, and `--as`.
#[derive(Clone, Debug, Default)]
pub struct SessionArgs {
    /// What they set, on top of a session's defaults.
    pub options: Options,
}

impl Args for SessionArgs {
    fn augment_args(command: Command) -> Command {
        let user = Arg::new(USER)
            .long(USER)
            .value_name("UID[:GID,...]")
            .value_parser(ValueParser::new(str::parse::<UserArg>))
            .help_heading(HEADING)
            .help("Act as this user instead of yourself: `UID[:GID[,GID]...]`")
            .long_help(
                "Act as this user instead of yourself: `UID[:GID[,GID]...]`\n\nThe server believes it over \
                 the wire (that is AUTH_SYS). Over the lane only root may act for others.",
            );
        command.args(described().map(arg)).arg(user)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SessionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut settings = Vec::new();
        for descriptor in described() {
            let given = matches.value_source(descriptor.name) == Some(ValueSource::CommandLine);
            if !given {
                continue;
            }
            let indices = matches.indices_of(descriptor.name).into_iter().flatten();
            match descriptor.kind {
                Kind::Flag(set) => settings.extend(indices.map(|index| (index, Setting::Flag(set)))),
                _ => {
                    let values = matches.get_many::<Setting<Options>>(descriptor.name);
                    settings.extend(indices.zip(values.into_iter().flatten().cloned()));
                }
            }
        }
        // Of options that exclude each other (--soft, --hard) the last one counts.
        settings.sort_by_key(|(index, _)| *index);
        for (_, setting) in settings {
            setting.apply(&mut self.options);
        }
        if let Some(user) = matches.get_one::<UserArg>(USER) {
            let UserArg { uid, gid, gids } = user.clone();
            self.options.credential = Credential::Sys { uid, gid, groups: gids };
        }
        Ok(())
    }
}

/// The options of a session that the command line has.
fn described() -> impl Iterator<Item = &'static Descriptor<Options>> {
    SESSION.iter().filter(|each| each.sources.contains(&Source::CommandLine))
}

/// An option as clap knows it. `_` in names is `-` on the command line.
fn arg(descriptor: &'static Descriptor<Options>) -> Arg {
    let arg = Arg::new(descriptor.name)
        .long(descriptor.name.replace('_', "-"))
        .help_heading(HEADING)
        .help(descriptor.description());
    let Some(placeholder) = descriptor.placeholder() else {
        return arg.action(ArgAction::SetTrue);
    };
    // Repeated options are applied one after the other: the last one counts, or adds to a list.
    arg.action(ArgAction::Append)
        .value_name(placeholder)
        .value_parser(SettingParser(descriptor))
        .hide_possible_values(true)
}

/// Parses a value by its descriptor, and gives clap the accepted words for completion.
#[derive(Clone)]
struct SettingParser(&'static Descriptor<Options>);

impl TypedValueParser for SettingParser {
    type Value = Setting<Options>;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let descriptor = self.0;
        let read = move |text: String| descriptor.read(descriptor.name, Some(&text));
        StringValueParser::new().try_map(read).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let Kind::Word { words, .. } = &self.0.kind else { return None };
        Some(Box::new(words.iter().map(|(word, _)| PossibleValue::new(*word))))
    }
}

/// A user as AUTH_SYS names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserArg {
    /// The user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Supplementary groups, sixteen at most (RFC 5531 appendix A).
    pub gids: Vec<u32>,
}

impl FromStr for UserArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |what: &str, digits: &str| {
            digits.parse::<u32>().map_err(|_| format!("'{digits}' is not a {what} number"))
        };
        let (user, groups) = text.split_once(':').unwrap_or((text, ""));
        let uid = number("user", user)?;
        if groups.is_empty() {
            return Ok(Self { uid, gid: uid, gids: Vec::new() });
        }
        let mut all = groups.split(',').map(|group| number("group", group)).collect::<Result<Vec<_>, _>>()?;
        let gid = all.remove(0);
        if all.len() > 16 {
            return Err(format!("{} supplementary groups; AUTH_SYS carries sixteen", all.len()));
        }
        Ok(Self { uid, gid, gids: all })
    }
}

#[cfg(test)]
mod tests {
    use clap::error::{ContextKind, ErrorKind};
    use client::Url;
    use proptest::prelude::*;

    use super::*;

    /// The command line `--name=value` or `--name`.
    fn on_command_line(name: &str, value: Option<&str>) -> Result<Options, String> {
        let long = name.replace('_', "-");
        let word = value.map_or_else(|| format!("--{long}"), |value| format!("--{long}={value}"));
        let command = SessionArgs::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from([word]).map_err(|error| {
            assert!(matches!(error.kind(), ErrorKind::ValueValidation), "{error}");
            assert!(error.get(ContextKind::InvalidArg).is_some());
            std::error::Error::source(&error).expect("the option's error").to_string()
        })?;
        Ok(SessionArgs::from_arg_matches(&matches).unwrap().options)
    }

    fn in_url(name: &str, value: Option<&str>) -> Result<Options, String> {
        let escaped: String = value.unwrap_or_default().bytes().map(|byte| format!("%{byte:02x}")).collect();
        let value = value.map_or_else(String::new, |_| format!("={escaped}"));
        let url: Url = format!("nfs://host/?{name}{value}")
            .parse()
            .map_err(|error: client::UrlError| error.to_string())?;
        let mut options = Options::default();
        url.apply(&mut options).unwrap();
        Ok(options)
    }

    fn in_mount(name: &str, value: Option<&str>) -> Result<Options, String> {
        let text = value.map_or_else(|| name.to_owned(), |value| format!("{name}=\"{value}\""));
        let parsed = mount::options::parse(&text, Options::default(), false, false)
            .map_err(|error| error.to_string())?;
        // A mount keeps `retry` beside the session's options.
        let retry = (name == "retry").then_some(parsed.retry);
        Ok(parsed.session.retry(retry))
    }

    proptest! {
        #[test]
        fn all_parsers_agree(
            descriptor in proptest::sample::select(SESSION),
            value in prop_oneof![
                Just(None),
                proptest::option::weighted(0.95, "[0-9]{1,11}"),
                "[+-]?[0-9a-z.]{0,8}".prop_map(Some),
                proptest::sample::select(vec!["auto", "off", "required", "sys", "krb5", "3", "4.2", "64"])
                    .prop_map(|word| Some(word.to_owned())),
            ],
        ) {
            for name in descriptor.names() {
                let mut results = Vec::new();
                let has = |source| descriptor.sources.contains(&source);
                if has(Source::Url) {
                    results.push(in_url(name, value.as_deref()));
                }
                if has(Source::Mount) {
                    results.push(in_mount(name, value.as_deref()));
                }
                // clap reports a missing value, and a value too many, by itself.
                let flag = matches!(descriptor.kind, Kind::Flag(_));
                if has(Source::CommandLine) && name == descriptor.name && flag == value.is_none() {
                    results.push(on_command_line(name, value.as_deref()));
                }
                let texts: Vec<_> = results.iter().map(|result| format!("{result:?}")).collect();
                prop_assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
            }
        }
    }

    #[test]
    fn the_last_of_exclusive_options_counts() {
        let hard = |words: &[&str]| {
            let command = SessionArgs::augment_args(Command::new("test").no_binary_name(true));
            SessionArgs::from_arg_matches(&command.get_matches_from(words)).unwrap().options.hard
        };
        assert!(hard(&[]) && hard(&["--soft", "--hard"]) && !hard(&["--hard", "--soft"]));
    }

    #[test]
    fn users_are_numbers() {
        assert_eq!("7".parse(), Ok(UserArg { uid: 7, gid: 7, gids: vec![] }));
        assert_eq!("7:8".parse(), Ok(UserArg { uid: 7, gid: 8, gids: vec![] }));
        assert_eq!("7:8,9,10".parse(), Ok(UserArg { uid: 7, gid: 8, gids: vec![9, 10] }));
        assert!("root".parse::<UserArg>().is_err());
        assert!("7:8,".parse::<UserArg>().is_err());
        let many = (0..18).map(|gid| gid.to_string()).collect::<Vec<_>>().join(",");
        assert!(format!("7:{many}").parse::<UserArg>().is_err());
    }
}
