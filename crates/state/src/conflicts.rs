//! What stands in the way of an access: deny modes and delegations, whoever asks (RFC 8881 sections 9.7,
//! 10.2, 10.4).
//!
//! A delegation in the way is recalled, and the access has to be tried again. One that isn't returned within
//! a lease's time is revoked: a client that doesn't answer, or whose callbacks get lost, costs the others
//! that long and no more.

use std::hash::Hash;

use fairness::Peer;

use crate::ended::Gone;
use crate::engine::{Engine, EngineConfig, Time};
use crate::error::Error;
use crate::files::{Kind, Recalled};
use crate::ids::{ClientId, StateId};
use crate::share::Share;

/// What somebody is about to do to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// To open it.
    Open(Share),
    /// To read its data.
    Read,
    /// To write its data, or to set its size.
    Write,
    /// To change its attributes or names.
    Change,
}

impl AccessKind {
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

/// How long a client may take to return a delegation that is in somebody's way, in milliseconds. A lease's
/// time, if that is shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecallTimeout {
    /// If its user could write to the file.
    pub writers: u64,
    /// If not.
    pub readers: u64,
}

impl RecallTimeout {
    /// What clients may expect of each other (RFC 8881 section 10.2).
    const A_LEASE: Self = Self { writers: u64::MAX, readers: u64::MAX };
}

