//! Tests of the delegations, without a server.

use lock_ranges::{ByteRange, LockKind};

use super::*;
use crate::ids::StateError;
use crate::locks::{LockAnswer, LockChangeRequest, Tested};
use crate::opens::{NoState, OpenChange, OpenChangeRequest, OpenClaim};

const READ: Share = Share { access: 1, deny: 0 };
const WRITE: Share = Share { access: 2, deny: 0 };
const BYTES: ByteRange = ByteRange { first: 0, last: 9 };

const fn id(state: u8) -> StateId {
    StateId { seqid: 1, other: [state; 12] }
}

/// A client with a delegation of file 1, which it has opened for reading. Files and owners are numbers.
struct Holder {
    opens: Opens<u32, u32>,
    locks: Locks<u32, u32>,
    delegations: Delegations<u32>,
    open: OpenRef<u32, u32>,
}

impl Holder {
    fn new(kind: DelegationKind) -> Self {
        let (mut opens, mut locks) = (Opens::default(), Locks::default());
        let mut delegations = Delegations::default();
        let opening = opens.opening(1);
        let open = opens.opened(opening, 1, READ, id(1));
        delegations.granted(&mut opens, &mut locks, 1, id(9), kind);
        Self { opens, locks, delegations, open }
    }

    fn open(&mut self, owner: u32, share: Share) -> Option<OpenRef<u32, u32>> {
        self.delegations.open(&mut self.opens, &1, owner, share)
    }

    fn lock(&mut self, owner: u32, kind: LockKind) -> LockAnswer<u32, u32> {
        self.locks.lock(1, owner, BYTES, kind)
    }

    fn returns(&mut self) -> Vec<(u32, StateId)> {
        self.delegations.take_returns(&self.opens, &mut self.locks)
    }

    /// The OPENs that are due.
    fn opens_due(&mut self) -> Vec<(OpenChange<u32, u32>, OpenChangeRequest)> {
        let changes = self.opens.take_changes();
        changes
            .into_iter()
            .map(|change| {
                let request = change.request();
                (change, request)
            })
            .collect()
    }
}

#[test]
fn a_read_delegation_opens_for_reading() {
    let mut client = Holder::new(DelegationKind::Read);
    assert!(client.open(1, WRITE).is_none() && client.open(1, Share { access: 1, deny: 2 }).is_none());
    let open = client.open(2, READ).expect("the delegation allows it");
    assert_eq!(client.opens.io_id(&open), Ok(id(9).any()));
    assert!(matches!(client.lock(1, LockKind::Read), LockAnswer::Ask(_)), "the server decides");
    client.opens.close(open);
    assert_eq!(client.opens_due(), [], "the server needn't know");
    assert!(client.delegations.open(&mut client.opens, &2, 1, READ).is_none(), "another file");
}

#[test]
fn a_recall_tells_the_server_of_opens_and_then_of_locks() {
    let mut client = Holder::new(DelegationKind::Write);
    let open = client.open(2, WRITE).expect("the delegation allows it");
    assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Granted);
    assert_eq!(client.lock(1, LockKind::Read), LockAnswer::Denied);
    assert!(client.locks.holds(&1, &2, BYTES, LockKind::Write));
    assert_eq!(
        (client.opens_due().len(), client.locks.take_changes().len(), client.returns().len()),
        (0, 0, 0)
    );

    assert!(!client.delegations.recall(&mut client.opens, &1, id(8)));
    assert!(!client.delegations.recall(&mut client.opens, &2, id(9)));
    for _ in 0..2 {
        assert!(client.delegations.recall(&mut client.opens, &1, id(9)));
    }
    assert!(client.open(1, READ).is_none(), "the server decides");
    let (change, request) = client.opens_due().pop().expect("an OPEN");
    assert_eq!(request, OpenChangeRequest::Open { share: WRITE, claim: OpenClaim::Delegation(id(9)) });
    assert_eq!((client.returns(), client.locks.take_changes().len()), (vec![], 0));
    client.opens.changed(change, Ok(id(2)));
    assert_eq!(client.opens.io_id(&open), Ok(id(2).any()));
    assert_eq!(client.returns(), []);
    assert_eq!(client.lock(1, LockKind::Read), LockAnswer::Busy, "the server might grant it");
    let change = client.locks.take_changes().pop().expect("a LOCK");
    let lock = LockChangeRequest::Lock { id: None, range: BYTES, kind: LockKind::Write, reclaim: false };
    assert_eq!((client.locks.request(&change), change.owner()), (Some(lock), &2));
    client.locks.changed(change, Ok(Some(id(3))));
    assert_eq!((client.returns(), client.returns()), (vec![(1, id(9))], vec![]));
    client.delegations.returned(&mut client.opens, &1, id(9));
    assert_eq!(client.delegations.state_ids().count(), 0);
    assert!(client.locks.holds(&1, &2, BYTES, LockKind::Write));
    assert_eq!(client.opens_due(), []);
}

