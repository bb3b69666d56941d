//! The state manager: what has to be done for the client id, the session and the lease to be good, in which
//! order (RFC 8881 sections 2.10.13, 8.3, 8.4, 18.35, 18.36 and 18.51).
//!
//! One thread of a client takes the steps: it calls [`StateManager::step`], takes the step, reports it, and
//! calls it again, also when something was reported meanwhile. A step that fails for lack of a connection, or
//! with `NFS4ERR_DELAY`, is taken again after a pause. Ordinary requests run beside it. While
//! [`StateManager::is_ready`] is false they wait, before they are sent for the first time and before they are
//! sent again.
//!
//! After a lost session a request that got no answer is sent again in the next one, in a slot of that. Within
//! one session nothing is executed twice. Over the end of a session that can't be known: as with NFSv3, a
//! request whose first copy was executed may be executed again. An answer that arrives when its session has
//! been replaced counts as none: it may be about state that has ended since.
//!
//! Invariants:
//! - What the server has lost is reclaimed before it is told that this is all (RECLAIM_COMPLETE), and before
//!   any ordinary request.
//! - The lease is counted from the sending of a SEQUENCE that succeeded: at the server it ends later.

use std::time::{Duration, Instant};

/// The shortest time between two renewals, whatever makes the client ask: a server that ends each connection
/// after a reply isn't flooded.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// State was revoked: `SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED`, `SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED`,
/// `SEQ4_STATUS_ADMIN_STATE_REVOKED`, `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`.
const REVOKED: u32 = 0x78;
/// `SEQ4_STATUS_RESTART_RECLAIM_NEEDED`.
const RECLAIM_NEEDED: u32 = 0x100;
/// `SEQ4_STATUS_CB_PATH_DOWN` and `SEQ4_STATUS_CB_PATH_DOWN_SESSION`.
const CB_PATH_DOWN: u32 = 0x201;
/// `SEQ4_STATUS_BACKCHANNEL_FAULT`.
const BACKCHANNEL_FAULT: u32 = 0x400;

