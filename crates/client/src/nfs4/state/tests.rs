//! Tests of what the client holds, without a server.

use client_state::Share;

use super::*;
use crate::Credential;
use crate::calling_session::CallingSession;

const READ: Share = Share { access: READ_ACCESS, deny: 0 };
const WRITE: Share = Share { access: WRITE_ACCESS, deny: 0 };
const ALL: ByteRange = ByteRange { first: 0, last: u64::MAX };

const fn id(state: u8) -> StateId {
    StateId { seqid: 1, other: [state; 12] }
}

/// The owner of a session's opens.
fn owner(session: &Arc<CallingSession>) -> OpenOwner {
    OpenOwner::new(&User::new(Credential::Sys { uid: 1, gid: 1, groups: Vec::new() }, session))
}

fn opened(held: &mut HeldState, by: &OpenOwner, file: &Handle, share: Share) -> OpenRef<Handle, OpenOwner> {
    let opening = held.opens.opening(by.clone());
    held.opens.opened(opening, file.clone(), share, id(1))
}

/// A lock owner locks a file.
fn locked(held: &mut HeldState, through: &OpenOwner, file: &Handle) -> OwnerOfLocks {
    let by = OwnerOfLocks { owner: LockOwner(7), through: through.clone() };
    let LockAnswer::Ask(change) = held.locks.lock(file.clone(), by.clone(), ALL, LockKind::Read) else {
        panic!("the server has to be asked");
    };
    held.locks.changed(change, Ok(Some(id(2))));
    by
}

#[test]
fn opens_of_a_locked_file_that_are_alike_wait_once() {
    let (ours, theirs) = <(Arc<CallingSession>, Arc<CallingSession>)>::default();
    let (by, other) = (owner(&ours), owner(&theirs));
    let [file, another] = [b"file", b"more"].map(|name| Handle::new(name).unwrap());
    let mut held = HeldState::default();
    let locked_through = opened(&mut held, &by, &file, WRITE);
    let by_lock_owner = locked(&mut held, &by, &file);
    // Neither has anything to do with the file's opens of this session.
    locked(&mut held, &other, &file);
    locked(&mut held, &by, &another);
    for round in 0..3 {
        let opens: Vec<_> = (0..100).map(|_| opened(&mut held, &by, &file, READ)).collect();
        for (number, open) in opens.into_iter().enumerate() {
            held.close(open, 1 + number as u64);
            held.close_free();
        }
        assert_eq!((held.closing.len(), held.opens.take_changes().len()), (1, 0), "round {round}");
    }
    held.release(&file, &by_lock_owner);
    while let Some(change) = held.locks.take_changes().pop() {
        assert_eq!(held.closing.len(), 1, "the server may have the lock");
        held.locks.changed(change, Ok(Some(id(2))));
        held.close_free();
    }
    assert!(held.closing.is_empty());
    let changes: Vec<_> = held.opens.take_changes().iter().map(OpenChange::request).collect();
    assert_eq!(changes, [OpenChangeRequest::Downgrade { id: id(1), to: WRITE }]);
    held.close(locked_through, 0);
    held.close_free();
    assert!(held.closing.is_empty());
}
