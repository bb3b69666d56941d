//! A fair order over the things of many users.
//!
//! A search examines a bounded number of things in a bounded time: sockets with servers' names, processes
//! that may live in network namespaces of their own. Every local user can create any number of them. So each
//! user's things wait in a queue of their own, and the queues take turns: however many things one user has,
//! the search reaches another user's first thing after one of that user's.

use std::collections::{BTreeMap, VecDeque};

/// All of `things`, each with its owner, in a fair order: those of `preferred` owners before all others, and
/// in both parts the owners in turns. One owner's things keep their order. `None` stands for all unknown
/// owners, which share a turn.
pub(crate) fn round_robin<T>(
    things: impl IntoIterator<Item = (Option<u32>, T)>,
    preferred: impl Fn(Option<u32>) -> bool,
) -> impl Iterator<Item = T> {
    let mut queues = BTreeMap::<(bool, Option<u32>), VecDeque<T>>::new();
    for (owner, thing) in things {
        // false comes before true.
        queues.entry((!preferred(owner), owner)).or_default().push_back(thing);
    }
    let (first, then): (Vec<_>, Vec<_>) = queues.into_iter().partition(|((others, _), _)| !others);
    let queues = |all: Vec<(_, VecDeque<T>)>| all.into_iter().map(|(_, queue)| queue).collect();
    RoundRobin(queues(first)).chain(RoundRobin(queues(then)))
}

/// Takes one thing of each queue, repeatedly, until all are empty.
struct RoundRobin<T>(VecDeque<VecDeque<T>>);

impl<T> Iterator for RoundRobin<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let mut queue = self.0.pop_front()?;
        let next = queue.pop_front();
        if !queue.is_empty() {
            self.0.push_back(queue);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn owners_take_turns_after_preferred_ones() {
        let things = [(1000, 'a'), (1000, 'b'), (1000, 'c'), (0, 'd'), (1001, 'e'), (0, 'f'), (7, 'g')];
        let things = things.map(|(owner, thing)| (Some(owner), thing)).into_iter().chain([(None, 'h')]);
        let order: String = round_robin(things, |owner| matches!(owner, Some(0 | 7))).collect();
        assert_eq!(order, "dgfhaebc");
        assert_eq!(round_robin(Vec::<(Option<u32>, ())>::new(), |_| true).next(), None);
    }

    proptest! {
        /// Whatever others have, a thing comes after at most as many rounds as its owner has things before
        /// it.
        #[test]
        fn no_owner_is_crowded_out(owners in prop::collection::vec(0_u32..6, 0..300)) {
            let things = owners.iter().copied().enumerate().map(|(id, owner)| (Some(owner), id));
            let things: Vec<_> = things.collect();
            let order: Vec<usize> = round_robin(things.clone(), |_| false).collect();
            prop_assert_eq!(order.len(), things.len());
            for (place, id) in order.iter().enumerate() {
                let before = owners[..*id].iter().filter(|owner| **owner == owners[*id]).count();
                prop_assert!(place < (before + 1) * 6);
            }
        }
    }
}