#[test]
fn a_lock_that_the_server_decides_on_comes_before_those_of_the_delegation() {
    let mut client = Holder::new(DelegationKind::Read);
    let LockAnswer::Ask(change) = client.lock(1, LockKind::Read) else { panic!("it isn't asked") };
    let kind = DelegationKind::Write;
    client.delegations.granted(&mut client.opens, &mut client.locks, 1, id(9), kind);
    assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Busy);
    client.locks.changed(change, Ok(Some(id(3))));
    assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Denied);
    assert_eq!(client.lock(2, LockKind::Read), LockAnswer::Granted);
    // What the server knows is unlocked there.
    client.locks.release(&1, &1);
    let change = client.locks.take_changes().pop().expect("a LOCKU");
    assert!(matches!(client.locks.request(&change), Some(LockChangeRequest::Unlock { .. })));
}

#[test]
fn a_delegation_keeps_locks_whose_state_the_server_has_lost() {
    let mut client = Holder::new(DelegationKind::Read);
    let LockAnswer::Ask(change) = client.lock(1, LockKind::Write) else { panic!("it isn't asked") };
    client.locks.changed(change, Ok(Some(id(3))));
    client.delegations.granted(&mut client.opens, &mut client.locks, 1, id(9), DelegationKind::Write);
    client.locks.gone(&1, &1, id(3));
    assert!(client.locks.holds(&1, &1, BYTES, LockKind::Write) && client.locks.take_lost().is_empty());
    assert_eq!(client.lock(2, LockKind::Read), LockAnswer::Denied);
}

#[test]
fn the_server_keeps_an_open_while_one_under_the_delegation_remains() {
    let mut client = Holder::new(DelegationKind::Write);
    let local = client.open(1, WRITE).expect("the delegation allows it");
    let Holder { mut opens, open, .. } = client;
    opens.close(open);
    assert_eq!(opens.take_changes(), [], "its locks may be of this open");
    opens.close(local);
    let change = opens.take_changes().pop().expect("a change");
    assert_eq!(change.request(), OpenChangeRequest::Close { id: id(1) });
}

#[test]
fn a_revoked_delegation_takes_locks_with_it_and_not_opens() {
    let mut client = Holder::new(DelegationKind::Write);
    let open = client.open(2, WRITE).expect("the delegation allows it");
    assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Granted);
    let Holder { opens, locks, delegations, .. } = &mut client;
    delegations.gone(opens, locks, &1, id(8));
    assert_eq!(delegations.state_ids().collect::<Vec<_>>(), [(&1, id(9).any())]);
    delegations.gone(opens, locks, &1, id(9));
    assert!(!locks.holds(&1, &2, BYTES, LockKind::Read) && locks.is_lost(&1, &2));
    assert_eq!(locks.take_lost(), [(1, 2)]);
    assert_eq!(client.opens.io_id(&open), Err(NoState::Recovering));
    let (change, request) = client.opens_due().pop().expect("an OPEN");
    assert_eq!(request, OpenChangeRequest::Open { share: WRITE, claim: OpenClaim::Handle });
    client.opens.changed(change, Ok(id(2)));
    assert_eq!(client.opens.io_id(&open), Ok(id(2).any()));
}

