//! The callbacks of one connection that wait for their replies, by transaction id.
//!
//! A reply arrives among the client's own calls, on whichever worker drives the connection then. It wakes the
//! task that waits for it. A reply that arrives after its [`CallbackReply`] was dropped is discarded.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use xdr::Decoder;

use crate::message::{REPLY, ReplyHeader, ReplyStatus};

/// The most callbacks of one connection that wait for a reply, or whose reply isn't taken yet.
const MAX_PENDING: usize = 128;

/// The longest reply, in bytes. A longer one is discarded.
const MAX_REPLY: usize = 64 << 10;

/// Why a callback has no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackChannelError {
    /// The connection is closed.
    #[error("the connection has gone")]
    Gone,
    /// Too many callbacks wait already, or the client leaves its replies unread.
    #[error("too much is on its way to the client")]
    Busy,
    /// The client has refused the call.
    #[error("the client refuses: {0:?}")]
    Refused(ReplyStatus),
    /// The reply can't be decoded, or the call is too long for a record.
    #[error("not a reply")]
    Malformed,
}

/// The callbacks of one connection.
#[derive(Debug, Default)]
pub(super) struct PendingCallbacks(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    /// The number of callbacks so far, which is the last transaction id.
    made: u32,
    by_xid: HashMap<u32, Callback>,
    closed: bool,
}

/// A callback that was sent.
#[derive(Debug)]
enum Callback {
    /// Its reply hasn't arrived. The waker is that of the waiting task, if there is one.
    Waiting(Option<Waker>),
    /// The record of its reply.
    Replied(Vec<u8>),
}

impl PendingCallbacks {
    /// A transaction id for a callback, and its reply to come.
    pub fn begin(self: &Arc<Self>) -> Result<(u32, CallbackReply), BackChannelError> {
        let mut pending = self.0.lock();
        if pending.closed {
            return Err(BackChannelError::Gone);
        }
        if pending.by_xid.len() >= MAX_PENDING {
            return Err(BackChannelError::Busy);
        }
        pending.made = pending.made.wrapping_add(1);
        let xid = pending.made;
        pending.by_xid.insert(xid, Callback::Waiting(None));
        Ok((xid, CallbackReply { callbacks: Arc::clone(self), xid }))
    }

    /// Whether the record is a reply, which no program is called for.
    pub fn is_reply(record: &[u8]) -> bool {
        record.get(4..8).is_some_and(|kind| *kind == REPLY.to_be_bytes())
    }

    /// Takes a reply. False if no callback was ever sent on this connection: its peer breaks the protocol.
    pub fn deliver(&self, record: &[u8]) -> bool {
        let Some(xid) = record.first_chunk::<4>().map(|xid| u32::from_be_bytes(*xid)) else { return false };
        let mut pending = self.0.lock();
        let mut waker = None;
        if record.len() <= MAX_REPLY
            && let Some(callback) = pending.by_xid.get_mut(&xid)
            && let Callback::Waiting(waiting) = callback
        {
            waker = waiting.take();
            *callback = Callback::Replied(record.to_vec());
        }
        let was_called = pending.made > 0;
        drop(pending);
        waker.into_iter().for_each(Waker::wake);
        was_called
    }

    /// Notes that the connection is closed. Callbacks without a reply end with [`BackChannelError::Gone`].
    pub fn close(&self) {
        let mut pending = self.0.lock();
        pending.closed = true;
        let waiting: Vec<_> = pending
            .by_xid
            .extract_if(|_, callback| matches!(callback, Callback::Waiting(_)))
            .map(|(_, callback)| callback)
            .collect();
        drop(pending);
        for callback in waiting {
            if let Callback::Waiting(Some(waker)) = callback {
                waker.wake();
            }
        }
    }
}

/// The results of a callback, once its reply has arrived. The future sets no time limit and needs no
/// particular runtime. Dropping it forgets the callback.
///
/// # Errors
/// [`BackChannelError`].
#[derive(Debug)]
#[must_use = "dropping it forgets the callback"]
pub struct CallbackReply {
    callbacks: Arc<PendingCallbacks>,
    xid: u32,
}

