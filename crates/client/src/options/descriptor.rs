//! Descriptors of options: a name, the values it takes, and what a value sets.
//!
//! URLs, the command line and mount options all read values through [`Descriptor::read`], so the same text
//! gives the same setting, or the same error, in each of them. Help texts and man pages are made from the
//! descriptors as well.

use std::path::PathBuf;

use super::nearest::nearest;

/// A place where users write options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Behind the `?` of an NFS URL.
    Url,
    /// As `--name` of a command, with `-` for `_`.
    CommandLine,
    /// Behind `-o` of a mount.
    Mount,
}

/// An option that changes a `T`.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor<T: 'static> {
    /// Its name, which is nfs(5)'s where it has one.
    pub name: &'static str,
    /// Other names of the same option.
    pub aliases: &'static [&'static str],
    /// Where users can write it.
    pub sources: &'static [Source],
    /// Its values, and what they set.
    pub kind: Kind<T>,
    /// Its default, if there is one.
    pub default: Option<&'static str>,
    /// What it does. Empty if it has no effect, because it is refused or the client always behaves so.
    pub help: &'static str,
}

/// The words of an option, each with what it sets.
pub type Words<T> = &'static [(&'static str, fn(&mut T))];

/// The values that an option takes, each with what it sets.
#[derive(Debug, Clone, Copy)]
pub enum Kind<T: 'static> {
    /// No value.
    Flag(fn(&mut T)),
    /// A decimal number without a sign.
    Number {
        /// What is counted, with its unit.
        unit: &'static str,
        /// The smallest value.
        min: u32,
        /// The largest value.
        max: u32,
        /// Sets it.
        set: fn(&mut T, u32),
    },
    /// A power of two, or 0.
    PowerOfTwo(fn(&mut T, u32)),
    /// One of a few words.
    Word {
        /// The supported words.
        words: Words<T>,
        /// Words that aren't supported, and why not.
        refused: &'static [(&'static str, &'static str)],
    },
    /// An absolute path.
    Path(fn(&mut T, PathBuf)),
    /// A text with a syntax of its own.
    Text {
        /// The syntax, in words.
        expected: &'static str,
        /// The placeholder in help texts.
        placeholder: &'static str,
        /// Whether a text has the syntax.
        is_valid: fn(&str) -> bool,
        /// Sets it.
        set: fn(&mut T, &str),
    },
    /// Any value, or none.
    Any(fn(&mut T)),
    /// The option isn't supported: why not, and what to do instead.
    Refused(&'static str),
}

/// The setting that a parsed option stands for.
#[derive(Debug, Clone)]
pub enum Setting<T: 'static> {
    /// Without a value.
    Flag(fn(&mut T)),
    /// With a number.
    Number(fn(&mut T, u32), u32),
    /// With a path.
    Path(fn(&mut T, PathBuf), PathBuf),
    /// With a text that has the option's syntax.
    Text(fn(&mut T, &str), String),
}

impl<T> Setting<T> {
    /// Applies the setting to `to`.
    pub fn apply(&self, to: &mut T) {
        match self {
            Self::Flag(set) => set(to),
            Self::Number(set, number) => set(to, *number),
            Self::Path(set, path) => set(to, path.clone()),
            Self::Text(set, text) => set(to, text),
        }
    }
}

/// Why an option is invalid. Each error names the option and states what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such option.
    #[error("option '{name}' is not known{}", did_you_mean(.nearest.as_ref()))]
    Unknown {
        /// The option as it was written.
        name: String,
        /// The most similar name of an option, if one is similar.
        nearest: Option<String>,
    },
    /// The option doesn't take this value.
    #[error("option {name}={value}: it must be {expected}")]
    Value {
        /// The option as it was written.
        name: String,
        /// Its value.
        value: String,
        /// The values that it takes.
        expected: String,
    },
    /// The option needs a value.
    #[error("option '{name}' needs a value ({name}=...)")]
    NoValue {
        /// The option as it was written.
        name: String,
    },
    /// The option takes no value.
    #[error("option '{name}' takes no value, but '{value}' was given")]
    NeedlessValue {
        /// The option as it was written.
        name: String,
        /// Its value.
        value: String,
    },
    /// The option or its value isn't supported.
    #[error("option '{option}' is not supported: {reason}")]
    Refused {
        /// The option, with its value, as it was written.
        option: String,
        /// Why not, and what to do instead.
        reason: &'static str,
    },
    /// A quotation mark without its pair.
    #[error("options {text:?} have a quotation mark without its pair")]
    Quote {
        /// The whole list of options.
        text: String,
    },
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

impl OptionError {
    /// The error for a `name` that isn't among the options `known`.
    pub fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self::Unknown { name: name.to_owned(), nearest: nearest(name, known).map(str::to_owned) }
    }
}

