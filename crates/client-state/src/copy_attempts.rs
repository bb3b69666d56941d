//! How a copy within the server is requested, and how often (RFC 7862 section 15.2.3).
//!
//! A long copy may be asynchronous, a short one has to be synchronous. Each is asked for the other way once
//! if the server can't do it so (`NFS4ERR_OFFLOAD_NO_REQS`). A copy that the server loses before any of it is
//! known to be copied is requested again, a limited number of times, and synchronously if it goes on.

/// The fewest bytes of a copy that may be asynchronous.
///
/// A synchronous COPY keeps a slot of the session and a thread of the server until it is done, and in a soft
/// session it may take no longer than any reply. Below this size that is as long as four WRITEs, so it isn't
/// worth a callback. Servers have similar limits: Linux copies at most 4 MiB synchronously.
pub const MIN_ASYNCHRONOUS_COPY: u64 = 4 << 20;

/// After this many losses the copy has to be synchronous.
const MAX_ASYNCHRONOUS_LOSSES: u32 = 3;
/// After this many losses the copy fails.
const MAX_LOSSES: u32 = 6;

/// The attempts to have a range copied.
#[derive(Debug)]
pub struct CopyAttempts {
    is_synchronous: bool,
    /// The server can't do it the other way.
    is_settled: bool,
    losses: u32,
}

impl CopyAttempts {
    /// No attempt yet to copy `count` bytes.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self { is_synchronous: count < MIN_ASYNCHRONOUS_COPY, is_settled: false, losses: 0 }
    }

    /// `ca_synchronous` of the next COPY.
    #[must_use]
    pub const fn is_synchronous(&self) -> bool {
        self.is_synchronous
    }

    /// `NFS4ERR_OFFLOAD_NO_REQS`. Returns whether to make another attempt; the server can't copy otherwise.
    #[must_use]
    pub const fn refused(&mut self) -> bool {
        self.is_synchronous = !self.is_synchronous;
        !std::mem::replace(&mut self.is_settled, true)
    }

    /// The server has lost the copy, and it isn't known that anything is copied. Returns whether to make
    /// another attempt.
    #[must_use]
    pub const fn lost(&mut self) -> bool {
        self.losses += 1;
        if self.losses >= MAX_ASYNCHRONOUS_LOSSES && !self.is_settled {
            self.is_synchronous = true;
        }
        self.losses < MAX_LOSSES
    }

    /// The server tells nothing about an asynchronous copy. Returns whether to make another attempt.
    #[must_use]
    pub const fn inconclusive(&mut self) -> bool {
        let is_worth_it = !self.is_settled && !self.is_synchronous;
        self.is_synchronous = true;
        is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_may_be_asynchronous() {
        assert!(CopyAttempts::new(0).is_synchronous());
        assert!(CopyAttempts::new(MIN_ASYNCHRONOUS_COPY - 1).is_synchronous());
        assert!(!CopyAttempts::new(MIN_ASYNCHRONOUS_COPY).is_synchronous());
    }

    #[test]
    fn a_refused_copy_is_asked_for_the_other_way_once() {
        for count in [1, u64::MAX] {
            let mut attempts = CopyAttempts::new(count);
            let first = attempts.is_synchronous();
            assert!(attempts.refused());
            assert_eq!(attempts.is_synchronous(), !first);
            assert!(!attempts.refused());
        }
    }

    #[test]
    fn a_copy_that_is_lost_again_and_again_becomes_synchronous_and_fails() {
        let mut attempts = CopyAttempts::new(u64::MAX);
        let mut asked = Vec::new();
        loop {
            asked.push(attempts.is_synchronous());
            if !attempts.lost() {
                break;
            }
        }
        assert_eq!(asked, [false, false, false, true, true, true]);
    }

    #[test]
    fn a_server_that_copies_asynchronously_only_is_asked_for_nothing_else() {
        let mut attempts = CopyAttempts::new(1);
        assert!(attempts.refused());
        while attempts.lost() {
            assert!(!attempts.is_synchronous());
        }
        assert!(!attempts.inconclusive());
    }

    #[test]
    fn a_server_that_tells_nothing_is_asked_for_a_synchronous_copy() {
        let mut attempts = CopyAttempts::new(u64::MAX);
        assert!(attempts.inconclusive());
        assert!(attempts.is_synchronous());
        assert!(!attempts.inconclusive(), "it has answered even that asynchronously");
    }
}
