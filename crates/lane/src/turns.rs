//! In which order to look at what many users have put in our way.
//!
//! A search takes its time and looks at a bounded number of things: sockets whose names look like a server's,
//! processes that may live in a network namespace of their own. Every local user can make as many of them as
//! it likes. So each user's wait in a queue of their own, and the queues take turns: however many one user
//! has, the search comes to the first of everybody else's after one of that user's.

use std::collections::{BTreeMap, VecDeque};

/// All of `things`, each with its owner, in the order in which to look at them: those of owners who are
/// `preferred` before all others, and among both the owners in turns. One owner's stay in their order. `None`
/// stands for every owner who can't be told: they share a turn.
pub(crate) fn in_turns<T>(
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
    Turns(queues(first)).chain(Turns(queues(then)))
}

/// One of each queue, and again, until all are empty.
struct Turns<T>(VecDeque<VecDeque<T>>);

impl<T> Iterator for Turns<T> {
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
    fn owners_take_turns_and_the_preferred_come_first() {
        let things = [(1000, 'a'), (1000, 'b'), (1000, 'c'), (0, 'd'), (1001, 'e'), (0, 'f'), (7, 'g')];
        let things = things.map(|(owner, thing)| (Some(owner), thing)).into_iter().chain([(None, 'h')]);
        let order: String = in_turns(things, |owner| matches!(owner, Some(0 | 7))).collect();
        assert_eq!(order, "dgfhaebc");
        assert_eq!(in_turns(Vec::<(Option<u32>, ())>::new(), |_| true).next(), None);
    }

    proptest! {
        /// Whatever others have, the search comes to a thing after at most as many rounds as its owner has
        /// before it.
        #[test]
        fn nobody_is_crowded_out(owners in prop::collection::vec(0_u32..6, 0..300)) {
            let things: Vec<_> = owners.iter().copied().enumerate().map(|(id, owner)| (Some(owner), id)).collect();
            let order: Vec<usize> = in_turns(things.clone(), |_| false).collect();
            prop_assert_eq!(order.len(), things.len());
            for (place, id) in order.iter().enumerate() {
                let before = owners[..*id].iter().filter(|owner| **owner == owners[*id]).count();
                prop_assert!(place < (before + 1) * 6);
            }
        }
    }
}