#[test]
fn a_recall_that_comes_too_late_opens_without_the_delegation() {
    let mut client = Holder::new(DelegationKind::Write);
    let open = client.open(2, WRITE).expect("the delegation allows it");
    client.delegations.recall(&mut client.opens, &1, id(9));
    let (change, _) = client.opens_due().pop().expect("an OPEN");
    client.opens.changed(change, Err(StateError::Gone));
    let (change, request) = client.opens_due().pop().expect("another OPEN");
    assert_eq!(request, OpenChangeRequest::Open { share: WRITE, claim: OpenClaim::Handle });
    client.opens.changed(change, Ok(id(2)));
    assert_eq!(client.opens.io_id(&open), Ok(id(2).any()));
    assert_eq!(client.returns(), [(1, id(9))]);
}

#[test]
fn what_was_done_under_a_delegation_is_reclaimed() {
    let mut client = Holder::new(DelegationKind::Write);
    let open = client.open(2, WRITE).expect("the delegation allows it");
    assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Granted);
    client.delegations.recover();
    client.opens.recover();
    let reclaims = client.opens_due();
    let shares = [(READ, &client.open), (WRITE, &open)];
    for ((change, request), (share, open)) in reclaims.into_iter().zip(shares) {
        assert_eq!(request, OpenChangeRequest::Open { share, claim: OpenClaim::Previous });
        assert_eq!(client.opens.io_id(open), Err(NoState::Recovering));
        client.opens.changed(change, Ok(id(4)));
        assert_eq!(client.opens.io_id(open), Ok(id(4).any()));
    }
    client.locks.recover();
    let change = client.locks.take_changes().pop().expect("a LOCK");
    assert!(change.is_reclaim() && !client.locks.holds(&1, &2, BYTES, LockKind::Write));
    client.locks.changed(change, Ok(Some(id(5))));
    assert!(client.locks.holds(&1, &2, BYTES, LockKind::Write));
}

#[test]
fn the_delegations_used_last_are_kept() {
    let mut client = Holder::new(DelegationKind::Read);
    let Holder { opens, locks, delegations, .. } = &mut client;
    for file in 2..=4 {
        delegations.granted(opens, locks, file, id(10 + file as u8), DelegationKind::Read);
    }
    let open = delegations.open(opens, &1, 1, READ).expect("the delegation allows it");
    delegations.recall_any(opens, 2, &[DelegationKind::Read]);
    assert_eq!(delegations.take_returns(opens, locks), [(2, id(12)), (3, id(13))]);
    delegations.recall_any(opens, 2, &[DelegationKind::Read]);
    assert_eq!(delegations.take_returns(opens, locks), []);
    opens.close(open);
}

#[test]
fn the_kind_of_delegations_that_the_server_wants_back_is_returned() {
    let mut client = Holder::new(DelegationKind::Read);
    let Holder { opens, locks, delegations, .. } = &mut client;
    delegations.granted(opens, locks, 2, id(12), DelegationKind::Write);
    delegations.recall_any(opens, 0, &[DelegationKind::Write]);
    assert_eq!(delegations.take_returns(opens, locks), [(2, id(12))]);
    delegations.recall_any(opens, 0, &[DelegationKind::Write, DelegationKind::Read]);
    assert_eq!(delegations.take_returns(opens, locks), [(1, id(9))]);
}

#[test]
fn locks_under_a_delegation_are_found_without_the_server() {
    let mut client = Holder::new(DelegationKind::Write);
    assert_eq!(client.locks.test(&1, &1, BYTES, LockKind::Write), Tested::Free);
    assert_eq!(client.lock(2, LockKind::Read), LockAnswer::Granted);
    assert_eq!(client.locks.test(&1, &1, BYTES, LockKind::Write), Tested::Conflict(BYTES, LockKind::Read));
    assert_eq!(client.locks.test(&1, &1, BYTES, LockKind::Read), Tested::Free);
    assert_eq!(client.locks.test(&1, &2, BYTES, LockKind::Write), Tested::Free, "its own");
    // The server doesn't know of the lock yet.
    client.delegations.recall(&mut client.opens, &1, id(9));
    assert_eq!(client.returns(), []);
    assert_eq!(client.locks.test(&1, &1, BYTES, LockKind::Write), Tested::Conflict(BYTES, LockKind::Read));
    assert_eq!(client.locks.test(&1, &1, BYTES, LockKind::Read), Tested::Server);
}

