//! Open prefetch: the client requests grants for the files that a program will probably open next, many in
//! one message.
//!
//! An Open over the lane is a round trip, which costs two wake-ups of another process. A program that lists a
//! directory and then opens its files in order shows which files it will open next. The client requests those
//! while the program works on the current file, and the server reads their first bytes from disk. Prefetch
//! changes nothing but the speed:
//!
//! - The server makes the usual access check for each file, and refuses files that have changed just now.
//! - A prefetched file is used within [`cache::MAX_AGE`], by the same user, for reading, and only if its
//!   ctime is unchanged: then neither its permissions nor its names have changed. Otherwise its grant is
//!   released and an ordinary Open follows.
//! - The number of prefetched files is bounded, and unused ones are released in time.
//!
//! | module | what |
//! |---|---|
//! | `listing` | the entries of a directory listing and their orders |
//! | `sequence` | detection of sequential opens, and the prefetch window |
//! | `cache` | files that were requested and not yet opened |
//! | `state` | all of it together: the result of an open, and the next request |

mod cache;
mod listing;
mod sequence;
mod state;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lane::{Lane, PrefetchTargets};
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use crate::counters::{SessionCounters, bump};
use crate::types::{Handle, Page};
use cache::{Lookup, MAX_AGE};
use state::{PrefetchRequest, PrefetchState};

pub(crate) use cache::OpenTarget;

/// A prefetched open file.
#[derive(Debug)]
struct PrefetchedFile {
    opened: lane::OpenedGrant,
    /// The lane's number in the session.
    lane: u64,
}

/// The lowest limit of open files (RLIMIT_NOFILE) with which files are prefetched. They take up to
/// [`cache::MAX_ITEMS`] descriptors, which a process with fewer needs for the files that it opens.
const MIN_LIMIT: u64 = 256;

/// A session's prefetched files.
#[derive(Debug)]
pub(crate) struct OpenPrefetch {
    /// Whether the process has descriptors to spare.
    is_affordable: bool,
    state: Mutex<PrefetchState>,
    /// A pending request has completed.
    completion: Notify,
    runtime: Runtime,
}

impl OpenPrefetch {
    /// Starts without prefetched files. `limit` is the process's limit of open files; `None` is no limit.
    pub(crate) fn new(limit: Option<u64>, runtime: Runtime) -> Arc<Self> {
        let is_affordable = limit.is_none_or(|limit| limit >= MIN_LIMIT);
        Arc::new(Self { is_affordable, state: Mutex::default(), completion: Notify::new(), runtime })
    }

    /// Adds a page of a listing. Without listings nothing is prefetched.
    pub(crate) fn add_page(&self, directory: &Handle, cookie: u64, page: &Page) {
        if self.is_affordable {
            self.state.lock().add_page(directory, cookie, page);
        }
    }

    /// Releases all prefetched files: the lane has ended or revoked its grants.
    pub(crate) fn clear(&self) {
        let files = self.state.lock().cache.clear();
        drop(files);
        self.completion.notify_waiters();
    }

    /// Looks up a file that is being opened for reading. Also returns the next request, if one is due.
    fn open(
        &self,
        target: OpenTarget<'_>,
        user: &lane::LaneCredential,
        now: Instant,
    ) -> (Lookup<PrefetchedFile>, Option<PrefetchRequest>) {
        let (found, request, unused) = self.state.lock().open(target, user, now);
        // Closing them takes time, so the lock is released first.
        drop(unused);
        (found, request)
    }

    /// Looks up a file again.
    fn take(&self, target: OpenTarget<'_>, user: &lane::LaneCredential) -> Lookup<PrefetchedFile> {
        self.state.lock().cache.take(target, user)
    }

    /// Completes a request. `files` is empty if it failed.
    fn complete(&self, batch: u64, files: Vec<(usize, Handle, PrefetchedFile)>) {
        let now = Instant::now();
        let unwanted = self.state.lock().complete(batch, files, now);
        drop(unwanted);
        self.completion.notify_waiters();
    }
}

