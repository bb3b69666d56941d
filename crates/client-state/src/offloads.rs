//! The asynchronous copies that a server makes for a client (RFC 7862 sections 4.8, 15.2, 15.8, 15.9 and
//! 16.1): which of them the client waits for, and when it asks the server about one.
//!
//! 1. [`Offloads::starting`]: a COPY is about to be sent. CB_OFFLOAD may overtake its reply.
//! 2. [`Offloads::started`] if the reply names an asynchronous copy, and otherwise [`Offloads::not_started`].
//! 3. [`Offloads::step`] says what to do about the copy. [`Offloads::ended`] reports a CB_OFFLOAD, and
//!    [`Offloads::asked`] the answer to an OFFLOAD_STATUS. Callbacks get lost, so the server is asked in any
//!    case, with pauses that double, and at once when something shows that a callback may have been lost
//!    ([`Offloads::doubt`]).
//! 4. [`Offloads::finish`]: nobody waits any more. It tells whether OFFLOAD_CANCEL is due.
//!
//! Invariants:
//! - A copy has one end: the first that is reported counts.
//! - What a server can make the client keep is bounded: the copies are those of COPYs that the client has
//!   sent, and of ends that come before the reply there are [`MAX_EARLY_ENDS`], each for as long as a COPY is
//!   on its way that was when the end came.
//! - A copy doesn't outlive the client id. Afterwards the server may use its state id for another copy, so
//!   the server isn't asked about the former any more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ids::StateId;

/// The pause before the server is asked about a copy. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The ends that are kept of copies whose COPY isn't answered yet.
pub const MAX_EARLY_ENDS: usize = 64;

/// After this many answers in a row that say nothing, the server isn't asked any more.
const MAX_INCONCLUSIVE: u32 = 8;

/// The asynchronous copies of a client. `F` names the file that is written, `R` is how a copy has ended.
#[derive(Debug)]
pub struct Offloads<F, R> {
    /// The COPYs on their way, by number, and the files that they write.
    starting: BTreeMap<u64, F>,
    last_number: u64,
    /// The asynchronous copies, by the numbers of their COPYs.
    copies: BTreeMap<u64, Copying<F, R>>,
    early: Vec<EarlyEnd<F, R>>,
    /// The first session of the client id.
    first_session: u64,
    stall_limit: Option<Duration>,
}

/// A COPY on its way. To be given back to [`Offloads::started`] or [`Offloads::not_started`].
#[derive(Debug, PartialEq, Eq)]
pub struct StartingCopy<F> {
    number: u64,
    file: F,
}

/// An asynchronous copy. To be given back to [`Offloads::finish`].
#[derive(Debug, PartialEq, Eq)]
pub struct OffloadRef<F> {
    number: u64,
    file: F,
    id: StateId,
    /// The session in which the COPY was answered.
    session: u64,
}

/// The end of a copy whose COPY isn't answered yet.
#[derive(Debug)]
struct EarlyEnd<F, R> {
    file: F,
    id: StateId,
    end: R,
    /// The last COPY that was on its way. The end is of this or of an earlier one.
    last_number: u64,
}

#[derive(Debug)]
struct Copying<F, R> {
    file: F,
    id: StateId,
    phase: Phase<R>,
    /// The session in which the COPY was answered.
    session: u64,
    /// The bytes that the server has reported.
    copied: u64,
    /// When the server reported more than before.
    progressed: Instant,
    /// When the server's last answer came.
    asked: Option<Instant>,
    /// When the server is asked.
    next: Instant,
    pause: Duration,
    /// The answers in a row that said nothing.
    inconclusive: u32,
}

#[derive(Debug)]
enum Phase<R> {
    Running,
    /// `reported`: by CB_OFFLOAD, so that the server forgets the copy (RFC 7862 section 4.8), and may give
    /// its id to another.
    Ended {
        end: R,
        reported: bool,
    },
    Lost,
}

impl<F: PartialEq, R> Copying<F, R> {
    fn is(&self, file: &F, id: StateId) -> bool {
        self.id == id && self.file == *file
    }

    const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }
}

/// What to do about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffloadStep<R> {
    /// Nothing until then, unless something is reported.
    Wait(Instant),
    /// OFFLOAD_STATUS. Then [`Offloads::asked`].
    Ask,
    /// It has ended.
    Ended(R),
    /// The server doesn't have the copy any more. It had reported this many bytes as copied.
    Lost {
        /// Bytes.
        copied: u64,
    },
    /// The server neither calls back nor answers questions about the copy.
    Inconclusive {
        /// The bytes that it had reported as copied.
        copied: u64,
    },
    /// It has made no progress for as long as it may.
    Stalled,
}

