//! The requests that wait for a server or a disk, and the signals that their callers get.
//!
//! INTERRUPT says that the caller got a signal. It ends a wait for a lock (SETLKW). Otherwise, as on a hard
//! mount of the kernel's client, only a fatal signal counts: the request is aborted if the caller is dying,
//! now or later, because the kernel sends INTERRUPT only once. The server may still execute the call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ahash::HashMap;
use futures_util::future::AbortHandle;
use parking_lot::Mutex;

use crate::fuse::request::{FileOperation, Header};
use crate::replies::ReplyGuard;
use crate::users;

/// The interval at which an interrupted caller is checked for a fatal signal.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the callers of waiting requests are checked that no INTERRUPT was sent for.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// INTERRUPTs that are kept until their requests are received.
const MAX_EARLY_INTERRUPTS: usize = 256;

/// How a request is aborted.
#[derive(Debug, Clone)]
pub(crate) enum Abort {
    /// Its task ends, and with it the [`ReplyGuard`].
    Task(AbortHandle),
    /// The thread that waits for a disk goes on, without a reply to send.
    Reply(Arc<Mutex<Option<ReplyGuard>>>),
}

impl Abort {
    /// Returns false if the request isn't waiting in this way any more.
    fn abort(&self) -> bool {
        match self {
            Self::Task(handle) => {
                handle.abort();
                true
            }
            Self::Reply(guard) => guard.lock().take().is_some(),
        }
    }
}

/// A request that waits.
#[derive(Debug, Clone)]
struct WaitingRequest {
    abort: Abort,
    caller: WaitingCaller,
}

/// Who waits for a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingCaller {
    /// The request's number.
    unique: u64,
    /// The caller's thread.
    pid: u32,
    /// Whether any signal aborts it, as it does in fcntl(2) and flock(2). Otherwise a fatal one does.
    by_any_signal: bool,
    /// Whether the request is executed also if its caller gets another reply: FLUSH, which comes for each
    /// file that a dying process has open, and ends its locks.
    pub(crate) must_finish: bool,
}

impl WaitingCaller {
    pub(crate) const fn new(header: Header, operation: &FileOperation) -> Self {
        let by_any_signal = matches!(operation, FileOperation::SetLock { waits: true, .. });
        let must_finish = matches!(operation, FileOperation::Flush { .. });
        Self { unique: header.unique, pid: header.pid, by_any_signal, must_finish }
    }
}

/// Requests for locks that are granted. Only a fatal signal aborts them from then on: the caller of fcntl(2)
/// would believe that it has no lock.
#[derive(Debug, Default)]
pub(crate) struct GrantedLocks(Mutex<Vec<u64>>);

/// A request whose lock is granted, until this is dropped.
pub(crate) struct GrantedLock<'a> {
    requests: &'a GrantedLocks,
    unique: u64,
}

impl Drop for GrantedLock<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().retain(|other| *other != self.unique);
    }
}

impl GrantedLocks {
    /// The lock of this request is granted.
    pub(crate) fn enter(&self, unique: u64) -> GrantedLock<'_> {
        self.0.lock().push(unique);
        GrantedLock { requests: self, unique }
    }

    fn contains(&self, unique: u64) -> bool {
        self.0.lock().contains(&unique)
    }
}

#[derive(Debug, Default)]
struct State {
    /// By request number.
    requests: HashMap<u64, WaitingRequest>,
    /// The numbers of interrupted requests that weren't under way then.
    interrupted: VecDeque<u64>,
}

/// The requests that wait.
#[derive(Debug)]
pub(crate) struct WaitingRequests {
    state: Mutex<State>,
    granted: Arc<GrantedLocks>,
}

/// A request that waits, until this is dropped.
pub(crate) struct WaitingGuard {
    requests: Arc<WaitingRequests>,
    unique: u64,
}

impl WaitingGuard {
    /// The request waits in another way from now on.
    pub(crate) fn set_abort(&self, abort: Abort) {
        if let Some(waiting) = self.requests.state.lock().requests.get_mut(&self.unique) {
            waiting.abort = abort;
        }
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.requests.state.lock().requests.remove(&self.unique);
    }
}

