//! The two tasks of a lane's client.
//!
//! The one that receives lives as long as the socket: a hang-up is the end of it, and its end (also when the
//! runtime is shut down under it) is the end of the lane. The other sends releases that no Open took along.

use super::outbox::Waiter;
use super::{Grant, LaneState, OpenError, Opened, Owner, Shared};
use crate::interlock::{Control, State};
use crate::message::{self, MAX_MESSAGE, Reply};
use crate::socket::{self, Received};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tracing::debug;

/// Descriptors that are left to the rest of the process: a connection that is lost must be made again, and a
/// lane that ends looked for. At most an eighth of what the process may have.
const LEFT: usize = 64;

/// Above this number a descriptor is one of the last that this process may have (`RLIMIT_NOFILE`).
pub(super) fn highest_descriptor() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    i32::try_from(limit - LEFT.min(limit / 8)).unwrap_or(i32::MAX)
}

/// How long a release waits for an Open to ride on.
const COMPANY: Duration = Duration::from_millis(5);

/// Receives until the end.
pub(super) async fn receive(shared: Arc<Shared>, owner: Weak<Owner>) {
    struct Ending(Arc<Shared>);
    impl Drop for Ending {
        fn drop(&mut self) {
            self.0.hung_up();
        }
    }
    let ending = Ending(shared);
    let shared = &*ending.0;
    let mut buffer = Box::new([0; MAX_MESSAGE + 1]);
    while let Ok(mut ready) = shared.socket.readable().await {
        loop {
            let received = socket::receive_descriptors(&shared.socket, &mut buffer, false);
            let (length, fds, no_room) = match received {
                Ok(Received::Datagram { length, fds, no_room }) => (length, fds, no_room),
                Err(Errno::AGAIN) => break,
                Ok(Received::HangUp) | Err(_) => return,
                Ok(Received::Violation(what)) => {
                    debug!("lane: the server sent {what}");
                    return;
                }
            };
            let Ok(reply) = message::decode::<Reply<'_>>(&buffer[..length]) else {
                debug!("lane: the server sent no message of the protocol");
                return;
            };
            if understand(shared, &owner, reply, fds, no_room).is_none() {
                debug!("lane: the server's message makes no sense here");
                return;
            }
            if shared.has_all_answers() {
                break;
            }
        }
        // Either the socket was seen empty, or nothing more can have been in it when we were woken (what
        // comes later wakes us again): an Open costs one receive, not two.
        ready.clear_ready();
    }
}

/// Does what a reply says; `None` if it is nothing that a server may say now.
fn understand(
    shared: &Shared,
    owner: &Weak<Owner>,
    reply: Reply<'_>,
    fds: Vec<OwnedFd>,
    no_room: bool,
) -> Option<()> {
    let none = fds.is_empty() && !no_room;
    let mut fds = fds.into_iter();
    match reply {
        Reply::Opened { serial, grant, generation, verifier, handle, about, directory } => {
            // The receipt, at once; whether the descriptor arrived, too, shows in a release.
            shared.interlock.receive();
            let Waiter::Open(waiter) = shared.outbox.lock().answered(serial)? else { return None };
            let answer = match (fds.next(), owner.upgrade()) {
                (Some(file), Some(owner)) if file.as_raw_fd() < shared.highest_descriptor => {
                    let expected = Control { state: State::Live, generation }.word();
                    let grant = Grant::new(file, grant, expected, owner, about.modes);
                    Ok(Opened { grant, handle: handle.to_vec(), about, directory, verifier })
                }
                (None, _) if !no_room => return None,
                (file, _) => {
                    drop(file);
                    shared.release(grant);
                    Err(OpenError::NoDescriptor)
                }
            };
            // Nobody waits any more: the grant is dropped, and so released.
            let _ = waiter.send(answer);
            fds.next().is_none().then_some(())?;
        }
        Reply::Given { serial, generation, verifier, files } => {
            files.iter().for_each(|_| shared.interlock.receive());
            let Waiter::Ahead(then) = shared.outbox.lock().answered(serial)? else { return None };
            // They come in order; the last ones are missing if this process has no room for more.
            (fds.len() == files.len() || no_room && fds.len() < files.len()).then_some(())?;
            let owner = owner.upgrade();
            let expected = Control { state: State::Live, generation }.word();
            let mut opened = Vec::with_capacity(fds.len());
            for file in files {
                match (fds.next(), &owner) {
                    (Some(fd), Some(owner)) if fd.as_raw_fd() < shared.highest_descriptor => {
                        let about = file.about;
                        let grant = Grant::new(fd, file.grant, expected, Arc::clone(owner), about.modes);
                        let handle = file.handle.to_vec();
                        let directory = None;
                        let given = Opened { grant, handle, about, directory, verifier };
                        opened.push((file.index as usize, given));
                    }
                    (fd, _) => {
                        drop(fd);
                        shared.release(file.grant);
                    }
                }
            }
            then(opened);
        }
        Reply::NotOpened { serial, status } if none => {
            let Waiter::Open(waiter) = shared.outbox.lock().answered(serial)? else { return None };
            let _ = waiter.send(Err(OpenError::Refused(status)));
        }
        Reply::Drain if none => shared.draining(),
        // The interlock says so already, to whoever does I/O.
        Reply::Recall { generation } if none => shared.generation.store(generation, Relaxed),
        _ => return None,
    }
    Some(())
}

/// Sends releases that wait for longer than [`COMPANY`].
pub(super) async fn flush(shared: Arc<Shared>) {
    loop {
        shared.flush.notified().await;
        if *shared.state.borrow() == LaneState::Gone {
            return;
        }
        tokio::time::sleep(COMPANY).await;
        shared.flush_now();
    }
}
