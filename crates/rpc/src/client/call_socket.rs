//! The client's end of a call socket: a Unix stream socket on which a server of this host runs the calls of a
//! TCP connection.
//!
//! A small call takes less time on it than over TCP, and is sent by its caller's task. Nothing is resent on
//! it, and only successful replies count: whatever else happens, the caller repeats its call over TCP under
//! the same transaction id, so that a server with a duplicate-request cache executes it once.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use xdr::Decoder;

use crate::message::{ReplyHeader, ReplyStatus};
use crate::record::{Framing, MARK};

/// The longest call, with its mark, in bytes. The kernel takes so little as a whole or not at all, so that
/// calls of several tasks don't mix.
pub(super) const MAX_CALL: usize = 8 << 10;

/// The longest reply, with its mark, in bytes. A longer one ends the socket.
const MAX_REPLY: usize = 64 << 10;

/// The client's end of a call socket. It ends when this is dropped.
#[derive(Debug)]
pub struct CallSocket {
    shared: Arc<CallSocketState>,
}

/// What the callers and the receiving task share.
#[derive(Debug)]
struct CallSocketState {
    stream: AsyncFd<OwnedFd>,
    /// The calls without a reply by transaction id; `None` once the socket has ended. Bounded by the calls
    /// that a client may have in flight.
    pending: Mutex<Option<HashMap<u32, oneshot::Sender<Vec<u8>>>>>,
    /// The server has denied a call, or receives no more.
    refuses_calls: AtomicBool,
    ended: watch::Sender<bool>,
}

/// Waits for the reply of one call.
pub(super) struct PendingReply<'a> {
    shared: &'a CallSocketState,
    xid: u32,
    reply: oneshot::Receiver<Vec<u8>>,
}

impl CallSocket {
    /// Uses a connected Unix stream socket. Must run in a tokio runtime.
    ///
    /// # Errors
    /// Those of fcntl(2) and epoll_ctl(2).
    pub fn new(stream: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        // `with_interest` is deprecated because a type may close its descriptor; an `OwnedFd` keeps it.
        // Readable only: a Unix socket also becomes writable each time the peer reads from it.
        #[allow(deprecated)]
        let stream = AsyncFd::with_interest(stream, Interest::READABLE)?;
        let shared = Arc::new(CallSocketState {
            stream,
            pending: Mutex::new(Some(HashMap::new())),
            refuses_calls: AtomicBool::new(false),
            ended: watch::Sender::new(false),
        });
        tokio::spawn(receive(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// A future that waits until the socket has ended, and doesn't keep it open.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.shared.ended.subscribe();
        async move {
            // An error means that the sender is gone, and with it the socket.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }

    /// Whether calls can be made: the socket hasn't ended, and the server has refused none.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.shared.refuses_calls.load(Relaxed) && self.shared.pending.lock().is_some()
    }

    /// Sends a call, mark included, of at most [`MAX_CALL`] bytes. `None` if the socket has ended or is full.
    pub(super) fn send(&self, xid: u32, call: &[u8]) -> Option<PendingReply<'_>> {
        let shared = &*self.shared;
        let (sender, reply) = oneshot::channel();
        shared.pending.lock().as_mut()?.insert(xid, sender);
        let pending = PendingReply { shared, xid, reply };
        let sent = loop {
            match rustix::net::send(&shared.stream, call, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        match sent {
            Ok(sent) if sent == call.len() => Some(pending),
            Err(Errno::AGAIN) => None,
            Err(_) => {
                // The replies of earlier calls may still come.
                shared.refuses_calls.store(true, Relaxed);
                None
            }
            Ok(_) => {
                shared.end();
                None
            }
        }
    }
}

impl Drop for CallSocket {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl PendingReply<'_> {
    /// The results; `None` if the server didn't execute the call or the socket has ended.
    pub(super) async fn results(&mut self) -> Option<Vec<u8>> {
        (&mut self.reply).await.ok()
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        let forgotten = self.shared.pending.lock().as_mut().and_then(|pending| pending.remove(&self.xid));
        drop(forgotten);
    }
}

impl CallSocketState {
    /// Ends the socket: every call without a reply ends.
    fn end(&self) {
        let pending = self.pending.lock().take();
        drop(pending);
        // It fails only if the server has ended the connection already. The receiving task notices it.
        let _ = rustix::net::shutdown(self.stream.as_fd(), Shutdown::Both);
        self.ended.send_replace(true);
    }

    /// Delivers a reply. One without a call is late. `None` if it is no reply at all.
    fn deliver(&self, record: &[u8]) -> Option<()> {
        let mut from = Decoder::new(record);
        let header = ReplyHeader::decode(&mut from).ok()?;
        let waiter = self.pending.lock().as_mut().and_then(|pending| pending.remove(&header.xid));
        match header.status {
            ReplyStatus::Success => {
                // If the caller is gone, it needs no reply.
                let _ = waiter.map(|waiter| waiter.send(from.rest().to_vec()));
            }
            status => {
                if matches!(status, ReplyStatus::AuthError(_)) {
                    self.refuses_calls.store(true, Relaxed);
                }
                drop(waiter);
            }
        }
        Some(())
    }

    /// Delivers the whole records at the beginning of `bytes` and returns their length; `None` for bytes that
    /// no server sends.
    fn deliver_all(&self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        while let Some((mark, behind)) = rest.split_first_chunk::<MARK>() {
            let fragment = Framing::new(MAX_REPLY - MARK).mark(*mark).ok()?;
            if !fragment.only {
                return None;
            }
            let Some((record, behind)) = behind.split_at_checked(fragment.length) else { break };
            self.deliver(record)?;
            rest = behind;
        }
        Some(bytes.len() - rest.len())
    }
}

/// Receives until the socket ends.
async fn receive(shared: Arc<CallSocketState>) {
    struct Ending(Arc<CallSocketState>);
    impl Drop for Ending {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let ending = Ending(shared);
    let shared = &*ending.0;
    let mut buffer = vec![0; MAX_REPLY];
    let mut filled = 0;
    while let Ok(mut ready) = shared.stream.readable().await {
        loop {
            let room = buffer.len() - filled;
            match rustix::net::recv(&shared.stream, &mut buffer[filled..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return,
                Ok((received, _)) => {
                    filled += received;
                    let Some(used) = shared.deliver_all(&buffer[..filled]) else {
                        tracing::debug!("the call socket's server sent what is no reply");
                        return;
                    };
                    buffer.copy_within(used..filled, 0);
                    filled -= used;
                    if received < room {
                        // The socket was empty. Later bytes wake this task again.
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return,
            }
        }
        ready.clear_ready();
    }
}
