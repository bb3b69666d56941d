//! The open files (RFC 8881 sections 8.2, 9.7 to 9.11, 18.2, 18.16 and 18.18): what applications have open,
//! what the server holds for that, and the requests that bring the two together.
//!
//! The server merges the OPENs of one open owner on one file into one state. Applications open it any number
//! of times. Each of their opens is an [`OpenRef`]; from all of them follows what the server should hold:
//! every combination of access and deny mode that is in use was opened, and the union of these is what the
//! state is for (section 18.18 allows OPEN_DOWNGRADE only to a union of OPENs). Where the server holds
//! something else, the next [`OpenChange`] is due.
//!
//! Invariants:
//! - For one owner and file there is one [`OpenChange`] at a time.
//! - Which file an OPEN by name opens is known from its reply only. CLOSE and OPEN_DOWNGRADE have the newest
//!   `seqid` that is known, and wait for the replies of all OPENs that may have an older one. So they don't
//!   close what an OPEN on its way has opened: if that comes first, they fail (`NFS4ERR_OLD_STATEID`).
//! - From the sending of a change on nothing relies on what it gives up.
//!
//! What the caller does:
//! - open(2): calls [`Opens::opening`], sends OPEN, and reports [`Opens::opened`] or [`Opens::not_opened`]. A
//!   caller that doesn't wait for the reply any more still has to get it, and to close what was opened. If
//!   the session is lost before the reply, the same [`Opening`] goes on in the next one.
//! - close(2): when its READs, WRITEs and locks are done, calls [`Opens::close`].
//! - READ, WRITE, SETATTR: uses [`Opens::io_id`]. If the server doesn't know that state id: [`Opens::gone`].
//! - Sends each [`OpenChange`] that [`Opens::take_changes`] returns, again while it is delayed or when the
//!   session is lost, and reports how it ended to [`Opens::changed`]. No application waits for it, except for
//!   one that is in [`NoState::Recovering`]. Reclaims ([`OpenChange::is_reclaim`]) are sent at once, other
//!   changes when ordinary requests may be sent.
//!
//! An OPEN and a CLOSE in one COMPOUND would close the file for everything that its open owner has open: such
//! a COMPOUND needs an open owner of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{StateError, StateId};

/// The access and deny bits of an OPEN (`OPEN4_SHARE_ACCESS_*`, `OPEN4_SHARE_DENY_*`): 1 to read, 2 to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Share {
    /// The access that the open is for.
    pub access: u8,
    /// The access that it denies to others.
    pub deny: u8,
}

impl Share {
    const fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }

    fn contains(self, other: Self) -> bool {
        self.union(other) == self
    }
}

/// All opens. `F` names a file, `O` an open owner.
#[derive(Debug)]
pub struct Opens<F, O> {
    opens: BTreeMap<(F, O), OpenState>,
    /// The OPENs that aren't answered, by their numbers. Each may open any file of its owner.
    opening: BTreeMap<O, BTreeSet<u64>>,
    /// The opens whose next change waits for some of these.
    blocked: BTreeSet<(F, O)>,
    /// The delegated files. Opens of them needn't be held by the server until the delegation is recalled.
    delegated: BTreeMap<F, Delegated>,
    /// The number of the last change, the last OPEN, and the last [`Users`].
    last_number: u64,
    changes: Vec<OpenChange<F, O>>,
    lost: Vec<LostOpen<F, O>>,
}

/// The delegation of a file.
#[derive(Debug, Clone, Copy)]
struct Delegated {
    id: StateId,
    /// The access of opens that need no OPEN.
    access: u8,
    is_recalled: bool,
}

impl Delegated {
    /// Whether an open needs no OPEN.
    const fn serves(&self, share: Share) -> bool {
        share.access & !self.access == 0 && share.deny == 0
    }
}

/// An OPEN that an application makes, until it is answered.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "closing waits for it"]
pub struct Opening<O> {
    owner: O,
    number: u64,
}

