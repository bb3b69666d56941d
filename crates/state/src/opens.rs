//! OPEN, OPEN_DOWNGRADE and CLOSE, as far as they are about state (RFC 8881 sections 9.7 to 9.11, 18.2,
//! 18.16, 18.18).

use std::hash::Hash;

use crate::by_owner::Whose;
use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};
use crate::principal::Requester;
use crate::share::{Share, Shares};

/// What OPEN wants, once it is known which file.
#[derive(Debug, Clone, Copy)]
pub struct OpenRequest<'a, K> {
    /// Who.
    pub by: &'a Requester,
    /// For which of its owners.
    pub owner: &'a [u8],
    /// Which file.
    pub key: &'a K,
    /// How.
    pub share: Share,
    /// The client had it open before the server restarted.
    pub reclaim: bool,
    /// A client of 4.1 or later had opened the file by itself under a delegation (CLAIM_DELEGATE_CUR). Linux
    /// listens for CB_NOTIFY_LOCK only after an OPEN of another kind; after this one it asks for a blocking
    /// lock again after one second, then two, and so on up to 30 (fs/nfs/nfs4proc.c,
    /// `NFS_STATE_MAY_NOTIFY_LOCK`). A lock that was kept for it until then would be free, and refused to all
    /// others, for a second at each change of hands. So it has no place in the queue until its owner has
    /// opened the file in another way, and gets the lock when it asks and the lock is free.
    pub under_delegation: bool,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Whether [`Engine::open`] would do it: to be asked before anything is made or truncated. Ends courtesy
    /// clients that are in the way.
    ///
    /// # Errors
    /// As for [`Engine::open`].
    pub fn check_open(&mut self, now: Time, asked: &OpenRequest<'_, K>) -> Result<(), Error> {
        self.check_grace(now, asked.by.client, asked.reclaim)?;
        // What an owner denies it denies itself, too (RFC 8881 section 9.7).
        match self.check_conflicts(now, Some(asked.by.client), asked.key, AccessKind::Open(asked.share)) {
            Err(Error::ShareDenied) if asked.reclaim => Err(Error::ReclaimConflict),
            other => other,
        }
    }

    /// OPEN: opens the file for the owner, or adds to what he has it open for.
    ///
    /// # Errors
    /// `ShareDenied`, `Grace`, `NoGrace`, `ReclaimConflict`, `StaleClientid`; `Delay` when the client has too
    /// much state, and while another client's delegation is being recalled.
    pub fn open(&mut self, now: Time, asked: &OpenRequest<'_, K>) -> Result<StateId, Error> {
        self.check_open(now, asked)?;
        let OpenRequest { by, key, owner, .. } = *asked;
        let client = by.client;
        let whose = Whose { client, key, owner, locks: false };
        let number = match self.by_owner.find(&self.states, &whose) {
            Some(number) => {
                if let Some(state) = self.states.get_mut(&number) {
                    state.makers.add(&by.principal);
                }
                number
            }
            None => {
                let is_held = self.files.get(key).is_some_and(|file| file.charged.is_some());
                self.check_room(now, client, usize::from(!is_held))?;
                let (shares, locks) = Default::default();
                let kind = Kind::Open { owner: owner.to_vec(), shares, locks, queues: false };
                self.add_state(by, key, kind)?
            }
        };
        if let Some(Kind::Open { queues, .. }) = self.states.get_mut(&number).map(|state| &mut state.kind) {
            *queues |= !asked.under_delegation;
        }
        self.reshare(number, |shares| {
            shares.add(asked.share);
            true
        })
    }

    /// OPEN_DOWNGRADE.
    ///
    /// # Errors
    /// `Inval` for what isn't a part of what was opened, and what is wrong with the state id.
    pub fn downgrade(&mut self, by: &Requester, id: &StateId, key: &K, to: Share) -> Result<StateId, Error> {
        let number = self.resolve_for(by, id, key)?;
        self.reshare(number, |shares| shares.downgrade(to))
    }

    /// Changes what an open is for; `Inval` if `change` says that it can't be so.
    fn reshare(&mut self, number: u64, change: impl FnOnce(&mut Shares) -> bool) -> Result<StateId, Error> {
        let boot = self.config.boot;
        let state = self.states.get_mut(&number).ok_or(Error::BadStateid)?;
        let Kind::Open { shares, .. } = &mut state.kind else { return Err(Error::BadStateid) };
        let (before, denied) = (shares.union(), shares.denies());
        if !change(shares) {
            return Err(Error::Inval);
        }
        self.denials = self.denials + usize::from(shares.denies()) - usize::from(denied);
        if let Some(file) = self.files.get_mut(&state.key) {
            file.opened.add(state.client, shares.union());
            file.opened.remove(state.client, before);
        }
        Ok(state.bump(boot, number))
    }

    /// CLOSE. Locks that are still held by this open go with it, as close(2) has it and RFC 8881 section 9.8
    /// allows.
    ///
    /// # Errors
    /// What is wrong with the state id.
    pub fn close(&mut self, by: &Requester, id: &StateId, key: &K) -> Result<(), Error> {
        let number = self.resolve_for(by, id, key)?;
        if !matches!(self.states[&number].kind, Kind::Open { .. }) {
            return Err(Error::BadStateid);
        }
        self.drop_state(number);
        Ok(())
    }

    /// The clients whose opens of `key` are against `share`.
    pub(crate) fn opens_against(&self, key: &K, share: Share) -> Vec<ClientId> {
        self.files.get(key).map_or_else(Vec::new, |file| file.opened.against(share))
    }

    /// Ends those of the clients that are out of their lease; an error if any of them isn't.
    pub(crate) fn end_courtesy(&mut self, now: Time, clients: &[ClientId]) -> Result<(), ()> {
        if clients.iter().any(|client| !self.is_courtesy(now, *client)) {
            return Err(());
        }
        clients.iter().for_each(|client| self.end_client(*client));
        Ok(())
    }
}
