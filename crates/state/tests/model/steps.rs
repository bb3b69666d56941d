//! What happens, step by step: most of it at random, and some in an order that leads somewhere.

use proptest::prelude::*;

use crate::common::{COURTESY, LEASE};
use crate::model::reference::{BYTES, CLIENTS, FILES};

/// One step. Which of several is said by a number: 0 is the newest.
#[derive(Debug, Clone)]
pub enum Step {
    Wait(u64),
    Renew(usize),
    Open(usize, u8, u32, (u8, u8)),
    Downgrade(usize, (u8, u8)),
    Close(usize),
    /// By that open, for that owner, so many bytes, for writing, and how it asks.
    Lock(usize, u8, (usize, usize), bool, Ask),
    /// LOCKT of the same.
    Test(usize, u8, (usize, usize), bool),
    /// A local process has given back what somebody waits for.
    LetIn(usize),
    Unlock(usize, (usize, usize)),
    Read(usize),
    Write(usize),
    Stateless(u32, bool),
    Grant(u32, u8),
    Release(usize),
    /// A delegation, for writing too, for who has that open; a local process may come between.
    Delegate(usize, bool, bool),
    Return(usize),
    /// A client says that it knows what was taken away.
    Free(usize),
    /// Somebody changes attributes or names: a client, or none.
    Change(u32, Option<usize>),
    /// A local process opens the file, for writing, too, and waits so long.
    Local(u32, bool, u64),
    Reboot(usize),
    Reclaim(usize),
    /// A client reclaims an open, for an owner, so, and a lock by that, that it doesn't believe to have had.
    Lie(usize, u8, u32, (u8, u8), (usize, usize)),
    Complete(usize),
    Restart,
}

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Once,
    /// It is going to be asked for until it is had.
    Waits,
    /// The same, and if no client is in the way a local process is.
    BlockedWaiter,
}

type Steps = BoxedStrategy<Vec<Step>>;

fn who() -> impl Strategy<Value = usize> + Clone {
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

/// What happens at some time happens then, just before, or just after.
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
        4 => who().prop_map(Step::Renew),
        10 => (who(), 0_u8..2, file(), share()).prop_map(|(w, o, f, s)| Step::Open(w, o, f, s)),
        3 => (any::<usize>(), share()).prop_map(|(n, s)| Step::Downgrade(n, s)),
        4 => any::<usize>().prop_map(Step::Close),
        12 => (any::<usize>(), 0_u8..2, bytes(), any::<bool>(), ask())
            .prop_map(|(n, o, b, w, a)| Step::Lock(n, o, b, w, a)),
        2 => (any::<usize>(), 0_u8..2, bytes(), any::<bool>())
            .prop_map(|(n, o, b, w)| Step::Test(n, o, b, w)),
        1 => any::<usize>().prop_map(Step::LetIn),
        4 => (any::<usize>(), bytes()).prop_map(|(n, b)| Step::Unlock(n, b)),
        2 => any::<usize>().prop_map(Step::Read),
        2 => any::<usize>().prop_map(Step::Write),
        2 => (file(), any::<bool>()).prop_map(|(f, w)| Step::Stateless(f, w)),
        3 => (file(), 1_u8..4).prop_map(|(f, a)| Step::Grant(f, a)),
        3 => any::<usize>().prop_map(Step::Release),
        10 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(n, w, b)| Step::Delegate(n, w, b)),
        3 => any::<usize>().prop_map(Step::Return),
        2 => who().prop_map(Step::Free),
        1 => (file(), proptest::option::of(who())).prop_map(|(f, w)| Step::Change(f, w)),
        1 => (file(), any::<bool>(), 1..2 * LEASE).prop_map(|(f, w, p)| Step::Local(f, w, p)),
        1 => who().prop_map(Step::Reboot),
        6 => who().prop_map(Step::Reclaim),
        3 => who().prop_map(Step::Complete),
        1 => Just(Step::Restart),
    ]
}