/// The opens of one owner on one file.
#[derive(Debug, Default)]
struct OpenState {
    /// The application's opens, by their shares.
    users: Vec<Users>,
    /// Those that couldn't be had back, until they are closed.
    lost: Vec<Users>,
    held: Option<Held>,
    /// How opens that the server doesn't hold are to be had back.
    claim: OpenClaim,
    /// The number of the change whose result isn't known yet.
    sent: Option<u64>,
}

/// The application's opens with one share.
#[derive(Debug)]
struct Users {
    share: Share,
    count: u32,
    /// Opens that are lost and those that came later have different numbers.
    number: u64,
}

/// What the server holds.
#[derive(Debug)]
struct Held {
    id: StateId,
    /// The OPENs, each share once.
    shares: Vec<Share>,
    /// The shares of OPENs that a change was to give up: the server may hold them, or not.
    surplus: Vec<Share>,
    /// The server has a later `seqid`.
    is_outdated: bool,
    /// OPENs with lower numbers, which were sent before, may have changed the state before `id`.
    known_at: u64,
}

/// One open of an application.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the file stays open until it is closed"]
pub struct OpenRef<F, O> {
    key: (F, O),
    share: Share,
    number: u64,
}

/// How an OPEN by file handle says what it is for (`open_claim_type4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenClaim {
    /// `CLAIM_FH`: a new open.
    #[default]
    Handle,
    /// `CLAIM_PREVIOUS`: the client had the file open before the server restarted.
    Previous,
    /// `CLAIM_DELEG_CUR_FH`: the client has opened the file by itself, under this delegation.
    Delegation(StateId),
}

/// A request that changes what the server holds for one owner and file.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the request has to be sent, and its result reported"]
pub struct OpenChange<F, O> {
    key: (F, O),
    number: u64,
    request: OpenChangeRequest,
}

/// The requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenChangeRequest {
    /// OPEN of the file's handle, without creating or truncating anything.
    Open {
        /// The access and the denials.
        share: Share,
        /// The claim.
        claim: OpenClaim,
    },
    /// OPEN_DOWNGRADE.
    Downgrade {
        /// The state id.
        id: StateId,
        /// The access and the denials that are left.
        to: Share,
    },
    /// CLOSE.
    Close {
        /// The state id.
        id: StateId,
    },
}

impl OpenChangeRequest {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

/// Why there is no state id for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoState {
    /// The file is being opened again: I/O waits until the next [`Opens::changed`] of the file.
    #[error("the open is being recovered")]
    Recovering,
    /// The open couldn't be had back: I/O fails with EIO.
    #[error("the open was lost")]
    Lost,
}

/// Opens that couldn't be had back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostOpen<F, O> {
    /// The file.
    pub file: F,
    /// The owner.
    pub owner: O,
    /// The access and the denials.
    pub share: Share,
}

impl<O> Opening<O> {
    /// The owner.
    pub const fn owner(&self) -> &O {
        &self.owner
    }
}

impl<F, O> OpenRef<F, O> {
    /// The file.
    pub const fn file(&self) -> &F {
        &self.key.0
    }

    /// The owner.
    pub const fn owner(&self) -> &O {
        &self.key.1
    }
}

impl<F, O> OpenChange<F, O> {
    /// The file.
    pub const fn file(&self) -> &F {
        &self.key.0
    }

    /// The owner.
    pub const fn owner(&self) -> &O {
        &self.key.1
    }

    /// Whether it is part of [`Step::Reclaim`](crate::Step::Reclaim).
    pub const fn is_reclaim(&self) -> bool {
        matches!(self.request, OpenChangeRequest::Open { claim: OpenClaim::Previous, .. })
    }

    /// The request to send.
    pub const fn request(&self) -> OpenChangeRequest {
        self.request
    }
}

impl<F: Clone, O: Clone> LostOpen<F, O> {
    fn new((file, owner): &(F, O), share: Share) -> Self {
        Self { file: file.clone(), owner: owner.clone(), share }
    }
}

impl<F, O> Default for Opens<F, O> {
    fn default() -> Self {
        Self {
            opens: BTreeMap::new(),
            opening: BTreeMap::new(),
            blocked: BTreeSet::new(),
            delegated: BTreeMap::new(),
            last_number: 0,
            changes: Vec::new(),
            lost: Vec::new(),
        }
    }
}

