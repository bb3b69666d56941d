//! Files with state, and the states on them.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use fairness::Peer;

use crate::accounts::Resource;
use crate::delegations::DESCRIPTORS;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::grants::Granted;
use crate::ids::{ClientId, StateId};
use crate::lent::Lent;
use crate::locked::Locked;
use crate::opened::Opened;
use crate::principal::{Makers, Requester};
use crate::ranges::{Range, Ranges};
use crate::share::Shares;

/// A file that somebody has open.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub opened: Opened,
    pub locked: Locked,
    pub lent: Lent,
    pub granted: Granted,
    /// Whom the file that is kept open is charged to: the client that opened it first of those that have it,
    /// as long as any has.
    pub charged: Option<(ClientId, Peer)>,
}

impl File {
    /// Whether nobody has it open any more. There are no locks without an open.
    pub fn is_unused(&self) -> bool {
        self.opened.is_empty() && self.lent.is_empty() && self.granted.access() == 0
    }
}

/// What one state id stands for.
#[derive(Debug)]
pub(crate) struct State<K, L> {
    pub client: ClientId,
    /// Whom it is charged to.
    pub peer: Peer,
    /// Who of the client's users may change it. Whose a lock is its open says.
    pub makers: Makers,
    pub key: K,
    pub seqid: u32,
    pub kind: Kind<L>,
}

#[derive(Debug)]
pub(crate) enum Kind<L> {
    /// The OPENs of one owner on one file, and the locks that were made by them.
    Open {
        owner: Vec<u8>,
        shares: Shares,
        locks: BTreeSet<u64>,
        /// Blocking locks that are asked for through it get a place in the queue
        /// ([`crate::OpenRequest::under_delegation`]).
        queues: bool,
    },
    /// The locks of one owner on one file.
    Lock { owner: Vec<u8>, open: u64, ranges: Ranges, file: Arc<L> },
    /// A delegation. The client knows of it from a `seqid` of 1 on.
    Delegation {
        /// It is for writing, too.
        writes: bool,
        /// Whom it was given to.
        peer: Peer,
        /// Whether that could open the file for writing.
        may_write: bool,
        /// Since when it is recalled, and by when it must be returned.
        recalled: Option<Recalled>,
        kept: Arc<L>,
    },
}

/// A delegation has been asked back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recalled {
    /// When, for the first time.
    pub at: Time,
    /// When it is taken away.
    pub revoke_at: Time,
}

impl Recalled {
    /// Whether it is nearer to when it is taken away than to when it was asked for.
    pub const fn is_late(self, now: Time) -> bool {
        now.0.saturating_sub(self.at.0) > self.revoke_at.0.saturating_sub(now.0)
    }
}

impl<K, L> State<K, L> {
    /// The next state id of this state: it has changed.
    pub fn bump(&mut self, boot: u32, number: u64) -> StateId {
        // 0 has a meaning of its own.
        self.seqid = self.seqid.checked_add(1).unwrap_or(1);
        StateId::new(boot, number, self.seqid)
    }

    /// The ranges of a lock state.
    pub fn ranges(&self) -> Option<&Ranges> {
        match &self.kind {
            Kind::Lock { ranges, .. } => Some(ranges),
            Kind::Open { .. } | Kind::Delegation { .. } => None,
        }
    }
}

