//! Applies the retransmission policy to the calls of one connection that wait.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::call::Connection;
use super::error::Error;
use super::recovery::{Recovery, RetryAction};

/// The shortest time between two checks.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The longest time between two checks while calls wait.
pub(super) const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// What a check of the waiting calls found.
pub(super) struct Check {
    /// When to check again; `None` if no call waits.
    pub(super) next_check: Option<Instant>,
    /// The connection is to be given up.
    pub(super) reconnect: bool,
}

/// Checks every call that waits, and ends those that have waited long enough. `epoch` is the number of the
/// connection that stands, if one does.
pub(super) fn check(connection: &Connection, recovery: &Recovery, epoch: Option<u32>, now: Instant) -> Check {
    let (mut freed, mut wakers) = (0, Vec::new());
    let mut check = Check { next_check: None, reconnect: false };
    let mut late = false;
    let mut table = connection.table.lock();
    for xid in table.waiting() {
        let Some(slot) = table.get(xid) else { continue };
        late |= recovery.is_late(slot.since, now);
        match recovery.verdict(slot.since, Some(slot.sent_on) == epoch, now) {
            RetryAction::Wait(until) => {
                check.next_check = Some(check.next_check.map_or(until, |at| at.min(until)));
            }
            RetryAction::Reconnect => check.reconnect = true,
            RetryAction::GiveUp => {
                let after = now - slot.since;
                let error = Error::TimedOut { address: connection.address, after };
                wakers.extend(table.finish(xid, Err(error), &mut freed));
            }
        }
    }
    drop(table);
    connection.permits.add_permits(freed);
    if late {
        connection.silence.note(connection.address, recovery.policy().hard);
    }
    wakers.into_iter().for_each(Waker::wake);
    check.next_check = check.next_check.map(|at| at.clamp(now + MIN_INTERVAL, now + MAX_INTERVAL));
    check
}
