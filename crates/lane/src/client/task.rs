//! The two tasks of a lane's client.
//!
//! The receiving task lives as long as the socket: a hang-up ends it, and its end (also when the runtime is
//! shut down) ends the lane. The other task sends releases that no Open carried.

use super::shared::{ClientShared, Grant, LaneHandle, LaneState, OpenError, OpenedGrant, Waiter};
use crate::interlock::{Control, ControlState};
use crate::message::{self, LaneReply, MAX_MESSAGE};
use crate::socket::{self, Received};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tracing::debug;

/// Descriptors reserved for the rest of the process: a lost connection must be made again, and a lane that
/// ends must be searched for. At most an eighth of the process's limit.
const LEFT: usize = 64;

/// The highest descriptor number outside of the reserve (`RLIMIT_NOFILE`).
pub(super) fn highest_descriptor() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    i32::try_from(limit - LEFT.min(limit / 8)).unwrap_or(i32::MAX)
}

/// How long a release waits for an Open to be sent with.
const COMPANY: Duration = Duration::from_millis(5);

/// Receives until the lane ends.
pub(super) async fn receive(shared: Arc<ClientShared>, owner: Weak<LaneHandle>) {
    struct Ending(Arc<ClientShared>);
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
            let Ok(reply) = message::decode::<LaneReply<'_>>(&buffer[..length]) else {
                debug!("lane: the server sent no message of the protocol");
                return;
            };
            if handle_reply(shared, &owner, reply, fds, no_room).is_none() {
                debug!("lane: the server's message makes no sense here");
                return;
            }
            if shared.has_all_answers() {
                break;
            }
        }
        // Either the socket was seen empty, or nothing more can have been in it when this task was woken
        // (later datagrams wake it again): an Open costs one receive, not two.
        ready.clear_ready();
    }
}

/// Handles a reply; `None` if the server may not send it now.
fn handle_reply(
    shared: &ClientShared,
    owner: &Weak<LaneHandle>,
    reply: LaneReply<'_>,
    fds: Vec<OwnedFd>,
    no_room: bool,
) -> Option<()> {
    let none = fds.is_empty() && !no_room;
    let mut fds = fds.into_iter();
    match reply {
        LaneReply::Opened { serial, grant, generation, verifier, handle, attributes, directory } => {
            // The receipt, at once. A missing descriptor shows in a release.
            shared.interlock.receive();
            let Waiter::Open(waiter) = shared.outbox.lock().answered(serial)? else { return None };
            let answer = match (fds.next(), owner.upgrade()) {
                (Some(file), Some(owner)) if file.as_raw_fd() < shared.highest_descriptor => {
                    let expected = Control { state: ControlState::Live, generation }.word();
                    let grant = Grant::new(file, grant, expected, owner, attributes.modes);
                    Ok(OpenedGrant { grant, handle: handle.to_vec(), attributes, directory, verifier })
                }
                (None, _) if !no_room => return None,
                (file, _) => {
                    drop(file);
                    shared.release(grant);
                    Err(OpenError::NoDescriptor)
                }
            };
            // If the caller is gone, the grant is dropped, and so released.
            let _ = waiter.send(answer);
            fds.next().is_none().then_some(())?;
        }
        LaneReply::Prefetched { serial, generation, verifier, files } => {
            files.iter().for_each(|_| shared.interlock.receive());
            let Waiter::Prefetch(then) = shared.outbox.lock().answered(serial)? else { return None };
            // Descriptors come in order. The last ones are missing if this process has no room for them.
            (fds.len() == files.len() || no_room && fds.len() < files.len()).then_some(())?;
            let owner = owner.upgrade();
            let expected = Control { state: ControlState::Live, generation }.word();
            let mut opened = Vec::with_capacity(fds.len());
            for file in files {
                match (fds.next(), &owner) {
                    (Some(fd), Some(owner)) if fd.as_raw_fd() < shared.highest_descriptor => {
                        let attributes = file.attributes;
                        let grant = Grant::new(fd, file.grant, expected, Arc::clone(owner), attributes.modes);
                        let handle = file.handle.to_vec();
                        let directory = None;
                        let given = OpenedGrant { grant, handle, attributes, directory, verifier };
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
        LaneReply::NotOpened { serial, status } if none => {
            let waiter = shared.outbox.lock().answered(serial)?;
            // If the caller is gone, it needs no answer.
            let _ = match waiter {
                Waiter::Open(waiter) => waiter.send(Err(OpenError::Refused(status))).is_ok(),
                Waiter::CallSocket(waiter) => waiter.send(Err(OpenError::Refused(status))).is_ok(),
                Waiter::Prefetch(_) => return None,
            };
        }
        LaneReply::CallSocket { serial } => {
            let Waiter::CallSocket(waiter) = shared.outbox.lock().answered(serial)? else { return None };
            let opened = match fds.next() {
                Some(socket) if socket.as_raw_fd() < shared.highest_descriptor => Ok(socket),
                None if !no_room => return None,
                _ => Err(OpenError::NoDescriptor),
            };
            let _ = waiter.send(opened);
            fds.next().is_none().then_some(())?;
        }
        LaneReply::Drain if none => shared.draining(),
        // The interlock has told threads with I/O already.
        LaneReply::Recall { generation } if none => {
            shared.generation.store(generation, Relaxed);
            // The state is the same: the tasks that wait for the end of a grant are woken.
            shared.state.send_modify(|_| {});
        }
        _ => return None,
    }
    Some(())
}

/// Sends releases that have waited for [`COMPANY`].
pub(super) async fn flush(shared: Arc<ClientShared>) {
    loop {
        shared.flush.notified().await;
        if *shared.state.borrow() == LaneState::Gone {
            return;
        }
        tokio::time::sleep(COMPANY).await;
        shared.flush_now();
    }
}