#[test]
fn a_read_delegation_instead_of_one_for_writing_tells_the_server_of_opens_and_then_of_locks() {
    let mut client = Holder::new(DelegationKind::Write);
    let open = client.open(2, WRITE).expect("the delegation allows it");
    let reader = client.open(3, READ).expect("the delegation allows it");
    assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Granted);
    let downgraded = StateId { seqid: 2, ..id(9) };
    let Holder { opens, locks, delegations, .. } = &mut client;
    delegations.granted(opens, locks, 1, downgraded, DelegationKind::Read);
    assert!(!delegations.is_held(&1) && locks.take_lost().is_empty());
    assert!(client.open(1, READ).is_none(), "it is on its way back");
    assert_eq!(client.opens.io_id(&open), Err(NoState::Recovering));
    assert_eq!(client.opens.io_id(&reader), Ok(id(9).any()));
    assert_eq!((client.returns(), client.locks.take_changes()), (vec![], vec![]));
    let claims = [(WRITE, OpenClaim::Handle), (READ, OpenClaim::Delegation(downgraded))];
    for ((share, claim), (change, request)) in claims.into_iter().zip(client.opens_due()) {
        assert_eq!(request, OpenChangeRequest::Open { share, claim });
        assert_eq!((client.returns(), client.locks.take_changes()), (vec![], vec![]));
        client.opens.changed(change, Ok(id(2)));
    }
    assert_eq!(client.opens.io_id(&open), Ok(id(2).any()));
    assert_eq!(client.returns(), []);
    let change = client.locks.take_changes().pop().expect("a LOCK");
    assert!(matches!(client.locks.request(&change), Some(LockChangeRequest::Lock { .. })));
    assert!(!client.locks.holds(&1, &2, BYTES, LockKind::Write));
    client.locks.changed(change, Ok(Some(id(3))));
    assert!(client.locks.holds(&1, &2, BYTES, LockKind::Write));
    assert_eq!(client.returns(), [(1, downgraded)]);
    client.delegations.returned(&mut client.opens, &1, downgraded);
    assert_eq!((client.delegations.state_ids().count(), client.opens_due()), (0, vec![]));
}

#[test]
fn a_delegation_with_another_id_takes_the_locks_under_the_former_one() {
    for kind in [DelegationKind::Read, DelegationKind::Write] {
        let mut client = Holder::new(DelegationKind::Write);
        let open = client.open(2, WRITE).expect("the delegation allows it");
        assert_eq!(client.lock(2, LockKind::Write), LockAnswer::Granted);
        let Holder { opens, locks, delegations, .. } = &mut client;
        delegations.granted(opens, locks, 1, id(10), kind);
        assert!(!locks.holds(&1, &2, BYTES, LockKind::Read) && locks.is_lost(&1, &2));
        assert_eq!(delegations.is_held(&1), kind == DelegationKind::Write);
        assert_eq!(client.returns(), [(1, id(9))], "the server may have revoked it");
        let (change, request) = client.opens_due().pop().expect("an OPEN");
        assert_eq!(request, OpenChangeRequest::Open { share: WRITE, claim: OpenClaim::Handle });
        client.opens.changed(change, Ok(id(2)));
        assert_eq!(client.opens.io_id(&open), Ok(id(2).any()));
        client.delegations.returned(&mut client.opens, &1, id(9));
        assert_eq!(client.delegations.state_ids().collect::<Vec<_>>(), [(&1, id(10).any())]);
        client.delegations.recall(&mut client.opens, &1, id(10));
        assert_eq!(client.returns(), [(1, id(10))]);
    }
}

#[test]
fn a_delegation_is_returned_once_if_another_one_comes_meanwhile() {
    let mut client = Holder::new(DelegationKind::Write);
    client.delegations.recall(&mut client.opens, &1, id(9));
    assert_eq!(client.returns(), [(1, id(9))]);
    let Holder { opens, locks, delegations, .. } = &mut client;
    delegations.granted(opens, locks, 1, id(10), DelegationKind::Write);
    delegations.returned(opens, &1, id(9));
    assert!(delegations.is_held(&1));
    assert_eq!(client.returns(), []);
}
