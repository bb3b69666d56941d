//! Calls in the other direction: from a program to the client at the other end of a connection (in NFSv4.1 a
//! session's back channel shares the client's connections, RFC 8881 section 2.10.3.1).
//!
//! A call is queued with the replies; the reply, which comes among the client's own calls, finds by its xid
//! who waits for it. Whoever waits does so for as long as he says; a reply that comes later is nobody's.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use xdr::{Decoder, Encode, Encoder};

use super::{Verdict, connection::Connection, engine::Engine, send::Flushed};
use crate::{
    message::{CallHeader, Credential, REPLY, ReplyHeader, ReplyStatus},
    record,
};

/// The most calls of one connection that wait for their replies.
const MOST: usize = 128;

/// The longest reply, in bytes; a longer one counts as none.
const LONGEST: usize = 64 << 10;

/// Why a call to a client has no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackError {
    /// The connection has gone.
    #[error("the connection has gone")]
    Gone,
    /// Too many calls wait already, or the client doesn't read what it is sent.
    #[error("too much is on its way to the client")]
    Busy,
    /// Nothing came in time.
    #[error("no reply")]
    Silent,
    /// The client doesn't do it.
    #[error("the client refuses: {0:?}")]
    Refused(ReplyStatus),
    /// What came is no reply.
    #[error("not a reply")]
    Malformed,
}

/// What waits on one connection.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Calls so far.
    made: u32,
    /// By xid.
    open: HashMap<u32, oneshot::Sender<Vec<u8>>>,
    closed: bool,
}

impl Calls {
    /// A number for a call, and where its reply will come.
    fn begin(&self) -> Result<(u32, oneshot::Receiver<Vec<u8>>), BackError> {
        let mut waiting = self.0.lock();
        if waiting.closed {
            return Err(BackError::Gone);
        }
        if waiting.open.len() >= MOST {
            return Err(BackError::Busy);
        }
        waiting.made = waiting.made.wrapping_add(1);
        let (xid, (sender, receiver)) = (waiting.made, oneshot::channel());
        waiting.open.insert(xid, sender);
        Ok((xid, receiver))
    }

    fn forget(&self, xid: u32) {
        let _ = self.0.lock().open.remove(&xid);
    }

    /// Whether the record is a reply, and not to be run.
    pub fn is_reply(record: &[u8]) -> bool {
        record.get(4..8).is_some_and(|kind| *kind == REPLY.to_be_bytes())
    }

    /// Takes a reply. False if nobody has ever called this client: it sends what makes no sense.
    pub fn answer(&self, record: &[u8]) -> bool {
        let Some(xid) = record.first_chunk::<4>().map(|xid| u32::from_be_bytes(*xid)) else { return false };
        let mut waiting = self.0.lock();
        if record.len() <= LONGEST
            && let Some(waiter) = waiting.open.remove(&xid)
        {
            // Who doesn't wait any more has taken himself off the list, or is about to.
            let _ = waiter.send(record.to_vec());
        }
        waiting.made > 0
    }

    /// The connection has gone: nobody waits any longer.
    pub fn close(&self) {
        let mut waiting = self.0.lock();
        waiting.closed = true;
        let open = std::mem::take(&mut waiting.open);
        drop(waiting);
        drop(open);
    }
}

/// The way to the client at the other end of a connection, for as long as that stands.
#[derive(Clone)]
pub struct BackChannel {
    engine: Weak<Engine>,
    connection: u64,
}

impl BackChannel {
    pub(super) fn new(engine: &Arc<Engine>, connection: u64) -> Self {
        Self { engine: Arc::downgrade(engine), connection }
    }

    /// The number of the connection.
    #[must_use]
    pub const fn connection(&self) -> u64 {
        self.connection
    }

