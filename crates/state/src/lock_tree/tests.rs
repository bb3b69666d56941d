//! The trees against a list of locks, and the work that a lock costs on a file with many.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::{
    Engine, EngineConfig, EngineLimits, LockOwner, LockRequest, Locker, OpenRequest, Principal, Requester,
    SetClientId, Share, StateId, Time,
};

thread_local! {
    pub static VISITS: Cell<usize> = const { Cell::new(0) };
}

/// The result of `work`, and the number of nodes that it visits.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = VISITS.get();
    (work(), VISITS.get() - before)
}

/// Checks that a tree is in order and balanced, and returns its locks.
fn all(tree: &Subtree) -> Vec<(u64, u64, u64)> {
    let Some(node) = tree else { return Vec::new() };
    assert!(node.balance_factor().abs() <= 1);
    let (left, right) = (all(&node.left), all(&node.right));
    let locks = [left, vec![(node.key.0, node.key.1, node.last)], right].concat();
    assert!(locks.is_sorted());
    let ends =
        locks.iter().fold(FarthestEnds::NONE, |ends, (_, whose, last)| ends.with((*last, Reverse(*whose))));
    assert_eq!(node.ends, ends);
    locks
}

fn one(range: ByteRange, kind: LockKind) -> Vec<(ByteRange, LockKind)> {
    vec![(range, kind)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn conflicts_are_those_of_a_list(
        steps in proptest::collection::vec(
            (1_u64..6, 0_u64..40, 1_u64..12, any::<bool>(), any::<bool>()),
            1..120,
        )
    ) {
        let (mut locked, mut list) = (LockTree::default(), Vec::<(u64, ByteRange, LockKind)>::new());
        for (whose, first, length, writes, leaves) in steps {
            let kind = if writes { LockKind::Write } else { LockKind::Read };
            let range = ByteRange::of(first, length).unwrap();
            if leaves && !list.is_empty() {
                let (whose, range, kind) = list.swap_remove(first as usize % list.len());
                locked.apply(whose, &RangeChange { removed: one(range, kind), added: Vec::new() });
            } else if !list.iter().any(|(other, held, _)| (*other, held.first) == (whose, first)) {
                locked.apply(whose, &RangeChange { removed: Vec::new(), added: one(range, kind) });
                list.push((whose, range, kind));
            }
            prop_assert_eq!(all(&locked.reads).len() + all(&locked.writes).len(), list.len());
            for own in [None, Some(whose)] {
                let others = list.iter().filter(|(other, held, of)| {
                    own != Some(*other) && held.overlaps(range) && (writes || *of == LockKind::Write)
                });
                let first = others.max_by_key(|(other, held, of)| (*of, held.last, Reverse(*other)));
                prop_assert_eq!(locked.conflict(own, range, kind), first.map(|(other, ..)| *other));
            }
        }
    }
}

const NOW: Time = Time(5000);
const OWNERS: u64 = 100_000;
/// The longest way down in a tree of [`OWNERS`] locks: 1.44 times the logarithm.
const MAX_DEPTH: usize = 25;

/// The LOCK of an owner.
fn ask<'a>(
    by: &'a Requester,
    open: StateId,
    owner: &'a [u8],
    range: ByteRange,
    waits: bool,
) -> LockRequest<'a, u32> {
    let locker = Locker::New { open, owner };
    LockRequest { by, key: &1, locker, range, kind: LockKind::Write, reclaim: false, waits }
}

#[test]
fn the_cost_of_a_lock_is_logarithmic_in_the_files_owners() {
    let states = usize::MAX;
    let limits = EngineLimits {
        states,
        all: states,
        descriptors: states,
        delegations: 0,
        waiting: 64,
        ..EngineLimits::DEFAULT
    };
    let config = EngineConfig { boot: 7, lease: 1000, courtesy: 1000, distrust: 1000, limits };
    let (mut random, root) = (0, Principal::Sys(0));
    let random = move || {
        random += 1;
        random
    };
    let mut engine: Engine<u32, ()> = Engine::new(config, Box::new(random), [], NOW);
    let asked =
        SetClientId { owner: b"me", peer: fairness::Peer::Local(0), verifier: [1; 8], principal: &root };
    let (me, confirm) = engine.setclientid(NOW, &asked).unwrap();
    engine.setclientid_confirm(NOW, me, confirm, &root).unwrap();
    let by = Requester { client: me, principal: root };
    let share = Share { access: 3, deny: 0 };
    let opened =
        OpenRequest { by: &by, owner: b"o", key: &1, share, reclaim: false, under_delegation: false };
    let open = engine.open(NOW, &opened).unwrap();
    let mut most = 0;
    for number in 0..OWNERS {
        let (name, range) = (number.to_be_bytes(), ByteRange::of(2 * number, 1).unwrap());
        let asked = ask(&by, open, &name, range, false);
        let (done, visits) = counted(|| {
            let begun = engine.lock_begin(NOW, &asked).unwrap().unwrap();
            engine.lock_done(&begun, range, LockKind::Write)
        });
        done.unwrap();
        most = most.max(visits);
    }
    assert!(most <= 4 * MAX_DEPTH, "{most} nodes for LOCK");
    // A conflicting lock is found at once, and the owner's own lock doesn't conflict.
    let owner = |number: u64| LockOwner { client: me, owner: number.to_be_bytes().to_vec() };
    for number in [0, OWNERS / 3, OWNERS - 1] {
        let range = ByteRange::of(2 * number, 1).unwrap();
        let mut test = |owner| counted(|| engine.lock_test(NOW, &owner, &1, range, LockKind::Write).unwrap());
        let (denied, visits) = test(owner(OWNERS));
        assert_eq!((denied.unwrap_err().owner, visits <= 2 * MAX_DEPTH), (owner(number), true), "{visits}");
        let (own, visits) = test(owner(number));
        assert!(own.is_ok() && visits <= 2 * MAX_DEPTH, "{visits} nodes for LOCKT");
    }
    // A LOCK, and a tick when turns are over, look at all waiters.
    for waiter in 0..64 {
        let name = (OWNERS + waiter).to_be_bytes();
        let asked = ask(&by, open, &name, ByteRange::ALL, true);
        engine.lock_begin(NOW, &asked).unwrap().unwrap_err();
    }
    let free = ByteRange::of(1, 1).unwrap();
    let (begun, visits) = counted(|| engine.lock_begin(NOW, &ask(&by, open, b"more", free, false)));
    assert!(begun.unwrap().is_ok() && visits <= 64 * 2 * MAX_DEPTH, "{visits} nodes with waiters");
    let ((), visits) = counted(|| engine.tick(NOW));
    assert_eq!(visits, 0, "no turn is over");
    let later = NOW.plus(4000);
    engine.renew40(later, me).unwrap();
    let ((), visits) = counted(|| engine.tick(later));
    assert!(visits <= 64 * 2 * MAX_DEPTH, "{visits} nodes for a tick");
}
