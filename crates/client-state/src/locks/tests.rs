//! Tests of the locks, without a server: `tests/` has the one with the server's engine.

use super::LockChangeRequest::{Free, Lock, Unlock};
use super::LockKind::{Read, Write};
use super::*;

/// Files and owners are numbers.
type Table = Locks<u32, u32>;
type Change = LockChange<u32, u32>;

const ID: StateId = StateId { seqid: 1, other: [1; 12] };
/// That of another owner.
const OTHER: StateId = StateId { seqid: 1, other: [2; 12] };

const fn bytes(first: u64, last: u64) -> ByteRange {
    ByteRange { first, last }
}

/// The LOCK of an application.
fn asked(table: &mut Table, range: ByteRange, kind: LockKind) -> Change {
    match table.lock(1, 1, range, kind) {
        LockAnswer::Ask(change) => change,
        answer => panic!("{answer:?}"),
    }
}

/// A lock that the server grants.
fn locked(table: &mut Table, range: ByteRange, kind: LockKind) {
    let change = asked(table, range, kind);
    table.changed(change, Ok(Some(ID)));
    assert_eq!(table.take_changes(), []);
}

/// The change that is due, and its request.
fn due(table: &mut Table) -> (Change, LockChangeRequest) {
    let change = table.take_changes().pop().expect("a change is due");
    assert_eq!(table.take_changes(), []);
    assert_eq!((change.file(), change.owner()), (&1, &1));
    let request = table.request(&change).expect("it isn't overtaken");
    (change, request)
}

const fn lock(id: Option<StateId>, range: ByteRange, kind: LockKind, reclaim: bool) -> LockChangeRequest {
    Lock { id, range, kind, reclaim }
}

#[test]
fn a_lock_is_held_from_the_answer_on_until_it_is_unlocked() {
    let mut table = Table::default();
    let first = asked(&mut table, bytes(0, 9), Write);
    assert_eq!(table.request(&first), Some(lock(None, bytes(0, 9), Write, false)));
    assert_eq!(table.lock(1, 1, bytes(20, 29), Read), LockAnswer::Busy);
    assert!(!table.holds(&1, &1, bytes(0, 9), Write));
    table.changed(first, Ok(Some(ID)));
    assert_eq!((table.io_id(&1, &1), table.io_id(&1, &2)), (Some(ID.any()), None));
    assert!(table.holds(&1, &1, bytes(0, 9), Read) && !table.holds(&1, &2, bytes(0, 9), Read));
    assert_eq!(table.lock(1, 1, bytes(2, 3), Write), LockAnswer::Granted);
    let second = asked(&mut table, bytes(2, 3), Read);
    assert_eq!(table.request(&second), Some(lock(Some(ID.any()), bytes(2, 3), Read, false)));
    assert!(table.holds(&1, &1, bytes(0, 1), Write) && table.holds(&1, &1, bytes(0, 9), Read));
    assert!(!table.holds(&1, &1, bytes(0, 2), Write), "the server may have changed it");
    // It is unlocked at once, and at the server when the other request is answered.
    table.unlock(&1, &1, bytes(4, 6));
    assert!(!table.holds(&1, &1, bytes(0, 9), Read) && table.holds(&1, &1, bytes(0, 1), Write));
    assert_eq!(table.take_changes(), []);
    table.changed(second, Err(LockError::Denied));
    let (unlock, request) = due(&mut table);
    assert_eq!(request, Unlock { id: ID.any(), range: bytes(4, 6) });
    assert_eq!(table.lock(1, 1, bytes(0, 0), Read), LockAnswer::Busy);
    table.changed(unlock, Err(LockError::State(StateError::Refused)));
    assert_eq!(table.take_changes(), [], "there is nothing more to be done");
    assert_eq!(table.test(&1, &2, bytes(4, 6), Read), Tested::Server);
    assert!(!table.is_free(&1, &1));
    table.release(&1, &1);
    let (unlock, request) = due(&mut table);
    assert_eq!(request, Unlock { id: ID.any(), range: bytes(0, u64::MAX) });
    table.changed(unlock, Ok(Some(ID)));
    assert_eq!(table.io_id(&1, &1), None);
    let (free, request) = due(&mut table);
    assert_eq!((request, table.is_free(&1, &1)), (Free { id: ID.any() }, false));
    table.changed(free, Ok(None));
    assert!(table.is_free(&1, &1) && table.owners.is_empty());
}

