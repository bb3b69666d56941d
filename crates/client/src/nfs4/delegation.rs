//! Delegations: files that the server has promised not to let others change, or not to let others open at
//! all, before it has recalled the promise (RFC 8881 section 10.4).
//!
//! An OPEN for reading asks for a read delegation, unless the file is known to be delegated. Under it the
//! file is opened for reading without a request, by users whose rights an OPEN has brought, and its
//! attributes stay what they are. An OPEN for writing asks for a write delegation if the file was written
//! before ([`super::rewritten_files`]). Under that the file is also opened for writing and locked without a
//! request, and only this client changes its attributes. Written data is sent and made durable as without a
//! delegation.
//!
//! The server need not recall a client's delegation for the client's own changes. So the client returns it
//! before it removes, replaces or renames the file: a file without a name takes up space as long as it is
//! delegated. A read delegation is also returned when the client changes attributes of the file, and before
//! it opens the file for writing or locks it, since servers don't make a write delegation of it with an OPEN.
//! Under a write delegation the client changes attributes as it likes. Users' rights that may have changed
//! with them are the server's to tell again.
//!
//! When a delegation is returned, the server is told of opens, then of locks. Then the data that waits to be
//! sent is written, and DELEGRETURN sent. Until that is answered the server lets nobody else at the file.
//!
//! Invariant: [`HeldState::delegated`] has the files whose delegation may be relied on. A file leaves it
//! before the recall is answered, and before the delegation is returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use client_state::{DelegationKind, Share, StateId};
use proto::nfs4::{Nfsstat4, OpenDelegation4, Operation as Op, Stateid4Args};

use super::compound::{Compound, Results};
use super::session::SessionClient;
use super::state::{
    ChangeInFlight, HeldState, OpenOwner, READ_ACCESS, StateAnswer, StateRequest, WRITE_ACCESS, WireOpen,
    send_until_answered, state_id, stateid,
};
use crate::operations::FileTarget;
use crate::types::{Access, Attributes, Handle, SetAttributes, Timestamp};

/// The delegations that a client keeps. If it gets more it returns a quarter, those that it hasn't used for
/// the longest time.
const MAX_DELEGATIONS: usize = 1024;

/// Both kinds.
pub(super) const ANY_DELEGATION: &[DelegationKind] = &[DelegationKind::Read, DelegationKind::Write];

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
    /// With a write delegation: what the server may ask for.
    written: Option<WrittenFile>,
}

/// What the client tells the server of a file with a write delegation (CB_GETATTR).
#[derive(Debug)]
struct WrittenFile {
    /// The change attribute when the file was delegated.
    change: u64,
    /// The size at the server and the time of the last change, by the newest reply.
    size: u64,
    ctime: Timestamp,
    /// When that reply arrived.
    received: Instant,
    /// The mode, the owner and the group when the file was delegated, or as the client has set them since.
    permissions: (u32, u32, u32),
}

impl WrittenFile {
    fn new(attributes: &Attributes) -> Self {
        let Attributes { change, size, ctime, mode, uid, gid, .. } = *attributes;
        Self { change, size, ctime, received: Instant::now(), permissions: (mode, uid, gid) }
    }

    /// Whether users may have other rights after these attributes are set.
    fn are_rights_changed_by(&self, set: &SetAttributes) -> bool {
        let (mode, uid, gid) = self.permissions;
        let differs = |set: Option<u32>, known| set.is_some_and(|set| set != known);
        differs(set.mode, mode) || differs(set.uid, uid) || differs(set.gid, gid)
    }

    /// A reply has these attributes, which were requested at `asked`. Replies overtake each other.
    fn note(&mut self, attributes: &Attributes, asked: Instant) {
        let (size, ctime) = (attributes.size, attributes.ctime);
        let is_before = (ctime, size) < (self.ctime, self.size);
        if asked >= self.received || !is_before {
            (self.size, self.ctime, self.received) = (size, ctime, Instant::now());
            self.permissions = (attributes.mode, attributes.uid, attributes.gid);
        }
    }
}

