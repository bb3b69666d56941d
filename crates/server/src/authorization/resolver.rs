//! Host names and netgroups for the export rules, as [`Lookups`]. "No such name" is an answer; a failed query
//! is none.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ahash::HashMap;
use dns_lookup::{LookupError, LookupErrorKind, lookup_addr, lookup_host};
use exports::{Names, NotKnownYet};

use crate::authorization::client_hosts::{ClientHosts, HostLookup, NamingExports};
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
pub(crate) struct Resolver {
    lookups: Lookups<NameQuery, NameAnswer>,
    client_hosts: Arc<ClientHosts>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with_timeout(LOOKUP_TIMEOUT)
    }
}

impl Names for Resolver {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        let answer = self.lookups.ask(&NameQuery::Addresses(host.to_owned())).map_err(|_| NotKnownYet)?;
        Ok(answer.addresses.clone())
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        let answer = self.lookups.ask(&NameQuery::Names(address)).map_err(|_| NotKnownYet)?;
        Ok(answer.names.clone())
    }

    fn in_netgroup(&self, group: &str, host: &str) -> Result<bool, NotKnownYet> {
        let answer = self.lookups.ask(&NameQuery::member(group, host)).map_err(|_| NotKnownYet)?;
        Ok(answer.is_member)
    }
}

/// The names that are known; never waits.
#[derive(Debug)]
pub(crate) struct AtOnce<'r>(&'r Resolver);

impl Names for AtOnce<'_> {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        let answer =
            self.0.lookups.ask_at_once(&NameQuery::Addresses(host.to_owned())).map_err(|_| NotKnownYet)?;
        Ok(answer.addresses.clone())
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        let answer = self.0.lookups.ask_at_once(&NameQuery::Names(address)).map_err(|_| NotKnownYet)?;
        Ok(answer.names.clone())
    }

    fn in_netgroup(&self, group: &str, host: &str) -> Result<bool, NotKnownYet> {
        let answer = self.0.lookups.ask_at_once(&NameQuery::member(group, host)).map_err(|_| NotKnownYet)?;
        Ok(answer.is_member)
    }
}

impl NameQuery {
    fn member(group: &str, host: &str) -> Self {
        Self::Member { group: group.to_owned(), host: host.to_owned() }
    }
}

impl Resolver {
    fn with_timeout(timeout: Duration) -> Self {
        let client_hosts = Arc::new(ClientHosts::default());
        let noted = Arc::clone(&client_hosts);
        let lookups = Lookups::new(move |query| look_up(query, &noted), timeout, MAX_REMEMBERED);
        Self { lookups, client_hosts }
    }

    /// The names that are known, without waiting.
    pub(crate) const fn at_once(&self) -> AtOnce<'_> {
        AtOnce(self)
    }

    /// A number that changes whenever a name or an address has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.lookups.changes()
    }

    /// A resolver whose name server never answers, with no time to wait.
    #[cfg(test)]
    pub(crate) fn unanswered() -> Self {
        let never = |_: &NameQuery| loop {
            std::thread::park();
        };
        Self { lookups: Lookups::new(never, Duration::ZERO, 16), client_hosts: Arc::default() }
    }

    /// Looks all names up again. For reloads of the exports.
    pub(crate) fn ask_again(&self) {
        self.lookups.ask_again();
    }

    /// Starts to look up the addresses of the hosts that the exports name.
    pub(crate) fn expect(&self, hosts: HashMap<String, NamingExports>) {
        let queries: Vec<_> = hosts.keys().cloned().map(NameQuery::Addresses).collect();
        // Before the lookups, which note their results there.
        self.client_hosts.set(hosts);
        queries.iter().for_each(|query| self.lookups.expect(query));
    }
}

fn look_up(question: &NameQuery, client_hosts: &ClientHosts) -> Option<NameAnswer> {
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
    let note = |lookup, reason: &str| {
        if let NameQuery::Addresses(host) = question {
            client_hosts.note(host, lookup, reason);
        }
    };
    let error = match found {
        Ok(answer) => {
            note(HostLookup::Found, "");
            return Some(answer);
        }
        Err(error) => error,
    };
    let is_negative = is_negative(&error);
    // "failed to lookup address information: Name or service not known"
    let text = std::io::Error::from(error).to_string();
    let reason = text.rsplit_once(": ").map_or(&*text, |(_, reason)| reason);
    if is_negative {
        note(HostLookup::NoSuchName, reason);
        return Some(NameAnswer::default());
    }
    tracing::info!(?question, error = text, "a lookup failed");
    note(HostLookup::Failed, reason);
    None
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
        let resolver = Resolver::with_timeout(Duration::from_secs(60));
        assert!(resolver.addresses("localhost").unwrap().iter().any(IpAddr::is_loopback));
        assert!(!resolver.names(IpAddr::from([127, 0, 0, 1])).unwrap().is_empty());
        assert!(resolver.addresses("no such name.invalid").unwrap().is_empty());
    }
}
