//! Tests of the opens, without a server: `tests/` has the one with the server's engine.

use super::OpenChangeRequest::{Close, Downgrade, Open as Reopen};
use super::*;

const READ: Share = Share { access: 1, deny: 0 };
const WRITE: Share = Share { access: 2, deny: 0 };
const BOTH: Share = Share { access: 3, deny: 0 };
const DENIES: Share = Share { access: 1, deny: 2 };

/// Files and owners are numbers.
type Table = Opens<u32, u32>;
type Change = OpenChange<u32, u32>;

const fn id(state: u8, seqid: u32) -> StateId {
    StateId { seqid, other: [state; 12] }
}

/// An OPEN of file 1 by owner 1, after which nothing is to be sent.
fn opened(table: &mut Table, share: Share, id: StateId) -> OpenRef<u32, u32> {
    let opening = table.opening(1);
    let open = table.opened(opening, 1, share, id);
    assert_eq!(table.take_changes(), []);
    open
}

/// The change that is due.
fn due(table: &mut Table, request: OpenChangeRequest) -> Change {
    let change = table.take_changes().pop().expect("a change is due");
    assert_eq!(table.take_changes(), []);
    assert_eq!((change.file(), change.owner(), change.request()), (&1, &1, request));
    change
}

#[test]
fn the_last_close_closes() {
    let mut table = Table::default();
    let first = opened(&mut table, READ, id(1, 1));
    let second = opened(&mut table, READ, id(1, 2));
    table.close(first);
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&second), Ok(id(1, 0)));
    table.close(second);
    let close = due(&mut table, Close { id: id(1, 2) });
    table.changed(close, Ok(id(0, 0)));
    assert_eq!(table.take_changes(), []);
    assert!(table.opens.is_empty());
}

#[test]
fn an_open_is_repeated_while_others_are_alike() {
    let mut table = Table::default();
    let [first, second] = [1, 2].map(|seqid| opened(&mut table, READ, id(1, seqid)));
    let other = opened(&mut table, WRITE, id(1, 3));
    assert!(table.is_repeated(&first) && table.is_repeated(&second) && !table.is_repeated(&other));
    table.close(first);
    assert_eq!(table.take_changes(), []);
    assert!(!table.is_repeated(&second));
    // Lost opens are counted by themselves.
    let [first_lost, second_lost] = [4, 5].map(|seqid| opened(&mut table, DENIES, id(1, seqid)));
    table.gone(&1, &1, id(1, 0));
    assert_eq!(table.take_lost().len(), 1);
    assert!(table.is_repeated(&first_lost));
    table.close(first_lost);
    assert!(!table.is_repeated(&second_lost));
    table.close(second_lost);
}

#[test]
fn access_that_is_no_longer_used_is_given_up() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let both = opened(&mut table, BOTH, id(1, 2));
    let writes = opened(&mut table, WRITE, id(1, 3));
    table.close(both);
    assert_eq!(table.take_changes(), [], "the others' union is the same");
    table.close(writes);
    let downgrade = due(&mut table, Downgrade { id: id(1, 3), to: READ });
    // Meanwhile the last one is closed, too.
    table.close(reads);
    assert_eq!(table.take_changes(), []);
    table.changed(downgrade, Ok(id(1, 4)));
    let close = due(&mut table, Close { id: id(1, 4) });
    table.changed(close, Ok(id(0, 0)));
    assert_eq!(table.take_changes(), []);
    assert!(table.opens.is_empty());
}

#[test]
fn replies_may_arrive_in_any_order() {
    let mut table = Table::default();
    let second = opened(&mut table, READ, id(1, 2));
    let first = opened(&mut table, READ, id(1, 1));
    table.close(first);
    assert_eq!(table.take_changes(), []);
    table.close(second);
    let close = due(&mut table, Close { id: id(1, 2) });
    // Another OPEN comes after the CLOSE, but its reply before.
    let third = opened(&mut table, READ, id(2, 1));
    table.changed(close, Ok(id(0, 0)));
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&third), Ok(id(2, 0)));
    table.gone(&1, &1, id(1, 0));
    assert_eq!(table.take_changes(), [], "an answer to an old request");
    assert_eq!(table.io_id(&third), Ok(id(2, 0)));
}

#[test]
fn a_close_waits_for_opens_that_may_be_part_of_the_state() {
    let mut table = Table::default();
    let [first, second, elsewhere] = [1, 1, 2].map(|owner| table.opening(owner));
    let open = table.opened(second, 1, READ, id(1, 2));
    let later = table.opening(1);
    table.close(open);
    assert_eq!(table.take_changes(), []);
    table.not_opened(elsewhere);
    assert_eq!(table.take_changes(), [], "another owner's");
    table.not_opened(first);
    let close = due(&mut table, Close { id: id(1, 2) });
    // The later one comes before the CLOSE.
    table.changed(close, Err(StateError::Old));
    assert_eq!(table.take_changes(), []);
    let open = table.opened(later, 1, READ, id(1, 3));
    assert_eq!(table.take_changes(), []);
    table.close(open);
    drop(due(&mut table, Close { id: id(1, 3) }));
    assert!(table.opening.is_empty() && table.blocked.is_empty());
}