#[test]
fn a_file_is_free_for_owners_without_the_locks_of_others() {
    let mut table = Table::default();
    for (file, owner) in [(1, 10), (2, 4), (2, 25), (3, 15)] {
        assert!(matches!(table.lock(file, owner, bytes(0, 9), Read), LockAnswer::Ask(_)));
    }
    let are_free = |file: u32, tens: u32| table.are_free(&file, tens * 10, |owner| owner / 10 == tens);
    assert_eq!([1, 2, 3].map(|file| are_free(file, 1)), [false, true, false]);
    assert_eq!([0, 1, 2].map(|tens| are_free(2, tens)), [false, true, false]);
    assert_eq!([1, 2, 3, 4].map(|file| table.is_file_free(&file)), [false, false, false, true]);
}

#[test]
fn what_an_owner_has_unlocked_is_not_asked_for_before_the_server_knows() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 9), Write);
    assert!(matches!(table.lock(1, 2, bytes(20, 29), Write), LockAnswer::Ask(_)));
    table.release(&1, &1);
    let (unlock, _) = due(&mut table);
    assert_eq!(table.lock(1, 3, bytes(0, 0), Read), LockAnswer::Busy, "LOCK may overtake LOCKU");
    assert_eq!(table.test(&1, &3, bytes(0, 0), Read), Tested::Busy, "and LOCKT");
    assert!(matches!(table.lock(1, 3, bytes(10, 19), Read), LockAnswer::Ask(_)));
    assert_eq!(table.test(&1, &3, bytes(10, 19), Read), Tested::Server);
    table.changed(unlock, Ok(Some(ID)));
    assert_eq!(table.test(&1, &3, bytes(0, 0), Read), Tested::Server);
    assert!(matches!(table.lock(1, 4, bytes(0, 0), Read), LockAnswer::Ask(_)));
}

/// The changes that are due: the owners, and the requests.
fn all_due(table: &mut Table) -> Vec<(Change, LockChangeRequest)> {
    let changes = table.take_changes().into_iter();
    let with_request = changes.map(|change| {
        let request = table.request(&change).expect("it isn't overtaken");
        (change, request)
    });
    with_request.collect()
}

/// The only change that is due is this one of an owner.
fn due_of(table: &mut Table, owner: u32, request: LockChangeRequest) -> Change {
    let mut due = all_due(table);
    let (change, first) = due.pop().expect("a change is due");
    assert_eq!((due, *change.owner(), first), (vec![], owner, request));
    change
}

#[test]
fn what_is_locked_under_a_delegation_waits_for_what_others_have_unlocked() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 9), Write);
    table.delegate(1);
    table.unlock(&1, &1, bytes(0, 4));
    let unlock = due_of(&mut table, 1, Unlock { id: ID.any(), range: bytes(0, 4) });
    assert_eq!(table.lock(1, 2, bytes(0, 1), Read), LockAnswer::Granted);
    table.recall(&1);
    assert_eq!(table.take_changes(), [], "LOCK may overtake LOCKU");
    assert!(!table.is_settled(&1) && !table.holds(&1, &2, bytes(0, 1), Read));
    assert_eq!(table.lock(1, 2, bytes(0, 1), Read), LockAnswer::Busy, "the server doesn't have it yet");
    table.changed(unlock, Ok(Some(ID)));
    let change = due_of(&mut table, 2, lock(None, bytes(0, 1), Read, false));
    table.changed(change, Ok(Some(OTHER)));
    assert!(table.is_settled(&1) && table.holds(&1, &2, bytes(0, 1), Read));
    assert_eq!((table.take_changes(), table.take_lost()), (vec![], vec![]));
}

#[test]
fn what_is_unlocked_while_its_lock_is_on_its_way_is_waited_for() {
    let mut table = Table::default();
    table.delegate(1);
    assert_eq!(table.lock(1, 1, bytes(0, 9), Read), LockAnswer::Granted);
    table.recall(&1);
    let first = due_of(&mut table, 1, lock(None, bytes(0, 9), Read, false));
    table.release(&1, &1);
    assert_eq!(table.lock(1, 2, bytes(0, 0), Write), LockAnswer::Busy, "the server would refuse it");
    // Another delegation.
    table.delegate(1);
    assert_eq!(table.lock(1, 2, bytes(0, 0), Write), LockAnswer::Granted);
    table.recall(&1);
    assert_eq!(table.take_changes(), []);
    table.changed(first, Ok(Some(ID)));
    let unlock = due_of(&mut table, 1, Unlock { id: ID.any(), range: ByteRange::ALL });
    table.changed(unlock, Ok(Some(ID)));
    let mut due = all_due(&mut table);
    due.retain(|(change, _)| *change.owner() == 2);
    assert_eq!(due.pop().map(|(_, request)| request), Some(lock(None, bytes(0, 0), Write, false)));
}