impl WaitingRequests {
    /// None yet.
    pub(crate) fn new(granted: Arc<GrantedLocks>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), granted })
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// A request waits. INTERRUPT aborts it.
    pub(crate) fn enter(self: &Arc<Self>, caller: WaitingCaller, abort: Abort) -> WaitingGuard {
        let unique = caller.unique;
        let is_interrupted = {
            let mut state = self.state.lock();
            state.requests.insert(unique, WaitingRequest { abort, caller });
            let early = state.interrupted.iter().position(|early| *early == unique);
            early.and_then(|index| state.interrupted.remove(index)).is_some()
        };
        if is_interrupted {
            self.interrupt(unique);
        }
        WaitingGuard { requests: self.clone(), unique }
    }

    /// The kernel's INTERRUPT. Returns false if no such request waits: it isn't received yet, or done.
    ///
    /// INTERRUPT may overtake a request that comes through a queue, and for such a request the kernel doesn't
    /// repeat it: with `keep` it is kept until the request waits.
    pub(crate) fn interrupted(self: &Arc<Self>, unique: u64, keep: bool) -> bool {
        let is_under_way = {
            let mut state = self.state.lock();
            let is_under_way = state.requests.contains_key(&unique);
            if !is_under_way && keep {
                if state.interrupted.len() == MAX_EARLY_INTERRUPTS {
                    state.interrupted.pop_front();
                }
                state.interrupted.push_back(unique);
            }
            is_under_way
        };
        if is_under_way {
            self.interrupt(unique);
        }
        is_under_way
    }

    /// The caller of a request that waits got a signal.
    fn interrupt(self: &Arc<Self>, unique: u64) {
        let requests = self.clone();
        tokio::spawn(async move {
            loop {
                let Some(waiting) = requests.state.lock().requests.get(&unique).cloned() else {
                    return;
                };
                let WaitingCaller { pid, by_any_signal, .. } = waiting.caller;
                // A caller outside of this PID namespace can't be checked.
                let by_any_signal = by_any_signal && !requests.granted.contains(unique);
                let is_due = by_any_signal || pid == 0 || users::is_dying(pid);
                if is_due && waiting.abort.abort() {
                    return;
                }
                tokio::time::sleep(SIGNAL_CHECK_INTERVAL).await;
            }
        });
    }

    /// Aborts requests of dying callers that came through queues, as long as this is polled. The kernel sends
    /// no INTERRUPT if the signal comes while a request is on its way to its queue's thread
    /// (fs/fuse/dev_uring.c, `fuse_uring_prepare_send`).
    pub(crate) async fn watch_callers(&self) -> Infallible {
        loop {
            tokio::time::sleep(CALLER_CHECK_INTERVAL).await;
            let waiting: Vec<WaitingRequest> = self.state.lock().requests.values().cloned().collect();
            for WaitingRequest { abort, caller } in waiting {
                if caller.pid != 0 && users::is_being_killed(caller.pid) {
                    abort.abort();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: WaitingCaller =
        WaitingCaller { unique: 7, pid: 1, by_any_signal: true, must_finish: false };

    async fn intervals(count: u32) {
        tokio::time::sleep(SIGNAL_CHECK_INTERVAL * count).await;
    }

    async fn aborted(abort: &AbortHandle) {
        while !abort.is_aborted() {
            intervals(1).await;
        }
    }

    #[tokio::test]
    async fn an_ordinary_signal_takes_no_lock_that_is_granted() {
        let granted = Arc::<GrantedLocks>::default();
        let waiting = WaitingRequests::new(granted.clone());
        let (abort, _registration) = AbortHandle::new_pair();
        let _waits = waiting.enter(CALLER, Abort::Task(abort.clone()));
        let lock = granted.enter(CALLER.unique);
        assert!(waiting.interrupted(CALLER.unique, false));
        intervals(3).await;
        assert!(!abort.is_aborted());
        drop(lock);
        aborted(&abort).await;
    }

    #[tokio::test]
    async fn an_interrupt_finds_a_request_that_goes_on_in_another_way() {
        let waiting = WaitingRequests::new(Arc::default());
        // A thread has just taken it, to send it or to let a task go on.
        let waits = waiting.enter(CALLER, Abort::Reply(Arc::default()));
        assert!(waiting.interrupted(CALLER.unique, false));
        intervals(2).await;
        let (abort, _registration) = AbortHandle::new_pair();
        waits.set_abort(Abort::Task(abort.clone()));
        aborted(&abort).await;
        drop(waits);
        assert_eq!(waiting.len(), 0);
    }
}
