//! The account of one bounded resource.

use std::hash::Hash;

use ahash::HashMap;

use crate::Peer;

/// The trust in a peer, which determines the part of a resource that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// No export names it (yet).
    Stranger,
    /// An export names it.
    Admitted,
    /// A process of root on this host. The administrator must always get in.
    LocalRoot,
}

impl Standing {
    /// The standing of a peer of a resource that strangers can't use.
    #[must_use]
    pub const fn of_admitted(peer: &Peer) -> Self {
        if peer.is_local_root() { Self::LocalRoot } else { Self::Admitted }
    }
}

/// The account of one bounded resource, by peer. It decides and counts, and holds nothing itself.
///
/// The rule is that of dynamic thresholds in switch buffers: a peer may take more only while what it then
/// holds is at most what then stays free. One greedy peer gets half of the resource, two get a third each,
/// *n* get 1/(*n*+1) each, and 1/(*n*+1) stays free for the next peer. A peer that holds nothing may always
/// take what is free. The number of peers needn't be known, and a single peer isn't limited to a fixed small
/// share.
///
/// Two reserves exist: one that [`Standing::Stranger`]s can't use, and one that only [`Standing::LocalRoot`]
/// can use.
///
/// There are at most as many entries as units of the resource in use.
#[derive(Debug, Clone)]
pub struct Shares<K = Peer> {
    limit: usize,
    for_admitted: usize,
    for_local_root: usize,
    total: usize,
    held: HashMap<K, usize>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// A resource of `limit` units, all free, without reserves.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, for_admitted: 0, for_local_root: 0, total: 0, held: HashMap::default() }
    }

    /// Reserves `for_admitted` units from strangers, and `for_local_root` units for root of this host. Both
    /// together are cut to the limit.
    #[must_use]
    pub fn with_reserves(mut self, for_admitted: usize, for_local_root: usize) -> Self {
        self.for_local_root = for_local_root.min(self.limit);
        self.for_admitted = for_admitted.min(self.limit - self.for_local_root);
        self
    }

    /// The units that are free for this standing.
    #[must_use]
    pub fn free(&self, standing: Standing) -> usize {
        let kept_back = match standing {
            Standing::Stranger => self.for_admitted + self.for_local_root,
            Standing::Admitted => self.for_local_root,
            Standing::LocalRoot => 0,
        };
        (self.limit - kept_back).saturating_sub(self.total)
    }

    /// Whether `peer` may take `amount` more units.
    #[must_use]
    pub fn may_take(&self, peer: &K, standing: Standing, amount: usize) -> bool {
        let Some(stays_free) = self.free(standing).checked_sub(amount) else { return false };
        let threshold = match standing {
            Standing::LocalRoot => stays_free.max(self.for_local_root),
            Standing::Stranger | Standing::Admitted => stays_free,
        };
        let held = self.held_by(peer);
        held == 0 || held.saturating_add(amount) <= threshold
    }

    /// Charges `amount` units to `peer` if it may take them; returns whether it did.
    #[must_use]
    pub fn take(&mut self, peer: &K, standing: Standing, amount: usize) -> bool {
        let may = self.may_take(peer, standing, amount);
        if may {
            self.charge(peer, amount);
        }
        may
    }

    /// Charges `amount` units to `peer` unconditionally, for what exists already.
    pub fn charge(&mut self, peer: &K, amount: usize) {
        if amount > 0 {
            self.total = self.total.saturating_add(amount);
            *self.held.entry(*peer).or_default() += amount;
        }
    }

    /// Releases `amount` units of `peer`, at most what it holds.
    pub fn give_back(&mut self, peer: &K, amount: usize) {
        let Some(held) = self.held.get_mut(peer) else {
            debug_assert_eq!(amount, 0, "more given back than taken");
            return;
        };
        debug_assert!(amount <= *held, "more given back than taken");
        let amount = amount.min(*held);
        *held -= amount;
        self.total -= amount;
        if *held == 0 {
            self.held.remove(peer);
        }
    }

    /// Units that `peer` holds.
    #[must_use]
    pub fn held_by(&self, peer: &K) -> usize {
        self.held.get(peer).copied().unwrap_or(0)
    }

    /// Units that all peers hold together.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// The size of the resource in units.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Every peer that holds units, with their number.
    pub fn holders(&self) -> impl Iterator<Item = (&K, usize)> {
        self.held.iter().map(|(peer, held)| (peer, *held))
    }

    /// The peer that holds the most, and how much. Takes time proportional to the number of peers.
    #[must_use]
    pub fn greediest(&self) -> Option<(K, usize)> {
        self.held.iter().max_by_key(|(_, held)| **held).map(|(peer, held)| (*peer, *held))
    }

    /// The peer to displace for `newcomer`, where a resource can be taken back from its holder: the one that
    /// holds the most, if it then still holds at least as much as the newcomer does with `amount` more.
    #[must_use]
    pub fn displaced_by(&self, newcomer: &K, amount: usize) -> Option<K> {
        let (greediest, most) = self.greediest()?;
        let then = self.held_by(newcomer).saturating_add(amount);
        (greediest != *newcomer && most.saturating_sub(amount) >= then).then_some(greediest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1000;

    fn takes_all_it_can(shares: &mut Shares<u32>, peer: u32, standing: Standing, amount: usize) -> usize {
        while shares.take(&peer, standing, amount) {}
        shares.held_by(&peer)
    }

    #[test]
    fn n_greedy_peers_get_equal_parts_and_leave_one_free() {
        for n in 1..20 {
            let mut shares = Shares::new(LIMIT);
            loop {
                let before = shares.total();
                for peer in 0..n {
                    let _ = shares.take(&peer, Standing::Admitted, 1);
                }
                if shares.total() == before {
                    break;
                }
            }
            let part = LIMIT / (n as usize + 1);
            for peer in 0..n {
                assert!((part - 1..=part + 1).contains(&shares.held_by(&peer)), "{n} peers");
            }
            assert!(shares.free(Standing::Admitted) >= part - 1, "{n} peers");
        }
    }

    #[test]
    fn reserves_require_the_standing() {
        let mut shares = Shares::new(LIMIT).with_reserves(100, 50);
        for peer in 0..900 {
            let _ = shares.take(&peer, Standing::Stranger, 1);
        }
        assert_eq!(shares.total(), LIMIT - 150);
        assert!(!shares.take(&2000, Standing::Stranger, 1));
        for peer in 3000..3200 {
            let _ = shares.take(&peer, Standing::Admitted, 1);
        }
        assert_eq!(shares.total(), LIMIT - 50);
        assert!(!shares.take(&2000, Standing::Admitted, 1));
        assert_eq!(takes_all_it_can(&mut shares, 0xffff, Standing::LocalRoot, 1), 50);
        assert_eq!(shares.total(), LIMIT);
    }

    #[test]
    fn the_greediest_is_displaced_for_peers_with_less() {
        let mut shares = Shares::new(10);
        assert_eq!(shares.displaced_by(&1, 1), None);
        shares.charge(&1, 6);
        shares.charge(&2, 4);
        assert_eq!(shares.displaced_by(&3, 1), Some(1));
        assert_eq!(shares.displaced_by(&2, 1), Some(1));
        assert_eq!(shares.displaced_by(&1, 1), None, "nobody makes way for himself");
        shares.give_back(&1, 1);
        shares.charge(&2, 1);
        assert_eq!(shares.displaced_by(&2, 1), None, "equals keep what they have");
        assert_eq!(Shares::<u32>::new(0).greediest(), None);
    }

    proptest! {
        #[test]
        fn accounts_agree_and_a_newcomer_finds_its_part(
            steps in prop::collection::vec((0u32..6, 0usize..40, any::<bool>()), 0..200),
        ) {
            let mut shares = Shares::new(LIMIT);
            let mut held = HashMap::<u32, usize>::default();
            for (peer, amount, take) in steps {
                let own = held.entry(peer).or_default();
                if take {
                    if shares.take(&peer, Standing::Admitted, amount) {
                        *own += amount;
                    }
                } else {
                    let back = amount.min(*own);
                    shares.give_back(&peer, back);
                    *own -= back;
                }
                prop_assert_eq!(shares.held_by(&peer), *own);
            }
            prop_assert_eq!(shares.total(), held.values().sum::<usize>());
            // Six peers, whatever they do: at least about a seventh stays free for the next one.
            prop_assert!(shares.free(Standing::Admitted) >= LIMIT / 7 - 40);
            prop_assert_eq!(shares.holders().count(), held.values().filter(|units| **units > 0).count());
        }
    }
}
