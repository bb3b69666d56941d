//! A session's slot table (RFC 8881 sections 2.10.6 and 18.46): each request has a slot and the slot's next
//! sequence id, so that the server executes it once however often it arrives.
//!
//! Invariant: a slot has one request at a time. Another request gets the slot only after the server's answer,
//! or if the request never left.
//!
//! The life of a request:
//! 1. [`SlotTable::take`] gives it the lowest free slot. The caller sends it with the arguments of SEQUENCE
//!    that are in the [`TakenSlot`].
//! 2. If the connection is lost before the reply, the caller keeps the [`TakenSlot`], and sends the same
//!    bytes on another connection of the session. The server executes the request then, or repeats its reply.
//! 3. [`SlotTable::answered`], [`SlotTable::failed`] or [`SlotTable::not_executed`] gives the slot back.
//! 4. A caller that doesn't wait for the reply, because a signal or a timeout ended the call, gives the slot
//!    to [`SlotTable::abandon`]. A SEQUENCE alone with the same sequence id then finds out whether the server
//!    works on the request. If the server has never seen the request it never executes it from then on, since
//!    its sequence id is used.
//!
//! The table ends with its session: slots of an old session needn't be given back.

/// The most slots that a session uses, as many as Linux's client. The server keeps a reply for each.
pub const MAX_SLOTS: u32 = 1024;

/// Slots in a word of [`SlotTable::taken`].
const WORD: u32 = u64::BITS;

/// A session's slots.
#[derive(Debug)]
pub struct SlotTable {
    /// The sequence ids of the last executed requests, up to the highest slot that was used. The server's
    /// slots begin with 0 (RFC 8881 section 18.36.4).
    sequences: Vec<u32>,
    /// The taken slots, a bit each.
    taken: Vec<u64>,
    /// Abandoned slots, which stay taken.
    abandoned: Vec<Abandoned>,
    /// Slots that the server accepts.
    enforced: u32,
    /// Slots that the server wants to be used.
    target: u32,
    /// Goes up with each change of `enforced` and `target`. Replies arrive in any order: one to a request
    /// that was sent before the last change says nothing about them.
    generation: u32,
    /// CB_RECALL_SLOT has lowered `target`, and no request has told the server yet that the client complies.
    is_recall_pending: bool,
}

/// A slot that is taken for one request, and the arguments of its SEQUENCE. The request's caller gives it
/// back to the table.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the slot stays taken until the table gets it back"]
pub struct TakenSlot {
    slot: u32,
    sequence: u32,
    highest: u32,
    generation: u32,
}

/// An abandoned request.
#[derive(Debug)]
struct Abandoned {
    slot: u32,
    /// Whether [`SlotTable::take_abandoned`] has given it out.
    is_probed: bool,
}

/// The errors of SEQUENCE that are about the slot. A failed SEQUENCE changes nothing in the server's slot
/// (RFC 8881 section 2.10.6.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// `NFS4ERR_DELAY`: the server still executes the request that has this sequence id.
    #[error("the server works on the request")]
    Delay,
    /// `NFS4ERR_BADSLOT`: the server has withdrawn the slot.
    #[error("no such slot")]
    BadSlot,
    /// `NFS4ERR_BAD_HIGH_SLOT`.
    #[error("the highest slot is too high")]
    BadHighSlot,
    /// `NFS4ERR_SEQ_MISORDERED`: client and server disagree about the sequence id.
    #[error("not the slot's next sequence id")]
    SeqMisordered,
    /// `NFS4ERR_SEQ_FALSE_RETRY`: the server has executed another request with this sequence id.
    #[error("another request had the sequence id")]
    SeqFalseRetry,
    /// `NFS4ERR_RETRY_UNCACHED_REP`: the server has executed the request and hasn't kept the reply. Most
    /// servers report it as the error of the operation behind SEQUENCE; that is [`SlotTable::answered`].
    #[error("the reply wasn't kept")]
    RetryUncachedRep,
}