impl<F: Clone + Ord, O: Clone + Ord> Opens<F, O> {
    /// An application opens a file. To be called before OPEN is sent.
    pub fn opening(&mut self, owner: O) -> Opening<O> {
        let number = self.next_number();
        self.opening.entry(owner.clone()).or_default().insert(number);
        Opening { owner, number }
    }

    /// The OPEN has succeeded, with the state id `id`.
    pub fn opened(&mut self, opening: Opening<O>, file: F, share: Share, id: StateId) -> OpenRef<F, O> {
        let Opening { owner, number } = opening;
        let open = self.add_user((file, owner), share);
        let now = self.last_number;
        self.opens.entry(open.key.clone()).or_default().adopt(share, id, now);
        self.end_opening(&open.key.1, number);
        self.make_change(&open.key);
        open
    }

    fn add_user(&mut self, key: (F, O), share: Share) -> OpenRef<F, O> {
        let number = self.next_number();
        let open = self.opens.entry(key.clone()).or_default();
        let number = match open.users.iter_mut().find(|users| users.share == share) {
            Some(users) => {
                users.count += 1;
                users.number
            }
            None => {
                open.users.push(Users { share, count: 1, number });
                number
            }
        };
        OpenRef { key, share, number }
    }

    /// The OPEN has failed, or wasn't sent.
    pub fn not_opened(&mut self, opening: Opening<O>) {
        self.end_opening(&opening.owner, opening.number);
    }

    /// An application closes the file.
    pub fn close(&mut self, closed: OpenRef<F, O>) {
        let OpenRef { key, share, number } = closed;
        let Some(open) = self.opens.get_mut(&key) else { return };
        let is_it = |users: &&mut Users| users.share == share && users.number == number;
        if let Some(users) = open.users.iter_mut().chain(&mut open.lost).find(is_it) {
            users.count -= 1;
            open.users.retain(|users| users.count > 0);
            open.lost.retain(|users| users.count > 0);
            self.make_change(&key);
        }
    }

    /// Whether the owner has the file open several times as `open`: closing it changes nothing at the server.
    #[must_use]
    pub fn is_repeated(&self, open: &OpenRef<F, O>) -> bool {
        let state = self.opens.get(&open.key);
        let mut users = state.into_iter().flat_map(|state| state.users.iter().chain(&state.lost));
        users.any(|users| users.number == open.number && users.count > 1)
    }

    /// The state id for I/O. Its `seqid` is 0: the OPENs of other applications don't matter.
    ///
    /// # Errors
    /// While the open is being recovered, and if it is lost.
    pub fn io_id(&self, by: &OpenRef<F, O>) -> Result<StateId, NoState> {
        let open = self.opens.get(&by.key).ok_or(NoState::Lost)?;
        if !open.users.iter().any(|users| users.number == by.number) {
            return Err(NoState::Lost);
        }
        self.state_id(open, &by.key.0, by.share).ok_or(NoState::Recovering)
    }

    /// The state id of opens with one share, if the server holds them or has delegated the file.
    fn state_id(&self, open: &OpenState, file: &F, share: Share) -> Option<StateId> {
        let held = open.held.as_ref().filter(|held| held.shares.contains(&share)).map(|held| held.id);
        let delegated = || self.delegated.get(file).filter(|delegated| delegated.serves(share));
        let delegation = || delegated().map(|delegated| delegated.id);
        held.or_else(delegation).map(StateId::any)
    }

    /// The state id for I/O of an owner that needs `access`, by any of its opens for that. `None` if it has
    /// none.
    ///
    /// # Errors
    /// As [`Opens::io_id`].
    pub fn io_id_of(&self, file: &F, owner: &O, access: u8) -> Result<Option<StateId>, NoState> {
        let Some(open) = self.opens.get(&(file.clone(), owner.clone())) else { return Ok(None) };
        let serves = |users: &&Users| users.share.access & access == access;
        let mut open_for_it = open.users.iter().filter(serves).map(|users| users.share).peekable();
        if open_for_it.peek().is_none() {
            return if open.lost.iter().any(|users| serves(&users)) { Err(NoState::Lost) } else { Ok(None) };
        }
        let state_id = open_for_it.find_map(|share| self.state_id(open, file, share));
        state_id.map(Some).ok_or(NoState::Recovering)
    }