#[test]
fn what_is_locked_again_while_its_unlock_is_on_its_way_is_not_given_to_others() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 9), Write);
    table.delegate(1);
    table.unlock(&1, &1, bytes(0, 9));
    let unlock = due_of(&mut table, 1, Unlock { id: ID.any(), range: ByteRange::ALL });
    assert_eq!(table.lock(1, 1, bytes(0, 9), Write), LockAnswer::Granted);
    table.recall(&1);
    assert_eq!(table.lock(1, 2, bytes(0, 0), Read), LockAnswer::Busy, "LOCKU would make room for it");
    table.changed(unlock, Ok(Some(ID)));
    let _ = due_of(&mut table, 1, lock(Some(ID.any()), bytes(0, 9), Write, false));
    assert_eq!(table.lock(1, 2, bytes(0, 0), Read), LockAnswer::Busy);
}

#[test]
fn locks_that_are_told_do_not_wait_in_a_circle() {
    let mut table = Table::default();
    locked(&mut table, bytes(1, 1), Write);
    let LockAnswer::Ask(change) = table.lock(1, 2, bytes(3, 3), Write) else { panic!("it isn't asked") };
    table.changed(change, Ok(Some(OTHER)));
    table.delegate(1);
    // Each has read locks now where the other one has a write lock at the server.
    for (owner, own) in [(1, bytes(1, 1)), (2, bytes(3, 3))] {
        assert_eq!(table.lock(1, owner, own, Read), LockAnswer::Granted);
    }
    for owner in [1, 2] {
        assert_eq!(table.lock(1, owner, bytes(0, 5), Read), LockAnswer::Granted);
    }
    table.recall(&1);
    let change = due_of(&mut table, 2, lock(Some(OTHER.any()), bytes(3, 5), Read, false));
    table.changed(change, Ok(Some(OTHER)));
    let change = due_of(&mut table, 1, lock(Some(ID.any()), bytes(0, 5), Read, false));
    table.changed(change, Ok(Some(ID)));
    let change = due_of(&mut table, 2, lock(Some(OTHER.any()), bytes(0, 5), Read, false));
    table.changed(change, Ok(Some(OTHER)));
    assert!(table.is_settled(&1));
}

#[test]
fn who_waits_goes_on_when_the_server_has_lost_the_locks_of_another_owner() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 9), Write);
    table.delegate(1);
    table.unlock(&1, &1, bytes(0, 9));
    let unlock = due_of(&mut table, 1, Unlock { id: ID.any(), range: ByteRange::ALL });
    assert_eq!(table.lock(1, 2, bytes(0, 9), Write), LockAnswer::Granted);
    table.recall(&1);
    assert_eq!(table.take_changes(), []);
    table.gone(&1, &1, ID);
    let _ = due_of(&mut table, 2, lock(None, bytes(0, 9), Write, false));
    table.changed(unlock, Err(LockError::State(StateError::Gone)));
    assert_eq!(table.take_changes(), []);
}

#[test]
fn a_refused_first_lock_leaves_nothing() {
    let mut table = Table::default();
    let change = asked(&mut table, bytes(0, 9), Write);
    table.changed(change, Err(LockError::Denied));
    assert!(table.owners.is_empty() && table.is_free(&1, &1));
}

#[test]
fn a_lock_that_was_given_up_is_undone() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 4), Read);
    let change = asked(&mut table, bytes(0, 9), Write);
    table.given_up(change, ID);
    let (restore, request) = due(&mut table);
    assert_eq!(request, lock(Some(ID.any()), bytes(0, 4), Read, false));
    table.changed(restore, Ok(Some(ID)));
    let (unlock, request) = due(&mut table);
    assert_eq!(request, Unlock { id: ID.any(), range: bytes(5, u64::MAX) });
    table.changed(unlock, Ok(Some(ID)));
    assert_eq!(table.take_changes(), []);
    assert!(table.holds(&1, &1, bytes(0, 4), Read) && !table.is_lost(&1, &1));
}