/// The answer to an OFFLOAD_STATUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffloadAnswer<R> {
    /// The copy goes on. This many bytes are copied.
    Running(u64),
    /// It has ended.
    Ended(R),
    /// The server doesn't know it: `NFS4ERR_BAD_STATEID` and its relatives.
    Unknown,
    /// Any other error. It says nothing about the copy (RFC 7862 section 15.9.3).
    Inconclusive,
}

/// The client's answer to a CB_OFFLOAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndAnswer {
    /// `NFS4_OK`.
    Taken,
    /// `NFS4ERR_BAD_STATEID`: nobody waits for such a copy.
    Unknown,
    /// `NFS4ERR_DELAY`: there is no room for the end of a copy whose COPY isn't answered yet.
    Later,
}

/// A state id that the server has given to another copy of the same file, which hasn't ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server has given this state id to another copy")]
pub struct DuplicateOffload;

impl<F: Clone + Ord, R: Clone> Offloads<F, R> {
    /// No copies. `stall_limit` is how long a copy may make no progress; `None` is any time.
    #[must_use]
    pub const fn new(stall_limit: Option<Duration>) -> Self {
        Self {
            starting: BTreeMap::new(),
            last_number: 0,
            copies: BTreeMap::new(),
            early: Vec::new(),
            first_session: 0,
            stall_limit,
        }
    }

    /// A COPY to `file` is about to be sent.
    pub fn starting(&mut self, file: F) -> StartingCopy<F> {
        self.last_number += 1;
        self.starting.insert(self.last_number, file.clone());
        StartingCopy { number: self.last_number, file }
    }

    /// A COPY has begun no asynchronous copy, or nobody learns whether it has.
    pub fn not_started(&mut self, starting: StartingCopy<F>) {
        self.answered(starting.number);
    }

    /// The reply to a COPY, which came in the session with this number, names an asynchronous copy.
    ///
    /// # Errors
    /// The server has given the id to another copy of the file, which hasn't ended.
    pub fn started(
        &mut self,
        starting: StartingCopy<F>,
        id: StateId,
        session: u64,
        now: Instant,
    ) -> Result<OffloadRef<F>, DuplicateOffload> {
        let StartingCopy { number, file } = starting;
        let is_current = session >= self.first_session;
        let is_it = |early: &EarlyEnd<F, R>| is_current && early.id == id && early.file == file;
        let early = self.early.iter().position(is_it);
        let early = early.map(|at| self.early.swap_remove(at).end);
        self.answered(number);
        let mut copies = self.copies.values();
        if is_current && copies.any(|copying| copying.is_running() && copying.is(&file, id)) {
            return Err(DuplicateOffload);
        }
        let phase = match early {
            Some(end) => Phase::Ended { end, reported: true },
            None if is_current => Phase::Running,
            None => Phase::Lost,
        };
        let copying = Copying {
            file: file.clone(),
            id,
            phase,
            session,
            copied: 0,
            progressed: now,
            asked: None,
            next: now + MIN_PAUSE,
            pause: MIN_PAUSE,
            inconclusive: 0,
        };
        self.copies.insert(number, copying);
        Ok(OffloadRef { number, file, id, session })
    }

    /// A COPY isn't on its way any more. Early ends that can't be those of the remaining ones are nobody's.
    fn answered(&mut self, number: u64) {
        self.starting.remove(&number);
        let oldest = self.starting.keys().next().copied();
        self.early.retain(|early| oldest.is_some_and(|oldest| oldest <= early.last_number));
    }

    /// CB_OFFLOAD: a copy to `file` has ended.
    pub fn ended(&mut self, file: F, id: StateId, end: R) -> EndAnswer {
        let first_session = self.first_session;
        let is_it = |copying: &Copying<F, R>| copying.session >= first_session && copying.is(&file, id);
        if let Some(copying) = self.copies.values_mut().find(|one| one.is_running() && is_it(one)) {
            copying.phase = Phase::Ended { end, reported: true };
            return EndAnswer::Taken;
        }
        // It is repeated, or the client has asked meanwhile.
        for copying in self.copies.values_mut().filter(|one| is_it(one)) {
            if let Phase::Ended { reported, .. } = &mut copying.phase {
                *reported = true;
                return EndAnswer::Taken;
            }
        }
        if !self.starting.values().any(|target| *target == file) {
            return EndAnswer::Unknown;
        }
        if self.early.iter().any(|early| early.id == id && early.file == file) {
            return EndAnswer::Taken;
        }
        if self.early.len() >= MAX_EARLY_ENDS {
            return EndAnswer::Later;
        }
        self.early.push(EarlyEnd { file, id, end, last_number: self.last_number });
        EndAnswer::Taken
    }

