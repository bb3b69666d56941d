//! The interlock under a model checker, on memory with delayed plain stores: every interleaving of a client's
//! I/O and a server's drain is safe. And the switch that holds an open file's grant, which relies on the same
//! order.

#[path = "common/late.rs"]
mod late;

use late::{Late, Machine};
use samehost_lane::interlock::{ClientSide, Control, ControlState, ServerSide, SharedWord, Words};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use sys::read_mostly::protect;

/// The number of slots in a model.
const SLOTS: usize = 2;

#[derive(Clone)]
struct Shared(Machine, Arc<Vec<Late>>);

impl Words for Shared {
    type Word = Late;
    fn control(&self) -> &Late {
        &self.1[0]
    }
    fn in_flight(&self) -> &Late {
        &self.1[1]
    }
    fn received(&self) -> &Late {
        &self.1[2]
    }
    fn slot(&self, index: usize) -> &Late {
        &self.1[3 + index]
    }
}

fn words() -> Shared {
    let machine = Machine::new(3 + SLOTS);
    let words = Arc::new(machine.words());
    Shared(machine, words)
}

const INTERLEAVINGS: usize = 1_500;

/// Threads of a client do I/O, two of them with a slot of their own, while the server drains. When the server
/// has published draining, issued its barrier, and then seen no I/O in flight, it invalidates the file: no
/// I/O may be in flight then or begin later.
fn drain(slots: usize, with_barrier: bool) {
    let words = words();
    let server = ServerSide::new(words.clone(), slots);
    let client = Arc::new(ClientSide::new(words.clone(), slots));
    let ground_is_gone = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = [Some(0), Some(1), None]
        .into_iter()
        .map(|place| {
            let (client, ground_is_gone) = (client.clone(), ground_is_gone.clone());
            thread::spawn(move || {
                if let Some(counted) = client.try_get(place, Control::FIRST.word()) {
                    assert!(!ground_is_gone.load(SeqCst), "I/O began: the ground is gone");
                    let inside = client.try_get(place, Control::FIRST.word());
                    inside.into_iter().for_each(|counted| client.put(counted));
                    assert!(!ground_is_gone.load(SeqCst), "I/O under way: the ground is gone");
                    client.put(counted);
                }
            })
        })
        .collect();
    server.publish(Control { state: ControlState::Draining, ..Control::FIRST });
    if with_barrier {
        words.0.barrier();
    }
    while server.in_flight() != 0 {
        thread::yield_now();
    }
    ground_is_gone.store(true, SeqCst);
    server.publish(Control { state: ControlState::Gone, ..Control::FIRST });
    for thread in threads {
        thread.join().unwrap();
    }
    words.0.barrier();
    assert_eq!(server.in_flight(), 0);
    assert_eq!(client.try_get(Some(0), Control::FIRST.word()), None);
}

#[test]
fn no_io_begins_after_the_drain_has_seen_none() {
    shuttle::check_random(|| drain(SLOTS, true), INTERLEAVINGS);
}

#[test]
fn a_server_without_a_barrier_offers_no_slots_and_needs_none() {
    shuttle::check_random(|| drain(0, false), INTERLEAVINGS);
}

/// The model finds the failure that the barrier prevents.
#[test]
fn slots_without_a_barrier_would_go_wrong() {
    let wrong =
        catch_unwind(AssertUnwindSafe(|| shuttle::check_random(|| drain(SLOTS, false), INTERLEAVINGS)));
    let said = wrong.expect_err("it must go wrong");
    let said = said.downcast_ref::<String>().map(String::as_str).or(said.downcast_ref::<&str>().copied());
    assert!(said.is_some_and(|said| said.contains("the ground is gone")), "{said:?}");
}

/// A recall ends the grants of one generation and leaves those of the next alone.
#[test]
fn a_recall_is_for_one_generation() {
    shuttle::check_random(
        || {
            let words = words();
            let server = ServerSide::new(words.clone(), SLOTS);
            let client = Arc::new(ClientSide::new(words.clone(), SLOTS));
            let recalled = Arc::new(AtomicBool::new(false));
            let old = {
                let (client, recalled) = (client.clone(), recalled.clone());
                thread::spawn(move || {
                    let was_recalled = recalled.load(SeqCst);
                    let began = client.try_get(Some(0), Control::FIRST.word());
                    assert!(!(was_recalled && began.is_some()), "I/O began after the recall");
                    began.into_iter().for_each(|counted| client.put(counted));
                })
            };
            let next = Control { generation: 2, ..Control::FIRST };
            server.publish(next);
            recalled.store(true, SeqCst);
            let counted = client.try_get(Some(1), next.word()).expect("the next generation's");
            client.put(counted);
            old.join().unwrap();
            words.0.barrier();
            assert_eq!(server.in_flight(), 0);
        },
        INTERLEAVINGS,
    );
}

/// Receipts are counted correctly beside concurrent writes.
#[test]
fn receipts_add_up() {
    shuttle::check_random(
        || {
            let words = words();
            let server = ServerSide::new(words.clone(), SLOTS);
            let client = Arc::new(ClientSide::new(words, SLOTS));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let client = client.clone();
                    thread::spawn(move || client.receive())
                })
                .collect();
            assert!(server.received() <= 3);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(server.received(), 3);
        },
        1_000,
    );
}

/// A lying client's counts never sum to zero.
#[test]
fn invalid_counts_never_sum_to_zero() {
    shuttle::check_random(
        || {
            let words = words();
            let server = ServerSide::new(words.clone(), SLOTS);
            words.in_flight().store(u64::MAX);
            words.slot(0).store(1);
            assert_eq!(server.in_flight(), u64::MAX);
        },
        1,
    );
}

/// `sys::ReadMostly`: two threads read, one changes the value and sweeps. A value in use isn't released
/// meanwhile.
fn switch(with_barrier: bool) {
    const VALUES: usize = 2;
    let machine = Machine::new(3);
    let words = Arc::new(machine.words());
    let current = |words: &Arc<Vec<Late>>| words[0].load();
    words[0].store(1);
    let freed: Arc<Vec<_>> = Arc::new((0..=VALUES).map(|_| AtomicBool::new(false)).collect());
    let readers: Vec<_> = (1..3)
        .map(|place| {
            let (words, freed) = (words.clone(), freed.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let found = protect(0, || current(&words), |value| words[place].put(value));
                    if let Some(found) = found {
                        thread::yield_now();
                        assert!(!freed[found as usize].load(SeqCst), "used after it was let go of");
                    }
                    words[place].put(0);
                }
            })
        })
        .collect();
    words[0].store(2);
    if with_barrier {
        machine.barrier();
    }
    if !(1..3).any(|place| words[place].load() == 1) {
        freed[1].store(true, SeqCst);
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn a_value_in_use_is_not_released() {
    shuttle::check_random(|| switch(true), INTERLEAVINGS);
    let wrong = catch_unwind(AssertUnwindSafe(|| shuttle::check_random(|| switch(false), INTERLEAVINGS)));
    assert!(wrong.is_err(), "without its barrier it must go wrong");
}