#[test]
fn locks_are_reclaimed_before_anything_else() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 4), Read);
    locked(&mut table, bytes(10, 14), Write);
    let ask = asked(&mut table, bytes(20, 24), Read);
    table.recover();
    assert!(!table.holds(&1, &1, bytes(0, 4), Read));
    let (first, request) = due(&mut table);
    assert_eq!((request, first.is_reclaim()), (lock(None, bytes(0, 4), Read, true), true));
    table.unlock(&1, &1, bytes(0, 1));
    table.changed(first, Ok(Some(ID)));
    let (second, request) = due(&mut table);
    assert_eq!(request, lock(Some(ID.any()), bytes(10, 14), Write, true));
    table.changed(second, Ok(Some(ID)));
    assert_eq!(table.take_changes(), []);
    assert!(table.holds(&1, &1, bytes(2, 4), Read) && table.holds(&1, &1, bytes(10, 14), Write));
    assert_eq!(table.request(&ask), Some(lock(Some(ID.any()), bytes(20, 24), Read, false)));
    table.changed(ask, Ok(Some(ID)));
    let (unlock, request) = due(&mut table);
    assert_eq!(request, Unlock { id: ID.any(), range: bytes(0, 1) });
    assert_eq!(table.state_ids().collect::<Vec<_>>(), [(&1, &1, ID.any())]);
    // A restart overtakes the LOCKU.
    table.recover();
    assert_eq!(table.request(&unlock), None);
    table.changed(unlock, Ok(Some(ID)));
    assert_eq!(due(&mut table).1, lock(None, bytes(2, 4), Read, true));
}

#[test]
fn a_lock_that_was_being_weakened_is_reclaimed_weak() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 9), Write);
    let ask = asked(&mut table, bytes(5, 9), Read);
    table.recover();
    let (first, request) = due(&mut table);
    assert_eq!(request, lock(None, bytes(0, 4), Write, true));
    table.changed(first, Ok(Some(ID)));
    let (second, request) = due(&mut table);
    assert_eq!(request, lock(Some(ID.any()), bytes(5, 9), Read, true));
    table.changed(second, Ok(Some(ID)));
    table.changed(ask, Ok(Some(ID)));
    assert_eq!(table.take_changes(), []);
}

#[test]
fn locks_that_cannot_be_had_back_are_lost() {
    for refused in [StateError::NoReclaim, StateError::Gone] {
        let mut table = Table::default();
        locked(&mut table, bytes(0, 4), Read);
        locked(&mut table, bytes(10, 14), Write);
        table.recover();
        let (first, _) = due(&mut table);
        table.changed(first, Ok(Some(ID)));
        let (second, _) = due(&mut table);
        table.changed(second, Err(LockError::State(refused)));
        assert_eq!((table.take_lost(), table.is_lost(&1, &1)), (vec![(1, 1)], true));
        assert_eq!((table.take_lost(), table.is_lost(&1, &2)), (vec![], false));
        assert_eq!(due(&mut table).1, Unlock { id: ID.any(), range: bytes(0, u64::MAX) });
        table.unlock(&1, &1, bytes(0, 4));
        assert!(!table.is_lost(&1, &1));
    }
}

#[test]
fn a_state_that_is_gone_takes_its_locks_with_it() {
    let mut table = Table::default();
    locked(&mut table, bytes(0, 4), Read);
    table.gone(&1, &1, StateId { seqid: 0, other: [2; 12] });
    assert!(table.holds(&1, &1, bytes(0, 4), Read), "another state");
    let change = asked(&mut table, bytes(10, 14), Read);
    table.changed(change, Err(LockError::State(StateError::Gone)));
    assert!(table.is_lost(&1, &1) && !table.holds(&1, &1, bytes(0, 4), Read));
    assert_eq!(table.take_lost(), [(1, 1)]);
    let again = asked(&mut table, bytes(0, 4), Read);
    assert_eq!(table.request(&again), Some(lock(None, bytes(0, 4), Read, false)));
    table.changed(again, Ok(Some(ID)));
    table.gone(&1, &1, ID);
    assert_eq!(table.take_lost(), [(1, 1)]);
    table.release(&1, &1);
    assert_eq!(table.take_changes(), []);
    assert!(table.owners.is_empty());
}
