//! The conflicts of an access with deny modes and delegations (RFC 8881 sections 9.7, 10.2 and 10.4).
//!
//! Conflicts with delegations produce recall effects, which run after the lock is dropped; the access has to
//! be tried again. A delegation that isn't returned within a lease's time is revoked: a client that doesn't
//! answer, or doesn't get its callbacks, delays others for that time and no longer.

use std::hash::Hash;

use fairness::Peer;

use crate::engine::{Engine, EngineConfig, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::share::Share;

/// An access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// An open.
    Open(Share),
    /// A read of data.
    Read,
    /// A write of data, or a change of the size.
    Write,
    /// A change of attributes or names.
    Change,
}

impl AccessKind {
    /// Whether the access conflicts with read delegations. With write delegations every access does.
    const fn conflicts_with_readers(self) -> bool {
        match self {
            // The holder of a read delegation may have the file open for reading.
            Self::Open(share) => share.access & 2 != 0 || share.deny & 1 != 0,
            Self::Read => false,
            Self::Write | Self::Change => true,
        }
    }
}

/// How long a client may take to return a recalled delegation, in milliseconds. If a lease's time is shorter,
/// that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecallTimeout {
    /// If its user could write to the file.
    pub writers: u64,
    /// If not.
    pub readers: u64,
}

impl RecallTimeout {
    /// A lease's time, for recalls that other clients wait for (RFC 8881 section 10.2).
    const LEASE: Self = Self { writers: u64::MAX, readers: u64::MAX };
}

/// The timeout in milliseconds for the delegations of a peer that was late to return another.
const DISTRUSTED_RECALL_TIMEOUT: u64 = 10_000;

