//! Host names and netgroups for the export rules, as [`Lookups`]. "No such name" is an answer; a failed query
//! is none.

use std::net::IpAddr;
use std::time::Duration;

use dns_lookup::{LookupError, LookupErrorKind, lookup_addr, lookup_host};
use exports::{Names, NotKnownYet};

use crate::authorization::lookups::{Lookups, MAX_REMEMBERED};

/// How long a call waits for the first lookup of a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// A query to the resolver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum NameQuery {
    Addresses(String),
    Names(IpAddr),
    /// Whether a host is in a netgroup.
    Member {
        group: String,
        host: String,
    },
}

/// What was found; empty if there is no such name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct NameAnswer {
    addresses: Vec<IpAddr>,
    names: Vec<String>,
    is_member: bool,
}

/// A cache of names and addresses.
#[derive(Debug)]
pub(crate) struct Resolver(Lookups<NameQuery, NameAnswer>);

impl Default for Resolver {
    fn default() -> Self {
        Self(Lookups::new(look_up, LOOKUP_TIMEOUT, MAX_REMEMBERED))
    }
}

impl Names for Resolver {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        let answer = self.0.ask(&NameQuery::Addresses(host.to_owned())).map_err(|_| NotKnownYet)?;
        Ok(answer.addresses.clone())
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        let answer = self.0.ask(&NameQuery::Names(address)).map_err(|_| NotKnownYet)?;
        Ok(answer.names.clone())
    }

    fn in_netgroup(&self, group: &str, host: &str) -> Result<bool, NotKnownYet> {
        let answer = self.0.ask(&NameQuery::member(group, host)).map_err(|_| NotKnownYet)?;
        Ok(answer.is_member)
    }
}

/// The names that are known; never waits.
#[derive(Debug)]
pub(crate) struct AtOnce<'r>(&'r Resolver);

impl Names for AtOnce<'_> {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        let answer =
            (self.0).0.ask_at_once(&NameQuery::Addresses(host.to_owned())).map_err(|_| NotKnownYet)?;
        Ok(answer.addresses.clone())
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        let answer = (self.0).0.ask_at_once(&NameQuery::Names(address)).map_err(|_| NotKnownYet)?;
        Ok(answer.names.clone())
    }

    fn in_netgroup(&self, group: &str, host: &str) -> Result<bool, NotKnownYet> {
        let answer = (self.0).0.ask_at_once(&NameQuery::member(group, host)).map_err(|_| NotKnownYet)?;
        Ok(answer.is_member)
    }
}

impl NameQuery {
    fn member(group: &str, host: &str) -> Self {
        Self::Member { group: group.to_owned(), host: host.to_owned() }
    }
}

impl Resolver {
    /// The names that are known, without waiting.
    pub(crate) const fn at_once(&self) -> AtOnce<'_> {
        AtOnce(self)
    }

    /// A number that changes whenever a name or an address has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes()
    }

    /// A resolver whose name server never answers, with no time to wait.
    #[cfg(test)]
    pub(crate) fn unanswered() -> Self {
        let never = |_: &NameQuery| loop {
            std::thread::park();
        };
        Self(Lookups::new(never, Duration::ZERO, 16))
    }

    /// Looks all names up again. For reloads of the exports.
    pub(crate) fn ask_again(&self) {
        self.0.ask_again();
    }

    /// Starts to look up the addresses of `host`.
    pub(crate) fn expect(&self, host: &str) {
        self.0.expect(&NameQuery::Addresses(host.to_owned()));
    }
}

fn look_up(question: &NameQuery) -> Option<NameAnswer> {
    let found = match question {
        NameQuery::Addresses(host) => lookup_host(host).map(|found| NameAnswer {
            addresses: found.map(|address| address.to_canonical()).collect(),
            ..NameAnswer::default()
        }),
        NameQuery::Names(address) => {
            lookup_addr(address).map(|name| NameAnswer { names: vec![name], ..NameAnswer::default() })
        }
        NameQuery::Member { group, host } => {
            let is_member = sys::netgroup::has_host(group, host)?;
            return Some(NameAnswer { is_member, ..NameAnswer::default() });
        }
    };
    match found {
        Ok(answer) => Some(answer),
        Err(error) if is_negative(&error) => Some(NameAnswer::default()),
        Err(error) => {
            tracing::info!(?question, error = %std::io::Error::from(error), "a lookup failed");
            None
        }
    }
}

/// Whether the error means that there is no such name, and not that the query failed.
fn is_negative(error: &LookupError) -> bool {
    matches!(error.kind(), LookupErrorKind::NoName | LookupErrorKind::NoData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_known_both_ways_and_nonsense_is_not() {
        let resolver = Resolver(Lookups::new(look_up, Duration::from_secs(60), MAX_REMEMBERED));
        assert!(resolver.addresses("localhost").unwrap().iter().any(IpAddr::is_loopback));
        assert!(!resolver.names(IpAddr::from([127, 0, 0, 1])).unwrap().is_empty());
        assert!(resolver.addresses("no such name.invalid").unwrap().is_empty());
    }
}
