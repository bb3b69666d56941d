//! Read delegations: files that the server has promised not to let others change before it has recalled the
//! promise (RFC 8881 section 10.4).
//!
//! An OPEN for reading asks for one. Under it the file is opened for reading without a request, by users
//! whose rights an OPEN has brought, and its attributes stay what they are. The server need not recall a
//! client's delegation for the client's own changes. So the client returns it before it opens the file for
//! writing, locks it, or removes, replaces or renames it (a file without a name takes up space as long as it
//! is delegated), and when it changes the file's attributes.
//!
//! Invariant: [`HeldState::delegated`] has the files whose delegation may be relied on. A file leaves it
//! before the recall is answered, and before the delegation is returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use client_state::{DelegationKind, Share, StateId};
use proto::nfs4::{OpenDelegation4, Operation as Op, Stateid4Args};

use super::compound::Compound;
use super::session::SessionClient;
use super::state::{
    ChangeInFlight, HeldState, OpenOwner, StateAnswer, StateRequest, WRITE_ACCESS, WireOpen,
    send_until_answered, state_id, stateid,
};
use crate::types::{Access, Handle};

/// The delegations that a client keeps. If it gets more it returns a quarter, those that it hasn't used for
/// the longest time.
const MAX_DELEGATIONS: usize = 1024;

/// The recalls that are remembered until the replies to the OPENs on their way are there.
const MAX_EARLY_RECALLS: usize = 64;

/// What is known of a delegated file.
#[derive(Debug)]
pub(super) struct DelegatedFile {
    id: StateId,
    /// When the OPEN was sent that brought the delegation.
    since: Instant,
    /// The rights of users who have opened the file.
    rights: BTreeMap<OpenOwner, Access>,
    /// `OPEN4_RESULT_` flags of the file's opens.
    flags: u32,
}

/// A delegation in the reply to an OPEN.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantedDelegation {
    pub(super) id: StateId,
    is_recalled: bool,
}

/// When an OPEN was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentOpen {
    at: Instant,
    /// [`HeldState::attribute_changes`] then.
    attribute_changes: u64,
}

/// What the reply to an OPEN says, except for the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenedFile {
    pub(super) share: Share,
    pub(super) id: StateId,
    /// The rights of the user.
    pub(super) access: Option<Access>,
    /// `OPEN4_RESULT_` flags.
    pub(super) flags: u32,
    pub(super) delegation: Option<GrantedDelegation>,
    pub(super) sent: SentOpen,
}

/// A change of a file's attributes by this client, as long as this exists.
pub(super) struct AttributeChange<'a> {
    client: &'a Arc<SessionClient>,
    file: &'a Handle,
}

impl Drop for AttributeChange<'_> {
    fn drop(&mut self) {
        self.client.note_attribute_change(self.file);
    }
}

impl GrantedDelegation {
    pub(super) const fn of(delegation: &OpenDelegation4<'_>) -> Option<Self> {
        match delegation {
            OpenDelegation4::Read(read) => {
                Some(Self { id: state_id(read.stateid), is_recalled: read.recall })
            }
            // The client doesn't ask for these.
            OpenDelegation4::Write(write) => Some(Self { id: state_id(write.stateid), is_recalled: true }),
            OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
        }
    }
}

impl HeldState {
    /// An OPEN is sent now.
    pub(super) fn sent_open(&self) -> SentOpen {
        SentOpen { at: Instant::now(), attribute_changes: self.attribute_changes }
    }

    /// Enters what the reply to an OPEN says about delegations.
    pub(super) fn note_delegation(&mut self, file: &Handle, owner: &OpenOwner, opened: &OpenedFile) {
        let writes = opened.share.access & WRITE_ACCESS != 0;
        // Otherwise the reply may be older than a change of the rights.
        let is_current = opened.sent.attribute_changes == self.attribute_changes;
        if writes {
            self.give_up(file);
        }
        if let Some(GrantedDelegation { id, is_recalled }) = opened.delegation {
            let Self { delegations, opens, locks, .. } = self;
            delegations.granted(opens, locks, file.clone(), id, DelegationKind::Read);
            if is_recalled || writes || !is_current || self.early_recalls.contains(&id.any()) {
                self.delegations.recall(&mut self.opens, file, id);
                return;
            }
            let (since, flags) = (opened.sent.at, opened.flags);
            self.delegated.insert(file.clone(), DelegatedFile { id, since, rights: BTreeMap::new(), flags });
            if self.delegated.len() > MAX_DELEGATIONS {
                self.keep_delegations(MAX_DELEGATIONS / 4 * 3);
            }
        }
        if let (Some(known), Some(access)) = (self.delegated.get_mut(file), opened.access)
            && is_current
        {
            known.rights.insert(owner.clone(), access);
        }
    }

