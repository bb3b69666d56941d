//! Threads of an io_uring queue for requests that wait for a disk: [`DiskThreads`].
//!
//! They run on the queue's CPU. The queue's thread sleeps while one of them works for the only caller on that
//! CPU, and passing a request between two threads of a CPU costs a few microseconds. A thread elsewhere costs
//! ten times as much if its CPU is idle, which the scheduler prefers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::queues::pin;
use crate::runtime::prepare_serving_thread;

/// Threads of a queue at once. With that many disk operations under way further ones use tokio's threads for
/// blocking calls, and wait there if those are in use, too.
const MAX_THREADS: usize = 64;

/// How long a thread without work exists.
const IDLE_TIME: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    threads: usize,
}

/// The threads of a queue that may wait for a disk. They are made as they are needed.
pub(crate) struct DiskThreads {
    cpu: usize,
    runtime: Handle,
    state: Mutex<JobQueue>,
    added: Condvar,
}

impl std::fmt::Debug for DiskThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskThreads").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

impl DiskThreads {
    /// Threads on `cpu`, in the context of `runtime`.
    pub(crate) fn new(cpu: usize, runtime: &Handle) -> Arc<Self> {
        Arc::new(Self { cpu, runtime: runtime.clone(), state: Mutex::default(), added: Condvar::new() })
    }

    /// Runs `job`, which doesn't panic, at once on one of the threads.
    pub(crate) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.jobs.len() < state.idle {
            state.jobs.push_back(Box::new(job));
            drop(state);
            self.added.notify_one();
            return;
        }
        if state.threads < MAX_THREADS {
            let threads = self.clone();
            let run = move || {
                pin(threads.cpu);
                prepare_serving_thread();
                let _context = threads.runtime.enter();
                threads.serve();
            };
            let spawned = Builder::new().name(format!("disk-{}", self.cpu)).spawn(run);
            if spawned.is_ok() {
                state.threads += 1;
                state.jobs.push_back(Box::new(job));
                return;
            }
        }
        drop(state);
        self.runtime.spawn_blocking(job);
    }

    /// Runs jobs until there has been none for a while.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
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
}