/// The client id, the session and the lease of a client of one server.
#[derive(Debug)]
pub struct StateManager {
    phase: Phase,
    /// The client id that has had a session, and the sequence id of its next CREATE_SESSION.
    confirmed: Option<(u64, u32)>,
    /// The client id that the server gave last.
    client: Option<u64>,
    /// The number of the last session.
    session: u64,
    /// How often the server has lost the client's state.
    losses: u64,
    /// What was lost last isn't reclaimed yet, or the server isn't told yet that it is.
    must_reclaim: bool,
    /// All of it was reclaimed; RECLAIM_COMPLETE is due.
    is_reclaimed: bool,
    /// When the last RECLAIM_COMPLETE was answered.
    completed: Option<Instant>,
    /// It was another server's, which has nothing to do with the present one.
    is_foreign: bool,
    must_bind: bool,
    must_test: bool,
    /// Since when state is said to be revoked that the last test hasn't found: a request that is sent from
    /// then on, and is answered so, leads to another test.
    test_again: Option<Instant>,
    /// The last test has found nothing, and the server hasn't said since that no state is revoked.
    was_fruitless: bool,
    /// The status flags of the last SEQUENCE. A flag that stays set was dealt with already. The loss
    /// of a connection makes [`CB_PATH_DOWN`] a new one.
    flags: u32,
    lease: Duration,
    /// When the last SEQUENCE that succeeded was sent.
    renewed: Option<Instant>,
    /// When the last connection was lost. Perhaps the server has restarted.
    disconnected: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The server gave no client id yet, or doesn't know it any more.
    NoClientId,
    /// The client id has no session. `sequence` is that of the next CREATE_SESSION.
    NoSession { client: u64, sequence: u32 },
    /// The session is good.
    Session,
    /// The session has to be replaced.
    BadSession,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// EXCHANGE_ID, with the client owner and verifier of this run of the client. Then
    /// [`StateManager::exchanged`].
    ExchangeId,
    /// Wait for the outstanding replies, for a round trip or so, and send DESTROY_SESSION. Then
    /// [`StateManager::session_destroyed`], whatever its result is.
    DestroySession,
    /// CREATE_SESSION, with a back channel on its connection. Then [`StateManager::session_created`], or
    /// [`StateManager::session_refused`] for any error but `NFS4ERR_DELAY`.
    CreateSession {
        /// `csa_clientid`.
        client: u64,
        /// `csa_sequence`.
        sequence: u32,
    },
    /// BIND_CONN_TO_SESSION for every connection, with the back channel (`CDFC4_FORE_OR_BOTH`). Then
    /// [`StateManager::bound`].
    BindConnections,
    /// Reclaim everything. If `loss` is a new number, the server has nothing of the client's:
    /// [`Delegations::recover`](crate::Delegations::recover), [`Opens::recover`](crate::Opens::recover), and
    /// once these reclaims are answered, [`Locks::recover`](crate::Locks::recover). Reclaims of an earlier
    /// loss are over. When all are answered: [`StateManager::reclaimed`]. The other changes wait until
    /// [`StateManager::is_ready`]: before RECLAIM_COMPLETE the server refuses them.
    Reclaim {
        /// The number of the loss.
        loss: u64,
    },
    /// RECLAIM_COMPLETE of all filesystems. Then [`StateManager::reclaim_completed`], also for
    /// `NFS4ERR_COMPLETE_ALREADY`.
    ReclaimComplete,
    /// TEST_STATEID of all state ids ([`Opens::state_ids`](crate::Opens::state_ids) and those of
    /// [`Locks`](crate::Locks) and [`Delegations`](crate::Delegations)). For each that is bad: FREE_STATEID,
    /// and the method `gone` of the same. Then [`StateManager::tested`].
    TestStates,
    /// A SEQUENCE alone, which renews the lease.
    Renew,
    /// Nothing until then, unless something is reported.
    Wait(Instant),
}

/// Why the request of a session failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// `NFS4ERR_BADSESSION` and `NFS4ERR_DEADSESSION`.
    #[error("the server doesn't know the session")]
    Unknown,
    /// `NFS4ERR_CONN_NOT_BOUND_TO_SESSION`.
    #[error("the connection isn't bound to the session")]
    NotBound,
    /// [`Unanswered::ReplaceSession`](crate::Unanswered::ReplaceSession).
    #[error("the slots of client and server disagree")]
    Disordered,
    /// `NFS4ERR_STALE_CLIENTID`.
    #[error("the server doesn't know the client")]
    StaleClientId,
}

impl StateManager {
    /// A client without a client id. `lease` is the server's lease time, or what is taken for it until the
    /// server tells ([`StateManager::set_lease`]).
    #[must_use]
    pub const fn new(lease: Duration) -> Self {
        Self {
            phase: Phase::NoClientId,
            confirmed: None,
            client: None,
            session: 0,
            losses: 0,
            must_reclaim: true,
            is_reclaimed: false,
            completed: None,
            is_foreign: false,
            must_bind: false,
            must_test: false,
            test_again: None,
            was_fruitless: false,
            flags: 0,
            lease,
            renewed: None,
            disconnected: None,
        }
    }

    /// The server's lease time, its attribute `lease_time`.
    pub const fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    /// What to do now.
    #[must_use]
    pub fn step(&self, now: Instant) -> Step {
        match self.phase {
            Phase::NoClientId => Step::ExchangeId,
            Phase::NoSession { client, sequence } => Step::CreateSession { client, sequence },
            Phase::BadSession => Step::DestroySession,
            Phase::Session if self.must_bind => Step::BindConnections,
            Phase::Session if self.is_reclaimed => Step::ReclaimComplete,
            Phase::Session if self.must_reclaim => Step::Reclaim { loss: self.losses },
            Phase::Session if self.must_test => Step::TestStates,
            Phase::Session => self.renewal().filter(|at| *at > now).map_or(Step::Renew, Step::Wait),
        }
    }