/// A delegation to be recalled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall<K> {
    /// The client that holds it.
    pub client: ClientId,
    /// The delegation.
    pub id: StateId,
    /// The file.
    pub key: K,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Checks that an access may begin now. `by` is the NFSv4 client that makes it, whose own delegations
    /// don't conflict; there is none for NFSv3, the lane and local processes. Ends courtesy clients in the
    /// way, and recalls delegations ([`crate::Effects::recalls`]). The grace period, and deny modes against
    /// READ and WRITE, are checked elsewhere ([`Engine::check_io`]).
    ///
    /// # Errors
    /// `ShareDenied` for an open that another open denies, `Delay` while a delegation is being recalled.
    pub fn check_conflicts(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        access: AccessKind,
    ) -> Result<(), Error> {
        if let AccessKind::Open(share) = access {
            if self.files.local_access(key) & share.deny != 0 {
                return Err(Error::ShareDenied);
            }
            let conflicting = self.opens.conflicting_clients(key, share);
            if !self.end_courtesy_clients(now, &conflicting) {
                return Err(Error::ShareDenied);
            }
        }
        self.recall_conflicting(now, by, key, access, RecallTimeout::LEASE)
    }

    /// As [`Engine::check_conflicts`], for an access without an open: NFSv3's calls, and those by special
    /// state ids. There READ and WRITE conflict with deny modes.
    ///
    /// # Errors
    /// `Locked` for an access that an open denies, `Delay` while a delegation is being recalled.
    pub fn check_conflicts_without_open(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        access: AccessKind,
    ) -> Result<(), Error> {
        let bits = match access {
            AccessKind::Read => 1,
            AccessKind::Write => 2,
            AccessKind::Open(_) | AccessKind::Change => 0,
        };
        let conflicting = self.opens.conflicting_clients(key, Share { access: bits, deny: 0 });
        if !self.end_courtesy_clients(now, &conflicting) {
            return Err(Error::Locked);
        }
        self.check_conflicts(now, by, key, access)
    }

    /// A local process opens the file, and the kernel breaks the file's lease. Recalls the conflicting
    /// delegations, which are revoked after `timeout`. The kernel makes the process wait.
    pub fn recall_for_local_open(&mut self, now: Time, key: &K, writes: bool, timeout: RecallTimeout) {
        let access = if writes { AccessKind::Write } else { AccessKind::Read };
        let _ = self.recall_conflicting(now, None, key, access, timeout);
    }

    /// Recalls, or ends, the conflicting delegations of other clients.
    fn recall_conflicting(
        &mut self,
        now: Time,
        by: Option<ClientId>,
        key: &K,
        access: AccessKind,
        timeout: RecallTimeout,
    ) -> Result<(), Error> {
        let mut is_ended = true;
        for number in self.delegations.of_others(key, by, access.conflicts_with_readers()) {
            is_ended &= self.recall_or_end(now, number, timeout);
        }
        if is_ended { Ok(()) } else { Err(Error::Delay) }
    }

    /// Ends a delegation whose time is up, or whose client's lease has expired, and recalls another. Returns
    /// whether it has ended.
    fn recall_or_end(&mut self, now: Time, number: u64, timeout: RecallTimeout) -> bool {
        let Some(delegation) = self.delegations.get(number) else { return true };
        let (client, recall) = (delegation.header().client(), delegation.recall());
        if self.is_courtesy(now, client) {
            if recall.is_some() {
                self.distrust_holder(now, number);
            }
            self.end_client(client);
            return true;
        }
        if recall.is_some_and(|recall| recall.is_over(now)) {
            self.revoke(now, number);
            return true;
        }
        let may_write = delegation.grantee().may_write;
        let timeout = if may_write { timeout.writers } else { timeout.readers };
        self.recall(now, number, now.plus(timeout.min(self.config.lease)));
        false
    }

    /// Recalls a delegation, to be revoked at `deadline` at the latest. The client is called once, and not
    /// for a delegation that it wasn't told of yet: that will never be given.
    pub(crate) fn recall(&mut self, now: Time, number: u64, deadline: Time) {
        let Some(started) = self.delegations.recall(now, number, deadline) else { return };
        let Some(delegation) = self.delegations.get(number) else { return };
        let (header, peer) = (delegation.header(), delegation.grantee().peer);
        let EngineConfig { lease, distrust, boot, .. } = self.config;
        self.contended.add(now, header.key(), peer, lease, distrust.max(lease));
        if started.is_first && header.seqid() > 0 {
            let (client, id, key) = (header.client(), header.id(boot, number), header.key().clone());
            self.effects.recalls.push(Recall { client, id, key });
        }
    }

    /// Revokes a delegation that wasn't returned in time (RFC 8881 section 10.2.1).
    pub(crate) fn revoke(&mut self, now: Time, number: u64) {
        self.distrust_holder(now, number);
        let Some(delegation) = self.delegations.get(number) else { return };
        let (client, is_known) = (delegation.header().client(), delegation.header().seqid() > 0);
        if let Some(client) = self.clients.get_mut(client).filter(|_| is_known) {
            if client.v40.is_some() {
                self.expired_ids.add_state(number, Some(client.id()));
            }
            client.revoked.insert(number);
            let instance = client.instance().to_owned();
            self.forget_client(&instance);
        }
        self.remove_state(number);
    }

    /// Revokes the delegations that should have been returned by now.
    pub(crate) fn revoke_overdue(&mut self, now: Time) {
        for number in self.delegations.overdue(now) {
            self.revoke(now, number);
        }
    }

    /// A recalled delegation wasn't returned: for a long time its file isn't delegated, and its peer gets no
    /// delegations.
    fn distrust_holder(&mut self, now: Time, number: u64) {
        let delegation = self.delegations.get(number);
        let Some(delegation) = delegation.filter(|delegation| delegation.header().seqid() > 0) else {
            return;
        };
        let peer = delegation.grantee().peer;
        let EngineConfig { lease, distrust, .. } = self.config;
        self.contended.add(now, delegation.header().key(), peer, distrust, distrust.max(lease));
        self.distrust(now, peer, distrust);
    }

    /// Gives a peer no delegations for `least` milliseconds, and recalls those that it has: a client that
    /// needs their files shouldn't wait for each in turn.
    pub(crate) fn distrust(&mut self, now: Time, peer: Peer, least: u64) {
        let is_new = !self.distrusted.has(now, &peer);
        let EngineConfig { lease, distrust, .. } = self.config;
        self.distrusted.add(now, &peer, peer, least, distrust.max(lease));
        if is_new {
            let deadline = now.plus(DISTRUSTED_RECALL_TIMEOUT.min(lease));
            for number in self.delegations.of_peer(peer) {
                self.recall(now, number, deadline);
            }
        }
    }
}