/// A delegation in the reply to an OPEN.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantedDelegation {
    pub(super) id: StateId,
    kind: DelegationKind,
    is_recalled: bool,
}

/// When an OPEN was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentOpen {
    pub(super) at: Instant,
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
    /// The file's attributes after the OPEN.
    pub(super) attributes: Option<Attributes>,
    pub(super) sent: SentOpen,
}

/// A change of a file's attributes by this client, as long as this exists.
pub(super) struct AttributeChange<'a> {
    client: &'a Arc<SessionClient>,
    file: &'a Handle,
    changes_rights: bool,
}

impl Drop for AttributeChange<'_> {
    fn drop(&mut self) {
        self.client.note_attribute_change(self.file, |_| self.changes_rights);
    }
}

impl GrantedDelegation {
    pub(super) const fn of(delegation: &OpenDelegation4<'_>) -> Option<Self> {
        match delegation {
            OpenDelegation4::Read(read) => {
                let kind = DelegationKind::Read;
                Some(Self { id: state_id(read.stateid), kind, is_recalled: read.recall })
            }
            OpenDelegation4::Write(write) => {
                let kind = DelegationKind::Write;
                Some(Self { id: state_id(write.stateid), kind, is_recalled: write.recall })
            }
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
            self.rewritten.opened(file);
            if !self.delegated.is_for_writing(file) {
                self.give_up(file);
            }
        }
        if let Some(GrantedDelegation { id, kind, is_recalled }) = opened.delegation {
            let Self { delegations, opens, locks, .. } = self;
            self.delegated.remove(file);
            delegations.granted(opens, locks, file.clone(), id, kind);
            let written = opened.attributes.as_ref().map(WrittenFile::new);
            let written = written.filter(|_| kind == DelegationKind::Write);
            let is_of_use = match kind {
                DelegationKind::Read => !writes && is_current,
                // Without the attributes CB_GETATTR couldn't be answered.
                DelegationKind::Write => written.is_some(),
            };
            if writes && kind == DelegationKind::Read {
                // It would have to be returned each time.
                self.lacks_write_delegations = true;
            }
            if is_recalled || !is_of_use || self.early_recalls.contains(&id.any()) {
                self.delegations.recall(&mut self.opens, file, id);
            }
            // A read delegation in place of a write delegation is recalled, too.
            if !self.delegations.is_held(file) {
                return;
            }
            let (since, flags) = (opened.sent.at, opened.flags);
            let known = DelegatedFile { id, since, rights: BTreeMap::new(), flags, written };
            self.delegated.insert(file.clone(), known);
            if self.delegated.len() > MAX_DELEGATIONS {
                self.keep_delegations(MAX_DELEGATIONS / 4 * 3, ANY_DELEGATION);
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

    /// Begins to return all delegations of these kinds but `keep`.
    pub(super) fn keep_delegations(&mut self, keep: usize, kinds: &[DelegationKind]) {
        self.delegations.recall_any(&mut self.opens, keep, kinds);
        let delegations = &self.delegations;
        self.delegated.retain(|file| delegations.is_held(file));
    }

    /// CB_RECALL. Returns whether the client has the delegation, or may be about to learn of it.
    pub(super) fn recall(&mut self, file: &Handle, id: StateId) -> bool {
        self.rewritten.forget(file);
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

    /// An application locks a file. Returns whether to ask for a delegation first.
    pub(super) fn is_delegation_due(&mut self, file: &Handle) -> bool {
        let is_possible = !self.lacks_write_delegations && !self.delegations.contains(file);
        is_possible && self.rewritten.locked(file, self.locks.is_file_free(file))
    }

    /// Whether the file that an OPEN is of is known to be delegated.
    pub(super) fn is_delegated(&self, target: &FileTarget<'_>) -> bool {
        match target {
            FileTarget::File(file) => self.delegations.contains(file),
            FileTarget::Entry { directory, name, .. } | FileTarget::New { directory, name, .. } => {
                self.delegated.found_at(directory, name).is_some()
            }
        }
    }

    /// Whether an OPEN of a file for writing is to ask for a delegation.
    pub(super) fn wants_write_delegation(&self, file: &Handle) -> bool {
        !self.lacks_write_delegations && self.rewritten.is_worth_a_delegation(file)
    }
}

impl DelegatedFile {
    pub(super) const fn is_for_writing(&self) -> bool {
        self.written.is_some()
    }

    /// The rights of a user, if the user may open the file so. Some servers let an owner do more than the
    /// rights say: they are asked.
    fn rights_to_open(&self, owner: &OpenOwner, share: Share) -> Option<Access> {
        let rights = *self.rights.get(owner)?;
        let may_read = rights.0 & (Access::READ.0 | Access::EXECUTE.0) != 0;
        let needed = Access::MODIFY.0 | Access::EXTEND.0;
        let may_write = rights.0 & needed == needed;
        let may =
            (may_read || share.access & READ_ACCESS == 0) && (may_write || share.access & WRITE_ACCESS == 0);
        may.then_some(rights)
    }
}

impl SessionClient {
    /// Opens a delegated file. Returns the user's rights, too. `None`: the server has to be asked.
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
            let (access, flags) = (known.rights_to_open(owner, share)?, known.flags);
            let open = held.delegations.open(&mut held.opens, file, owner.clone(), share)?;
            let number = held.next_number();
            Some((WireOpen::new(self, open, number, flags), access))
        })
    }

    /// Since when a file has been delegated, for writing if it `writes`: attributes that were requested then
    /// or later are true.
    pub(super) fn delegated_since(&self, file: &Handle, writes: bool) -> Option<Instant> {
        let since = self.look(|held| {
            let known = held.delegated.get(file).filter(|known| known.is_for_writing() || !writes);
            known.map(|known| known.since)
        })?;
        self.is_lease_valid().then_some(since)
    }

    /// Whether a write delegation of the file may be relied on.
    pub(super) fn is_delegated_for_writing(&self, file: &Handle) -> bool {
        self.delegated_since(file, true).is_some()
    }

    /// A reply has attributes of a file, which were requested at `asked`.
    pub(super) fn note_attributes(&self, file: &Handle, attributes: &Attributes, asked: Instant) {
        self.with_held(|held| {
            if let Some(written) = held.delegated.get_mut(file).and_then(|known| known.written.as_mut()) {
                written.note(attributes, asked);
            }
        });
    }

    /// The change attribute and the size of a file with a write delegation (RFC 8881 section 10.4.3): with
    /// data that waits to be sent, the change attribute is another one than when the file was delegated.
    pub(super) fn change_and_size(&self, file: &Handle) -> Option<(u64, u64)> {
        // First: data that is sent meanwhile is in the size then.
        let unwritten = self.written_behind().and_then(|pool| pool.find(file)?.unwritten_end());
        let (change, size) = self.look(|held| {
            let written = held.delegated.get(file)?.written.as_ref()?;
            Some((written.change, written.size))
        })?;
        let change = change.wrapping_add(unwritten.is_some().into());
        Some((change, size.max(unwritten.unwrap_or(0))))
    }

    /// The user opens the file for writing, or locks it: returns a delegation that isn't for that, as
    /// [`SessionClient::return_delegation`].
    pub(super) async fn return_delegation_unless_for_writing(self: &Arc<Self>, file: &Handle) {
        if !self.is_delegated_for_writing(file) {
            self.return_delegation(file).await;
        }
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

    /// As [`SessionClient::return_delegation_at`], but the caller returns the delegation if nothing has to be
    /// told to the server before.
    pub(super) async fn give_up_delegation_at(
        self: &Arc<Self>,
        directory: &Handle,
        name: &[u8],
    ) -> Option<ReturnAlong> {
        let file = self.look(|held| held.delegated.found_at(directory, name).cloned())?;
        let has_waiting = self.written_behind().is_some_and(|pool| pool.find(&file).is_some());
        if !has_waiting {
            let ((), id) = self.update_but_return(Some(&file), |held| held.give_up(&file));
            if let Some(id) = id {
                return Some(ReturnAlong { client: self.clone(), file, id, is_ended: false });
            }
        }
        self.return_delegation(&file).await;
        None
    }

    /// The client changes attributes of a file, until the value is dropped: with SETATTR those of `set`.
    pub(super) fn change_attributes<'a>(
        self: &'a Arc<Self>,
        file: &'a Handle,
        set: Option<&SetAttributes>,
    ) -> AttributeChange<'a> {
        let changes_rights = |written: &WrittenFile| set.is_none_or(|set| written.are_rights_changed_by(set));
        let changes_rights = self.note_attribute_change(file, changes_rights);
        AttributeChange { client: self, file, changes_rights }
    }