    /// When the next renewal is due. `None` is at once.
    fn renewal(&self) -> Option<Instant> {
        let renewed = self.renewed?;
        // Two thirds, as Linux's client: there is time for a second attempt.
        let regular = renewed + self.lease * 2 / 3;
        let lost = self.disconnected.filter(|lost| *lost >= renewed);
        Some(lost.map_or(regular, |lost| regular.min(lost.max(renewed + MIN_RENEWAL_INTERVAL))))
    }

    /// Whether ordinary requests may be sent: there is a session, and nothing is left to be reclaimed.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Session) && !self.must_reclaim
    }

    /// Whether the server keeps the client's state for certain. If not, a lock, a deny mode or a delegation
    /// must not be relied on without asking the server.
    #[must_use]
    pub fn is_lease_valid(&self, now: Instant) -> bool {
        self.valid_until().is_some_and(|end| now < end)
    }

    /// Until when [`StateManager::is_lease_valid`], unless something is reported before. `None`: it isn't.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        // What the server has revoked isn't known before the test.
        let is_certain = self.is_ready() && !self.must_test;
        self.renewed.filter(|_| is_certain).map(|renewed| renewed + self.lease)
    }

    /// The number of the session, to report by which one a request was sent.
    #[must_use]
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// EXCHANGE_ID has succeeded. A client id that isn't `confirmed` (`EXCHGID4_FLAG_CONFIRMED_R`), or that
    /// is another one than before, has no state.
    pub fn exchanged(&mut self, client: u64, sequence: u32, confirmed: bool) {
        if !confirmed || self.client.is_some_and(|before| before != client) {
            self.confirmed = None;
            self.lose_state();
        }
        self.client = Some(client);
        // The server's sequence id is that of a client's first CREATE_SESSION.
        let known = self.confirmed.filter(|(known, _)| *known == client);
        let (client, sequence) = known.unwrap_or((client, sequence));
        self.phase = Phase::NoSession { client, sequence };
    }

    /// The reply to EXCHANGE_ID is another server's than before: `eir_server_owner.so_major_id` has changed,
    /// or `eir_server_scope`, too. To be called before [`StateManager::exchanged`]: a client id and a flag
    /// that happen to be the same mean nothing. In another scope nothing is reclaimed (RFC 8881 sections
    /// 2.10.5 and 8.4.2.1).
    pub fn server_changed(&mut self, is_other_scope: bool) {
        (self.confirmed, self.client) = (None, None);
        self.is_foreign |= is_other_scope;
        self.lose_state();
    }

    /// Whether the server may have been told of the lost state by whoever had it: if not, reclaims fail as
    /// [`StateError::NoReclaim`](crate::StateError::NoReclaim), without being sent.
    #[must_use]
    pub const fn can_reclaim(&self) -> bool {
        !self.is_foreign
    }

    /// CREATE_SESSION has succeeded. The slots of the new session are new, too.
    pub const fn session_created(&mut self) {
        if let Phase::NoSession { client, sequence } = self.phase {
            self.phase = Phase::Session;
            self.confirmed = Some((client, sequence.wrapping_add(1)));
            self.session += 1;
            (self.flags, self.must_bind) = (0, false);
        }
    }

    /// CREATE_SESSION has failed: the server doesn't know the client id (`NFS4ERR_STALE_CLIENTID`), or
    /// expects another sequence id.
    pub const fn session_refused(&mut self) {
        (self.phase, self.confirmed) = (Phase::NoClientId, None);
    }

    /// DESTROY_SESSION was answered.
    pub const fn session_destroyed(&mut self) {
        if matches!(self.phase, Phase::BadSession) {
            self.lose_session();
        }
    }

    /// The next step makes another session.
    const fn lose_session(&mut self) {
        self.phase = match self.confirmed {
            Some((client, sequence)) => Phase::NoSession { client, sequence },
            None => Phase::NoClientId,
        };
    }

    /// A connection was lost. A renewal is due: if the server has restarted, it waits for its clients'
    /// reclaims; if not, it may have lost the session's back channel, and says so in its reply.
    pub fn disconnected(&mut self, now: Instant) {
        self.disconnected = self.disconnected.max(Some(now));
        // BIND_CONN_TO_SESSION brings no flags: the last ones may still say what it has repaired.
        self.flags &= !CB_PATH_DOWN;
    }

    /// The connections are bound.
    pub const fn bound(&mut self) {
        self.must_bind = false;
    }

    /// Nothing is left to be reclaimed of what that loss was of: the server has it, or it can't be had back.
    pub const fn reclaimed(&mut self, loss: u64) {
        self.is_reclaimed = self.must_reclaim && loss == self.losses;
    }

    const fn lose_state(&mut self) {
        self.losses += 1;
        (self.must_reclaim, self.is_reclaimed) = (true, false);
    }

    /// RECLAIM_COMPLETE was answered by `now`.
    pub const fn reclaim_completed(&mut self, now: Instant) {
        (self.must_reclaim, self.is_reclaimed, self.is_foreign) = (false, false, false);
        self.completed = Some(now);
        self.flags &= !RECLAIM_NEEDED;
    }

    /// All state ids were tested by `now`. A reply to a later request that says again that state was revoked
    /// is about other state than was found, by the test or before it by another request. If two tests in
    /// turn find nothing, the server may go on saying so because of state that the client doesn't know: it is
    /// believed again after a lease.
    pub fn tested(&mut self, now: Instant, has_found: bool) {
        self.must_test = false;
        let is_fruitless = !has_found;
        let was_fruitless = std::mem::replace(&mut self.was_fruitless, is_fruitless);
        self.test_again = Some(if is_fruitless && was_fruitless { now + self.lease } else { now });
    }

    /// Whether the server says that it has revoked state of the client, and that the client hasn't freed all
    /// of that.
    #[must_use]
    pub const fn has_revoked_state(&self) -> bool {
        self.flags & REVOKED != 0
    }

    /// A SEQUENCE of `session`, sent at `sent`, has succeeded, with these `sr_status_flags`.
    pub fn sequenced(&mut self, session: u64, sent: Instant, flags: u32) {
        if session != self.session || self.phase != Phase::Session {
            return;
        }
        self.renewed = self.renewed.max(Some(sent));
        // Replies arrive in any order: that to a request from before RECLAIM_COMPLETE says nothing of later
        // losses.
        let is_outdated = self.completed.is_some_and(|at| sent <= at);
        let flags = if is_outdated { flags & !RECLAIM_NEEDED } else { flags };
        let new = flags & !self.flags;
        self.flags = flags;
        if flags & REVOKED == 0 {
            (self.test_again, self.was_fruitless) = (None, false);
        }
        let is_again = flags & REVOKED != 0 && self.test_again.is_some_and(|at| sent >= at);
        self.must_test |= new & REVOKED != 0 || is_again;
        self.must_bind |= new & CB_PATH_DOWN != 0;
        if new & RECLAIM_NEEDED != 0 && !self.must_reclaim {
            self.lose_state();
        }
        if new & BACKCHANNEL_FAULT != 0 {
            self.phase = Phase::BadSession;
        }
    }

    /// A request of `session` has failed for a reason that concerns the whole session.
    pub fn failed(&mut self, session: u64, error: SessionError) {
        if session != self.session || self.phase != Phase::Session {
            return;
        }
        match error {
            SessionError::Unknown => self.lose_session(),
            SessionError::Disordered => self.phase = Phase::BadSession,
            SessionError::StaleClientId => self.session_refused(),
            SessionError::NotBound => self.must_bind = true,
        }
    }
}

#[cfg(test)]
mod tests;