/// A delegation that is recalled, twice perhaps, and not returned in time, or nearly so, by a holder that
/// lives on and wants it again.
fn recall() -> Steps {
    let local = (any::<bool>(), prop_oneof![about(LEASE / 4), about(LEASE / 2), about(2 * LEASE)]);
    let touched = prop_oneof![
        local.prop_map(|(w, p)| Step::Local(0, w, p)),
        Just(Step::Change(0, None)),
        any::<bool>().prop_map(|w| Step::Stateless(0, w)),
    ];
    let waits = (about(LEASE / 2), prop_oneof![about(LEASE / 4), about(LEASE / 2), about(LEASE)]);
    (who(), any::<bool>(), touched.clone(), proptest::option::of(touched), waits)
        .prop_map(|(who, writes, first, second, (half, rest))| {
            let opened = [Step::Open(who, 0, 0, (3, 0)), Step::Delegate(0, writes, false), first];
            let waited = [Step::Wait(half), Step::Renew(who)];
            let returned = [Step::Wait(rest), Step::Renew(who), Step::Return(0), Step::Free(who)];
            let again = [Step::Delegate(0, writes, false)];
            opened.into_iter().chain(waited).chain(second).chain(returned).chain(again).collect()
        })
        .boxed()
}

/// A holder locks its file while its delegation is recalled, or another client asks for a lock that the
/// holder may have given locally.
fn lent_and_locked() -> Steps {
    (who(), bytes(), any::<bool>(), any::<bool>())
        .prop_map(|(who, bytes, write, lent_for_writing)| {
            let lock = |owner| Step::Lock(0, owner, bytes, write, Ask::Once);
            let test = |owner| Step::Test(0, owner, bytes, write);
            if lent_for_writing {
                let opened = [Step::Open(who, 0, 0, (3, 0)), Step::Delegate(0, true, false)];
                let recalled = [Step::Local(0, true, LEASE), lock(0), test(1), Step::Return(0), lock(1)];
                opened.into_iter().chain(recalled).collect()
            } else {
                let opened = [Step::Open(who, 0, 0, (1, 0)), Step::Delegate(0, false, false)];
                let other = [Step::Open(1 - who, 0, 0, (1, 0)), test(0), Step::Return(0), test(0)];
                opened.into_iter().chain(other).collect()
            }
        })
        .boxed()
}

/// Two wait for what a third has, who gives it back; they come in their turn, or too late.
fn queue() -> Steps {
    const TURN: u64 = LEASE / 12;
    const ALL: (usize, usize) = (0, BYTES - 1);
    let asked = || (bytes(), any::<bool>());
    let silent = prop_oneof![3 => 0..TURN, 1 => about(LEASE), 1 => about(3 * LEASE)];
    let how = prop_oneof![3 => Just(Ask::Waits), 1 => Just(Ask::BlockedWaiter)];
    let held = prop_oneof![Just(ALL), Just((0, BYTES / 2))];
    (who(), file(), held, asked(), asked(), (silent, 0..TURN, about(TURN)), how, any::<bool>())
        .prop_map(|(who, file, held, (first, w1), (second, w2), (silent, soon, late), how, in_order)| {
            let opens = [(who, 0), (1 - who, 0), (1 - who, 1)];
            let opened = opens.map(|(who, owner)| Step::Open(who, owner, file, (3, 0)));
            let [one, two] = [(1, 0, first, w1), (0, 1, second, w2)]
                .map(|(open, owner, bytes, writes)| move |ask| Step::Lock(open, owner, bytes, writes, ask));
            let mut steps = Vec::from(opened);
            let three = Step::Lock(2, 0, held, true, Ask::Once);
            // A local process was there before.
            steps.extend(if how == Ask::BlockedWaiter { [one(how), three] } else { [three, one(how)] });
            steps.extend([two(Ask::Waits), Step::Wait(silent), Step::Renew(who), Step::Unlock(0, ALL)]);
            steps.extend((!in_order).then_some(Step::LetIn(0)));
            let next = if in_order { one(Ask::Waits) } else { two(Ask::Waits) };
            steps.extend([Step::Wait(soon), next, Step::Wait(late), one(Ask::Waits), two(Ask::Once)]);
            steps
        })
        .boxed()
}