/// What the caller does with a request whose SEQUENCE failed.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Unanswered {
    /// Send the same bytes in the same slot again, after a delay.
    Repeat(TakenSlot),
    /// The server hasn't executed the request: take another slot for it.
    TakeAnother,
    /// The server has executed a request with this sequence id and has no reply to this one. The slot is
    /// free. A request that changes nothing can be sent in another slot; the result of any other is unknown.
    ReplyLost,
    /// The slots of client and server disagree. Destroy the session, and create another. If this request was
    /// sent once only, the server hasn't executed it.
    ReplaceSession,
}

impl TakenSlot {
    /// `sa_slotid`.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// `sa_sequenceid`.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// `sa_highest_slotid`: the highest slot that is taken.
    #[must_use]
    pub const fn highest(&self) -> u32 {
        self.highest
    }
}

impl SlotTable {
    /// The table of a new session with `slots` slots (`ca_maxrequests` of CREATE_SESSION's reply), of which
    /// [`MAX_SLOTS`] are used at most.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let slots = slots.clamp(1, MAX_SLOTS);
        Self {
            sequences: Vec::new(),
            taken: vec![0; MAX_SLOTS.div_ceil(WORD) as usize],
            abandoned: Vec::new(),
            enforced: slots,
            target: slots,
            generation: 0,
            is_recall_pending: false,
        }
    }

    /// Takes the lowest free slot for a request. `None` while all are taken: the caller waits until
    /// [`SlotTable::available`] isn't 0.
    pub fn take(&mut self) -> Option<TakenSlot> {
        let limit = self.limit();
        let slot = self.free_slots().next().filter(|slot| *slot < limit)?;
        let at = slot as usize;
        if self.sequences.len() <= at {
            self.sequences.resize(at + 1, 0);
        }
        self.taken[at / WORD as usize] |= 1 << (slot % WORD);
        Some(self.taken_slot(slot))
    }

    /// How many slots [`SlotTable::take`] would give now. It grows when a slot is given back, and when the
    /// server offers more.
    #[must_use]
    pub fn available(&self) -> u32 {
        let limit = self.limit();
        self.free_slots().take_while(|slot| *slot < limit).count() as u32
    }

    /// The request was executed: SEQUENCE succeeded, with these `sr_highest_slotid` and
    /// `sr_target_highest_slotid`. The errors of further operations don't matter.
    pub fn answered(&mut self, taken: TakenSlot, highest: u32, target: u32) {
        self.sequences[taken.slot as usize] = taken.sequence;
        self.free(taken.slot);
        if taken.generation == self.generation {
            self.set_limits(highest.saturating_add(1), target.saturating_add(1));
        }
    }

    /// SEQUENCE failed with an error that is about the slot.
    pub fn failed(&mut self, taken: TakenSlot, error: SlotError) -> Unanswered {
        match error {
            SlotError::Delay => Unanswered::Repeat(taken),
            SlotError::BadSlot if taken.slot > 0 => {
                self.free(taken.slot);
                self.set_limits(self.enforced.min(taken.slot), self.target);
                Unanswered::TakeAnother
            }
            SlotError::SeqFalseRetry | SlotError::RetryUncachedRep => {
                self.sequences[taken.slot as usize] = taken.sequence;
                self.free(taken.slot);
                Unanswered::ReplyLost
            }
            SlotError::BadSlot | SlotError::BadHighSlot | SlotError::SeqMisordered => {
                Unanswered::ReplaceSession
            }
        }
    }

    /// The request wasn't sent at all, or SEQUENCE failed with an error that isn't about the slot and leaves
    /// the session as it is (`NFS4ERR_REQ_TOO_BIG`, `NFS4ERR_TOO_MANY_OPS`, `NFS4ERR_BADXDR`). The slot's
    /// next request has the same sequence id.
    pub fn not_executed(&mut self, taken: TakenSlot) {
        self.free(taken.slot);
    }

    /// The request was sent, perhaps, and the caller doesn't wait for its reply. The slot stays taken; the
    /// caller sends what [`SlotTable::take_abandoned`] gives.
    pub fn abandon(&mut self, taken: TakenSlot) {
        self.abandoned.retain(|abandoned| abandoned.slot != taken.slot);
        self.abandoned.push(Abandoned { slot: taken.slot, is_probed: false });
    }

    /// The slot of an abandoned request, for a COMPOUND of SEQUENCE alone. The caller reports its result as
    /// of any other request, and nothing of [`Unanswered::ReplyLost`] or [`Unanswered::TakeAnother`] is left
    /// to be done. `None` if there is no such slot.
    pub fn take_abandoned(&mut self) -> Option<TakenSlot> {
        let abandoned = self.abandoned.iter_mut().find(|abandoned| !abandoned.is_probed)?;
        abandoned.is_probed = true;
        let slot = abandoned.slot;
        Some(self.taken_slot(slot))
    }

    /// CB_RECALL_SLOT: the server wants slots up to `target` to be used only. The caller sends a SEQUENCE
    /// alone once [`SlotTable::owes_sequence`] is true.
    pub fn recall(&mut self, target: u32) {
        self.is_recall_pending = true;
        self.set_limits(self.enforced, target.saturating_add(1));
    }

    /// Whether the slots above those of the last CB_RECALL_SLOT are free, and the server wasn't told yet by
    /// the `sa_highest_slotid` of any request (RFC 8881 section 20.8.3).
    #[must_use]
    pub fn owes_sequence(&self) -> bool {
        self.is_recall_pending && self.highest_taken().is_none_or(|highest| highest < self.target)
    }

    /// Whether the reply to a request is outstanding. A callback that names such a request as a referring
    /// call has overtaken its reply (RFC 8881 section 2.10.6.3): the caller waits for the reply for about a
    /// round trip, and then answers NFS4ERR_DELAY.
    #[must_use]
    pub fn is_outstanding(&self, slot: u32, sequence: u32) -> bool {
        self.is_taken(slot) && self.next_sequence(slot) == sequence
    }

    /// Slots that may be used.
    fn limit(&self) -> u32 {
        self.enforced.min(self.target)
    }

    fn free_slots(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.taken.iter().zip((0..MAX_SLOTS).step_by(WORD as usize));
        words.flat_map(|(word, first)| {
            let mut free = !word;
            std::iter::from_fn(move || {
                let bit = free.trailing_zeros();
                free &= free.wrapping_sub(1);
                (bit < WORD).then_some(first + bit)
            })
        })
    }

    fn highest_taken(&self) -> Option<u32> {
        let at = self.taken.iter().rposition(|word| *word != 0)?;
        Some(at as u32 * WORD + self.taken[at].ilog2())
    }

    fn is_taken(&self, slot: u32) -> bool {
        self.taken.get((slot / WORD) as usize).is_some_and(|word| word >> (slot % WORD) & 1 == 1)
    }

    fn next_sequence(&self, slot: u32) -> u32 {
        self.sequences.get(slot as usize).map_or(1, |last| last.wrapping_add(1))
    }

    /// The next request of a slot that is taken.
    fn taken_slot(&mut self, slot: u32) -> TakenSlot {
        let highest = self.highest_taken().unwrap_or(slot);
        self.is_recall_pending &= highest >= self.target;
        TakenSlot { slot, sequence: self.next_sequence(slot), highest, generation: self.generation }
    }

    fn free(&mut self, slot: u32) {
        self.abandoned.retain(|abandoned| abandoned.slot != slot);
        self.taken[(slot / WORD) as usize] &= !(1 << (slot % WORD));
        self.forget_withdrawn();
    }

    fn set_limits(&mut self, enforced: u32, target: u32) {
        let (enforced, target) = (enforced.clamp(1, MAX_SLOTS), target.clamp(1, MAX_SLOTS));
        if (enforced, target) != (self.enforced, self.target) {
            (self.enforced, self.target) = (enforced, target);
            self.generation = self.generation.wrapping_add(1);
            self.forget_withdrawn();
        }
    }

    /// Forgets the sequence ids of slots that the server has withdrawn. If it offers them again they are new
    /// ones, which begin with sequence id 1, as Linux's client has it.
    fn forget_withdrawn(&mut self) {
        let kept = self.highest_taken().map_or(0, |highest| highest + 1).max(self.enforced);
        self.sequences.truncate(kept as usize);
    }
}

#[cfg(test)]
mod tests;
