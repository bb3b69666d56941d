//! Random steps, and scenarios: steps in an order that leads to interesting states.

use proptest::prelude::*;

use crate::common::{COURTESY, LEASE};
use crate::model::reference::{BYTES, CLIENTS, FILES};

/// One step. State is selected by a number; 0 is the newest.
#[derive(Debug, Clone)]
pub enum Step {
    Wait(u64),
    Renew(usize),
    Open(usize, u8, u32, (u8, u8)),
    Downgrade(usize, (u8, u8)),
    Close(usize),
    /// Under that open, for that owner, these bytes, for writing, and how it is requested.
    Lock(usize, u8, (usize, usize), bool, Ask),
    /// LOCKT with the same arguments.
    Test(usize, u8, (usize, usize), bool),
    /// A local process has released what a waiter waits for.
    Unblock(usize),
    Unlock(usize, (usize, usize)),
    Read(usize),
    Write(usize),
    Stateless(u32, bool),
    Grant(u32, u8),
    Release(usize),
    /// A delegation, with write access, for the client of that open; a local process may interrupt it.
    Delegate(usize, bool, bool),
    Return(usize),
    /// A client acknowledges a revocation.
    Free(usize),
    /// A change of attributes or names, by a client or by no client.
    Change(u32, Option<usize>),
    /// A local process opens the file, with write access, and waits so long.
    Local(u32, bool, u64),
    Reboot(usize),
    Reclaim(usize),
    /// A client reclaims an open, for an owner, with a share, and a lock under it, which it never had.
    FalseReclaim(usize, u8, u32, (u8, u8), (usize, usize)),
    Complete(usize),
    Restart,
}

/// How a lock is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Once,
    /// The client polls until it gets the lock.
    Waits,
    /// The same, and if no client has a conflicting lock a local process has.
    BlockedWaiter,
}

type Steps = BoxedStrategy<Vec<Step>>;

fn index() -> impl Strategy<Value = usize> + Clone {
    0..CLIENTS
}

fn file() -> impl Strategy<Value = u32> + Clone {
    0..FILES as u32
}

fn bytes() -> impl Strategy<Value = (usize, usize)> + Clone {
    (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn share() -> impl Strategy<Value = (u8, u8)> + Clone {
    (1_u8..4, prop_oneof![3 => Just(0_u8), 1 => 1_u8..4])
}

/// Times around an event: exactly then, just before, or just after.
fn about(milliseconds: u64) -> impl Strategy<Value = u64> + Clone {
    (milliseconds - 1)..=(milliseconds + 1)
}

fn ask() -> impl Strategy<Value = Ask> + Clone {
    prop_oneof![3 => Just(Ask::Once), 3 => Just(Ask::Waits), 1 => Just(Ask::BlockedWaiter)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..LEASE / 2).prop_map(Step::Wait),
        1 => (LEASE..COURTESY + 3 * LEASE).prop_map(Step::Wait),
        4 => index().prop_map(Step::Renew),
        10 => (index(), 0_u8..2, file(), share()).prop_map(|(w, o, f, s)| Step::Open(w, o, f, s)),
        3 => (any::<usize>(), share()).prop_map(|(n, s)| Step::Downgrade(n, s)),
        4 => any::<usize>().prop_map(Step::Close),
        12 => (any::<usize>(), 0_u8..2, bytes(), any::<bool>(), ask())
            .prop_map(|(n, o, b, w, a)| Step::Lock(n, o, b, w, a)),
        2 => (any::<usize>(), 0_u8..2, bytes(), any::<bool>())
            .prop_map(|(n, o, b, w)| Step::Test(n, o, b, w)),
        1 => any::<usize>().prop_map(Step::Unblock),
        4 => (any::<usize>(), bytes()).prop_map(|(n, b)| Step::Unlock(n, b)),
        2 => any::<usize>().prop_map(Step::Read),
        2 => any::<usize>().prop_map(Step::Write),
        2 => (file(), any::<bool>()).prop_map(|(f, w)| Step::Stateless(f, w)),
        3 => (file(), 1_u8..4).prop_map(|(f, a)| Step::Grant(f, a)),
        3 => any::<usize>().prop_map(Step::Release),
        10 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(n, w, b)| Step::Delegate(n, w, b)),
        3 => any::<usize>().prop_map(Step::Return),
        2 => index().prop_map(Step::Free),
        1 => (file(), proptest::option::of(index())).prop_map(|(f, w)| Step::Change(f, w)),
        1 => (file(), any::<bool>(), 1..2 * LEASE).prop_map(|(f, w, p)| Step::Local(f, w, p)),
        1 => index().prop_map(Step::Reboot),
        6 => index().prop_map(Step::Reclaim),
        3 => index().prop_map(Step::Complete),
        1 => Just(Step::Restart),
    ]
}