    /// Sends a call. Doesn't wait.
    ///
    /// # Errors
    /// [`BackError::Gone`], [`BackError::Busy`].
    pub fn call(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        credential: &Credential,
        args: &impl Encode,
    ) -> Result<Answer, BackError> {
        let engine = self.engine.upgrade().ok_or(BackError::Gone)?;
        let connection = engine.registry.get(self.connection).ok_or(BackError::Gone)?;
        if connection.verdict(&engine) == Verdict::Stranger {
            return Err(BackError::Gone); // the exports have changed
        }
        if connection.send.state().0 {
            return Err(BackError::Busy);
        }
        let (xid, receiver) = connection.back.begin()?;
        let answer = Answer { connection: Arc::clone(&connection), xid, receiver };
        let mut to = Encoder::new();
        to.u32(0);
        CallHeader::encode(&mut to, xid, program, version, procedure, credential);
        to.put(args);
        let mark = record::mark(to.position() - record::MARK).map_err(|_| BackError::Malformed)?;
        to.patch_u32(0, mark);
        let (mut bytes, mut spares) = (to.into_vec(), Vec::new());
        connection.send.push(&mut bytes, None, &mut spares);
        match connection.send.flush(&*connection, false, &mut spares) {
            Flushed::Done => Ok(answer),
            Flushed::Blocked => {
                let receive = connection.receive.lock();
                // Who drives arms it himself when he is through.
                if !receive.turn.is_driven() && !receive.closed {
                    // Fails only for a connection that is being closed.
                    let _ = connection.arm(&engine.epoll, &receive, engine.is_stopping());
                }
                drop(receive);
                engine.wake_supervisor();
                engine.reclaim_replies();
                Ok(answer)
            }
            Flushed::Broken => {
                engine.close(&connection, true);
                Err(BackError::Gone)
            }
        }
    }
}

impl std::fmt::Debug for BackChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackChannel").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// A reply to come. Dropping it forgets the call.
#[derive(Debug)]
pub struct Answer {
    connection: Arc<Connection>,
    xid: u32,
    receiver: oneshot::Receiver<Vec<u8>>,
}

impl Answer {
    /// Waits for the results, within tokio.
    ///
    /// # Errors
    /// [`BackError`].
    pub async fn results(mut self, within: Duration) -> Result<Vec<u8>, BackError> {
        let record = match tokio::time::timeout(within, &mut self.receiver).await {
            Ok(Ok(record)) => record,
            Ok(Err(_)) => return Err(BackError::Gone),
            Err(_) => return Err(BackError::Silent),
        };
        let mut from = Decoder::new(&record);
        match ReplyHeader::decode(&mut from) {
            Ok(ReplyHeader { status: ReplyStatus::Success, .. }) => Ok(from.rest().to_vec()),
            Ok(ReplyHeader { status, .. }) => Err(BackError::Refused(status)),
            Err(_) => Err(BackError::Malformed),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.back.forget(self.xid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_finds_its_call_and_nothing_else_does() {
        let calls = Calls::default();
        let reply = |xid: u32| [xid.to_be_bytes(), REPLY.to_be_bytes(), [0; 4]].concat();
        assert!(!calls.answer(&reply(1)), "nobody has called");
        let (xid, mut receiver) = calls.begin().unwrap();
        assert!(Calls::is_reply(&reply(xid)) && !Calls::is_reply(&[0; 12]) && !Calls::is_reply(&[1; 7]));
        assert!(calls.answer(&reply(xid + 1)) && receiver.try_recv().is_err());
        assert!(calls.answer(&reply(xid)));
        assert_eq!(receiver.try_recv().unwrap(), reply(xid));
        assert!(calls.answer(&reply(xid)), "late, or twice: of no use, and no harm");
        let waiters: Vec<_> = (0..MOST).map(|_| calls.begin().unwrap()).collect();
        assert_eq!(calls.begin().unwrap_err(), BackError::Busy);
        calls.forget(waiters[0].0);
        let (_, mut last) = calls.begin().unwrap();
        calls.close();
        assert!(last.try_recv().is_err());
        assert_eq!(calls.begin().unwrap_err(), BackError::Gone);
    }
}
