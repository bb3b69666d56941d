//! The slot table's tests.

use proptest::prelude::*;

use super::*;

fn arguments(taken: &TakenSlot) -> (u32, u32, u32) {
    (taken.slot(), taken.sequence(), taken.highest())
}

fn take(table: &mut SlotTable) -> TakenSlot {
    table.take().expect("a free slot")
}

#[test]
fn requests_get_the_lowest_free_slot_and_its_next_sequence_id() {
    let mut table = SlotTable::new(3);
    assert_eq!(table.available(), 3);
    let (first, second, third) = (take(&mut table), take(&mut table), take(&mut table));
    assert_eq!([&first, &second, &third].map(arguments), [(0, 1, 0), (1, 1, 1), (2, 1, 2)]);
    assert_eq!((table.take(), table.available()), (None, 0));
    table.answered(second, 2, 2);
    table.answered(first, 2, 2);
    assert_eq!(table.available(), 2);
    let first = take(&mut table);
    assert_eq!(arguments(&first), (0, 2, 2), "the third slot is still taken");
    table.answered(third, 2, 2);
    let second = take(&mut table);
    assert_eq!(arguments(&second), (1, 2, 1));
    assert!(table.is_outstanding(0, 2) && table.is_outstanding(1, 2));
    assert!(!table.is_outstanding(0, 1) && !table.is_outstanding(2, 2) && !table.is_outstanding(9999, 1));
}

#[test]
fn a_request_that_was_not_executed_leaves_its_sequence_id() {
    let mut table = SlotTable::new(1);
    let taken = take(&mut table);
    table.not_executed(taken);
    assert_eq!(arguments(&take(&mut table)), (0, 1, 0));
}

#[test]
fn a_sequence_id_wraps_to_zero() {
    let mut table = SlotTable::new(1);
    table.sequences = vec![u32::MAX - 1];
    for sequence in [u32::MAX, 0, 1] {
        let taken = take(&mut table);
        assert_eq!(taken.sequence(), sequence);
        table.answered(taken, 0, 0);
    }
}

#[test]
fn a_delayed_request_is_repeated_in_its_slot() {
    let mut table = SlotTable::new(2);
    let taken = take(&mut table);
    let Unanswered::Repeat(taken) = table.failed(taken, SlotError::Delay) else { panic!("not repeated") };
    assert_eq!(arguments(&taken), (0, 1, 0));
    assert_eq!(take(&mut table).slot(), 1, "nothing else has the slot meanwhile");
}

#[test]
fn an_abandoned_slot_is_used_again_after_a_sequence_of_its_own() {
    for executed in [Ok(()), Err(SlotError::SeqFalseRetry), Err(SlotError::RetryUncachedRep)] {
        let mut table = SlotTable::new(2);
        let taken = take(&mut table);
        table.abandon(taken);
        assert_eq!(take(&mut table).slot(), 1);
        assert_eq!(table.take(), None);
        let probe = table.take_abandoned().expect("an abandoned slot");
        assert_eq!(arguments(&probe), (0, 1, 1));
        assert_eq!(table.take_abandoned(), None, "one at a time");
        // The probe's connection is lost, too.
        table.abandon(probe);
        let probe = table.take_abandoned().expect("it is abandoned again");
        let Unanswered::Repeat(probe) = table.failed(probe, SlotError::Delay) else { panic!() };
        assert_eq!(table.take_abandoned(), None);
        match executed {
            Ok(()) => table.answered(probe, 1, 1),
            Err(error) => assert_eq!(table.failed(probe, error), Unanswered::ReplyLost),
        }
        assert_eq!(arguments(&take(&mut table)), (0, 2, 1));
        assert_eq!(table.take_abandoned(), None);
    }
}

#[test]
fn the_server_withdraws_slots_and_gives_more() {
    let mut table = SlotTable::new(4);
    let slots: Vec<_> = (0..4).map(|_| take(&mut table)).collect();
    let mut slots = slots.into_iter();
    let (first, second, third, fourth) =
        (slots.next().unwrap(), slots.next().unwrap(), slots.next().unwrap(), slots.next().unwrap());
    table.answered(first, 1, 0);
    assert_eq!(table.available(), 1, "the target counts");
    // These were sent before, and their replies before that of the first one.
    table.answered(second, 3, 3);
    table.answered(third, 3, 3);
    assert_eq!(table.available(), 1);
    let first = take(&mut table);
    assert_eq!(arguments(&first), (0, 2, 3));
    assert_eq!(table.take(), None);
    table.answered(fourth, 3, 3);
    table.answered(first, 5, 5);
    assert_eq!(table.available(), 6);
    let taken: Vec<_> = (0..6).map(|_| take(&mut table)).collect();
    let sequences: Vec<_> = taken.iter().map(TakenSlot::sequence).collect();
    assert_eq!(sequences, [3, 2, 1, 1, 1, 1], "slots that were withdrawn begin anew");
    assert_eq!(table.take(), None);
}

#[test]
fn a_slot_that_the_server_refuses_is_not_used_again() {
    let mut table = SlotTable::new(3);
    let (first, second, third) = (take(&mut table), take(&mut table), take(&mut table));
    assert_eq!(table.failed(second, SlotError::BadSlot), Unanswered::TakeAnother);
    assert_eq!((table.available(), arguments(&first)), (0, (0, 1, 0)));
    table.answered(third, 2, 2);
    table.answered(first, 2, 2);
    assert_eq!(table.available(), 1, "both were sent before");
    let first = take(&mut table);
    assert_eq!(arguments(&first), (0, 2, 0));
    assert_eq!(table.failed(first, SlotError::BadSlot), Unanswered::ReplaceSession);
    for error in [SlotError::BadHighSlot, SlotError::SeqMisordered] {
        let mut table = SlotTable::new(3);
        let taken = take(&mut table);
        assert_eq!(table.failed(taken, error), Unanswered::ReplaceSession);
        assert_eq!(table.available(), 2);
    }
}