    /// A read delegation is returned. With a write delegation users must have their rights from the server
    /// again, if the change may change these. Returns whether it may.
    fn note_attribute_change(
        self: &Arc<Self>,
        file: &Handle,
        changes_rights: impl FnOnce(&WrittenFile) -> bool,
    ) -> bool {
        let (changes_rights, must_return) = self.with_held(|held| {
            held.attribute_changes += 1;
            let Some(known) = held.delegated.get_mut(file) else { return (true, false) };
            let Some(written) = &known.written else { return (true, true) };
            let changes_rights = changes_rights(written);
            if changes_rights {
                known.rights.clear();
            }
            (changes_rights, false)
        });
        if must_return {
            self.update(|held| held.give_up(file));
        }
        changes_rights
    }
}

/// A delegation that is returned by the request which removes its file's name. Unless it is ended, a request
/// of its own returns it.
pub(super) struct ReturnAlong {
    client: Arc<SessionClient>,
    file: Handle,
    id: StateId,
    is_ended: bool,
}

impl ReturnAlong {
    /// Its file.
    pub(super) const fn file(&self) -> &Handle {
        &self.file
    }

    /// The beginning of a request that returns it.
    pub(super) fn begin(&self) -> Compound {
        delegreturn(&self.file, self.id)
    }

