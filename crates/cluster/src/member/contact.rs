//! One of the two services that a node depends on: when it is asked next, and when it was last heard.

use std::time::{Duration, Instant};

/// The fraction of [`MemberConfig::vouch`](super::MemberConfig::vouch) after which a service is asked again.
const ASK_FRACTION: u32 = 8;
/// The fraction of it after which a request that has failed is repeated.
pub(super) const RETRY_FRACTION: u32 = 16;

/// Requests to a service, one at a time.
#[derive(Debug)]
pub(super) struct Contact {
    vouch: Duration,
    /// When the request whose answer is awaited was sent.
    asked: Option<Instant>,
    next: Instant,
    /// When the last request that was answered well was sent.
    heard: Option<Instant>,
}

impl Contact {
    pub fn new(vouch: Duration, now: Instant) -> Self {
        Self { vouch, asked: None, next: now, heard: None }
    }

    /// Asks at `at`, or when the outstanding request is answered.
    pub const fn ask_at(&mut self, at: Instant) {
        self.next = at;
    }

    /// Whether a request has to be sent now. Then it counts as sent.
    pub fn must_ask(&mut self, now: Instant) -> bool {
        let must = self.asked.is_none() && now >= self.next;
        if must {
            (self.asked, self.next) = (Some(now), now + self.vouch / ASK_FRACTION);
        }
        must
    }

    /// The request was answered. Returns when it was sent, unless there was none.
    pub const fn answered(&mut self) -> Option<Instant> {
        self.asked.take()
    }

    /// The request has failed.
    pub fn failed(&mut self, now: Instant) {
        self.asked = None;
        self.next = now + self.vouch / RETRY_FRACTION;
    }

    /// A request that was sent then was answered well.
    pub fn heard(&mut self, sent: Instant) {
        self.heard = self.heard.max(Some(sent));
    }

    /// When the last request that was answered well was sent.
    pub const fn since(&self) -> Option<Instant> {
        self.heard
    }

    /// When the next request is due, if none is outstanding.
    pub fn next(&self) -> Option<Instant> {
        self.asked.is_none().then_some(self.next)
    }
}
