//! Histories that have shown a defect, without what had no part in it.

use client_state::{ByteRange, Share};

use crate::events::{Event, Expected, History, KINDS};

const READ: Share = Share { access: 1, deny: 0 };
const WRITE: Share = Share { access: 2, deny: 0 };

/// Bytes of a file.
const fn bytes(first: u64, last: u64) -> ByteRange {
    ByteRange { first, last }
}

/// The LOCK of what one owner has locked under a delegation arrives before the LOCKU of another owner.
#[test]
fn a_lock_that_the_server_is_told_overtakes_an_unlock() {
    let events = vec![
        // The file is locked while it isn't delegated, and delegated then.
        Event::Open(1, 1, WRITE),
        Event::Settle,
        Event::RecallAny(KINDS[2]),
        Event::Settle,
        Event::Lock(0, bytes(0, 1)),
        Event::Settle,
        Event::Open(1, 1, WRITE),
        Event::Settle,
        Event::Unlock(0, bytes(0, 1)),
        Event::Open(0, 1, READ),
        Event::Lock(2, bytes(0, 0)),
        Event::RecallAny(KINDS[2]),
        // The OPEN of the second owner, and its LOCK.
        Event::Deliver(1, false),
        Event::Reply(0),
        Event::Deliver(1, false),
        Event::Settle,
    ];
    History { expected: Expected::Reclaimed, has_delegations: true, events }.run(None);
}

/// A LOCK whose application has closed the file is sent again through its open, which isn't closed before.
#[test]
fn a_lock_is_sent_again_after_its_application_has_ended() {
    let events = vec![
        Event::Open(0, 0, READ),
        Event::Open(0, 1, WRITE),
        Event::Settle,
        Event::Lock(1, bytes(0, 0)),
        Event::RecallAny(KINDS[1]),
        Event::Reconnect(false),
        Event::Close(0),
        Event::Close(0),
        // The LOCK is executed. Its reply is lost with the session, which the other file's CLOSE shows.
        Event::Deliver(0, false),
        Event::LoseSession,
        Event::Deliver(0, false),
        // Another open keeps the file, and with it the lock, open at the server.
        Event::Open(0, 1, READ),
        Event::Reply(1),
    ];
    History { expected: Expected::Reclaimed, has_delegations: true, events }.run(None);
}

/// Nothing waits any more for the LOCK that makes a read lock of a write lock. Another owner doesn't get a
/// read lock before the write lock is had back.
#[test]
fn a_write_lock_is_kept_if_its_weakening_is_interrupted() {
    let events = vec![
        Event::Open(0, 0, WRITE),
        Event::Settle,
        Event::Open(0, 0, READ),
        Event::Settle,
        Event::Open(1, 0, READ),
        Event::Settle,
        Event::Lock(0, bytes(0, 2)),
        Event::Settle,
        Event::Lock(1, bytes(0, 2)),
        Event::Lock(2, bytes(0, 0)),
        Event::Interrupt,
        // Both are executed before the first reply arrives, and then what follows from that.
        Event::Deliver(0, false),
        Event::Deliver(0, false),
        Event::Reply(0),
        Event::Deliver(0, false),
        Event::Settle,
    ];
    History { expected: Expected::Reclaimed, has_delegations: false, events }.run(None);
}

/// A FREE_STATEID whose session was lost isn't sent again if the state id turns out to be bad before.
#[test]
fn a_freed_lock_owner_is_found_gone() {
    let events = vec![
        Event::Open(0, 1, READ),
        Event::Settle,
        Event::Lock(0, bytes(0, 0)),
        Event::Settle,
        Event::Close(0),
        Event::Open(0, 1, READ),
        // LOCKU and OPEN. I/O has the lock's state id still.
        Event::Deliver(0, false),
        Event::Deliver(0, false),
        Event::Reply(1),
        Event::Io(0),
        // FREE_STATEID is executed before the I/O, and its reply is lost.
        Event::Reply(0),
        Event::Deliver(1, false),
        Event::Deliver(0, false),
        Event::LoseSession,
    ];
    History { expected: Expected::Reclaimed, has_delegations: false, events }.run(None);
}

/// The reply to a SEQUENCE from before RECLAIM_COMPLETE, whose flag says that something is to be reclaimed,
/// arrives after a later one.
#[test]
fn a_late_reply_does_not_take_what_was_reclaimed() {
    let events = vec![
        Event::Open(0, 0, READ),
        Event::End,
        Event::Deliver(0, false),
        Event::Restart,
        Event::Reply(0),
        // This makes another session.
        Event::Lock(0, bytes(0, 0)),
        Event::Deliver(1, false),
        Event::Reply(0),
        Event::Deliver(0, false),
        Event::Deliver(0, false),
        Event::Reply(0),
        Event::Deliver(0, false),
        Event::Settle,
    ];
    History { expected: Expected::Reclaimed, has_delegations: false, events }.run(None);
}
