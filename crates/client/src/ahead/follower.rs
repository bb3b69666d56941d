//! When to ask ahead, and how far: what the opens in one directory tell about the next ones.
//!
//! Three opens that follow an order of the listing, one soon after the other, are a run; from then on the
//! next files are asked for before they are opened, a few at first and more as long as they are used. Files
//! that were asked for in vain make it careful: the next run must be longer before it is believed.

use super::listing::{Listing, Order};

/// How far ahead to begin with.
const FIRST: u32 = 4;
/// How far at most: what one lane's client holds without having been asked.
pub(super) const FARTHEST: u32 = 64;
/// How many are asked for at once.
const AT_ONCE: u32 = lane::request::MAX_PREFETCH as u32;
/// How many entries may lie between two opens of a run: directories, and files that nobody wants.
const GAP: u32 = 3;
/// Steps of a run before it is believed, to begin with
const STEPS: u32 = 2;
/// and at most.
const MOST_STEPS: u32 = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Follower {
    last: Option<u32>,
    order: Order,
    /// Steps that the run has taken.
    steps: u32,
    /// Opens in a row that came later by name, and by inode number, than the one before.
    rising: [u32; 2],
    /// Up to this place in the order (it excluded) files were asked for.
    asked: u32,
    window: u32,
    /// Steps that a run needs.
    needed: u32,
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            last: None,
            order: Order::Listed,
            steps: 0,
            rising: [0; 2],
            asked: 0,
            window: FIRST,
            needed: STEPS,
        }
    }
}

impl Follower {
    /// Which entry will most likely be opened next.
    pub(super) fn guess(&self, listing: &mut Listing) -> Option<u32> {
        let Some(last) = self.last else { return Some(0) };
        let rank = listing.rank(self.order, last);
        listing.at(self.order, rank + 1)
    }

    /// The entry `index` is being opened: which ones to ask for now, in the order in which they will be
    /// wanted.
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
            self.lose_the_way();
            for (count, order) in self.rising.into_iter().zip([Order::Named, Order::Numbered]) {
                // Only then it is worth a sort.
                if count >= STEPS && self.follows(order, listing, last, index) {
                    (self.order, self.steps) = (order, count.min(STEPS));
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
        (1..=GAP).contains(&step)
    }

    fn lose_the_way(&mut self) {
        (self.order, self.steps, self.asked, self.window) = (Order::Listed, 0, 0, FIRST);
    }

    fn next(&mut self, listing: &mut Listing, index: u32) -> Vec<u32> {
        let here = listing.rank(self.order, index);
        let held = self.asked.saturating_sub(here + 1);
        if held > self.window / 2 {
            return Vec::new();
        }
        let begin = if self.asked > here {
            // What was asked for is being used.
            self.window = (self.window * 2).min(FARTHEST);
            self.asked
        } else {
            here
        };
        let end = (here + 1 + self.window).min(begin + AT_ONCE);
        let mut next: Vec<u32> = (begin..end).map_while(|rank| listing.at(self.order, rank)).collect();
        next.retain(|index| listing.may_be_opened(*index));
        self.asked = end.min(listing.len());
        next
    }

    /// A file that was asked for ahead was opened.
    pub(super) fn used(&mut self) {
        self.needed = STEPS;
    }

    /// Files that were asked for ahead were not given, or thrown away.
    pub(super) fn wasted(&mut self) {
        self.needed = (self.needed * 2).min(MOST_STEPS);
        self.window = (self.window / 2).max(FIRST);
        (self.steps, self.asked) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ahead::listing::tests::listing;

    fn names(count: usize) -> Vec<String> {
        // Listed in an order that isn't the names'.
        (0..count).map(|i| format!("{:05}", i * 7919 % count)).collect()
    }

    fn of(names: &[String]) -> Listing {
        listing(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Opens everything in an order and counts the opens that were not asked for ahead, and the requests.
    fn go(listing: &mut Listing, order: Order) -> (usize, usize) {
        let (mut follower, mut asked) = (Follower::default(), std::collections::HashSet::new());
        let (mut missed, mut requests) = (0, 0);
        for rank in 0..listing.len() {
            let index = listing.at(order, rank).unwrap();
            let before = asked.contains(&index);
            let next = follower.opened(listing, index);
            assert!(next.len() <= AT_ONCE as usize);
            assert!(next.iter().all(|index| !asked.contains(index)), "nothing is asked for twice");
            requests += usize::from(!next.is_empty());
            missed += usize::from(!before && !next.contains(&index));
            asked.extend(next);
            asked.remove(&index);
            assert!(asked.len() <= FARTHEST as usize);
            follower.used();
        }
        (missed, requests)
    }

    #[test]
    fn a_run_in_any_order_is_asked_for_ahead() {
        for order in [Order::Listed, Order::Named, Order::Numbered] {
            let (missed, requests) = go(&mut of(&names(1000)), order);
            assert!(missed <= 3, "{order:?}: {missed} were not asked for");
            assert!(requests <= 1000 / 32 + 8, "{order:?}: {requests} requests");
        }
    }

    #[test]
    fn two_opens_are_no_run_and_jumping_about_is_none() {
        let mut listing = of(&names(100));
        let mut follower = Follower::default();
        assert!(follower.opened(&mut listing, 3).is_empty());
        assert!(follower.opened(&mut listing, 4).is_empty());
        assert_eq!(follower.opened(&mut listing, 5), [5, 6, 7, 8, 9]);
        for index in [50, 10, 80, 20, 70, 30] {
            assert!(follower.opened(&mut listing, index).is_empty());
        }
        assert!(follower.opened(&mut listing, 31).is_empty());
        assert!(follower.opened(&mut listing, 31).is_empty(), "the same again is no step");
        assert_eq!(follower.opened(&mut listing, 32)[0], 32);
    }

    #[test]
    fn small_gaps_do_not_end_a_run() {
        let mut listing = of(&names(100));
        let mut follower = Follower::default();
        follower.opened(&mut listing, 0);
        follower.opened(&mut listing, 2);
        assert!(!follower.opened(&mut listing, 5).is_empty());
        assert!(follower.opened(&mut listing, 10).is_empty());
    }

    #[test]
    fn waste_makes_careful_and_use_makes_bold() {
        let mut listing = of(&names(2000));
        let mut follower = Follower::default();
        let mut index = 0;
        let mut steps_to_ask = |follower: &mut Follower| {
            index += 10;
            let begin = index;
            loop {
                let asks = !follower.opened(&mut listing, index).is_empty();
                index += 1;
                if asks {
                    return index - begin;
                }
            }
        };
        assert_eq!(steps_to_ask(&mut follower), 3);
        let mut before = 3;
        for _ in 0..4 {
            follower.wasted();
            let steps = steps_to_ask(&mut follower);
            assert!(steps > before, "{steps} after {before}");
            before = steps;
        }
        follower.used();
        assert_eq!(steps_to_ask(&mut follower), 3);
    }

    proptest! {
        #[test]
        fn whatever_is_opened_the_bounds_hold(
            opens in prop::collection::vec((0_u32..40, any::<bool>()), 1..300),
        ) {
            let mut listing = of(&names(40));
            let mut follower = Follower::default();
            for (index, used) in opens {
                let next = follower.opened(&mut listing, index);
                prop_assert!(next.len() <= AT_ONCE as usize);
                prop_assert!(next.iter().all(|index| *index < 40));
                prop_assert!(follower.guess(&mut listing).is_none_or(|index| index < 40));
                if used { follower.used() } else { follower.wasted() }
                prop_assert!(follower.needed <= MOST_STEPS && follower.window <= FARTHEST);
            }
        }
    }
}
