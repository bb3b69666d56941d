//! What stands in the way of an access: deny modes and delegations, whoever asks (RFC 8881 sections 9.7, 10.2, 10.4).
//!
//! A delegation in the way is recalled, and the access has to be tried again. One that isn't returned within a lease's time is
//! revoked: a client that doesn't answer, or whose callbacks get lost, costs the others that long and no more.

use std::hash::Hash;

use crate::ended::Name;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};
use crate::share::Share;

/// What somebody is about to do to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// To open it.
    Open(Share),
    /// To read its data.
    Read,
    /// To write its data, or to set its size.
    Write,
    /// To change its attributes or names.
    Change,
}

impl Touch {
    /// Whether others can't hold delegations for reading meanwhile; for writing they can't whatever is done.
    const fn breaks_readers(self) -> bool {
        match self {
            // Who has a delegation may have the file open for all that it allows.
            Self::Open(share) => share.access & 2 != 0 || share.deny & 1 != 0,
            Self::Read => false,
            Self::Write | Self::Change => true,
        }
    }
}

/// A delegation to be called back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall<K> {
    /// Whose it is.
    pub client: ClientId,
    /// The delegation.
    pub id: StateId,
    /// The file.
    pub key: K,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Whether an access may begin now. `by` is the NFSv4 client whose access it is, and whose own delegations aren't in its
    /// way; none for NFSv3, the lane and local processes. Courtesy clients in the way are ended, delegations in the way are
    /// recalled ([`crate::Effects::recalls`]). Whether there is a grace period is another question, as is for READ and WRITE
    /// what deny modes say ([`Engine::check_io`]).
    ///
    /// # Errors
    /// `ShareDenied` for an open that others deny, `Delay` while a delegation is being recalled.
    pub fn may_begin(&mut self, now: Time, by: Option<ClientId>, key: &K, touch: Touch) -> Result<(), Error> {
        if let Touch::Open(share) = touch {
            if self.is_granted_against(key, share) {
                return Err(Error::ShareDenied);
            }
            let against = self.opens_against(key, share);
            self.end_courtesy(now, &against).map_err(|()| Error::ShareDenied)?;
        }
        let lease = self.config.lease;
        self.clear(now, by, key, touch, now.plus(lease))
    }

    /// As [`Engine::may_begin`], for what has no open behind it: NFSv3's calls, and those by special state ids. There READ and WRITE meet
    /// deny modes themselves.
    ///
    /// # Errors
    /// `Locked` for what others deny, `Delay` while a delegation is being recalled.
    pub fn may_begin_bare(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        touch: Touch,
    ) -> Result<(), Error> {
        let access = match touch {
            Touch::Read => 1,
            Touch::Write => 2,
            Touch::Open(_) | Touch::Change => 0,
        };
        let against = self.opens_against(key, Share { access, deny: 0 });
        self.end_courtesy(now, &against).map_err(|()| Error::Locked)?;
        self.may_begin(now, by, key, touch)
    }

    /// A local process wants the file: its kernel lease is being broken. What is in the way is recalled, and revoked after
    /// `patience` milliseconds, or a lease's time if that is shorter.
    pub fn broken_by_local(&mut self, now: Time, key: &K, writes: bool, patience: u64) {
        let touch = if writes { Touch::Write } else { Touch::Read };
        let deadline = now.plus(patience.min(self.config.lease));
        // That it isn't done at once is the local process's to wait for.
        let _ = self.clear(now, None, key, touch, deadline);
    }

    /// Recalls, or ends, the delegations of others that are in the way of `touch`.
    fn clear(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        touch: Touch,
        deadline: Time,
    ) -> Result<(), Error> {
        let Some(file) = self.files.get(key) else { return Ok(()) };
        let against = file.lent.others(by, touch.breaks_readers());
        let mut waits = false;
        for number in against {
            waits |= !self.clear_one(now, number, deadline);
        }
        if waits { Err(Error::Delay) } else { Ok(()) }
    }

    /// Whether a delegation has gone; if not it is recalled now, at the latest.
    fn clear_one(&mut self, now: Time, number: u64, deadline: Time) -> bool {
        let Some(state) = self.states.get(&number) else { return true };
        let client = state.client;
        if self.is_courtesy(now, client) {
            self.end_client(client);
            return true;
        }
        if matches!(state.kind, Kind::Delegation { revoke_at: Some(at), .. } if now >= at) {
            self.revoke(number);
            return true;
        }
        self.recall(now, number, deadline);
        false
    }

    /// Recalls a delegation, once. One that the client hasn't been told of yet will never be given.
    pub(crate) fn recall(&mut self, now: Time, number: u64, deadline: Time) {
        let Some(state) = self.states.get_mut(&number) else { return };
        let Kind::Delegation { revoke_at, .. } = &mut state.kind else { return };
        let before = *revoke_at;
        if before.is_none_or(|at| deadline < at) {
            *revoke_at = Some(deadline);
            if let Some(at) = before {
                self.recalled.remove(&(at, number));
            }
            self.recalled.insert((deadline, number));
        }
        if let Some(file) = self.files.get_mut(&state.key) {
            file.contended = Some(now);
        }
        if before.is_none() && state.seqid > 0 {
            let id = StateId::new(self.config.boot, number, state.seqid);
            self.effects.recalls.push(Recall { client: state.client, id, key: state.key.clone() });
        }
    }

    /// Takes a delegation away from a client that didn't return it in time (RFC 8881 section 10.2.1).
    pub(crate) fn revoke(&mut self, number: u64) {
        let Some(state) = self.states.get(&number) else { return };
        let given = state.seqid > 0;
        if let Some(client) = self.clients.get_mut(&state.client).filter(|_| given) {
            if client.v40.is_some() {
                self.ended.add(Name::State(number), Some(client.id));
            }
            client.revoked.insert(number);
            let owner = client.owner.clone();
            self.forget(&owner);
        }
        self.drop_state(number);
    }

    /// Revokes what should have been returned by now.
    pub(crate) fn revoke_overdue(&mut self, now: Time) {
        let later = self.recalled.split_off(&(now.plus(1), 0));
        std::mem::replace(&mut self.recalled, later).into_iter().for_each(|(_, number)| self.revoke(number));
    }
}
