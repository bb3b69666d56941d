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
    let (open, change) = table.opened(1, 1, share, id);
    assert_eq!(change, None);
    open
}

/// A change that is due.
fn due(change: Option<Change>, request: OpenChangeRequest) -> Change {
    let change = change.expect("a change is due");
    assert_eq!((change.file(), change.owner(), change.request()), (&1, &1, request));
    change
}

#[test]
fn the_last_close_closes() {
    let mut table = Table::default();
    let first = opened(&mut table, READ, id(1, 1));
    let second = opened(&mut table, READ, id(1, 2));
    assert_eq!(table.close(first), None);
    assert_eq!(table.io_id(&second), Ok(id(1, 0)));
    let close = due(table.close(second), Close { id: id(1, 2) });
    assert_eq!(table.changed(close, Ok(id(0, 0))), None);
    assert!(table.opens.is_empty());
}

#[test]
fn access_that_is_no_longer_used_is_given_up() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let both = opened(&mut table, BOTH, id(1, 2));
    let writes = opened(&mut table, WRITE, id(1, 3));
    assert_eq!(table.close(both), None, "the others' union is the same");
    let downgrade = due(table.close(writes), Downgrade { id: id(1, 3), to: READ });
    // Meanwhile the last one is closed, too.
    assert_eq!(table.close(reads), None);
    let close = due(table.changed(downgrade, Ok(id(1, 4))), Close { id: id(1, 4) });
    assert_eq!(table.changed(close, Ok(id(0, 0))), None);
    assert!(table.opens.is_empty());
}

#[test]
fn replies_may_arrive_in_any_order() {
    let mut table = Table::default();
    let second = opened(&mut table, READ, id(1, 2));
    let first = opened(&mut table, READ, id(1, 1));
    assert_eq!(table.close(first), None);
    let close = due(table.close(second), Close { id: id(1, 2) });
    // Another OPEN comes after the CLOSE, but its reply before.
    let third = opened(&mut table, READ, id(2, 1));
    assert_eq!(table.changed(close, Ok(id(0, 0))), None);
    assert_eq!(table.io_id(&third), Ok(id(2, 0)));
    assert_eq!(table.gone(&1, &1, id(1, 0)), None, "an answer to an old request");
    assert_eq!(table.io_id(&third), Ok(id(2, 0)));
}

#[test]
fn a_close_that_an_open_has_overtaken_closes_nothing() {
    for reply_first in [false, true] {
        let mut table = Table::default();
        let first = opened(&mut table, READ, id(1, 1));
        let close = due(table.close(first), Close { id: id(1, 1) });
        let (second, next) = if reply_first {
            let second = opened(&mut table, READ, id(1, 2));
            (second, table.changed(close, Err(StateError::Old)))
        } else {
            let current = Reopen { share: READ, claim: Claim::Handle };
            let refresh = due(table.changed(close, Err(StateError::Old)), current);
            let second = opened(&mut table, READ, id(1, 2));
            (second, table.changed(refresh, Ok(id(1, 3))))
        };
        assert_eq!(next, None);
        let seqid = if reply_first { 2 } else { 3 };
        drop(due(table.close(second), Close { id: id(1, seqid) }));
    }
}

#[test]
fn an_open_whose_reply_was_lost_is_closed() {
    let mut table = Table::default();
    let first = opened(&mut table, READ, id(1, 1));
    let close = due(table.close(first), Close { id: id(1, 1) });
    let current = Reopen { share: READ, claim: Claim::Handle };
    let refresh = due(table.changed(close, Err(StateError::Old)), current);
    let close = due(table.changed(refresh, Ok(id(1, 3))), Close { id: id(1, 3) });
    let refresh = due(table.changed(close, Err(StateError::Old)), current);
    // The user may not open the file any more.
    let close = due(table.changed(refresh, Err(StateError::Refused)), Close { id: id(1, 0) });
    assert_eq!(table.changed(close, Err(StateError::Refused)), None);
    assert!(table.opens.is_empty() && table.take_lost().is_empty());
}