    /// Begins to return the delegation of a file.
    pub(super) fn give_up(&mut self, file: &Handle) {
        if let Some(known) = self.delegated.remove(file) {
            self.delegations.recall(&mut self.opens, file, known.id);
        }
    }

    /// Begins to return all delegations but `keep`.
    pub(super) fn keep_delegations(&mut self, keep: usize) {
        self.delegations.recall_any(&mut self.opens, keep);
        let delegations = &self.delegations;
        self.delegated.retain(|file| delegations.is_held(file));
    }

    /// CB_RECALL. Returns whether the client has the delegation, or may be about to learn of it.
    pub(super) fn recall(&mut self, file: &Handle, id: StateId) -> bool {
        if self.delegated.get(file).is_some_and(|known| known.id.any() == id.any()) {
            self.delegated.remove(file);
        }
        if self.delegations.recall(&mut self.opens, file, id) {
            return true;
        }
        let may_come = self.openings > 0 && self.early_recalls.len() < MAX_EARLY_RECALLS;
        if may_come {
            self.early_recalls.push(id.any());
        }
        may_come
    }

    /// The reply to an OPEN is there, or won't come.
    pub(super) fn end_open(&mut self) {
        self.openings -= 1;
        if self.openings == 0 {
            self.early_recalls.clear();
        }
    }

    /// The server doesn't have the delegation `id` any more.
    pub(super) fn delegation_gone(&mut self, file: &Handle, id: StateId) {
        let Self { delegations, opens, locks, .. } = self;
        delegations.gone(opens, locks, file, id);
        if !delegations.is_held(file) {
            self.delegated.remove(file);
        }
    }
}

impl SessionClient {
    /// Opens a delegated file for reading. Returns the user's rights, too. `None`: the server has to be
    /// asked.
    pub(super) fn open_delegated(
        self: &Arc<Self>,
        owner: &OpenOwner,
        file: &Handle,
        share: Share,
    ) -> Option<(WireOpen, Access)> {
        if !self.is_lease_valid() {
            return None;
        }
        self.with_held(|held| {
            let known = held.delegated.get(file)?;
            let (access, flags) = (*known.rights.get(owner)?, known.flags);
            let open = held.delegations.open(&mut held.opens, file, owner.clone(), share)?;
            let number = held.next_number();
            Some((WireOpen::new(self, open, number, flags), access))
        })
    }

    /// Since when a file has been delegated: attributes that were requested then or later are true.
    pub(super) fn delegated_since(&self, file: &Handle) -> Option<Instant> {
        let since = self.look(|held| held.delegated.get(file).map(|known| known.since))?;
        self.is_lease_valid().then_some(since)
    }

    /// Returns the delegation of a file, if there is one, and waits until the server has it back.
    pub(super) async fn return_delegation(self: &Arc<Self>, file: &Handle) {
        if self.look(|held| !held.delegations.contains(file)) {
            return;
        }
        self.update(|held| held.give_up(file));
        loop {
            let changed = self.state.changed.notified();
            if self.look(|held| !held.delegations.contains(file)) {
                return;
            }
            changed.await;
        }
    }

    /// A name in a directory is removed, or becomes another file's: returns the delegation of the file that
    /// it is, as [`SessionClient::return_delegation`].
    pub(super) async fn return_delegation_at(self: &Arc<Self>, directory: &Handle, name: &[u8]) {
        let file = self.look(|held| held.delegated.found_at(directory, name).cloned());
        if let Some(file) = file {
            self.return_delegation(&file).await;
        }
    }

    /// The client changes attributes of a file, until the value is dropped.
    pub(super) fn change_attributes<'a>(self: &'a Arc<Self>, file: &'a Handle) -> AttributeChange<'a> {
        self.note_attribute_change(file);
        AttributeChange { client: self, file }
    }

    fn note_attribute_change(self: &Arc<Self>, file: &Handle) {
        let is_delegated = self.with_held(|held| {
            held.attribute_changes += 1;
            held.delegated.contains(file)
        });
        if is_delegated {
            self.update(|held| held.give_up(file));
        }
    }
}

/// DELEGRETURN.
pub(super) async fn send_return(in_flight: ChangeInFlight, file: Handle, id: StateId) {
    let client = in_flight.client().clone();
    let returned = |held: &mut HeldState| held.delegations.returned(&mut held.opens, &file, id);
    if client.is_ended() {
        client.update(returned);
        return;
    }
    let args = Stateid4Args { stateid: stateid(id) };
    let compound = Compound::once().put_fh(&file).then(Op::Delegreturn, &args);
    let owner = client.owner.clone();
    send_until_answered(
        &client,
        &owner,
        || {
            let compound = compound.clone();
            Some(StateRequest { operation: Op::Delegreturn, compound, names: Some(id) })
        },
        |(answer, _)| (!matches!(answer, StateAnswer::Delayed)).then_some(()),
        |held, _| returned(held),
    )
    .await;
}
