//! The receive memory that all connections share: who may have some now, who is next. Pure.
//!
//! First come, first served: who asks for little doesn't overtake who asks for much, so nobody waits for ever.

use std::collections::VecDeque;

/// A shared number of bytes, with a queue.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    used: usize,
    peak: usize,
    waiting: VecDeque<(u64, usize)>,
    /// Charged already, but not told yet.
    granted: VecDeque<(u64, usize)>,
}

impl Budget {
    /// `total` bytes, all free.
    pub const fn new(total: usize) -> Self {
        Self { total, used: 0, peak: 0, waiting: VecDeque::new(), granted: VecDeque::new() }
    }

    /// Asks for `bytes` (at most the total) for `who`. If false, `who` is in the queue and will come out of
    /// [`Budget::next_granted`].
    pub fn request(&mut self, who: u64, bytes: usize) -> bool {
        debug_assert!(bytes <= self.total, "could never be granted");
        if self.waiting.is_empty() && self.fits(bytes) {
            self.charge(bytes);
            return true;
        }
        self.waiting.push_back((who, bytes));
        false
    }

    /// Gives `bytes` back, and grants to those whose turn it is now.
    pub fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used, "more given back than taken");
        self.used = self.used.saturating_sub(bytes);
        self.advance();
    }

    /// `who` doesn't want any more what it has asked for and not been told about.
    pub fn cancel(&mut self, who: u64) {
        self.waiting.retain(|(waiter, _)| *waiter != who);
        let mut back = 0;
        self.granted.retain(|(waiter, bytes)| {
            back += if *waiter == who { *bytes } else { 0 };
            *waiter != who
        });
        self.used = self.used.saturating_sub(back);
        self.advance(); // the one who left may have been in everybody's way
    }

    /// Who has been granted how much since the last call; it is charged already.
    pub fn next_granted(&mut self) -> Option<(u64, usize)> {
        self.granted.pop_front()
    }

    /// Whether [`Budget::next_granted`] has something.
    pub fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Whether anybody waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes in use now.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The most bytes that were in use at any time.
    pub const fn peak(&self) -> usize {
        self.peak
    }

    const fn fits(&self, bytes: usize) -> bool {
        bytes <= self.total - self.used
    }

    fn charge(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    fn advance(&mut self) {
        while let Some(&(who, bytes)) = self.waiting.front().filter(|(_, bytes)| self.fits(*bytes)) {
            self.waiting.pop_front();
            self.charge(bytes);
            self.granted.push_back((who, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut budget = Budget::new(10);
        assert!(budget.request(1, 6));
        assert!(!budget.request(2, 6));
        assert!(!budget.request(3, 1), "would fit, but 2 was first");
        budget.release(6);
        assert_eq!((budget.next_granted(), budget.next_granted()), (Some((2, 6)), Some((3, 1))));
        assert_eq!((budget.next_granted(), budget.used(), budget.peak()), (None, 7, 7));
    }

    #[test]
    fn who_leaves_is_in_nobodys_way() {
        let mut budget = Budget::new(10);
        assert!(budget.request(1, 6));
        assert!(!budget.request(2, 10));
        assert!(!budget.request(3, 4));
        budget.cancel(2);
        assert_eq!(budget.next_granted(), Some((3, 4)));
        assert!(!budget.request(4, 5));
        budget.release(6);
        budget.cancel(4); // granted, not told yet
        assert_eq!((budget.next_granted(), budget.used()), (None, 4));
    }

    proptest! {
        #[test]
        fn never_more_than_the_total_and_nobody_is_forgotten(steps in prop::collection::vec((0u8..3, 1usize..=10), 1..60)) {
            let mut budget = Budget::new(10);
            let (mut held, mut expected) = (VecDeque::new(), VecDeque::new());
            for (who, (what, bytes)) in steps.into_iter().enumerate() {
                let who = who as u64;
                match what {
                    0 | 1 => {
                        if budget.request(who, bytes) { held.push_back(bytes) } else { expected.push_back(who) }
                    }
                    _ => if let Some(bytes) = held.pop_front() { budget.release(bytes) },
                }
                while let Some((who, bytes)) = budget.next_granted() {
                    prop_assert_eq!(Some(who), expected.pop_front(), "in order");
                    held.push_back(bytes);
                }
                prop_assert_eq!(budget.used(), held.iter().sum::<usize>());
                prop_assert!(budget.peak() <= 10);
            }
            while let Some(bytes) = held.pop_front() {
                budget.release(bytes);
                while let Some((who, bytes)) = budget.next_granted() {
                    prop_assert_eq!(Some(who), expected.pop_front());
                    held.push_back(bytes);
                }
            }
            prop_assert!(expected.is_empty() && budget.used() == 0);
        }
    }
}
