//! Disk threads that keep an entry of their io_uring queue: [`EntryKeeper`].
//!
//! The kernel hands an entry's next request to the thread that has committed the entry's last reply, and
//! prefers the entry that was committed last. So when a thread that has waited for a disk commits the reply
//! itself, it gets the caller's next request, too, and may wait for the disk again: no other thread has to
//! wake up, neither for the request nor for its reply. Meanwhile other requests of the CPU come to the
//! queue's thread, which has the other entries.
//!
//! A thread keeps one entry at most. So while it waits for a disk the kernel sends it nothing. A request that
//! waits for a server takes the entry with it: the queue's thread commits the reply.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use parking_lot::Mutex;
use sys::fuse_queue::{FuseEntry, FuseQueue, FuseQueueEvent, FuseQueueWaker};
use tokio::sync::oneshot;

use crate::queues::{Inbox, message};
use crate::replies::ReplyChannel;
use crate::requests::{Accepted, Requests};

/// What others want of a keeper.
#[derive(Debug, Default)]
struct Wanted {
    /// Whether the entry belongs to the kernel.
    is_committed: bool,
    /// Told when what the kernel has sent until now has been begun.
    drains: Vec<oneshot::Sender<()>>,
    is_ended: bool,
}

/// A keeper, for others.
#[derive(Debug)]
struct Keeper {
    wanted: Mutex<Wanted>,
    waker: FuseQueueWaker,
}

impl Keeper {
    /// Tells `done` when what the kernel has sent until now has been begun.
    fn drain(&self, done: oneshot::Sender<()>) {
        let mut wanted = self.wanted.lock();
        if wanted.is_committed {
            wanted.drains.push(done);
            drop(wanted);
            self.waker.wake();
        } else {
            drop(wanted);
            let _ = done.send(());
        }
    }

    fn end(&self) {
        self.wanted.lock().is_ended = true;
        self.waker.wake();
    }

    /// The entry is about to be committed. Returns false at the end of the mount.
    fn begin_commit(&self) -> bool {
        let mut wanted = self.wanted.lock();
        wanted.is_committed = !wanted.is_ended;
        wanted.is_committed
    }

    /// The entry is this thread's, and its request has been begun.
    fn begun(&self) {
        let mut wanted = self.wanted.lock();
        wanted.is_committed = false;
        let drains = std::mem::take(&mut wanted.drains);
        drop(wanted);
        tell(drains);
    }
}

fn tell(drains: Vec<oneshot::Sender<()>>) {
    for done in drains {
        let _ = done.send(());
    }
}

/// The keepers of a queue's entries.
#[derive(Debug, Default)]
pub(crate) struct Keepers(Mutex<KeeperList>);

#[derive(Debug, Default)]
struct KeeperList {
    keepers: Vec<Arc<Keeper>>,
    is_ended: bool,
}

impl Keepers {
    /// Lets each keeper begin what the kernel has sent it until now. `drained` gets a receiver for each.
    pub(crate) fn drain(&self, drained: &mut Vec<oneshot::Receiver<()>>) {
        for keeper in &self.0.lock().keepers {
            let (done, receiver) = oneshot::channel();
            keeper.drain(done);
            drained.push(receiver);
        }
    }

    /// Ends all keepers, for good.
    pub(crate) fn end(&self) {
        let mut list = self.0.lock();
        list.is_ended = true;
        list.keepers.iter().for_each(|keeper| keeper.end());
    }

    fn add(&self, keeper: &Arc<Keeper>) {
        let mut list = self.0.lock();
        if list.is_ended {
            keeper.end();
        }
        list.keepers.push(keeper.clone());
    }

    fn remove(&self, keeper: &Arc<Keeper>) {
        self.0.lock().keepers.retain(|other| !Arc::ptr_eq(other, keeper));
    }
}

/// Why a keeper has stopped serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// Another thread has the entry.
    EntryLeft,
    /// The mount ends.
    Ended,
}

/// A thread's means to keep an entry.
pub(crate) struct EntryKeeper {
    ring: FuseQueue,
    events: Vec<FuseQueueEvent>,
    requests: Arc<Requests>,
    /// The queue's.
    inbox: Arc<Inbox>,
    shared: Arc<Keeper>,
}

impl Drop for EntryKeeper {
    fn drop(&mut self) {
        self.inbox.keepers().remove(&self.shared);
        self.shared.begun();
    }
}

impl EntryKeeper {
    /// For an entry of queue `number`.
    ///
    /// # Errors
    /// io_uring_setup(2)'s.
    pub(crate) fn new(number: u16, requests: &Arc<Requests>, inbox: &Arc<Inbox>) -> io::Result<Self> {
        // It has no entries of its own, so no payload has a length.
        let ring = FuseQueue::new(requests.filesystem().device().as_fd(), number, 0, 0)?;
        let shared = Arc::new(Keeper { wanted: Mutex::default(), waker: ring.waker() });
        inbox.keepers().add(&shared);
        Ok(Self { ring, events: Vec::new(), requests: requests.clone(), inbox: inbox.clone(), shared })
    }

    /// Commits the reply that the entry has, and serves its requests until another thread has the entry.
    ///
    /// # Errors
    /// The ring is broken.
    pub(crate) fn serve(&mut self, entry: FuseEntry) -> io::Result<Served> {
        let mut entry = entry;
        loop {
            if !self.shared.begin_commit() {
                return Ok(Served::Ended);
            }
            self.ring.commit(entry)?;
            let Some(received) = self.receive()? else { return Ok(Served::Ended) };
            let message = message(&received, self.requests.filesystem().buffers());
            let accepted = self.requests.accept(message, ReplyChannel::Queue(received, self.inbox.clone()));
            self.shared.begun();
            let replied = match accepted {
                Accepted::Request(request) => {
                    self.requests.handle_blocking(request, self.requests.permit_now())
                }
                Accepted::Done(entry) => entry,
            };
            match replied {
                Some(next) => entry = next,
                None => return Ok(Served::EntryLeft),
            }
        }
    }

    /// Waits for the entry's next request. `None` at the end of the mount.
    fn receive(&mut self) -> io::Result<Option<FuseEntry>> {
        loop {
            let drains = std::mem::take(&mut self.shared.wanted.lock().drains);
            if drains.is_empty() {
                self.ring.wait(&mut self.events)?;
            } else {
                // It may take the wake-up for further ones.
                self.ring.poll(&mut self.events)?;
            }
            let mut received = None;
            for event in self.events.drain(..) {
                match event {
                    FuseQueueEvent::Request(entry) => received = Some(entry),
                    FuseQueueEvent::Ended(_) => return Ok(None),
                    FuseQueueEvent::Woken => {}
                }
            }
            if received.is_some() {
                // Told when it has been begun.
                self.shared.wanted.lock().drains.extend(drains);
                return Ok(received);
            }
            tell(drains);
            if self.shared.wanted.lock().is_ended {
                return Ok(None);
            }
        }
    }
}