/// The same for what is asked back of a client because it was late to return something else.
const DISTRUSTED_RECALL_TIMEOUT: u64 = 10_000;

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
    /// Whether an access may begin now. `by` is the NFSv4 client whose access it is, and whose own
    /// delegations aren't in its way; none for NFSv3, the lane and local processes. Courtesy clients in the
    /// way are ended, delegations in the way are recalled ([`crate::Effects::recalls`]). Whether there is a
    /// grace period is another question, as is for READ and WRITE what deny modes say ([`Engine::check_io`]).
    ///
    /// # Errors
    /// `ShareDenied` for an open that others deny, `Delay` while a delegation is being recalled.
    pub fn check_conflicts(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        touch: AccessKind,
    ) -> Result<(), Error> {
        if let AccessKind::Open(share) = touch {
            if self.is_granted_against(key, share) {
                return Err(Error::ShareDenied);
            }
            let against = self.opens_against(key, share);
            self.end_courtesy(now, &against).map_err(|()| Error::ShareDenied)?;
        }
        self.clear(now, by, key, touch, RecallTimeout::A_LEASE)
    }

    /// As [`Engine::check_conflicts`], for what has no open behind it: NFSv3's calls, and those by special state
    /// ids. There READ and WRITE meet deny modes themselves.
    ///
    /// # Errors
    /// `Locked` for what others deny, `Delay` while a delegation is being recalled.
    pub fn check_conflicts_without_open(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        touch: AccessKind,
    ) -> Result<(), Error> {
        let access = match touch {
            AccessKind::Read => 1,
            AccessKind::Write => 2,
            AccessKind::Open(_) | AccessKind::Change => 0,
        };
        let against = self.opens_against(key, Share { access, deny: 0 });
        self.end_courtesy(now, &against).map_err(|()| Error::Locked)?;
        self.check_conflicts(now, by, key, touch)
    }

    /// A local process wants the file: its kernel lease is being broken. What is in the way is recalled, and
    /// revoked after `patience`, or a lease's time if that is shorter.
    pub fn recall_for_local_open(&mut self, now: Time, key: &K, writes: bool, patience: RecallTimeout) {
        let touch = if writes { AccessKind::Write } else { AccessKind::Read };
        // That it isn't done at once is the local process's to wait for.
        let _ = self.clear(now, None, key, touch, patience);
    }

    /// Recalls, or ends, the delegations of others that are in the way of `touch`.
    fn clear(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        touch: AccessKind,
        patience: RecallTimeout,
    ) -> Result<(), Error> {
        let Some(file) = self.files.get(key) else { return Ok(()) };
        let against = file.lent.others(by, touch.breaks_readers());
        let mut waits = false;
        for number in against {
            waits |= !self.clear_one(now, number, patience);
        }
        if waits { Err(Error::Delay) } else { Ok(()) }
    }

    /// Whether a delegation has gone; if not it is recalled now, at the latest.
    fn clear_one(&mut self, now: Time, number: u64, patience: RecallTimeout) -> bool {
        let Some(state) = self.states.get(&number) else { return true };
        let Kind::Delegation { recalled, may_write, .. } = state.kind else { return true };
        let client = state.client;
        if self.is_courtesy(now, client) {
            if recalled.is_some() {
                self.is_lost(now, number);
            }
            self.end_client(client);
            return true;
        }
        if recalled.is_some_and(|recalled| now >= recalled.revoke_at) {
            self.revoke(now, number);
            return true;
        }
        let patience = if may_write { patience.writers } else { patience.readers };
        self.recall(now, number, now.plus(patience.min(self.config.lease)));
        false
    }

    /// Recalls a delegation, once. One that the client hasn't been told of yet will never be given.
    pub(crate) fn recall(&mut self, now: Time, number: u64, deadline: Time) {
        let Some(state) = self.states.get_mut(&number) else { return };
        let Kind::Delegation { recalled, peer, .. } = &mut state.kind else { return };
        let before = *recalled;
        if before.is_none_or(|before| deadline < before.revoke_at) {
            *recalled = Some(Recalled { at: before.map_or(now, |before| before.at), revoke_at: deadline });
            if let Some(before) = before {
                self.recalled.remove(&(before.revoke_at, number));
            }
            self.recalled.insert((deadline, number));
        }
        let EngineConfig { lease, distrust, .. } = self.config;
        self.contended.add(now, &state.key, *peer, lease, distrust.max(lease));
        if before.is_none() && state.seqid > 0 {
            let id = StateId::new(self.config.boot, number, state.seqid);
            self.effects.recalls.push(Recall { client: state.client, id, key: state.key.clone() });
        }
    }

    /// Takes a delegation away from a client that didn't return it in time (RFC 8881 section 10.2.1).
    pub(crate) fn revoke(&mut self, now: Time, number: u64) {
        self.is_lost(now, number);
        let Some(state) = self.states.get(&number) else { return };
        let given = state.seqid > 0;
        if let Some(client) = self.clients.get_mut(&state.client).filter(|_| given) {
            if client.v40.is_some() {
                self.ended.add(Gone::State(number), Some(client.id));
            }
            client.revoked.insert(number);
            let instance = client.instance.clone();
            self.forget(&instance);
        }
        self.drop_state(number);
    }

    /// Nothing that was recalled is revoked before `until`.
    pub(crate) fn recall_until_at_least(&mut self, until: Time) {
        let later = self.recalled.split_off(&(until, 0));
        for (_, number) in std::mem::replace(&mut self.recalled, later) {
            let Some(state) = self.states.get_mut(&number) else { continue };
            if let Kind::Delegation { recalled: Some(recalled), .. } = &mut state.kind {
                recalled.revoke_at = until;
                self.recalled.insert((until, number));
            }
        }
    }

    /// Revokes what should have been returned by now.
    pub(crate) fn revoke_overdue(&mut self, now: Time) {
        let later = self.recalled.split_off(&(now.plus(1), 0));
        std::mem::replace(&mut self.recalled, later)
            .into_iter()
            .for_each(|(_, number)| self.revoke(now, number));
    }

    /// A delegation wasn't returned when it was asked for: its file isn't lent to anybody for a long time,
    /// nor anything to its holder.
    fn is_lost(&mut self, now: Time, number: u64) {
        let Some(state) = self.states.get(&number).filter(|state| state.seqid > 0) else { return };
        let Kind::Delegation { peer, .. } = state.kind else { return };
        let EngineConfig { lease, distrust, .. } = self.config;
        self.contended.add(now, &state.key, peer, distrust, distrust.max(lease));
        self.distrust(now, peer, distrust);
    }

    /// A peer gets no delegation for `least` milliseconds, and those that it has are asked back: nobody is to
    /// wait for each of them in turn.
    pub(crate) fn distrust(&mut self, now: Time, peer: Peer, least: u64) {
        let is_news = !self.distrusted.has(now, &peer);
        let EngineConfig { lease, distrust, .. } = self.config;
        self.distrusted.add(now, &peer, peer, least, distrust.max(lease));
        if is_news {
            let lent: Vec<u64> =
                self.lent_to.range((peer, 0)..=(peer, u64::MAX)).map(|(_, number)| *number).collect();
            let deadline = now.plus(DISTRUSTED_RECALL_TIMEOUT.min(lease));
            lent.into_iter().for_each(|number| self.recall(now, number, deadline));
        }
    }
}