    /// The request was answered, in the session with this number. Returns whether the delegation is returned
    /// and what is behind that was executed. If not, the request must be sent again without its beginning.
    pub(super) fn end(mut self, results: &mut Results<'_>, session: u64) -> bool {
        let status = results.status(Op::Putfh).and_then(|status| match status {
            Nfsstat4::Ok => results.status(Op::Delegreturn),
            refused => Ok(refused),
        });
        let status = status.unwrap_or(Nfsstat4::Io);
        if matches!(StateAnswer::of(status), StateAnswer::Delayed) {
            return false;
        }
        self.client.free_if_revoked(Some(self.id), status);
        let returned = |held: &mut HeldState| held.delegations.returned(&mut held.opens, &self.file, self.id);
        // In a session that was replaced the answer tells what became of the name, and not what the server
        // has now: the delegation is returned once more.
        self.is_ended = self.client.update_in(session, returned).is_some();
        status == Nfsstat4::Ok
    }
}

impl Drop for ReturnAlong {
    fn drop(&mut self) {
        if !self.is_ended {
            let in_flight = ChangeInFlight::new(&self.client);
            drop(self.client.spawn(send_return(in_flight, self.file.clone(), self.id)));
        }
    }
}

/// The operations that return a delegation.
fn delegreturn(file: &Handle, id: StateId) -> Compound {
    Compound::once().put_fh(file).then(Op::Delegreturn, &Stateid4Args { stateid: stateid(id) })
}

/// DELEGRETURN.
pub(super) async fn send_return(in_flight: ChangeInFlight, file: Handle, id: StateId) {
    let client = in_flight.client().clone();
    let returned = |held: &mut HeldState| held.delegations.returned(&mut held.opens, &file, id);
    if client.is_ended() {
        client.update(returned);
        return;
    }
    if let Some(waiting) = client.written_behind().and_then(|pool| pool.find(&file)) {
        // As before an unlock: locks under the delegation may have ended already. A failure is reported to
        // those who have written.
        let _ = waiting.commit().await;
    }
    let compound = delegreturn(&file, id);
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