    /// The server doesn't have the state `id` of an owner and file any more, as it answers an I/O request or
    /// TEST_STATEID ([`StateError::Gone`]).
    pub fn gone(&mut self, file: &F, owner: &O, id: StateId) {
        let key = (file.clone(), owner.clone());
        if let Some(open) = self.opens.get_mut(&key) {
            open.drop_held(id);
            self.make_change(&key);
        }
    }

    /// The state ids that the server should know, to be tested: the files, the owners, and the ids.
    pub fn state_ids(&self) -> impl Iterator<Item = (&F, &O, StateId)> {
        self.opens
            .iter()
            .filter_map(|((file, owner), open)| Some((file, owner, open.held.as_ref()?.id.any())))
    }

    /// How a change has ended, with the state id of the reply.
    pub fn changed(&mut self, change: OpenChange<F, O>, result: Result<StateId, StateError>) {
        let OpenChange { key, number, request } = change;
        let now = self.next_number();
        // There may be no entry: recovery has overtaken an OPEN, and the application has closed the file.
        let open = self.opens.entry(key.clone()).or_default();
        let is_current = open.sent.take_if(|sent| *sent == number).is_some();
        match (request, result) {
            (OpenChangeRequest::Open { share, .. }, Ok(id)) => open.adopt(share, id, now),
            (OpenChangeRequest::Open { claim: OpenClaim::Delegation(id), .. }, Err(_)) => {
                // It was revoked, or returned.
                self.drop_delegation(&key.0, id);
            }
            (OpenChangeRequest::Open { share, claim }, Err(_)) => {
                if is_current {
                    let lost = open.open_failed(share, claim);
                    self.lost.extend(lost.map(|share| LostOpen::new(&key, share)));
                }
            }
            (OpenChangeRequest::Downgrade { id, .. }, Ok(new)) => {
                if let Some(held) = open.held.as_mut().filter(|held| is_current && held.id.is_same_state(id))
                {
                    held.id = if new.is_later(held.id) { new } else { held.id };
                    held.surplus.clear();
                }
            }
            (OpenChangeRequest::Downgrade { .. }, Err(StateError::Refused | StateError::NoReclaim)) => {
                // The server goes on holding more than it should.
                if let Some(held) = open.held.as_mut().filter(|_| is_current) {
                    held.surplus.clear();
                }
            }
            (
                OpenChangeRequest::Downgrade { id, .. } | OpenChangeRequest::Close { id },
                Err(StateError::Old),
            ) => open.set_outdated(id, now),
            (OpenChangeRequest::Downgrade { id, .. } | OpenChangeRequest::Close { id }, _) => {
                open.drop_held(id);
            }
        }
        self.end_opening(&key.1, number);
        self.make_change(&key);
    }

    /// The server has restarted, or the client's lease has expired, and it holds nothing any more, also no
    /// delegations. All opens are reclaimed, and those for which that fails are opened again, by the changes
    /// that follow. Changes that were sent before are of no use; their results still have to be reported.
    pub fn recover(&mut self) {
        self.delegated.clear();
        for open in self.opens.values_mut() {
            (open.held, open.sent, open.claim) = (None, None, OpenClaim::Previous);
        }
        let keys: Vec<_> = self.opens.keys().cloned().collect();
        keys.iter().for_each(|key| self.make_change(key));
    }

    /// The client has a delegation of a file, under which it opens it for this access.
    pub(crate) fn delegate(&mut self, file: F, id: StateId, access: u8) {
        self.delegated.insert(file, Delegated { id, access, is_recalled: false });
    }

    /// An application opens a delegated file, and the server isn't told. `None` if it has to be.
    pub(crate) fn open_locally(&mut self, file: F, owner: O, share: Share) -> Option<OpenRef<F, O>> {
        let delegated = self.delegated.get(&file)?;
        let may = delegated.serves(share) && !delegated.is_recalled;
        may.then(|| self.add_user((file, owner), share))
    }

