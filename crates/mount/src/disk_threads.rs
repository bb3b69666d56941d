//! Threads of an io_uring queue for requests that wait for a disk: [`DiskThreads`].
//!
//! They run on the queue's CPU. The queue's thread sleeps while one of them works for the only caller on that
//! CPU, and passing a request between two threads of a CPU costs a few microseconds. A thread elsewhere costs
//! ten times as much if its CPU is idle, which the scheduler prefers.
//!
//! A few of them keep the entry of a request that they have finished, and get its next request themselves
//! ([`crate::entry_keeper`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sys::fuse_queue::FuseEntry;
use tokio::runtime::Handle;

use crate::entry_keeper::{EntryKeeper, Served};
use crate::queues::{Inbox, pin};
use crate::requests::{DiskJob, Requests};
use crate::runtime::prepare_serving_thread;

/// Threads of a queue at once. With that many disk operations under way further ones use tokio's threads for
/// blocking calls, and wait there if those are in use, too.
const MAX_THREADS: usize = 64;

/// Threads of a queue that keep an entry. It is enough that there is one for each of a CPU's usual callers.
const MAX_KEEPERS: usize = 4;

/// How long a thread without work exists.
const IDLE_TIME: Duration = Duration::from_secs(10);

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<DiskJob>,
    /// Threads that wait for a job.
    idle: usize,
    threads: usize,
    /// Threads that keep an entry.
    keepers: usize,
    /// The queue's thread has ended: the others end when there is nothing left to do.
    has_ended: bool,
}

/// The threads of a queue that may wait for a disk. They are made as they are needed.
pub(crate) struct DiskThreads {
    /// The queue's number.
    cpu: u16,
    requests: Arc<Requests>,
    runtime: Handle,
    /// The queue's.
    inbox: Arc<Inbox>,
    state: Mutex<JobQueue>,
    added: Condvar,
}

impl std::fmt::Debug for DiskThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskThreads").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

impl DiskThreads {
    /// Threads of the queue `cpu`, in the context of `runtime`.
    pub(crate) fn new(cpu: u16, requests: &Arc<Requests>, runtime: &Handle, inbox: &Arc<Inbox>) -> Arc<Self> {
        Arc::new(Self {
            cpu,
            requests: requests.clone(),
            runtime: runtime.clone(),
            inbox: inbox.clone(),
            state: Mutex::default(),
            added: Condvar::new(),
        })
    }

    /// Runs a job at once on one of the threads.
    pub(crate) fn run(self: &Arc<Self>, job: DiskJob) {
        let mut state = self.state.lock();
        if state.jobs.len() < state.idle {
            state.jobs.push_back(job);
            drop(state);
            self.added.notify_one();
            return;
        }
        if state.threads < MAX_THREADS {
            let threads = self.clone();
            let run = move || {
                pin(usize::from(threads.cpu));
                prepare_serving_thread();
                let _context = threads.runtime.enter();
                threads.serve();
            };
            let spawned = Builder::new().name(format!("disk-{}", self.cpu)).spawn(run);
            if spawned.is_ok() {
                state.threads += 1;
                state.jobs.push_back(job);
                return;
            }
        }
        drop(state);
        let inbox = self.inbox.clone();
        self.runtime.spawn_blocking(move || {
            if let Some(entry) = job.run() {
                inbox.reply(entry);
            }
        });
    }

    /// Ends the threads, which keep the mount's session otherwise.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.added.notify_all();
    }

    /// Runs jobs until there has been none for a while.
    fn serve(&self) {
        let mut keeper = None;
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                if let Some(entry) = job.run() {
                    self.commit(&mut keeper, entry);
                }
                state = self.state.lock();
                continue;
            }
            if state.has_ended {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            let is_late = self.added.wait_for(&mut state, IDLE_TIME).timed_out();
            state.idle -= 1;
            if is_late && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Commits the reply that an entry has, on this thread or that of the queue. On this one it returns when
    /// another thread has the entry.
    fn commit(&self, keeper: &mut Option<EntryKeeper>, entry: FuseEntry) {
        {
            let mut state = self.state.lock();
            if state.keepers == MAX_KEEPERS {
                drop(state);
                return self.inbox.reply(entry);
            }
            state.keepers += 1;
        }
        let made = match keeper.take() {
            Some(keeper) => Ok(keeper),
            None => EntryKeeper::new(self.cpu, &self.requests, &self.inbox),
        };
        match made {
            Ok(mut made) => match made.serve(entry) {
                Ok(Served::EntryLeft) => *keeper = Some(made),
                Ok(Served::Ended) => {}
                Err(error) => {
                    tracing::error!(%error, "an io_uring queue of the mount is broken: a request hangs")
                }
            },
            // Without memory or descriptors for a ring.
            Err(_) => self.inbox.reply(entry),
        }
        self.state.lock().keepers -= 1;
    }
}