/// A delegation that is recalled, perhaps twice, and returned late, or nearly so, by a holder that stays
/// alive and requests it again.
fn recall() -> Steps {
    let local = (any::<bool>(), prop_oneof![about(LEASE / 4), about(LEASE / 2), about(2 * LEASE)]);
    let access = prop_oneof![
        local.prop_map(|(w, p)| Step::Local(0, w, p)),
        Just(Step::Change(0, None)),
        any::<bool>().prop_map(|w| Step::Stateless(0, w)),
    ];
    let waits = (about(LEASE / 2), prop_oneof![about(LEASE / 4), about(LEASE / 2), about(LEASE)]);
    (index(), any::<bool>(), access.clone(), proptest::option::of(access), waits)
        .prop_map(|(index, writes, first, second, (half, rest))| {
            let opened = [Step::Open(index, 0, 0, (3, 0)), Step::Delegate(0, writes, false), first];
            let waited = [Step::Wait(half), Step::Renew(index)];
            let returned = [Step::Wait(rest), Step::Renew(index), Step::Return(0), Step::Free(index)];
            let again = [Step::Delegate(0, writes, false)];
            opened.into_iter().chain(waited).chain(second).chain(returned).chain(again).collect()
        })
        .boxed()
}

/// A holder locks its file while its delegation is recalled, or another client asks for a lock that the
/// holder may have given locally.
fn delegated_and_locked() -> Steps {
    (index(), bytes(), any::<bool>(), any::<bool>())
        .prop_map(|(index, bytes, write, write_delegation)| {
            let lock = |owner| Step::Lock(0, owner, bytes, write, Ask::Once);
            let test = |owner| Step::Test(0, owner, bytes, write);
            if write_delegation {
                let opened = [Step::Open(index, 0, 0, (3, 0)), Step::Delegate(0, true, false)];
                let recalled = [Step::Local(0, true, LEASE), lock(0), test(1), Step::Return(0), lock(1)];
                opened.into_iter().chain(recalled).collect()
            } else {
                let opened = [Step::Open(index, 0, 0, (1, 0)), Step::Delegate(0, false, false)];
                let other = [Step::Open(1 - index, 0, 0, (1, 0)), test(0), Step::Return(0), test(0)];
                opened.into_iter().chain(other).collect()
            }
        })
        .boxed()
}

/// Two clients wait for a third one's lock; they request it in their turn, or too late.
fn queue() -> Steps {
    const TURN: u64 = LEASE / 12;
    const ALL: (usize, usize) = (0, BYTES - 1);
    let request = || (bytes(), any::<bool>());
    let silent = prop_oneof![3 => 0..TURN, 1 => about(LEASE), 1 => about(3 * LEASE)];
    let how = prop_oneof![3 => Just(Ask::Waits), 1 => Just(Ask::BlockedWaiter)];
    let held = prop_oneof![Just(ALL), Just((0, BYTES / 2))];
    (index(), file(), held, request(), request(), (silent, 0..TURN, about(TURN)), how, any::<bool>())
        .prop_map(|(index, file, held, (first, w1), (second, w2), (silent, soon, late), how, in_order)| {
            let opens = [(index, 0), (1 - index, 0), (1 - index, 1)];
            let opened = opens.map(|(index, owner)| Step::Open(index, owner, file, (3, 0)));
            let [one, two] = [(1, 0, first, w1), (0, 1, second, w2)]
                .map(|(open, owner, bytes, writes)| move |ask| Step::Lock(open, owner, bytes, writes, ask));
            let mut steps = Vec::from(opened);
            let three = Step::Lock(2, 0, held, true, Ask::Once);
            // In this case the local process had the lock first.
            steps.extend(if how == Ask::BlockedWaiter { [one(how), three] } else { [three, one(how)] });
            steps.extend([two(Ask::Waits), Step::Wait(silent), Step::Renew(index), Step::Unlock(0, ALL)]);
            steps.extend((!in_order).then_some(Step::Unblock(0)));
            let next = if in_order { one(Ask::Waits) } else { two(Ask::Waits) };
            steps.extend([Step::Wait(soon), next, Step::Wait(late), one(Ask::Waits), two(Ask::Once)]);
            steps
        })
        .boxed()
}