    /// The delegation will be returned: the server is told what is open.
    pub(crate) fn recall(&mut self, file: &F) {
        if let Some(delegated) = self.delegated.get_mut(file) {
            delegated.is_recalled = true;
            self.make_changes(file);
        }
    }

    /// Whether the server holds what applications have open of a file.
    pub(crate) fn is_settled(&self, file: &F) -> bool {
        let mut opens = self.opens.iter().filter(|((on, _), _)| on == file);
        opens.all(|(_, open)| open.missing().next().is_none() && open.sent.is_none())
    }

    /// The file isn't delegated any more.
    pub(crate) fn drop_delegation(&mut self, file: &F, id: StateId) {
        if self.delegated.get(file).is_some_and(|delegated| delegated.id.is_same_state(id)) {
            self.delegated.remove(file);
            self.make_changes(file);
        }
    }

    fn make_changes(&mut self, file: &F) {
        let keys: Vec<_> = self.opens.keys().filter(|(on, _)| on == file).cloned().collect();
        keys.iter().for_each(|key| self.make_change(key));
    }

    /// The changes that are due since the last call.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<OpenChange<F, O>> {
        std::mem::take(&mut self.changes)
    }

    /// The opens that were lost since the last call.
    pub fn take_lost(&mut self) -> Vec<LostOpen<F, O>> {
        std::mem::take(&mut self.lost)
    }

    const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// An OPEN was answered: closing doesn't wait for it any more.
    fn end_opening(&mut self, owner: &O, number: u64) {
        let Some(opening) = self.opening.get_mut(owner) else { return };
        opening.remove(&number);
        if opening.is_empty() {
            self.opening.remove(owner);
        }
        let (blocked, others) =
            std::mem::take(&mut self.blocked).into_iter().partition(|(_, by)| by == owner);
        self.blocked = others;
        let blocked: BTreeSet<_> = blocked;
        blocked.iter().for_each(|key| self.make_change(key));
    }

    /// Makes the change that is due for an owner and file.
    fn make_change(&mut self, key: &(F, O)) {
        let Some(open) = self.opens.get_mut(key).filter(|open| open.sent.is_none()) else { return };
        let delegated = self.delegated.get(&key.0);
        self.lost.extend(open.lose_denials().into_iter().map(|share| LostOpen::new(key, share)));
        let Some(request) = open.next_request(delegated) else {
            open.claim = OpenClaim::Handle;
            if open.is_unused() {
                self.opens.remove(key);
            }
            return;
        };
        let oldest = self.opening.get(&key.1).and_then(BTreeSet::first);
        if oldest.is_some_and(|oldest| open.must_wait(&request, *oldest)) {
            self.blocked.insert(key.clone());
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        if request.is_open() {
            self.opening.entry(key.1.clone()).or_default().insert(number);
        }
        open.sent = Some(number);
        open.give_up(&request);
        self.changes.push(OpenChange { key: key.clone(), number, request });
    }
}

impl OpenState {
    const fn is_unused(&self) -> bool {
        self.users.is_empty() && self.lost.is_empty() && self.held.is_none()
    }

    /// The applications' shares that the server doesn't hold.
    fn missing(&self) -> impl Iterator<Item = Share> {
        let is_held = |share: &Share| self.held.as_ref().is_some_and(|held| held.shares.contains(share));
        self.users.iter().map(|users| users.share).filter(move |share| !is_held(share))
    }

