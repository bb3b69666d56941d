//! The retransmission policy: what to do when the server doesn't answer. A state machine without sockets,
//! with the clock passed in.
//!
//! The rules are the kernel client's for TCP:
//! - A call that has waited `timeo × (retrans + 1)`, at most ten minutes, has failed if the client is soft.
//!   If it is hard, a connection without progress for so long is given up, and the call is resent on the next
//!   one.
//! - A lost connection is made again when a call waits: at once the first time, then after delays that double
//!   from 20 ms to 5 s. Only a valid reply shows that the server works and ends the doubling, so a server
//!   that accepts connections and sends garbage isn't flooded either.
//! - After a reconnect every unanswered call is resent.

use std::time::{Duration, Instant};

/// The shortest delay between two attempts to connect.
pub const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(20);

/// The longest delay between two attempts to connect.
pub const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);

/// The longest timeout (nfs(5): timeouts grow up to a maximum of 600 seconds).
pub const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// When a call counts as unanswered, and what follows: `timeo`, `retrans`, `hard` and `soft` of nfs(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long a reply may take before it counts as one retry.
    pub timeo: Duration,
    /// Retries before the timeout.
    pub retrans: u32,
    /// Whether calls are retried without a limit (true) or fail (false).
    pub hard: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { timeo: Duration::from_secs(60), retrans: 2, hard: true }
    }
}

impl Policy {
    /// A call fails when its reply takes longer than `timeout`.
    #[must_use]
    pub const fn soft(timeout: Duration) -> Self {
        Self { timeo: timeout, retrans: 0, hard: false }
    }

    /// The timeout of a call: `timeo × (retrans + 1)`, at most [`MAX_TIMEOUT`].
    #[must_use]
    pub fn timeout(&self) -> Duration {
        let wait = self.timeo.saturating_mul(self.retrans.saturating_add(1));
        wait.clamp(Duration::from_millis(1), MAX_TIMEOUT)
    }
}

/// What to do with a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAction {
    /// Nothing before this time.
    Wait(Instant),
    /// It has failed.
    GiveUp,
    /// Give the connection up, and resend the call on the next one.
    Reconnect,
}

/// The recovery state of one connection and its successors.
#[derive(Debug)]
pub struct Recovery {
    policy: Policy,
    /// Failed attempts in a row.
    failures: u32,
    /// The earliest time of the next attempt.
    not_before: Option<Instant>,
}

impl Recovery {
    /// The initial state.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, failures: 0, not_before: None }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Notes a valid reply.
    pub const fn answered(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// Notes that a connection was lost or couldn't be made. `random` spreads the attempts of many clients
    /// over time.
    pub fn lost(&mut self, now: Instant, random: u32) {
        self.not_before = match self.failures {
            0 => None,
            failures => {
                let pause =
                    MIN_RECONNECT_DELAY.saturating_mul(1 << (failures - 1).min(16)).min(MAX_RECONNECT_DELAY);
                // Between three quarters and five quarters of the delay.
                Some(now + pause * 3 / 4 + pause / 2 * (random >> 16) / (1 << 16))
            }
        };
        self.failures = self.failures.saturating_add(1);
    }

    /// Attempts in a row that came to nothing.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The earliest time of the next attempt to connect.
    #[must_use]
    pub fn connect_at(&self, now: Instant) -> Instant {
        self.not_before.map_or(now, |at| at.max(now))
    }

    /// Whether a call that has waited since `since` has timed out.
    #[must_use]
    pub fn is_late(&self, since: Instant, now: Instant) -> bool {
        now >= since + self.policy.timeout()
    }

    /// What to do with a call that has waited since `since` (since it was made for a soft client, since it
    /// was last sent for a hard one). `sent` means that it was sent on the connection that stands now.
    #[must_use]
    pub fn verdict(&self, since: Instant, sent: bool, now: Instant) -> RetryAction {
        let end = since + self.policy.timeout();
        match (self.is_late(since, now), self.policy.hard, sent) {
            (false, ..) => RetryAction::Wait(end),
            (true, false, _) => RetryAction::GiveUp,
            (true, true, true) => RetryAction::Reconnect,
            (true, true, false) => RetryAction::Wait(now + self.policy.timeout()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn policy(hard: bool) -> Policy {
        Policy { timeo: Duration::from_secs(10), retrans: 2, hard }
    }

    #[test]
    fn soft_gives_up_and_hard_reconnects_after_the_same_time() {
        let start = Instant::now();
        let late = start + Duration::from_secs(30);
        let early = late - Duration::from_millis(1);
        for hard in [false, true] {
            let recovery = Recovery::new(policy(hard));
            assert_eq!(recovery.verdict(start, true, early), RetryAction::Wait(late));
            let then = if hard { RetryAction::Reconnect } else { RetryAction::GiveUp };
            assert_eq!(recovery.verdict(start, true, late), then);
        }
        assert_eq!(Recovery::new(policy(false)).verdict(start, false, late), RetryAction::GiveUp);
        assert!(matches!(Recovery::new(policy(true)).verdict(start, false, late), RetryAction::Wait(_)));
    }

    #[test]
    fn the_first_attempt_is_made_at_once_and_pauses_double_up_to_a_bound() {
        let now = Instant::now();
        let mut recovery = Recovery::new(policy(true));
        recovery.lost(now, 0);
        assert_eq!(recovery.connect_at(now), now);
        let mut last = Duration::ZERO;
        for round in 0..40 {
            recovery.lost(now, if round % 2 == 0 { 0 } else { u32::MAX });
            let pause = recovery.connect_at(now) - now;
            assert!(
                pause >= MIN_RECONNECT_DELAY * 3 / 4 && pause <= MAX_RECONNECT_DELAY * 5 / 4,
                "{pause:?}"
            );
            last = pause;
        }
        assert!(last >= MAX_RECONNECT_DELAY * 3 / 4);
        recovery.answered();
        recovery.lost(now, 7);
        assert_eq!(recovery.connect_at(now), now);
    }

    #[test]
    fn a_connection_that_never_answers_is_not_made_again_at_once() {
        let now = Instant::now();
        let mut recovery = Recovery::new(policy(true));
        recovery.lost(now, 0); // connected again, and lost again without a reply
        recovery.lost(now, 0);
        assert!(recovery.connect_at(now) > now);
    }

    #[test]
    fn absurd_policies_do_not_overflow() {
        let policy = Policy { timeo: Duration::ZERO, retrans: u32::MAX, hard: false };
        assert!(policy.timeout() > Duration::ZERO);
        let policy = Policy { timeo: Duration::from_secs(3600), ..policy };
        assert_eq!(policy.timeout(), MAX_TIMEOUT);
    }
}