/// The server restarts twice: a client is absent the first time, or reclaims a part of its state, or all of
/// it, while the other client gets what it had in between.
fn restarts() -> Steps {
    let reclaimed = (0_usize..7, any::<bool>());
    let away = prop_oneof![about(LEASE), about(2 * LEASE), 1..LEASE];
    (index(), share(), share(), bytes(), reclaimed, away, any::<bool>())
        .prop_map(|(index, first, second, bytes, (reclaimed, completes), away, expires)| {
            let other = 1 - index;
            let lock = Step::Lock(0, 0, bytes, true, Ask::Once);
            let mut steps =
                vec![Step::Open(index, 0, 0, (3, 0)), lock.clone(), Step::Delegate(0, true, false)];
            steps.extend([Step::Open(index, 1, 1, first), Step::Delegate(0, false, false)]);
            if expires {
                // Its lease expires before.
                steps.extend([Step::Wait(LEASE + 1), Step::Open(other, 0, 1, second), Step::Close(0)]);
            }
            steps.push(Step::Restart);
            steps.extend((0..reclaimed).map(|_| Step::Reclaim(index)));
            steps.extend(completes.then_some(Step::Complete(index)));
            steps.extend([Step::Complete(other), Step::Wait(away), Step::Complete(other)]);
            steps.extend([Step::Open(other, 0, 1, second), Step::Open(other, 1, 0, (3, 0))]);
            steps.extend([lock, Step::Close(1), Step::Restart]);
            steps.extend((0..5).map(|_| Step::Reclaim(index)));
            steps.extend([Step::Reclaim(other), Step::Reclaim(other)]);
            steps.extend([Step::Complete(other), Step::Complete(index)]);
            steps
        })
        .boxed()
}

/// A client that reclaims its state slowly and never sends RECLAIM_COMPLETE.
fn never_complete() -> Steps {
    (index(), file(), about(LEASE / 8), 6_usize..10)
        .prop_map(|(index, file, step, times)| {
            let again = [Step::Wait(step), Step::Reclaim(index)];
            let mut steps = Vec::new();
            for (owner, on) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let bytes = (usize::from(owner), usize::from(owner));
                steps.extend([
                    Step::Open(index, owner, on, (3, 0)),
                    Step::Lock(0, owner, bytes, true, Ask::Once),
                ]);
            }
            steps.extend([Step::Restart, Step::Complete(1 - index)]);
            steps.extend([Step::Wait(LEASE - 1), Step::Reclaim(index)]);
            steps.extend(std::iter::repeat_n(again, times).flatten());
            steps.push(Step::Open(1 - index, 0, file, (3, 0)));
            steps
        })
        .boxed()
}

/// A client without state for a long time, which then opens a file.
fn idle() -> Steps {
    (index(), file())
        .prop_map(|(index, file)| {
            let mut steps: Vec<Step> = (0..4).flat_map(|_| [Step::Close(0), Step::Return(0)]).collect();
            steps.extend((0..4).flat_map(|_| [Step::Wait(LEASE / 2), Step::Renew(index)]));
            steps.push(Step::Open(index, 0, file, (3, 0)));
            steps
        })
        .boxed()
}

/// A client reclaims what it never had.
fn false_reclaims() -> Steps {
    (index(), file(), share(), bytes())
        .prop_map(|(index, file, share, bytes)| {
            let had =
                [Step::Open(index, 0, file, (3, 0)), Step::Lock(0, 0, bytes, true, Ask::Once), Step::Restart];
            let back = [Step::Reclaim(index), Step::Reclaim(index)];
            let lie = [Step::FalseReclaim(1 - index, 0, file, share, bytes)];
            had.into_iter().chain(back).chain(lie).collect()
        })
        .boxed()
}

/// A scenario.
fn scenario() -> Steps {
    prop_oneof![
        3 => recall(),
        1 => delegated_and_locked(),
        4 => queue(),
        2 => restarts(),
        1 => never_complete(),
        1 => idle(),
    ]
    .boxed()
}

/// A sequence: it begins with an undisturbed scenario.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at_random = || proptest::collection::vec(step(), 1..4);
    let honest = prop_oneof![5 => at_random(), 1 => scenario()];
    let lying = prop_oneof![5 => at_random(), 1 => scenario(), 1 => false_reclaims()];
    let all = |some| {
        let rest = proptest::collection::vec(some, 1..40);
        (scenario(), rest).prop_map(|(first, rest)| [first, rest.concat()].concat())
    };
    prop_oneof![4 => all(honest.boxed()), 1 => all(lying.boxed())]
}