/// The server restarts, twice: a client is away the first time, or comes back and reclaims a part, or all of
/// it, while the other gets what it had in between.
fn restarts() -> Steps {
    let reclaimed = (0_usize..7, any::<bool>());
    let away = prop_oneof![about(LEASE), about(2 * LEASE), 1..LEASE];
    (who(), share(), share(), bytes(), reclaimed, away, any::<bool>())
        .prop_map(|(who, first, second, bytes, (reclaimed, completes), away, expires)| {
            let other = 1 - who;
            let lock = Step::Lock(0, 0, bytes, true, Ask::Once);
            let mut steps = vec![Step::Open(who, 0, 0, (3, 0)), lock.clone(), Step::Delegate(0, true, false)];
            steps.extend([Step::Open(who, 1, 1, first), Step::Delegate(0, false, false)]);
            if expires {
                // It falls silent before.
                steps.extend([Step::Wait(LEASE + 1), Step::Open(other, 0, 1, second), Step::Close(0)]);
            }
            steps.push(Step::Restart);
            steps.extend((0..reclaimed).map(|_| Step::Reclaim(who)));
            steps.extend(completes.then_some(Step::Complete(who)));
            steps.extend([Step::Complete(other), Step::Wait(away), Step::Complete(other)]);
            steps.extend([Step::Open(other, 0, 1, second), Step::Open(other, 1, 0, (3, 0))]);
            steps.extend([lock, Step::Close(1), Step::Restart]);
            steps.extend((0..5).map(|_| Step::Reclaim(who)));
            steps.extend([Step::Reclaim(other), Step::Reclaim(other)]);
            steps.extend([Step::Complete(other), Step::Complete(who)]);
            steps
        })
        .boxed()
}

/// A client that reclaims one thing after the other, and never says that it has reclaimed everything.
fn never_done() -> Steps {
    (who(), file(), about(LEASE / 8), 6_usize..10)
        .prop_map(|(who, file, step, times)| {
            let again = [Step::Wait(step), Step::Reclaim(who)];
            let mut steps = Vec::new();
            for (owner, on) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let bytes = (usize::from(owner), usize::from(owner));
                steps.extend([
                    Step::Open(who, owner, on, (3, 0)),
                    Step::Lock(0, owner, bytes, true, Ask::Once),
                ]);
            }
            steps.extend([Step::Restart, Step::Complete(1 - who)]);
            steps.extend([Step::Wait(LEASE - 1), Step::Reclaim(who)]);
            steps.extend(std::iter::repeat_n(again, times).flatten());
            steps.push(Step::Open(1 - who, 0, file, (3, 0)));
            steps
        })
        .boxed()
}

/// A client that has had nothing for long, and then something.
fn idle() -> Steps {
    (who(), file())
        .prop_map(|(who, file)| {
            let mut steps: Vec<Step> = (0..4).flat_map(|_| [Step::Close(0), Step::Return(0)]).collect();
            steps.extend((0..4).flat_map(|_| [Step::Wait(LEASE / 2), Step::Renew(who)]));
            steps.push(Step::Open(who, 0, file, (3, 0)));
            steps
        })
        .boxed()
}

/// A client reclaims what it never had.
fn lies() -> Steps {
    (who(), file(), share(), bytes())
        .prop_map(|(who, file, share, bytes)| {
            let had =
                [Step::Open(who, 0, file, (3, 0)), Step::Lock(0, 0, bytes, true, Ask::Once), Step::Restart];
            let back = [Step::Reclaim(who), Step::Reclaim(who)];
            let lie = [Step::Lie(1 - who, 0, file, share, bytes)];
            had.into_iter().chain(back).chain(lie).collect()
        })
        .boxed()
}

/// Something that leads somewhere.
fn scene() -> Steps {
    prop_oneof![
        3 => recall(),
        1 => lent_and_locked(),
        4 => queue(),
        2 => restarts(),
        1 => never_done(),
        1 => idle(),
    ]
    .boxed()
}

/// A sequence: it begins with a scene, in which nothing interferes.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at_random = || proptest::collection::vec(step(), 1..4);
    let honest = prop_oneof![5 => at_random(), 1 => scene()];
    let lying = prop_oneof![5 => at_random(), 1 => scene(), 1 => lies()];
    let all = |some| {
        let rest = proptest::collection::vec(some, 1..40);
        (scene(), rest).prop_map(|(first, rest)| [first, rest.concat()].concat())
    };
    prop_oneof![4 => all(honest.boxed()), 1 => all(lying.boxed())]
}