#[test]
fn an_open_whose_reply_was_lost_is_closed() {
    let mut table = Table::default();
    let first = opened(&mut table, READ, id(1, 1));
    table.close(first);
    let close = due(&mut table, Close { id: id(1, 1) });
    let current = Reopen { share: READ, claim: OpenClaim::Handle };
    table.changed(close, Err(StateError::Old));
    let refresh = due(&mut table, current);
    table.changed(refresh, Ok(id(1, 3)));
    let close = due(&mut table, Close { id: id(1, 3) });
    table.changed(close, Err(StateError::Old));
    let refresh = due(&mut table, current);
    // The user may not open the file any more.
    table.changed(refresh, Err(StateError::Refused));
    let close = due(&mut table, Close { id: id(1, 0) });
    table.changed(close, Err(StateError::Refused));
    assert_eq!(table.take_changes(), []);
    assert!(table.opens.is_empty() && table.take_lost().is_empty());
}

#[test]
fn an_open_during_a_downgrade_counts() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let writes = opened(&mut table, WRITE, id(1, 2));
    table.close(writes);
    let downgrade = due(&mut table, Downgrade { id: id(1, 2), to: READ });
    let again = opened(&mut table, WRITE, id(1, 4));
    table.close(again);
    assert_eq!(table.take_changes(), [], "one change at a time");
    table.changed(downgrade, Ok(id(1, 3)));
    let downgrade = due(&mut table, Downgrade { id: id(1, 4), to: READ });
    // The server doesn't do it: there is nothing more to be done.
    table.changed(downgrade, Err(StateError::Refused));
    assert_eq!(table.take_changes(), []);
    let downgraded = opened(&mut table, BOTH, id(1, 5));
    table.close(downgraded);
    let downgrade = due(&mut table, Downgrade { id: id(1, 5), to: READ });
    let reopen = Reopen { share: READ, claim: OpenClaim::Handle };
    table.changed(downgrade, Err(StateError::Gone));
    let reopen = due(&mut table, reopen);
    table.changed(reopen, Ok(id(2, 1)));
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&reads), Ok(id(2, 0)));
}

#[test]
fn everything_is_reclaimed_after_a_restart() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let denies = opened(&mut table, DENIES, id(1, 2));
    let opening = table.opening(1);
    let other = table.opened(opening, 2, READ, id(2, 1));
    table.close(other);
    let close = table.take_changes().pop().expect("the CLOSE");
    table.recover();
    // The closed file isn't reclaimed.
    let first = due(&mut table, Reopen { share: READ, claim: OpenClaim::Previous });
    assert!(first.is_reclaim() && !close.is_reclaim());
    table.changed(close, Err(StateError::Gone));
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&reads), Err(NoState::Recovering));
    table.changed(first, Ok(id(3, 1)));
    let second = due(&mut table, Reopen { share: DENIES, claim: OpenClaim::Previous });
    assert_eq!((table.io_id(&reads), table.io_id(&denies)), (Ok(id(3, 0)), Err(NoState::Recovering)));
    table.changed(second, Ok(id(3, 2)));
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&denies), Ok(id(3, 0)));
    assert_eq!(table.state_ids().collect::<Vec<_>>(), [(&1, &1, id(3, 0))]);
    // From then on reclaims are over.
    table.gone(&1, &1, id(3, 0));
    let reopen = due(&mut table, Reopen { share: READ, claim: OpenClaim::Handle });
    table.changed(reopen, Ok(id(4, 1)));
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&denies), Err(NoState::Lost));
    assert_eq!(table.take_lost(), [LostOpen { file: 1, owner: 1, share: DENIES }]);
    assert_eq!(table.take_lost(), []);
    table.close(denies);
    assert_eq!(table.take_changes(), []);
    table.close(reads);
    drop(due(&mut table, Close { id: id(4, 1) }));
}

#[test]
fn what_cannot_be_reclaimed_is_opened_again_or_lost() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let denies = opened(&mut table, DENIES, id(1, 2));
    table.recover();
    let reclaim = due(&mut table, Reopen { share: READ, claim: OpenClaim::Previous });
    let reopen = Reopen { share: READ, claim: OpenClaim::Handle };
    table.changed(reclaim, Err(StateError::NoReclaim));
    let reopen = due(&mut table, reopen);
    table.changed(reopen, Err(StateError::Refused));
    assert_eq!(table.take_changes(), []);
    assert_eq!([&reads, &denies].map(|open| table.io_id(open)), [Err(NoState::Lost); 2]);
    assert_eq!(table.take_lost().len(), 2);
    // An open that comes later isn't lost.
    let later = opened(&mut table, READ, id(2, 1));
    table.close(reads);
    assert_eq!(table.take_changes(), []);
    table.close(denies);
    assert_eq!(table.take_changes(), []);
    assert_eq!(table.io_id(&later), Ok(id(2, 0)));
    table.close(later);
    drop(due(&mut table, Close { id: id(2, 1) }));
}

#[test]
fn a_close_while_an_open_is_recovered() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    table.recover();
    let reclaim = due(&mut table, Reopen { share: READ, claim: OpenClaim::Previous });
    table.close(reads);
    assert_eq!(table.take_changes(), []);
    table.changed(reclaim, Ok(id(2, 1)));
    let close = due(&mut table, Close { id: id(2, 1) });
    table.changed(close, Ok(id(0, 0)));
    assert_eq!(table.take_changes(), []);
    assert!(table.opens.is_empty());
    // The same with two restarts.
    let reads = opened(&mut table, READ, id(3, 1));
    let reclaim = Reopen { share: READ, claim: OpenClaim::Previous };
    let [first, second] = [(); 2].map(|()| {
        table.recover();
        due(&mut table, reclaim)
    });
    table.changed(first, Err(StateError::Refused));
    assert_eq!(table.take_changes(), [], "overtaken");
    table.close(reads);
    assert_eq!(table.take_changes(), []);
    table.changed(second, Ok(id(4, 1)));
    drop(due(&mut table, Close { id: id(4, 1) }));
}