#[test]
fn a_recalled_slot_is_reported_once_it_is_free() {
    let mut table = SlotTable::new(4);
    let (first, second) = (take(&mut table), take(&mut table));
    table.recall(0);
    assert!(!table.owes_sequence() && table.available() == 0);
    table.answered(second, 3, 3);
    assert!(table.owes_sequence());
    table.answered(first, 3, 3);
    assert!(table.owes_sequence());
    let first = take(&mut table);
    assert_eq!(arguments(&first), (0, 2, 0));
    assert!(!table.owes_sequence() && table.take().is_none());
    table.answered(first, 3, 3);
    assert_eq!(table.available(), 4, "the server has told otherwise since");
}

#[test]
fn the_number_of_slots_has_bounds() {
    assert_eq!(SlotTable::new(0).available(), 1);
    let mut table = SlotTable::new(u32::MAX);
    assert_eq!(table.available(), MAX_SLOTS);
    let first = take(&mut table);
    table.answered(first, u32::MAX, u32::MAX);
    let all: Vec<_> = std::iter::from_fn(|| table.take()).collect();
    assert_eq!(all.len(), MAX_SLOTS as usize);
    assert_eq!(all.last().map(arguments), Some((MAX_SLOTS - 1, 1, MAX_SLOTS - 1)));
}

/// A slot of a server: the last sequence id, and the request that had it.
type ReplierSlot = (u32, u32);

/// A server's side of a session, which counts the executions of each request.
#[derive(Default)]
struct Replier {
    slots: [ReplierSlot; 4],
    executed: std::collections::BTreeMap<u32, u32>,
}

impl Replier {
    /// A request arrives: SEQUENCE's result, or `None` for a test's mistake.
    fn receive(&mut self, (slot, sequence, request): (u32, u32, u32)) -> Result<(), SlotError> {
        let (last, by) = &mut self.slots[slot as usize];
        if sequence == *last {
            return if *by == request { Ok(()) } else { Err(SlotError::SeqFalseRetry) };
        }
        if sequence != last.wrapping_add(1) {
            return Err(SlotError::SeqMisordered);
        }
        (*last, *by) = (sequence, request);
        *self.executed.entry(request).or_default() += 1;
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum SlotEvent {
    Send,
    /// A message arrives, and perhaps again later.
    Deliver(prop::sample::Index, bool),
    /// The reply arrives of a request that the server has executed.
    Reply(prop::sample::Index),
    Resend(prop::sample::Index),
    Abandon(prop::sample::Index),
    Probe,
}

fn step() -> impl Strategy<Value = SlotEvent> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => Just(SlotEvent::Send),
        6 => (index(), any::<bool>()).prop_map(|(which, again)| SlotEvent::Deliver(which, again)),
        4 => index().prop_map(SlotEvent::Reply),
        1 => index().prop_map(SlotEvent::Resend),
        1 => index().prop_map(SlotEvent::Abandon),
        1 => Just(SlotEvent::Probe),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// Messages are lost, delayed, repeated and reordered. A message of an earlier request may arrive at any
    /// time; it is never executed.
    #[test]
    fn every_request_is_executed_once_at_most(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut table, mut server) = (SlotTable::new(4), Replier::default());
        let (mut network, mut waiting, mut next) = (Vec::new(), Vec::new(), 0_u32);
        for step in steps {
            match step {
                SlotEvent::Send | SlotEvent::Probe => {
                    let is_new = matches!(step, SlotEvent::Send);
                    let taken = if is_new { table.take() } else { table.take_abandoned() };
                    let Some(taken) = taken else { continue };
                    next += 1;
                    network.push((taken.slot(), taken.sequence(), next));
                    waiting.push((taken, next, None));
                }
                SlotEvent::Deliver(which, again) if !network.is_empty() => {
                    let at = which.index(network.len());
                    let message = if again { network[at] } else { network.swap_remove(at) };
                    let result = server.receive(message);
                    for (_, request, reply) in &mut waiting {
                        if *request == message.2 {
                            *reply = Some(result);
                        }
                    }
                }
                SlotEvent::Reply(which) if !waiting.is_empty() => {
                    let at = which.index(waiting.len());
                    let Some(result) = waiting[at].2 else { continue };
                    let (taken, request, _) = waiting.swap_remove(at);
                    match result {
                        Ok(()) => {
                            prop_assert_eq!(server.executed.get(&request), Some(&1));
                            table.answered(taken, 3, 3);
                        }
                        Err(error) => {
                            // Only the probe of an executed request.
                            prop_assert_eq!(error, SlotError::SeqFalseRetry);
                            prop_assert_eq!(table.failed(taken, error), Unanswered::ReplyLost);
                            prop_assert_eq!(server.executed.get(&request), None);
                        }
                    }
                }
                SlotEvent::Resend(which) if !waiting.is_empty() => {
                    let (taken, request, _) = &waiting[which.index(waiting.len())];
                    network.push((taken.slot(), taken.sequence(), *request));
                }
                SlotEvent::Abandon(which) if !waiting.is_empty() => {
                    let (taken, ..) = waiting.swap_remove(which.index(waiting.len()));
                    table.abandon(taken);
                }
                _ => {}
            }
            prop_assert!(server.executed.values().all(|times| *times == 1));
            let taken = table.abandoned.iter().filter(|slot| !slot.is_probed).count() + waiting.len();
            prop_assert_eq!(table.available() as usize + taken, 4);
        }
    }
}