/// Completes a request when the reply arrives, or without files when this is dropped before.
struct PendingReply {
    prefetch: Weak<OpenPrefetch>,
    batch: u64,
    lane: u64,
}

impl PendingReply {
    fn complete(mut self, files: Vec<(usize, lane::OpenedGrant)>) {
        // Without the reference, `drop` does nothing.
        let prefetch = std::mem::take(&mut self.prefetch);
        let Some(prefetch) = prefetch.upgrade() else { return };
        let files = files.into_iter().filter_map(|(index, opened)| {
            Some((index, Handle::new(&opened.handle)?, PrefetchedFile { opened, lane: self.lane }))
        });
        prefetch.complete(self.batch, files.collect());
        prefetch.start_expiry();
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(prefetch) = self.prefetch.upgrade() {
            prefetch.complete(self.batch, Vec::new());
        }
    }
}

impl OpenPrefetch {
    /// Starts the task that releases prefetched files after [`MAX_AGE`], unless it is running.
    fn start_expiry(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state.lock().is_expiry_running, true) {
            return;
        }
        let weak = Arc::downgrade(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(MAX_AGE).await;
                let Some(prefetch) = weak.upgrade() else { return };
                let (expired, done) = {
                    let mut state = prefetch.state.lock();
                    let expired = state.expire(Instant::now());
                    state.is_expiry_running = !state.cache.is_empty();
                    (expired, !state.is_expiry_running)
                };
                drop(expired);
                if done {
                    return;
                }
            }
        });
    }

    /// Takes a prefetched file that is being opened for reading, with its lane's number, if there is one and
    /// it is unchanged. Sends the next request over `lane` if one is due. Waits only for requests that were
    /// sent before, and at most `timeout` for each.
    pub(crate) async fn take_or_wait(
        self: &Arc<Self>,
        target: OpenTarget<'_>,
        user: &lane::LaneCredential,
        (lane, number): (&Lane, u64),
        timeout: Duration,
        counters: &SessionCounters,
    ) -> Option<(lane::OpenedGrant, u64)> {
        let (mut found, request) = self.open(target, user, Instant::now());
        if let Some(request) = request {
            bump(&counters.lane.round_trips);
            self.send(user, lane, number, &request);
        }
        while matches!(found, Lookup::Pending) {
            let completion = self.completion.notified();
            tokio::pin!(completion);
            // Enabled before the lookup, so that a completion between lookup and wait wakes this task.
            completion.as_mut().enable();
            found = self.take(target, user);
            if matches!(found, Lookup::Pending) && tokio::time::timeout(timeout, completion).await.is_err() {
                return None;
            }
        }
        let Lookup::Ready(PrefetchedFile { opened, lane }) = found else { return None };
        is_unchanged(&opened).then_some((opened, lane))
    }

    fn send(
        self: &Arc<Self>,
        user: &lane::LaneCredential,
        lane: &Lane,
        number: u64,
        request: &PrefetchRequest,
    ) {
        let items = request.items.iter().map(|item| &item[..]).collect();
        let targets = match &request.directory {
            Some(directory) => PrefetchTargets::Entries { directory: directory.as_bytes(), names: items },
            None => PrefetchTargets::Handles(items),
        };
        let reply = PendingReply { prefetch: Arc::downgrade(self), batch: request.batch, lane: number };
        // If it can't be sent, dropping `reply` completes the request.
        let _ = lane.prefetch(&targets, user, Box::new(|files| reply.complete(files)));
    }
}

/// Whether the server's access check still holds: whatever it depends on can't change without changing the
/// ctime.
fn is_unchanged(opened: &lane::OpenedGrant) -> bool {
    let then = opened.attributes.file.ctime;
    opened.grant.is_live()
        && rustix::fs::fstat(&opened.grant).is_ok_and(|now| {
            now.st_nlink > 0
                && now.st_ctime == then.seconds
                && now.st_ctime_nsec == u64::from(then.nanoseconds)
        })
}
