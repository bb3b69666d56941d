//! Detection of sequential opens in one directory, and the prefetch window.
//!
//! Three opens in succession that follow an order of the listing are a sequence. From then on the next files
//! are requested before they are opened: a few at first, and more as long as they are used. Files that were
//! requested in vain raise the number of opens that the next sequence needs.

use super::listing::{Listing, Order};

/// The initial window: the number of files that are requested before they are opened.
const MIN_WINDOW: u32 = 4;
/// The maximum window. It bounds the files that a client holds unopened over one lane.
const MAX_WINDOW: u32 = 64;
/// The maximum number of files in one request.
const MAX_BATCH: u32 = lane::request::MAX_PREFETCH as u32;
/// The maximum distance of two successive opens of a sequence in the order. The entries between them are
/// directories, or files that the program skips.
const MAX_GAP: u32 = 3;
/// The number of steps that make a sequence, initially.
const MIN_STEPS: u32 = 2;
/// The maximum number of steps that make a sequence.
const MAX_STEPS: u32 = 256;

/// The opens in one directory.
#[derive(Debug)]
pub(super) struct OpenSequence {
    last: Option<u32>,
    order: Order,
    /// Steps that follow `order`.
    steps: u32,
    /// Opens in succession whose name, and inode number, is greater than that of the open before.
    rising: [u32; 2],
    /// The rank in the order up to which (exclusive) files were requested.
    requested: u32,
    window: u32,
    /// Steps that make a sequence now.
    needed: u32,
}

impl Default for OpenSequence {
    fn default() -> Self {
        Self {
            last: None,
            order: Order::Listed,
            steps: 0,
            rising: [0; 2],
            requested: 0,
            window: MIN_WINDOW,
            needed: MIN_STEPS,
        }
    }
}

impl OpenSequence {
    /// Returns the entry that will most likely be opened next.
    pub(super) fn guess(&self, listing: &mut Listing) -> Option<u32> {
        let Some(last) = self.last else { return Some(0) };
        let rank = listing.rank(self.order, last);
        listing.at(self.order, rank + 1)
    }

    /// Adds the open of entry `index`. Returns the entries to request now, in the order in which they will be
    /// opened.
    pub(super) fn opened(&mut self, listing: &mut Listing, index: u32) -> Vec<u32> {
        let Some(last) = self.last.replace(index) else { return Vec::new() };
        if last == index {
            return Vec::new();
        }
        for (count, order) in self.rising.iter_mut().zip([Order::Named, Order::Numbered]) {
            *count = if listing.rises(order, last, index) { *count + 1 } else { 0 };
        }
        if self.follows(self.order, listing, last, index) {
            self.steps += 1;
        } else {
            self.reset();
            for (count, order) in self.rising.into_iter().zip([Order::Named, Order::Numbered]) {
                // A sort is expensive, so the order must look likely.
                if count >= MIN_STEPS && self.follows(order, listing, last, index) {
                    (self.order, self.steps) = (order, count.min(MIN_STEPS));
                    break;
                }
            }
            if self.steps == 0 && self.follows(Order::Listed, listing, last, index) {
                (self.order, self.steps) = (Order::Listed, 1);
            }
        }
        if self.steps < self.needed {
            return Vec::new();
        }
        self.next(listing, index)
    }

    fn follows(&self, order: Order, listing: &mut Listing, last: u32, index: u32) -> bool {
        if !listing.rises(order, last, index) {
            return false;
        }
        let step = listing.rank(order, index).saturating_sub(listing.rank(order, last));
        (1..=MAX_GAP).contains(&step)
    }

    fn reset(&mut self) {
        (self.order, self.steps, self.requested, self.window) = (Order::Listed, 0, 0, MIN_WINDOW);
    }

    fn next(&mut self, listing: &mut Listing, index: u32) -> Vec<u32> {
        let here = listing.rank(self.order, index);
        let ahead = self.requested.saturating_sub(here + 1);
        if ahead > self.window / 2 {
            return Vec::new();
        }
        let begin = if self.requested > here {
            // The requested files are being used.
            self.window = (self.window * 2).min(MAX_WINDOW);
            self.requested
        } else {
            here
        };
        let end = (here + 1 + self.window).min(begin + MAX_BATCH);
        let mut next: Vec<u32> = (begin..end).map_while(|rank| listing.at(self.order, rank)).collect();
        next.retain(|index| listing.may_be_opened(*index));
        self.requested = end.min(listing.len());
        next
    }

    /// Notes that a prefetched file was opened.
    pub(super) fn used(&mut self) {
        self.needed = MIN_STEPS;
    }

