//! Host names for the export rules, as [`Lookups`]: that there is no such name is an answer, that nobody
//! could say is none.

use std::net::IpAddr;
use std::time::Duration;

use dns_lookup::{LookupError, LookupErrorKind, lookup_addr, lookup_host};
use exports::{Names, NotKnownYet};

use crate::authorization::lookups::{Lookups, MAX_REMEMBERED};

/// How long calls wait for a name that was never known.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    Addresses(String),
    Names(IpAddr),
}

/// What is found. Nothing, too, is an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Answer {
    addresses: Vec<IpAddr>,
    names: Vec<String>,
}

/// Remembers names and addresses.
#[derive(Debug)]
pub(crate) struct Resolver(Lookups<Question, Answer>);

impl Default for Resolver {
    fn default() -> Self {
        Self(Lookups::new(look_up, PATIENCE, MAX_REMEMBERED))
    }
}

impl Names for Resolver {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        let answer = self.0.ask(&Question::Addresses(host.to_owned())).map_err(|_| NotKnownYet)?;
        Ok(answer.addresses.clone())
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        let answer = self.0.ask(&Question::Names(address)).map_err(|_| NotKnownYet)?;
        Ok(answer.names.clone())
    }
}

/// The same names, but nobody waits for any.
#[derive(Debug)]
pub(crate) struct AtOnce<'r>(&'r Resolver);

impl Names for AtOnce<'_> {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        let answer =
            (self.0).0.ask_at_once(&Question::Addresses(host.to_owned())).map_err(|_| NotKnownYet)?;
        Ok(answer.addresses.clone())
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        let answer = (self.0).0.ask_at_once(&Question::Names(address)).map_err(|_| NotKnownYet)?;
        Ok(answer.names.clone())
    }
}

impl Resolver {
    /// The names that are known already.
    pub(crate) const fn at_once(&self) -> AtOnce<'_> {
        AtOnce(self)
    }

    /// A number that changes whenever a name or an address has become another one.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes()
    }

    /// Its name server never answers, and nobody waits for it.
    #[cfg(test)]
    pub(crate) fn in_vain() -> Self {
        let never = |_: &Question| loop {
            std::thread::park();
        };
        Self(Lookups::new(never, Duration::ZERO, 16))
    }

    /// For a reload of the exports, which reloads the names in them, too.
    pub(crate) fn ask_again(&self) {
        self.0.ask_again();
    }

    /// Somebody will need the addresses of `host`.
    pub(crate) fn expect(&self, host: &str) {
        self.0.expect(&Question::Addresses(host.to_owned()));
    }
}

fn look_up(question: &Question) -> Option<Answer> {
    let found = match question {
        Question::Addresses(host) => lookup_host(host).map(|found| Answer {
            addresses: found.map(|address| address.to_canonical()).collect(),
            names: Vec::new(),
        }),
        Question::Names(address) => {
            lookup_addr(address).map(|name| Answer { addresses: Vec::new(), names: vec![name] })
        }
    };
    match found {
        Ok(answer) => Some(answer),
        Err(error) if says_no(&error) => Some(Answer::default()),
        Err(error) => {
            tracing::info!(?question, error = %std::io::Error::from(error), "a lookup failed");
            None
        }
    }
}

/// Whether the error says that there's no such name, as opposed to that nobody could say.
fn says_no(error: &LookupError) -> bool {
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