#[test]
fn an_open_during_a_downgrade_counts() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let writes = opened(&mut table, WRITE, id(1, 2));
    let downgrade = due(table.close(writes), Downgrade { id: id(1, 2), to: READ });
    let again = opened(&mut table, WRITE, id(1, 4));
    assert_eq!(table.close(again), None, "one change at a time");
    let downgrade = due(table.changed(downgrade, Ok(id(1, 3))), Downgrade { id: id(1, 4), to: READ });
    // The server doesn't do it: there is nothing more to be done.
    assert_eq!(table.changed(downgrade, Err(StateError::Refused)), None);
    let downgraded = opened(&mut table, BOTH, id(1, 5));
    let downgrade = due(table.close(downgraded), Downgrade { id: id(1, 5), to: READ });
    let reopen = Reopen { share: READ, claim: Claim::Handle };
    let reopen = due(table.changed(downgrade, Err(StateError::Gone)), reopen);
    assert_eq!(table.changed(reopen, Ok(id(2, 1))), None);
    assert_eq!(table.io_id(&reads), Ok(id(2, 0)));
}

#[test]
fn everything_is_reclaimed_after_a_restart() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let denies = opened(&mut table, DENIES, id(1, 2));
    let close = {
        let (other, _) = table.opened(2, 1, READ, id(2, 1));
        table.close(other).expect("the CLOSE")
    };
    let mut changes = table.recover(Claim::Previous);
    assert_eq!(table.changed(close, Err(StateError::Gone)), None);
    assert_eq!(changes.len(), 1, "the closed file isn't reclaimed");
    let first = due(changes.pop(), Reopen { share: READ, claim: Claim::Previous });
    assert_eq!(table.io_id(&reads), Err(NoState::Recovering));
    let second = due(table.changed(first, Ok(id(3, 1))), Reopen { share: DENIES, claim: Claim::Previous });
    assert_eq!((table.io_id(&reads), table.io_id(&denies)), (Ok(id(3, 0)), Err(NoState::Recovering)));
    assert_eq!(table.changed(second, Ok(id(3, 2))), None);
    assert_eq!(table.io_id(&denies), Ok(id(3, 0)));
    assert_eq!(table.state_ids().collect::<Vec<_>>(), [(&1, &1, id(3, 0))]);
    // From then on reclaims are over.
    let reopen = due(table.gone(&1, &1, id(3, 0)), Reopen { share: READ, claim: Claim::Handle });
    assert_eq!(table.changed(reopen, Ok(id(4, 1))), None);
    assert_eq!(table.io_id(&denies), Err(NoState::Lost));
    assert_eq!(table.take_lost(), [LostOpen { file: 1, owner: 1, share: DENIES }]);
    assert_eq!(table.take_lost(), []);
    assert_eq!(table.close(denies), None);
    drop(due(table.close(reads), Close { id: id(4, 1) }));
}

#[test]
fn what_cannot_be_reclaimed_is_opened_again_or_lost() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let denies = opened(&mut table, DENIES, id(1, 2));
    let reclaim = due(table.recover(Claim::Previous).pop(), Reopen { share: READ, claim: Claim::Previous });
    let reopen = Reopen { share: READ, claim: Claim::Handle };
    let reopen = due(table.changed(reclaim, Err(StateError::NoReclaim)), reopen);
    assert_eq!(table.changed(reopen, Err(StateError::Refused)), None);
    assert_eq!([&reads, &denies].map(|open| table.io_id(open)), [Err(NoState::Lost); 2]);
    assert_eq!(table.take_lost().len(), 2);
    // An open that comes later isn't lost.
    let later = opened(&mut table, READ, id(2, 1));
    assert_eq!(table.close(reads), None);
    assert_eq!(table.close(denies), None);
    assert_eq!(table.io_id(&later), Ok(id(2, 0)));
    drop(due(table.close(later), Close { id: id(2, 1) }));
}

#[test]
fn a_close_while_an_open_is_recovered() {
    let mut table = Table::default();
    let reads = opened(&mut table, READ, id(1, 1));
    let reclaim = due(table.recover(Claim::Previous).pop(), Reopen { share: READ, claim: Claim::Previous });
    assert_eq!(table.close(reads), None);
    let close = due(table.changed(reclaim, Ok(id(2, 1))), Close { id: id(2, 1) });
    assert_eq!(table.changed(close, Ok(id(0, 0))), None);
    assert!(table.opens.is_empty());
    // The same with two restarts.
    let reads = opened(&mut table, READ, id(3, 1));
    let [first, second] = [(); 2].map(|()| table.recover(Claim::Previous).pop().expect("a reclaim"));
    assert_eq!(table.changed(first, Err(StateError::Refused)), None, "overtaken");
    assert_eq!(table.close(reads), None);
    drop(due(table.changed(second, Ok(id(4, 1))), Close { id: id(4, 1) }));
}
