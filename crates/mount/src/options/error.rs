//! What can be wrong with an option.

/// Why a list of options can't be used. Each names the option and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Nobody knows it.
    #[error("mount option '{name}' is not known{}", did_you_mean(.nearest.as_ref()))]
    Unknown {
        /// As it was written.
        name: String,
        /// The known name that is most like it, if one is.
        nearest: Option<String>,
    },
    /// Its value isn't one of its values.
    #[error("mount option {name}={value}: {expected}")]
    Value {
        /// The option.
        name: String,
        /// Its value.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// It needs a value.
    #[error("mount option '{name}' needs a value ({name}=...)")]
    NoValue {
        /// The option.
        name: String,
    },
    /// It takes none.
    #[error("mount option '{name}' takes no value, but '{value}' was given")]
    NeedlessValue {
        /// The option.
        name: String,
        /// Its value.
        value: String,
    },
    /// It is known, and can't be had.
    #[error("mount option '{option}' can't be had: {reason}")]
    Impossible {
        /// As it was written.
        option: String,
        /// Why not, and what to do about it.
        reason: &'static str,
    },
    /// A quotation mark without its pair.
    #[error("mount options {text:?} have a quotation mark without its pair")]
    Quote {
        /// All of them.
        text: String,
    },
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}