impl<L> Kind<L> {
    /// How many files are kept open for the state alone.
    const fn descriptors(&self) -> usize {
        match self {
            Self::Open { .. } => 0,
            Self::Lock { .. } => 1,
            Self::Delegation { .. } => DESCRIPTORS,
        }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// A client, or a local process, has less of a file than before: who has some is charged for it, or it is
    /// closed.
    pub(crate) fn charge_file(&mut self, key: &K, client: Option<ClientId>) {
        let Some(file) = self.files.get_mut(key) else { return };
        if file.is_unused() {
            if let Some((_, peer)) = file.charged {
                self.accounts.give_back(Resource::Descriptors, &peer, 1);
            }
            self.files.remove(key);
            self.effects.closed.push(key.clone());
            return;
        }
        let Some((charged, peer)) = file.charged.filter(|(charged, _)| Some(*charged) == client) else {
            return;
        };
        if file.opened.has(charged) || file.lent.has(charged) {
            return;
        }
        // Where nobody but local processes has it, it stays with who had it last.
        let next = file.opened.first().or_else(|| file.lent.first());
        if let Some(next) = next.and_then(|next| Some((next, self.clients.get(&next)?.name.peer))) {
            file.charged = Some(next);
            self.accounts.give_back(Resource::Descriptors, &peer, 1);
            self.accounts.charge(Resource::Descriptors, &next.1, 1);
        }
    }

    /// Whether anybody has the file open.
    #[must_use]
    pub fn is_open(&self, key: &K) -> bool {
        self.files.contains_key(key)
    }

    /// A new state, with a `seqid` of 0.
    pub(crate) fn add_state(&mut self, by: &Requester, key: &K, kind: Kind<L>) -> Result<u64, Error> {
        let (most, client) = (self.config.limits.states, by.client);
        let number = self.new_state_number(client);
        let holder = self.client(client)?;
        let peer = holder.name.peer;
        if holder.states.len() + holder.revoked.len() >= most {
            return Err(Error::Delay);
        }
        holder.states.insert(number);
        holder.delegations += usize::from(matches!(kind, Kind::Delegation { .. }));
        self.remember(client);
        let file = self.files.entry(key.clone()).or_default();
        match &kind {
            Kind::Open { shares, .. } => file.opened.add(client, shares.union()),
            Kind::Lock { open, .. } => {
                if let Some(Kind::Open { locks, .. }) = self.states.get_mut(open).map(|open| &mut open.kind) {
                    locks.insert(number);
                }
            }
            Kind::Delegation { writes, peer, .. } => {
                self.lent_to.insert((*peer, number));
                file.lent.add(client, number, *writes);
                self.delegated[usize::from(*writes)] += 1;
            }
        }
        self.accounts.charge(Resource::States, &peer, 1);
        self.accounts.charge(Resource::Descriptors, &peer, kind.descriptors());
        if file.charged.is_none() {
            file.charged = Some((client, peer));
            self.accounts.charge(Resource::Descriptors, &peer, 1);
        }
        let state = State {
            client,
            peer,
            makers: Makers::new(by.principal.clone()),
            key: key.clone(),
            seqid: 0,
            kind,
        };
        if let Ok(v40) = self.client40(client)
            && let Some(owner) = state.numbered()
        {
            v40.owners.add(owner, number);
        }
        self.states.insert(number, state);
        self.by_owner.add(&self.states, number);
        Ok(number)
    }

    /// Ends a state, and with an open the locks that were made through it.
    pub(crate) fn drop_state(&mut self, number: u64) {
        let Some(mut state) = self.states.remove(&number) else { return };
        if let Kind::Open { locks, .. } = &mut state.kind {
            std::mem::take(locks).into_iter().for_each(|lock| self.drop_state(lock));
            self.effects.released.extend(self.waiting.close(&state.key, number));
        }
        self.accounts.give_back(Resource::States, &state.peer, 1);
        self.accounts.give_back(Resource::Descriptors, &state.peer, state.kind.descriptors());
        self.by_owner.remove(&state, number);
        if let Some(client) = self.clients.get_mut(&state.client) {
            client.states.remove(&number);
            if let Some(v40) = &mut client.v40
                && let Some(owner) = state.numbered()
            {
                v40.owners.remove(&owner, number);
            }
            client.delegations -= usize::from(matches!(state.kind, Kind::Delegation { .. }));
        }
        if let Some(file) = self.files.get_mut(&state.key) {
            match state.kind {
                Kind::Open { shares, .. } => {
                    self.denials -= usize::from(shares.denies());
                    file.opened.remove(state.client, shares.union());
                }
                Kind::Lock { file: held, open, mut ranges, .. } => {
                    self.accounts.give_back(Resource::States, &state.peer, ranges.len());
                    file.locked.replace(number, &ranges.set(Range::ALL, None));
                    if let Some(Kind::Open { locks, .. }) =
                        self.states.get_mut(&open).map(|open| &mut open.kind)
                    {
                        locks.remove(&number);
                    }
                    self.effects.released.push(held);
                    self.waiting.stir(&state.key);
                }
                Kind::Delegation { writes, kept, recalled, peer, .. } => {
                    if let Some(recalled) = recalled {
                        self.recalled.remove(&(recalled.revoke_at, number));
                    }
                    self.lent_to.remove(&(peer, number));
                    file.lent.remove(state.client);
                    self.delegated[usize::from(writes)] -= 1;
                    self.effects.released.push(kept);
                }
            }
            self.charge_file(&state.key, Some(state.client));
        }
    }
}
