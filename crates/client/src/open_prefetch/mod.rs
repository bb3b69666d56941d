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
use std::time::Instant;

use lane::{Lane, PrefetchTargets};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::counters::bump;
use crate::file::OpenedFile;
use crate::session::{Inner, Page, Session};
use crate::types::Handle;
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
}

impl OpenPrefetch {
    /// Starts without prefetched files. `limit` is the process's limit of open files; `None` is no limit.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let is_affordable = limit.is_none_or(|limit| limit >= MIN_LIMIT);
        Self { is_affordable, state: Mutex::default(), completion: Notify::new() }
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
    session: Weak<Inner>,
    batch: u64,
    lane: u64,
}

impl PendingReply {
    fn complete(mut self, files: Vec<(usize, lane::OpenedGrant)>) {
        // Without a session, `drop` does nothing.
        let session = std::mem::take(&mut self.session);
        let Some(session) = session.upgrade() else { return };
        let files = files.into_iter().filter_map(|(index, opened)| {
            Some((index, Handle::new(&opened.handle)?, PrefetchedFile { opened, lane: self.lane }))
        });
        session.lane.open_prefetch.complete(self.batch, files.collect());
        start_expiry(&session);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.lane.open_prefetch.complete(self.batch, Vec::new());
        }
    }
}

/// Starts the task that releases prefetched files after [`MAX_AGE`], unless it is running.
fn start_expiry(session: &Arc<Inner>) {
    let prefetch = &session.lane.open_prefetch;
    if std::mem::replace(&mut prefetch.state.lock().is_expiry_running, true) {
        return;
    }
    let weak = Arc::downgrade(session);
    session.lane.runtime().spawn(async move {
        loop {
            tokio::time::sleep(MAX_AGE).await;
            let Some(session) = weak.upgrade() else { return };
            let (expired, done) = {
                let mut state = session.lane.open_prefetch.state.lock();
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

impl Session {
    /// Takes a prefetched file that is being opened for reading, if there is one and it is unchanged. Sends
    /// the next request if one is due. Waits only for requests that were sent before.
    pub(crate) async fn take_prefetched_from(
        &self,
        target: OpenTarget<'_>,
        lane: &Lane,
        number: u64,
    ) -> Option<OpenedFile> {
        let (manager, user) = (&self.inner.lane, self.user.lane.as_ref()?);
        let (mut found, request) = manager.open_prefetch.open(target, user, Instant::now());
        if let Some(request) = request {
            bump(&self.inner.counters.lane.round_trips);
            self.send_prefetch(lane, number, &request);
        }
        while matches!(found, Lookup::Pending) {
            let completion = manager.open_prefetch.completion.notified();
            tokio::pin!(completion);
            // Enabled before the lookup, so that a completion between lookup and wait wakes this task.
            completion.as_mut().enable();
            found = manager.open_prefetch.take(target, user);
            if matches!(found, Lookup::Pending)
                && tokio::time::timeout(manager.open_timeout(), completion).await.is_err()
            {
                return None;
            }
        }
        let Lookup::Ready(PrefetchedFile { opened, lane }) = found else { return None };
        if !is_unchanged(&opened) {
            return None;
        }
        let handle = Handle::new(&opened.handle)?;
        Some(self.record_open(handle, opened, lane, Instant::now()))
    }

    fn send_prefetch(&self, lane: &Lane, number: u64, request: &PrefetchRequest) {
        let Some(user) = self.user.lane.as_ref() else { return };
        let items = request.items.iter().map(|item| &item[..]).collect();
        let targets = match &request.directory {
            Some(directory) => PrefetchTargets::Entries { directory: directory.as_bytes(), names: items },
            None => PrefetchTargets::Handles(items),
        };
        let reply = PendingReply { session: Arc::downgrade(&self.inner), batch: request.batch, lane: number };
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
