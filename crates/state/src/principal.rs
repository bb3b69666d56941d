//! Who may do what with state. It belongs to a client, and within the client to the user who made it (RFC
//! 8881 sections 2.10.8 and 15.1.6.4, RFC 7530 sections 9.1.1 and 16.28): whoever else names it is refused.
//!
//! - The client itself, its sessions and its connections belong to the principal that made the client
//!   (EXCHANGE_ID, SETCLIENTID). Linux uses uid 0 for these, whatever user has the files open.
//! - An open, and the locks made by it, belong to the principals that opened the file, a delegation to the
//!   one that it was given to; and to the client's own principal, which recovers them after a restart.
//! - READ and WRITE may come from any user of the client: the file's permissions are checked for each of
//!   them.

use std::hash::Hash;

use crate::engine::Engine;
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};

/// The most principals that may close one open. Few clients have two: a process that changes its user and
/// opens the file again.
const MOST_OPENERS: usize = 8;

/// As whom a request comes, by its RPC credential. A flavour that proves it (RPCSEC_GSS) will be a variant of
/// its own: the same user by another flavour is another principal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// AUTH_NONE: nobody in particular.
    Anonymous,
    /// AUTH_SYS: a user's number, as the client says.
    Sys(u32),
}

/// Who sends a request: a client, and as which of its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    /// The client.
    pub client: ClientId,
    /// The user.
    pub principal: Principal,
}

/// The principals that have made a state: one almost always.
#[derive(Debug)]
pub(crate) struct Makers {
    first: Principal,
    others: Vec<Principal>,
}

impl Makers {
    pub const fn new(first: Principal) -> Self {
        Self { first, others: Vec::new() }
    }

    pub fn has(&self, principal: &Principal) -> bool {
        self.first == *principal || self.others.contains(principal)
    }

    /// Another has opened the file for the same owner. One too many can't close it.
    pub fn add(&mut self, principal: &Principal) {
        if !self.has(principal) && self.others.len() + 1 < MOST_OPENERS {
            self.others.push(principal.clone());
        }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The state on `key` that `by` means and may change.
    pub(crate) fn resolve_for(&self, by: &Requester, id: &StateId, key: &K) -> Result<u64, Error> {
        let number = self.resolve_on(by.client, id, key)?;
        self.check_maker(number, by)?;
        Ok(number)
    }

    /// Whether a state is one that `by` may change.
    ///
    /// # Errors
    /// `WrongCred`; in 4.0, which has no such error, `BadStateid`.
    pub(crate) fn check_maker(&self, number: u64, by: &Requester) -> Result<(), Error> {
        let state = self.states.get(&number).ok_or(Error::BadStateid)?;
        let made = match &state.kind {
            Kind::Lock { open, .. } => self.states.get(open).unwrap_or(state),
            Kind::Open { .. } | Kind::Delegation { .. } => state,
        };
        let client = self.clients.get(&by.client).ok_or(Error::BadStateid)?;
        if made.makers.has(&by.principal) || client.principal == by.principal {
            Ok(())
        } else if client.v40.is_some() {
            Err(Error::BadStateid)
        } else {
            Err(Error::WrongCred)
        }
    }

    /// Whether `by` is the client's own principal, as whom it keeps itself and its sessions.
    ///
    /// # Errors
    /// `StaleClientid`, `WrongCred`.
    pub(crate) fn check_own(&self, by: &Requester) -> Result<(), Error> {
        let client = self.clients.get(&by.client).ok_or(Error::StaleClientid)?;
        if client.principal == by.principal { Ok(()) } else { Err(Error::WrongCred) }
    }
}
