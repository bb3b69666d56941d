//! What to do when the server does not answer: a machine without sockets, and with the clock passed in.
//!
//! The rules are the kernel client's for TCP:
//! - a call that has waited `timeo × (retrans + 1)`, or ten minutes, has failed if the client is soft. If it
//!   is hard, a connection that stood still for so long is given up, and the call goes out again on the next
//!   one;
//! - a lost connection is made again when somebody waits for an answer: at once the first time, then after
//!   pauses that double from 20 ms to 5 s. Only a reply that makes sense shows that the server is well and
//!   ends the doubling, so a server that accepts connections and spits garbage is not hammered either;
//! - after a reconnect everything unanswered is sent again.

use std::time::{Duration, Instant};

/// The first pause between two attempts to connect.
pub const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause between two attempts to connect.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// No call waits longer before something happens (nfs(5): timeouts grow up to a maximum of 600 seconds).
pub const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

/// When a call counts as unanswered, and what then: `timeo`, `retrans`, `hard` and `soft` of nfs(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long an answer may take before it counts as one retry.
    pub timeo: Duration,
    /// Retries before something happens.
    pub retrans: u32,
    /// Go on for ever (true), or fail (false).
    pub hard: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { timeo: Duration::from_secs(60), retrans: 2, hard: true }
    }
}

impl Policy {
    /// How long a call waits before something happens: `timeo × (retrans + 1)`, at most [`LONGEST_PATIENCE`].
    #[must_use]
    pub fn patience(&self) -> Duration {
        let wait = self.timeo.saturating_mul(self.retrans.saturating_add(1));
        wait.clamp(Duration::from_millis(1), LONGEST_PATIENCE)
    }
}

/// What is to become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing before this time.
    Wait(Instant),
    /// It has failed.
    GiveUp,
    /// Its connection is dead: make another and send it again.
    Reconnect,
}

/// The life of one connection and its successors.
#[derive(Debug)]
pub struct Recovery {
    policy: Policy,
    /// Attempts in a row that came to nothing.
    failures: u32,
    /// The next attempt may not be made before.
    not_before: Option<Instant>,
}

impl Recovery {
    /// A connection under this policy.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, failures: 0, not_before: None }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A reply came that makes sense.
    pub const fn answered(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// A connection was lost, or could not be made. `random` spreads the attempts of many clients over time.
    pub fn lost(&mut self, now: Instant, random: u32) {
        self.not_before = match self.failures {
            0 => None,
            failures => {
                let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE);
                // Three quarters to five quarters of it.
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

    /// When the next attempt to connect may be made.
    #[must_use]
    pub fn connect_at(&self, now: Instant) -> Instant {
        self.not_before.map_or(now, |at| at.max(now))
    }

    /// Whether a call that has been waiting since `since` has waited for as long as a server may take.
    #[must_use]
    pub fn is_late(&self, since: Instant, now: Instant) -> bool {
        now >= since + self.policy.patience()
    }

    /// What is to become of a call that has been waiting since `since` (since it was made for a soft client,
    /// since it was last sent for a hard one); `sent` says whether it went out on the connection that stands
    /// now.
    #[must_use]
    pub fn verdict(&self, since: Instant, sent: bool, now: Instant) -> Verdict {
        let end = since + self.policy.patience();
        match (self.is_late(since, now), self.policy.hard, sent) {
            (false, ..) => Verdict::Wait(end),
            (true, false, _) => Verdict::GiveUp,
            (true, true, true) => Verdict::Reconnect,
            (true, true, false) => Verdict::Wait(now + self.policy.patience()),
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
            assert_eq!(recovery.verdict(start, true, early), Verdict::Wait(late));
            let then = if hard { Verdict::Reconnect } else { Verdict::GiveUp };
            assert_eq!(recovery.verdict(start, true, late), then);
        }
        assert_eq!(Recovery::new(policy(false)).verdict(start, false, late), Verdict::GiveUp);
        assert!(matches!(Recovery::new(policy(true)).verdict(start, false, late), Verdict::Wait(_)));
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
            assert!(pause >= FIRST_PAUSE * 3 / 4 && pause <= LONGEST_PAUSE * 5 / 4, "{pause:?}");
            last = pause;
        }
        assert!(last >= LONGEST_PAUSE * 3 / 4);
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
        assert!(policy.patience() > Duration::ZERO);
        let policy = Policy { timeo: Duration::from_secs(3600), ..policy };
        assert_eq!(policy.patience(), LONGEST_PATIENCE);
    }
}
