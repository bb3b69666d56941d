//! Whether a READ, a WRITE or a change of size may be done by the state id that comes with it (RFC 8881
//! section 9.1.2).

use std::hash::Hash;

use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// From the client.
    Write,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Checks the state id of a READ, WRITE or SETATTR of the size. Without a `client` (NFSv3, or an NFSv4
    /// request before the client has identified itself) only the special state ids are valid.
    ///
    /// # Errors
    /// `Openmode`, `Locked` for what another's share reservation denies, `Grace`, `Delay` while a delegation
    /// is being recalled, and what is wrong with the state id.
    pub fn check_io(
        &mut self,
        now: Time,
        client: Option<ClientId>,
        id: &StateId,
        key: &K,
        direction: Direction,
    ) -> Result<(), Error> {
        let bypass = *id == StateId::READ_BYPASS;
        if *id == StateId::ANONYMOUS || bypass {
            if self.in_grace(now) {
                return Err(Error::Grace);
            }
            return match direction {
                Direction::Read if bypass => self.check_conflicts(now, client, key, AccessKind::Read),
                Direction::Read => self.check_conflicts_without_open(now, client, key, AccessKind::Read),
                Direction::Write => self.check_conflicts_without_open(now, client, key, AccessKind::Write),
            };
        }
        let client = client.ok_or(Error::BadStateid)?;
        let number = self.resolve_on(client, id, key)?;
        let open = match &self.states[&number].kind {
            Kind::Open { .. } => number,
            Kind::Lock { open, .. } => *open,
            Kind::Delegation { writes: false, .. } if direction == Direction::Write => {
                return Err(Error::Openmode);
            }
            Kind::Delegation { .. } => return Ok(()),
        };
        let access = match self.states.get(&open).map(|state| &state.kind) {
            Some(Kind::Open { shares, .. }) => shares.union().access,
            _ => return Err(Error::BadStateid),
        };
        // Who has a file open for writing only may read it, too: a client that fills its pages must.
        match direction {
            Direction::Write if access & 2 == 0 => Err(Error::Openmode),
            _ => Ok(()),
        }
    }
}
