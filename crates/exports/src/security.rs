//! `sec=` and `xprtsec=`: which clients the options are for. The server has AUTH_SYS and no TLS.
//!
//! A list of options may have several `sec=`. `ro`, `rw` and the options about squashing then apply to the
//! flavors of the last `sec=` before them, and those before the first `sec=` to all flavors (exports(5)). So
//! do `secure` and `insecure`, as in the kernel's server (NFSEXP_SECINFO_FLAGS). The server reads the options
//! that apply to `sys`. A client entry that lists flavors, but not `sys`, is an error: its clients would be
//! served with less security than the entry demands.

use crate::ExportOptions;
use crate::ineffective::{KERBEROS, TLS};
use crate::lexer::{Position, SyntaxError};

/// The options that may differ between flavors.
const BY_FLAVOR: [&str; 8] =
    ["ro", "rw", "root_squash", "no_root_squash", "all_squash", "no_all_squash", "secure", "insecure"];
/// The flavors that exports(5) knows.
const FLAVORS: [&str; 6] = ["sys", "krb5", "krb5i", "krb5p", "none", "null"];
/// The transports that exports(5) knows.
const TRANSPORTS: [&str; 3] = ["none", "tls", "mtls"];

/// A list of options while it is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct OptionReader {
    options: ExportOptions,
    /// The last `sec=` doesn't list `sys`.
    is_other_flavor: bool,
    has_sys: bool,
    /// The first `sec=` without `sys`.
    without_sys: Option<SyntaxError>,
}

impl OptionReader {
    /// A client's list, which begins with the line's defaults.
    pub fn with_defaults(defaults: &Self) -> Self {
        Self { is_other_flavor: false, ..defaults.clone() }
    }

    /// Reads the next option.
    ///
    /// # Errors
    /// Those of [`ExportOptions::apply`].
    pub fn read(&mut self, option: &str, position: Position) -> Result<(), SyntaxError> {
        if let Some(list) = option.strip_prefix("sec=") {
            let has_sys = has(list, &FLAVORS, "sys").map_err(|reason| (position, reason))?;
            self.is_other_flavor = !has_sys;
            self.has_sys |= has_sys;
            if !has_sys {
                self.without_sys.get_or_insert((position, kerberos_only(list)));
            }
            if list != "sys" {
                self.options.ineffective.insert(KERBEROS);
            }
            return Ok(());
        }
        if self.is_other_flavor && BY_FLAVOR.contains(&option) {
            return Ok(());
        }
        self.options.apply(option).map_err(|reason| (position, reason))
    }

    /// The options.
    ///
    /// # Errors
    /// A `sec=` without `sys`, unless another one has it.
    pub fn finish(self) -> Result<ExportOptions, SyntaxError> {
        match self.without_sys {
            Some(mistake) if !self.has_sys => Err(mistake),
            _ => Ok(self.options),
        }
    }
}

/// Applies a `sec=` that stands alone.
pub(crate) fn sec(list: &str, options: &mut ExportOptions) -> Result<(), String> {
    if !has(list, &FLAVORS, "sys")? {
        return Err(kerberos_only(list));
    }
    if list != "sys" {
        options.ineffective.insert(KERBEROS);
    }
    Ok(())
}

/// Applies `xprtsec=`.
pub(crate) fn xprtsec(list: &str, options: &mut ExportOptions) -> Result<(), String> {
    if !has(list, &TRANSPORTS, "none")? {
        return Err(format!(
            "xprtsec={list}: TLS is not supported: add none, or export over a private network"
        ));
    }
    if list != "none" {
        options.ineffective.insert(TLS);
    }
    Ok(())
}

/// Whether a list, separated by colons, of `known` words has `wanted`.
fn has(list: &str, known: &[&str], wanted: &str) -> Result<bool, String> {
    match list.split(':').find(|word| !known.contains(word)) {
        Some(word) => Err(format!("{word:?} is none of {}", known.join(", "))),
        None => Ok(list.split(':').any(|word| word == wanted)),
    }
}

fn kerberos_only(list: &str) -> String {
    format!("sec={list}: Kerberos is not supported: add sys, or export over a private network")
}
