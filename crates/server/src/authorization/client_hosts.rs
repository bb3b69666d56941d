//! The host names in the exports, for the log: a name that isn't found admits no host, and only the server
//! knows. There is one line when a name turns out to have no address, and one when it has one after all,
//! however often it is looked up.

use std::path::PathBuf;

use ahash::HashMap;
use parking_lot::Mutex;

/// The exports that name a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamingExports {
    /// The first one.
    pub first: PathBuf,
    /// How many others there are.
    pub others: usize,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostLookup {
    /// The host has an address.
    Found,
    /// There is no such name.
    NoSuchName,
    /// The lookup failed: earlier addresses stay in use.
    Failed,
}

/// A host and what was last logged about it.
#[derive(Debug)]
struct ClientHost {
    exports: NamingExports,
    /// Its last lookup, without failures that had no effect.
    last: Option<HostLookup>,
}

/// The host names in the exports.
#[derive(Debug, Default)]
pub(crate) struct ClientHosts(Mutex<HashMap<String, ClientHost>>);

impl ClientHosts {
    /// Replaces the names, when the exports were read again.
    pub(crate) fn set(&self, names: HashMap<String, NamingExports>) {
        let mut hosts = self.0.lock();
        let host = |(name, exports): (String, _)| {
            let last = hosts.get(&name).and_then(|host| host.last);
            (name, ClientHost { exports, last })
        };
        let new = names.into_iter().map(host).collect();
        *hosts = new;
    }

    /// Logs the result of a lookup if it is news; `reason` says in words why it failed.
    pub(crate) fn note(&self, name: &str, lookup: HostLookup, reason: &str) {
        let Some(exports) = self.news(name, lookup) else { return };
        let export = &*exports.first.to_string_lossy();
        let others = Some(exports.others).filter(|others| *others > 0);
        match lookup {
            HostLookup::Found => {
                tracing::warn!(host = name, export, others, "a client of the exports is found now");
            }
            HostLookup::NoSuchName | HostLookup::Failed => tracing::warn!(
                host = name,
                export,
                others,
                reason,
                "a client of the exports isn't found, so the name admits no host: correct the name, or \
                 add it to /etc/hosts or the DNS"
            ),
        }
    }

    /// The exports that name a host, if the result of its lookup is to be logged.
    fn news(&self, name: &str, lookup: HostLookup) -> Option<NamingExports> {
        use HostLookup::{Failed, Found};
        let mut hosts = self.0.lock();
        let host = hosts.get_mut(name)?;
        let is_news = match (host.last, lookup) {
            // What was known before applies.
            (Some(_), Failed) => return None,
            (None, Found) => false,
            (last, _) => last != Some(lookup),
        };
        host.last = Some(lookup);
        is_news.then(|| host.exports.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::HostLookup::{Failed, Found, NoSuchName};
    use super::*;

    fn named(names: &[&str]) -> HashMap<String, NamingExports> {
        let exports = || NamingExports { first: "/srv".into(), others: 0 };
        names.iter().map(|name| ((*name).to_owned(), exports())).collect()
    }

    #[test]
    fn only_changes_are_news() {
        for (lookups, news) in [
            (&[Found, Found, Failed, Found][..], &[][..]),
            (&[NoSuchName, NoSuchName, Failed, NoSuchName], &[0]),
            (&[Failed, Failed, NoSuchName, Failed, NoSuchName, Found, Found], &[0, 2, 5]),
            (&[Found, NoSuchName, NoSuchName, Found, Failed, NoSuchName], &[1, 3, 5]),
            (&[Failed, Found, Failed, Found], &[0, 1]),
        ] {
            let hosts = ClientHosts::default();
            hosts.set(named(&["a", "b"]));
            let is_news = |at: &usize| hosts.news("a", lookups[*at]).is_some();
            assert_eq!((0..lookups.len()).filter(is_news).collect::<Vec<_>>(), news, "{lookups:?}");
        }
    }

    #[test]
    fn a_reload_is_no_change_for_names_that_stay() {
        let hosts = ClientHosts::default();
        hosts.set(named(&["a"]));
        assert!(hosts.news("other", NoSuchName).is_none(), "no host of the exports");
        assert!(hosts.news("a", NoSuchName).is_some());
        hosts.set(named(&["a", "b"]));
        assert!(hosts.news("a", NoSuchName).is_none());
        assert!(hosts.news("b", NoSuchName).is_some());
        hosts.set(named(&["b"]));
        hosts.set(named(&["a"]));
        assert!(hosts.news("a", NoSuchName).is_some(), "named again");
    }
}
