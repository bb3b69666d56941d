//! Options of exports(5) that are accepted and have no effect, each with the reason.
//!
//! An option is here only if ignoring it serves nothing that it forbids.

use std::fmt;

const LOCKS: &str = "there is no lock manager for NFSv3, and NFSv4's locks belong to open files";
const DELAY: &str = "each write is handled when it arrives";

/// The options as they are printed, and why they have no effect.
const OPTIONS: [(&str, &str); 13] = [
    ("wdelay", DELAY),
    ("no_wdelay", DELAY),
    ("secure_locks", LOCKS),
    ("insecure_locks", LOCKS),
    ("auth_nlm", LOCKS),
    ("no_auth_nlm", LOCKS),
    ("no_acl", "access control lists are always served, as by the kernel's server"),
    ("pnfs", "clients read and write through this server"),
    ("security_label", "clients neither see nor set security labels"),
    ("reexport=auto-fsidnum", "each export has a number of its own"),
    ("reexport=predefined-fsidnum", "each export has a number of its own"),
    (KERBEROS, "Kerberos is not supported: clients use sys"),
    (TLS, "TLS is not supported: clients connect without it"),
];

/// Kerberos flavors beside `sys`.
pub(crate) const KERBEROS: &str = "sec=sys:krb5";
/// TLS beside `none`.
pub(crate) const TLS: &str = "xprtsec=none:tls";

/// An option that was given and has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ineffective {
    /// The option.
    pub name: &'static str,
    /// Why it has no effect.
    pub reason: &'static str,
}

/// A set of such options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct IneffectiveOptions(u16);

impl IneffectiveOptions {
    /// Adds `option`; false if it isn't one of them.
    pub(crate) fn insert(&mut self, option: &str) -> bool {
        let at = OPTIONS.iter().position(|(name, _)| *name == option);
        self.0 |= at.map_or(0, |at| 1 << at);
        at.is_some()
    }

    /// Adds the options of another set.
    pub(crate) fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The options of the set.
    pub fn iter(&self) -> impl Iterator<Item = Ineffective> + '_ {
        let is_in = |at: &usize| self.0 & 1 << at != 0;
        (0..OPTIONS.len()).filter(is_in).map(|at| Ineffective { name: OPTIONS[at].0, reason: OPTIONS[at].1 })
    }
}

impl fmt::Display for Ineffective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {} has no effect: {}", self.name, self.reason)
    }
}