    /// Notes that prefetched files were not granted, or expired unused.
    pub(super) fn wasted(&mut self) {
        self.needed = (self.needed * 2).min(MAX_STEPS);
        self.window = (self.window / 2).max(MIN_WINDOW);
        (self.steps, self.requested) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::open_prefetch::listing::tests::listing;

    fn names(count: usize) -> Vec<String> {
        // The order of the listing differs from the order of the names.
        (0..count).map(|i| format!("{:05}", i * 7919 % count)).collect()
    }

    fn of(names: &[String]) -> Listing {
        listing(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Opens everything in an order. Counts the opens that were not prefetched, and the requests.
    fn go(listing: &mut Listing, order: Order) -> (usize, usize) {
        let (mut sequence, mut requested) = (OpenSequence::default(), std::collections::HashSet::new());
        let (mut missed, mut requests) = (0, 0);
        for rank in 0..listing.len() {
            let index = listing.at(order, rank).unwrap();
            let before = requested.contains(&index);
            let next = sequence.opened(listing, index);
            assert!(next.len() <= MAX_BATCH as usize);
            assert!(next.iter().all(|index| !requested.contains(index)), "an entry is requested twice");
            requests += usize::from(!next.is_empty());
            missed += usize::from(!before && !next.contains(&index));
            requested.extend(next);
            requested.remove(&index);
            assert!(requested.len() <= MAX_WINDOW as usize);
            sequence.used();
        }
        (missed, requests)
    }

    #[test]
    fn a_sequence_in_any_order_is_prefetched() {
        for order in [Order::Listed, Order::Named, Order::Numbered] {
            let (missed, requests) = go(&mut of(&names(1000)), order);
            assert!(missed <= 3, "{order:?}: {missed} were not prefetched");
            assert!(requests <= 1000 / 32 + 8, "{order:?}: {requests} requests");
        }
    }

    #[test]
    fn two_opens_and_random_opens_are_no_sequence() {
        let mut listing = of(&names(100));
        let mut sequence = OpenSequence::default();
        assert!(sequence.opened(&mut listing, 3).is_empty());
        assert!(sequence.opened(&mut listing, 4).is_empty());
        assert_eq!(sequence.opened(&mut listing, 5), [5, 6, 7, 8, 9]);
        for index in [50, 10, 80, 20, 70, 30] {
            assert!(sequence.opened(&mut listing, index).is_empty());
        }
        assert!(sequence.opened(&mut listing, 31).is_empty());
        assert!(sequence.opened(&mut listing, 31).is_empty(), "the same entry is no step");
        assert_eq!(sequence.opened(&mut listing, 32)[0], 32);
    }

    #[test]
    fn small_gaps_do_not_end_a_sequence() {
        let mut listing = of(&names(100));
        let mut sequence = OpenSequence::default();
        sequence.opened(&mut listing, 0);
        sequence.opened(&mut listing, 2);
        assert!(!sequence.opened(&mut listing, 5).is_empty());
        assert!(sequence.opened(&mut listing, 10).is_empty());
    }

    #[test]
    fn waste_raises_the_number_of_steps_and_use_resets_it() {
        let mut listing = of(&names(2000));
        let mut sequence = OpenSequence::default();
        let mut index = 0;
        let mut steps_to_request = |sequence: &mut OpenSequence| {
            index += 10;
            let begin = index;
            loop {
                let is_requested = !sequence.opened(&mut listing, index).is_empty();
                index += 1;
                if is_requested {
                    return index - begin;
                }
            }
        };
        assert_eq!(steps_to_request(&mut sequence), 3);
        let mut before = 3;
        for _ in 0..4 {
            sequence.wasted();
            let steps = steps_to_request(&mut sequence);
            assert!(steps > before, "{steps} after {before}");
            before = steps;
        }
        sequence.used();
        assert_eq!(steps_to_request(&mut sequence), 3);
    }

    proptest! {
        #[test]
        fn the_bounds_hold_for_any_opens(
            opens in prop::collection::vec((0_u32..40, any::<bool>()), 1..300),
        ) {
            let mut listing = of(&names(40));
            let mut sequence = OpenSequence::default();
            for (index, used) in opens {
                let next = sequence.opened(&mut listing, index);
                prop_assert!(next.len() <= MAX_BATCH as usize);
                prop_assert!(next.iter().all(|index| *index < 40));
                prop_assert!(sequence.guess(&mut listing).is_none_or(|index| index < 40));
                if used { sequence.used() } else { sequence.wasted() }
                prop_assert!(sequence.needed <= MAX_STEPS && sequence.window <= MAX_WINDOW);
            }
        }
    }
}
