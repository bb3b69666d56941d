//! Threads for what may block: requests to RADOS, to the metadata server, and waiting for running calls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use cluster::Event;
use recovery::GraceDatabase;

/// The most jobs in a worker's queue: the machine awaits one answer at a time.
const MAX_JOBS: usize = 16;
/// The longest time between two looks at whether the server stops.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// The time after which what has failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A job; its event is the answer to an effect.
type Job = Box<dyn FnOnce() -> Option<Event> + Send>;

/// A thread that executes jobs in order.
#[derive(Debug)]
pub(super) struct Worker(SyncSender<Job>);

impl Worker {
    /// Starts one whose events go to `events`. It ends with this value.
    pub fn start(name: &str, events: SyncSender<Event>) -> io::Result<Self> {
        let (sender, receiver): (_, Receiver<Job>) = sync_channel(MAX_JOBS);
        let run = move || {
            for job in receiver {
                if let Some(event) = job()
                    && events.send(event).is_err()
                {
                    return;
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Executes a job; false if the queue is full.
    #[must_use]
    pub fn execute(&self, job: impl FnOnce() -> Option<Event> + Send + 'static) -> bool {
        self.0.try_send(Box::new(job)).is_ok()
    }
}

/// Repeats `attempt` until it succeeds, or the server stops.
pub(super) fn until_done<T, E: std::fmt::Display>(
    stops: &AtomicBool,
    what: &str,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Option<T> {
    while !stops.load(Ordering::Acquire) {
        match attempt() {
            Ok(done) => return Some(done),
            Err(error) => tracing::warn!(%error, "cluster: can't {what} yet"),
        }
        thread::sleep(RETRY_INTERVAL);
    }
    None
}

/// Starts a thread that reports changes of the grace database until the server stops.
pub(super) fn start_watch(
    grace: GraceDatabase,
    events: SyncSender<Event>,
    stops: Arc<AtomicBool>,
) -> io::Result<()> {
    let run = move || {
        let Some(watch) = until_done(&stops, "watch the grace database", || grace.watch()) else { return };
        while !stops.load(Ordering::Acquire) {
            if let Err(error) = watch.wait(WATCH_INTERVAL) {
                tracing::warn!(%error, "cluster: changes are noticed late");
            }
            if events.send(Event::Notified).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("cluster-watch".to_owned()).spawn(run).map(drop)
}