impl Future for CallbackReply {
    type Output = Result<Vec<u8>, BackChannelError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut pending = self.callbacks.0.lock();
        match pending.by_xid.remove(&self.xid) {
            None => Poll::Ready(Err(BackChannelError::Gone)),
            Some(Callback::Waiting(_)) => {
                pending.by_xid.insert(self.xid, Callback::Waiting(Some(cx.waker().clone())));
                Poll::Pending
            }
            Some(Callback::Replied(record)) => Poll::Ready(results(&record)),
        }
    }
}

impl Drop for CallbackReply {
    fn drop(&mut self) {
        let forgotten = self.callbacks.0.lock().by_xid.remove(&self.xid);
        drop(forgotten); // after the lock: a waker's drop is foreign code
    }
}

fn results(record: &[u8]) -> Result<Vec<u8>, BackChannelError> {
    let mut from = Decoder::new(record);
    match ReplyHeader::decode(&mut from) {
        Ok(ReplyHeader { status: ReplyStatus::Success, .. }) => Ok(from.rest().to_vec()),
        Ok(ReplyHeader { status, .. }) => Err(BackChannelError::Refused(status)),
        Err(_) => Err(BackChannelError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use xdr::Encoder;

    use super::*;

    #[derive(Default)]
    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn reply(xid: u32) -> Vec<u8> {
        let mut to = Encoder::new();
        to.put(&ReplyHeader { xid, status: ReplyStatus::Success });
        to.u32(xid);
        to.into_vec()
    }

    fn poll(reply: &mut CallbackReply) -> Poll<Result<Vec<u8>, BackChannelError>> {
        Pin::new(reply).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_reply_finds_its_callback_by_its_transaction_id() {
        let callbacks = Arc::<PendingCallbacks>::default();
        assert!(!callbacks.deliver(&reply(1)), "no callback was made");
        let (xid, mut results) = callbacks.begin().unwrap();
        let is_reply = PendingCallbacks::is_reply;
        assert!(is_reply(&reply(xid)) && !is_reply(&[0; 12]) && !is_reply(&[1; 7]));
        assert!(callbacks.deliver(&reply(xid + 1)) && poll(&mut results).is_pending());
        assert!(
            callbacks.deliver(&reply(xid)) && callbacks.deliver(&reply(xid)),
            "a second reply is discarded"
        );
        assert_eq!(poll(&mut results), Poll::Ready(Ok(xid.to_be_bytes().to_vec())));
        assert!(callbacks.deliver(&reply(xid)), "so is a late one");
    }

    #[test]
    fn a_reply_wakes_its_task_and_so_does_the_end_of_the_connection() {
        let callbacks = Arc::<PendingCallbacks>::default();
        let wakes = Arc::<CountWakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let [(xid, mut answered), (_, mut unanswered)] =
            [callbacks.begin().unwrap(), callbacks.begin().unwrap()];
        for results in [&mut answered, &mut unanswered] {
            assert!(Pin::new(results).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        callbacks.deliver(&reply(xid));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        callbacks.close();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
        assert!(matches!(poll(&mut answered), Poll::Ready(Ok(_))), "its reply came before the end");
        assert_eq!(poll(&mut unanswered), Poll::Ready(Err(BackChannelError::Gone)));
        assert_eq!(callbacks.begin().unwrap_err(), BackChannelError::Gone);
    }

    #[test]
    fn pending_callbacks_are_bounded_and_dropping_one_makes_room() {
        let callbacks = Arc::<PendingCallbacks>::default();
        let mut pending: Vec<_> = (0..MAX_PENDING).map(|_| callbacks.begin().unwrap()).collect();
        assert_eq!(callbacks.begin().unwrap_err(), BackChannelError::Busy);
        pending.pop();
        assert!(callbacks.begin().is_ok());
    }
}
