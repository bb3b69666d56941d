//! The permission to change state. State belongs to a client, and within the client to the principal that
//! made it (RFC 8881 sections 2.10.8 and 15.1.6.4, RFC 7530 sections 9.1.1 and 16.28). Other principals are
//! refused.
//!
//! - The client itself, its sessions and its connections belong to the principal that made the client
//!   (EXCHANGE_ID, SETCLIENTID). Linux uses uid 0 for these, whatever user has the files open.
//! - An open, and the locks made through it, belong to the principals that opened the file. A delegation
//!   belongs to the principal that it was given to. The client's own principal may change all of them: it
//!   recovers them after a restart.
//! - READ and WRITE may come from any user of the client: the file's permissions are checked for each.

use std::fmt;
use std::hash::Hash;

use crate::engine::Engine;
use crate::error::Error;
use crate::ids::{ClientId, StateId};

/// The most principals that may close one open. Few opens have two: a process changes its user and opens the
/// file again.
const MAX_PRINCIPALS: usize = 8;

/// The principal of an RPC credential. A flavour that proves it (RPCSEC_GSS) will be a variant of its own:
/// the same user by another flavour is another principal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// AUTH_NONE.
    Anonymous,
    /// AUTH_SYS: a uid, as the client says.
    Sys(u32),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::Sys(uid) => write!(f, "uid {uid}"),
        }
    }
}

/// The sender of a request: a client, and the principal of its credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// The client.
    pub client: ClientId,
    /// The principal.
    pub principal: Principal,
}

/// The principals that have made a state: one almost always.
#[derive(Debug)]
pub(crate) struct Principals {
    first: Principal,
    others: Vec<Principal>,
}

impl Principals {
    pub const fn new(first: Principal) -> Self {
        Self { first, others: Vec::new() }
    }

    pub fn contains(&self, principal: &Principal) -> bool {
        self.first == *principal || self.others.contains(principal)
    }

    /// Adds a principal, unless there are [`MAX_PRINCIPALS`].
    pub fn add(&mut self, principal: &Principal) {
        if !self.contains(principal) && self.others.len() + 1 < MAX_PRINCIPALS {
            self.others.push(principal.clone());
        }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The number of the state on `key` that `by` names and may change.
    pub(crate) fn resolve_for(&self, by: &Requester, id: &StateId, key: &K) -> Result<u64, Error> {
        let number = self.resolve_on(by.client, id, key)?;
        self.check_principal(number, by)?;
        Ok(number)
    }

    /// Checks that `by` may change a state.
    ///
    /// # Errors
    /// `WrongCred`; in 4.0, which has no such error, `BadStateid`.
    pub(crate) fn check_principal(&self, number: u64, by: &Requester) -> Result<(), Error> {
        let open = self.locks.get(number).map_or(number, |lock| lock.open());
        let header = self.header(open).ok_or(Error::BadStateid)?;
        let client = self.clients.get(by.client).ok_or(Error::BadStateid)?;
        if header.principals().contains(&by.principal) || *client.principal() == by.principal {
            Ok(())
        } else if client.v40.is_some() {
            Err(Error::BadStateid)
        } else {
            Err(Error::WrongCred)
        }
    }

    /// Checks that `by` has the client's own principal, to which the client and its sessions belong.
    ///
    /// # Errors
    /// `StaleClientid`, `WrongCred`.
    pub(crate) fn check_client_principal(&self, by: &Requester) -> Result<(), Error> {
        let client = self.clients.get(by.client).ok_or(Error::StaleClientid)?;
        if *client.principal() == by.principal { Ok(()) } else { Err(Error::WrongCred) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_principals_of_an_open_are_bounded() {
        let mut principals = Principals::new(Principal::Sys(0));
        for uid in (0..2 * MAX_PRINCIPALS as u32).chain(0..2) {
            principals.add(&Principal::Sys(uid));
        }
        for uid in 0..2 * MAX_PRINCIPALS as u32 {
            let is_added = uid < MAX_PRINCIPALS as u32;
            assert_eq!(principals.contains(&Principal::Sys(uid)), is_added, "{uid}");
        }
        assert!(!principals.contains(&Principal::Anonymous));
        // Records on stable storage have these texts.
        assert_eq!([Principal::Anonymous, Principal::Sys(7)].map(|p| p.to_string()), ["anonymous", "uid 7"]);
    }
}
