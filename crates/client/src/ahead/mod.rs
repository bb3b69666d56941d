//! Opening ahead: files that will most likely be opened next are asked for before they are, many in one
//! message.
//!
//! An Open over the lane is a round trip, and what a round trip costs is two processes waking one another. A
//! program that reads a directory and then opens its files in order tells by that what it will open next; so
//! the client asks for the next files while the program works on this one, and the server has the disk read
//! them. None of it is visible but by its speed:
//!
//! - The server decides about each file by the one check, and only about files that haven't changed just now.
//! - A file that was given ahead is used within [`shelf::LIFE`], by the same user, for reading, and only if
//!   its ctime still is what it was: nobody has changed who may read it, nor its names. Otherwise it is given
//!   back, and an ordinary Open asks anew.
//! - What waits is bounded, and given back in time.
//!
//! | module | what |
//! |---|---|
//! | `listing` | what the directory's listing said |
//! | `follower` | whether opens follow it, and how far to ask |
//! | `shelf` | what was asked for and not opened yet |
//! | `state` | all of it together: what an open finds, and what to ask for next |

mod follower;
mod listing;
mod shelf;
mod state;

use std::sync::{Arc, Weak};
use std::time::Instant;

use lane::{Lane, PrefetchTargets};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::counters::bump;
use crate::file::Opening;
use crate::session::{Inner, Page, Session};
use crate::types::Handle;
use shelf::{LIFE, Taken};
use state::{Request, State};

pub(crate) use shelf::Wanted;

/// An open file that was given ahead.
#[derive(Debug)]
struct Held {
    opened: lane::OpenedGrant,
    /// The lane's number in the session.
    lane: u64,
}

/// The least limit of open files (RLIMIT_NOFILE) with which files are prefetched. They take up to
/// [`shelf::MOST`] descriptors, which a process with fewer needs for the files that it opens.
const MIN_LIMIT: u64 = 256;

/// A session's prefetched files.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Whether the process has descriptors to spare.
    is_affordable: bool,
    state: Mutex<State>,
    /// Something has come, or won't.
    news: Notify,
}

impl Ahead {
    /// Nothing is prefetched yet. `limit` is the process's limit of open files; `None` is no limit.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let is_affordable = limit.is_none_or(|limit| limit >= MIN_LIMIT);
        Self { is_affordable, state: Mutex::default(), news: Notify::new() }
    }

    /// A page of a listing has come. Without listings nothing is prefetched.
    pub(crate) fn listed(&self, directory: &Handle, cookie: u64, page: &Page) {
        if self.is_affordable {
            self.state.lock().listed(directory, cookie, page);
        }
    }

    /// The lane is gone, or has taken everything back.
    pub(crate) fn forget(&self) {
        let held = self.state.lock().shelf.clear();
        drop(held);
        self.news.notify_waiters();
    }

    /// A file is being opened for reading: what there is of it, and what to ask for.
    fn opening(
        &self,
        wanted: Wanted<'_>,
        user: &lane::LaneCredential,
        now: Instant,
    ) -> (Taken<Held>, Option<Request>) {
        let (taken, request, unused) = self.state.lock().opening(wanted, user, now);
        // Given back when nobody else has to wait for it.
        drop(unused);
        (taken, request)
    }

    /// Whether there is something of a file now.
    fn look(&self, wanted: Wanted<'_>, user: &lane::LaneCredential) -> Taken<Held> {
        self.state.lock().shelf.take(wanted, user)
    }

    /// The answer to a request has come; none has with `files` empty.
    fn arrived(&self, batch: u64, files: Vec<(usize, Handle, Held)>) {
        let now = Instant::now();
        let unwanted = self.state.lock().arrived(batch, files, now);
        drop(unwanted);
        self.news.notify_waiters();
    }
}

/// Says that a request is over, however it ends.
struct Answer {
    session: Weak<Inner>,
    batch: u64,
    lane: u64,
}

impl Answer {
    fn take(mut self, files: Vec<(usize, lane::OpenedGrant)>) {
        // So that the end has nothing to add.
        let session = std::mem::take(&mut self.session);
        let Some(session) = session.upgrade() else { return };
        let held = files.into_iter().filter_map(|(place, opened)| {
            Some((place, Handle::new(&opened.handle)?, Held { opened, lane: self.lane }))
        });
        session.lane.ahead.arrived(self.batch, held.collect());
        tend(&session);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.lane.ahead.arrived(self.batch, Vec::new());
        }
    }
}

/// Has what nobody opens given back in time.
fn tend(session: &Arc<Inner>) {
    let ahead = &session.lane.ahead;
    if std::mem::replace(&mut ahead.state.lock().tended, true) {
        return;
    }
    let weak = Arc::downgrade(session);
    session.lane.runtime().spawn(async move {
        loop {
            tokio::time::sleep(LIFE).await;
            let Some(session) = weak.upgrade() else { return };
            let (old, done) = {
                let mut state = session.lane.ahead.state.lock();
                let old = state.purge(Instant::now());
                state.tended = !state.shelf.is_empty();
                (old, !state.tended)
            };
            drop(old);
            if done {
                return;
            }
        }
    });
}

impl Session {
    /// A file that is to be opened for reading, if it was asked for ahead and is what it was; and asks for
    /// those that come next. Waits for nothing but what was asked for already.
    pub(crate) async fn open_ahead(&self, wanted: Wanted<'_>, lane: &Lane, number: u64) -> Option<Opening> {
        let (manager, user) = (&self.inner.lane, self.user.lane.as_ref()?);
        let (mut taken, request) = manager.ahead.opening(wanted, user, Instant::now());
        if let Some(request) = request {
            bump(&self.inner.counters.lane.round_trips);
            self.ask_ahead(lane, number, &request);
        }
        while matches!(taken, Taken::Coming) {
            let news = manager.ahead.news.notified();
            tokio::pin!(news);
            // From here on it counts, so that what comes between the look and the wait wakes us.
            news.as_mut().enable();
            taken = manager.ahead.look(wanted, user);
            if matches!(taken, Taken::Coming)
                && tokio::time::timeout(manager.open_timeout(), news).await.is_err()
            {
                return None;
            }
        }
        let Taken::Here(Held { opened, lane }) = taken else { return None };
        if !is_unchanged(&opened) {
            return None;
        }
        let handle = Handle::new(&opened.handle)?;
        Some(self.taken(handle, opened, lane, Instant::now()))
    }

    fn ask_ahead(&self, lane: &Lane, number: u64, request: &Request) {
        let Some(user) = self.user.lane.as_ref() else { return };
        let all = request.all.iter().map(|one| &one[..]).collect();
        let soon = match &request.directory {
            Some(directory) => PrefetchTargets::Entries { directory: directory.as_bytes(), names: all },
            None => PrefetchTargets::Handles(all),
        };
        let answer = Answer { session: Arc::downgrade(&self.inner), batch: request.batch, lane: number };
        // If it can't be sent, the answer's end says so.
        let _ = lane.ahead(&soon, user, Box::new(|files| answer.take(files)));
    }
}

/// Whether the server's decision still holds: nothing that it hangs on can have changed without another
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