    /// What to do about a copy now.
    #[must_use]
    pub fn step(&self, copy: &OffloadRef<F>, now: Instant) -> OffloadStep<R> {
        let Some(copying) = self.copies.get(&copy.number) else { return OffloadStep::Lost { copied: 0 } };
        let copied = copying.copied;
        match &copying.phase {
            Phase::Ended { end, .. } => return OffloadStep::Ended(end.clone()),
            Phase::Lost => return OffloadStep::Lost { copied },
            Phase::Running => {}
        }
        let until = self.stall_limit.map(|stall_limit| copying.progressed + stall_limit);
        if until.is_some_and(|until| until <= now) {
            return OffloadStep::Stalled;
        }
        if copying.inconclusive >= MAX_INCONCLUSIVE {
            return OffloadStep::Inconclusive { copied };
        }
        if copying.next <= now {
            return OffloadStep::Ask;
        }
        OffloadStep::Wait(until.map_or(copying.next, |until| until.min(copying.next)))
    }

    /// OFFLOAD_STATUS was answered.
    pub fn asked(&mut self, copy: &OffloadRef<F>, now: Instant, answer: OffloadAnswer<R>) {
        let Some(copying) = self.copies.get_mut(&copy.number) else { return };
        if !copying.is_running() {
            return;
        }
        copying.asked = Some(now);
        copying.pause = (copying.pause * 2).min(MAX_PAUSE);
        copying.next = now + copying.pause;
        copying.inconclusive =
            if matches!(answer, OffloadAnswer::Inconclusive) { copying.inconclusive + 1 } else { 0 };
        match answer {
            OffloadAnswer::Running(count) if count > copying.copied => {
                (copying.copied, copying.progressed) = (count, now);
            }
            OffloadAnswer::Running(_) | OffloadAnswer::Inconclusive => {}
            OffloadAnswer::Ended(end) => copying.phase = Phase::Ended { end, reported: false },
            OffloadAnswer::Unknown => copying.phase = Phase::Lost,
        }
    }

    /// Callbacks may have been lost, because a connection was lost or the session replaced: the server is
    /// asked about each copy, unless it has just been.
    pub fn doubt(&mut self, now: Instant) {
        for copying in self.copies.values_mut() {
            let soonest = copying.asked.map_or(now, |asked| now.max(asked + MIN_PAUSE));
            copying.next = copying.next.min(soonest);
        }
    }

    /// The server has lost the client's state, and its first session since is this one: the copies that were
    /// begun before are lost.
    pub fn recover(&mut self, session: u64, now: Instant) {
        self.first_session = session;
        self.early.clear();
        for copying in self.copies.values_mut() {
            if copying.session < session && copying.is_running() {
                copying.phase = Phase::Lost;
            }
        }
        self.doubt(now);
    }

    /// Whether the state id may be the copy's at the server: the client id is the same as then.
    #[must_use]
    pub const fn is_named(&self, copy: &OffloadRef<F>) -> bool {
        copy.session >= self.first_session
    }

    /// Nobody waits for a copy any more. Returns whether OFFLOAD_CANCEL is due, while
    /// [`Offloads::is_named`]: the copy may be running, or the server keeps it until it has the answer to a
    /// CB_OFFLOAD.
    #[must_use]
    pub fn finish(&mut self, copy: &OffloadRef<F>) -> bool {
        let copying = self.copies.remove(&copy.number);
        let is_kept =
            |phase: &Phase<R>| matches!(phase, Phase::Running | Phase::Ended { reported: false, .. });
        self.is_named(copy) && copying.is_some_and(|copying| is_kept(&copying.phase))
    }
}

impl<F> OffloadRef<F> {
    /// The file that is written.
    pub const fn file(&self) -> &F {
        &self.file
    }

    /// The server's name of the copy.
    pub const fn id(&self) -> StateId {
        self.id
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