impl<T> Descriptor<T> {
    /// The option called `name` in `table`, if users can write it in `source`.
    pub fn find<'a>(table: &'a [Self], source: Source, name: &str) -> Option<&'a Self> {
        table.iter().find(|each| each.sources.contains(&source) && each.names().any(|known| known == name))
    }

    /// The options of `table` in `source` that change something, as help texts list them: usage and
    /// description.
    pub fn entries(table: &'static [Self], source: Source) -> impl Iterator<Item = (String, String)> {
        let effective = table.iter().filter(move |each| each.sources.contains(&source) && each.has_effect());
        effective.map(|each| (each.usage(), each.description()))
    }

    /// Its name and its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<T> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Parses `value`. `name` is the option as it was written, for errors.
    ///
    /// # Errors
    /// [`OptionError`], apart from `Unknown` and `Quote`.
    pub fn read(&self, name: &str, value: Option<&str>) -> Result<Setting<T>, OptionError> {
        let given = || value.filter(|value| !value.is_empty());
        let needed = || given().ok_or_else(|| OptionError::NoValue { name: name.to_owned() });
        let wrong = |value: &str| OptionError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: self.expected(),
        };
        let refused = |reason| OptionError::Refused {
            option: value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}")),
            reason,
        };
        match &self.kind {
            Kind::Flag(set) => match value {
                None => Ok(Setting::Flag(*set)),
                Some(value) => {
                    Err(OptionError::NeedlessValue { name: name.to_owned(), value: value.to_owned() })
                }
            },
            Kind::Number { min, max, set, .. } => {
                let value = needed()?;
                let number = number(value).filter(|number| (min..=max).contains(&number));
                number.map(|number| Setting::Number(*set, number)).ok_or_else(|| wrong(value))
            }
            Kind::PowerOfTwo(set) => {
                let value = needed()?;
                let number = number(value).filter(|number| *number == 0 || number.is_power_of_two());
                number.map(|number| Setting::Number(*set, number)).ok_or_else(|| wrong(value))
            }
            Kind::Word { words, refused: others } => {
                let value = needed()?;
                if let Some((_, set)) = words.iter().find(|(word, _)| *word == value) {
                    return Ok(Setting::Flag(*set));
                }
                Err(match others.iter().find(|(word, _)| *word == value) {
                    Some((_, reason)) => refused(reason),
                    None => wrong(value),
                })
            }
            Kind::Path(set) => {
                let path = PathBuf::from(needed()?);
                if path.is_absolute() { Ok(Setting::Path(*set, path)) } else { Err(wrong(needed()?)) }
            }
            Kind::Text { is_valid, set, .. } => {
                let text = needed()?;
                if is_valid(text) { Ok(Setting::Text(*set, text.to_owned())) } else { Err(wrong(text)) }
            }
            Kind::Any(set) => Ok(Setting::Flag(*set)),
            Kind::Refused(reason) => Err(refused(reason)),
        }
    }

    /// Its values, in words.
    fn expected(&self) -> String {
        match &self.kind {
            Kind::Number { unit, min, max, .. } => format!("{unit}, {min} to {max}"),
            Kind::PowerOfTwo(_) => "a power of two, or 0".to_owned(),
            Kind::Word { words, .. } => {
                let mut text = String::new();
                for (at, (word, _)) in words.iter().enumerate() {
                    let separator = if at == 0 {
                        ""
                    } else if at + 1 == words.len() {
                        " or "
                    } else {
                        ", "
                    };
                    text.push_str(separator);
                    text.push_str(word);
                }
                text
            }
            Kind::Path(_) => "an absolute path".to_owned(),
            Kind::Text { expected, .. } => (*expected).to_owned(),
            Kind::Flag(_) | Kind::Any(_) | Kind::Refused(_) => String::new(),
        }
    }

    /// Whether it has an effect. Options without one are refused, or the client always behaves so.
    pub const fn has_effect(&self) -> bool {
        !self.help.is_empty()
    }

    /// Whether it is refused whatever its value.
    pub const fn is_refused(&self) -> bool {
        matches!(self.kind, Kind::Refused(_))
    }

    /// The placeholder for its value in help texts; `None` if it takes no value.
    pub fn placeholder(&self) -> Option<String> {
        match &self.kind {
            Kind::Number { .. } | Kind::PowerOfTwo(_) => Some("N".to_owned()),
            Kind::Word { words, .. } => {
                Some(words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|"))
            }
            Kind::Path(_) => Some("DIR".to_owned()),
            Kind::Text { placeholder, .. } => Some((*placeholder).to_owned()),
            Kind::Flag(_) | Kind::Any(_) | Kind::Refused(_) => None,
        }
    }

    /// The ways to write it that have a fixed text: `ro`, `lane=auto`, and `timeo=` before a value.
    pub fn completions(&self) -> Vec<String> {
        match &self.kind {
            Kind::Flag(_) | Kind::Any(_) | Kind::Refused(_) => vec![self.name.to_owned()],
            Kind::Word { words, .. } => {
                words.iter().map(|(word, _)| format!("{}={word}", self.name)).collect()
            }
            Kind::Number { .. } | Kind::PowerOfTwo(_) | Kind::Path(_) | Kind::Text { .. } => {
                vec![format!("{}=", self.name)]
            }
        }
    }

    /// As it is written in a list of options: `ro`, `timeo=N`.
    pub fn usage(&self) -> String {
        self.placeholder()
            .map_or_else(|| self.name.to_owned(), |placeholder| format!("{}={placeholder}", self.name))
    }

    /// What it does, its unit and range, and its default.
    pub fn description(&self) -> String {
        let range = match &self.kind {
            Kind::Number { .. } | Kind::PowerOfTwo(_) | Kind::Path(_) => Some(self.expected()),
            // The placeholder says it.
            Kind::Word { .. } | Kind::Text { .. } | Kind::Flag(_) | Kind::Any(_) | Kind::Refused(_) => None,
        };
        let default = match &self.kind {
            Kind::Flag(_) | Kind::Any(_) => self.default.map(|_| "the default".to_owned()),
            _ => self.default.map(|default| format!("default {default}")),
        };
        match (range, default) {
            (None, None) => self.help.to_owned(),
            (Some(more), None) | (None, Some(more)) => format!("{} ({more})", self.help),
            (Some(range), Some(default)) => format!("{} ({range}; {default})", self.help),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    // `str::parse` accepts a plus sign, nfs(5) doesn't.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