    fn next_request(&self, delegated: Option<&Delegated>) -> Option<OpenChangeRequest> {
        if let Some(held) = self.held.as_ref().filter(|held| held.is_outdated) {
            // The reply with the current state id was lost.
            let share = held.shares.iter().chain(&held.surplus).next().copied()?;
            return Some(OpenChangeRequest::Open { share, claim: OpenClaim::Handle });
        }
        let claim = |share| match delegated.filter(|delegated| delegated.serves(share)) {
            None => Some(self.claim),
            Some(Delegated { id, is_recalled: true, .. }) => Some(OpenClaim::Delegation(*id)),
            Some(_) => None,
        };
        let mut due = self.missing().filter_map(|share| Some((share, claim(share)?)));
        if let Some((share, claim)) = due.next() {
            return Some(OpenChangeRequest::Open { share, claim });
        }
        let Held { id, shares, surplus, .. } = self.held.as_ref()?;
        let union = |all: Share, share: &Share| all.union(*share);
        let is_used = |share: &&Share| self.users.iter().any(|users| users.share == **share);
        let to = shares.iter().filter(is_used).fold(Share::default(), union);
        match to {
            _ if self.users.is_empty() => Some(OpenChangeRequest::Close { id: *id }),
            // Locks of opens that the server doesn't know of may have been made through it.
            Share { access: 0, deny: 0 } => None,
            to if to == shares.iter().chain(surplus).fold(Share::default(), union) => None,
            to => Some(OpenChangeRequest::Downgrade { id: *id, to }),
        }
    }

    /// Whether a change waits for the reply of an OPEN. Opening what applications have open doesn't.
    fn must_wait(&self, change: &OpenChangeRequest, opening: u64) -> bool {
        let is_part = |held: &Held| opening < held.known_at && (held.is_outdated || !change.is_open());
        self.held.as_ref().is_some_and(is_part)
    }

    /// An OPEN with `share` has succeeded. `now` is the last number.
    fn adopt(&mut self, share: Share, id: StateId, now: u64) {
        match &mut self.held {
            Some(held) if held.id.is_same_state(id) => {
                if id.is_later(held.id) {
                    (held.id, held.is_outdated, held.known_at) = (id, false, now);
                }
                held.surplus.retain(|surplus| *surplus != share);
                if !held.shares.contains(&share) {
                    held.shares.push(share);
                }
            }
            // The first one, or the server has closed, or lost, what it held before.
            _ => {
                self.held = Some(Held {
                    id,
                    shares: vec![share],
                    surplus: Vec::new(),
                    is_outdated: false,
                    known_at: now,
                })
            }
        }
    }

    /// An OPEN by handle has failed. Returns the share if its opens are lost.
    fn open_failed(&mut self, share: Share, claim: OpenClaim) -> Option<Share> {
        if let Some(held) = self.held.as_mut().filter(|held| held.is_outdated) {
            // There is no way to the current state id.
            (held.id, held.is_outdated) = (held.id.any(), false);
            return None;
        }
        if self.missing().all(|missing| missing != share) {
            return None;
        }
        if claim == OpenClaim::Previous {
            self.claim = OpenClaim::Handle;
            return None;
        }
        self.lose(share)
    }

    /// Without a reclaim another client may have had what a deny mode excludes: these opens are lost.
    fn lose_denials(&mut self) -> Vec<Share> {
        let is_lost = |share: &Share| share.deny != 0 && self.claim == OpenClaim::Handle;
        let lost: Vec<_> = self.missing().filter(is_lost).collect();
        self.lost.extend(self.users.extract_if(.., |users| lost.contains(&users.share)));
        lost
    }

    fn lose(&mut self, share: Share) -> Option<Share> {
        let at = self.users.iter().position(|users| users.share == share)?;
        self.lost.push(self.users.swap_remove(at));
        Some(share)
    }

    /// From the sending of a change on the server may not hold any more what that gives up.
    fn give_up(&mut self, change: &OpenChangeRequest) {
        let to = match change {
            OpenChangeRequest::Open { .. } => return,
            OpenChangeRequest::Downgrade { to, .. } => *to,
            OpenChangeRequest::Close { .. } => Share::default(),
        };
        if let Some(held) = &mut self.held {
            held.surplus.extend(held.shares.extract_if(.., |share| !to.contains(*share)));
        }
    }

    /// The server has a later `seqid` than `id`. If no reply on its way has it, it must be found out.
    fn set_outdated(&mut self, id: StateId, now: u64) {
        if let Some(held) = self.held.as_mut().filter(|held| held.id == id) {
            (held.is_outdated, held.known_at) = (true, now);
        }
    }

    /// The server doesn't have this state any more.
    fn drop_held(&mut self, id: StateId) {
        self.held.take_if(|held| held.id.is_same_state(id));
    }
}

#[cfg(test)]
mod tests;
