//! Callbacks: calls from a program to the client at the other end of a connection (in NFSv4.1 a session's
//! back channel shares the client's connections, RFC 8881 section 2.10.3.1).
//!
//! A callback is queued with the connection's replies and goes out with them. [`callbacks`](super::callbacks)
//! holds the callbacks that wait for their replies.

use std::sync::Weak;

use xdr::{Encode, Encoder};

use super::callbacks::{BackChannelError, CallbackReply};
use crate::{
    message::{CallHeader, Credential},
    record,
};

/// Encodes a callback's record, mark included, under the transaction id that it is given.
pub(super) type EncodeCallback<'a> = &'a dyn Fn(u32) -> Result<Vec<u8>, BackChannelError>;

/// Sends callbacks over connections by their number: the engine, as far as a back channel needs it.
pub(super) trait CallbackSender: Send + Sync {
    /// Sends one callback. Doesn't wait.
    fn send_callback(
        &self,
        connection: u64,
        encode: EncodeCallback<'_>,
    ) -> Result<CallbackReply, BackChannelError>;
}

/// The client at the other end of a connection, while that connection stands.
#[derive(Clone)]
pub struct BackChannel {
    sender: Weak<dyn CallbackSender>,
    connection: u64,
}

impl BackChannel {
    pub(super) fn new(sender: Weak<dyn CallbackSender>, connection: u64) -> Self {
        Self { sender, connection }
    }

    /// The number of the connection.
    #[must_use]
    pub const fn connection(&self) -> u64 {
        self.connection
    }

    /// Sends a call, without waiting. The returned future waits for the reply.
    ///
    /// # Errors
    /// [`BackChannelError::Gone`], [`BackChannelError::Busy`], and [`BackChannelError::Malformed`] for
    /// arguments longer than a record.
    pub fn call(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        credential: &Credential,
        args: &impl Encode,
    ) -> Result<CallbackReply, BackChannelError> {
        let sender = self.sender.upgrade().ok_or(BackChannelError::Gone)?;
        sender.send_callback(self.connection, &|xid| {
            let mut to = Encoder::new();
            to.u32(0);
            CallHeader::encode(&mut to, xid, program, version, procedure, credential);
            to.put(args);
            let length = to.position() - record::MARK;
            let mark = record::mark(length).map_err(|_| BackChannelError::Malformed)?;
            to.patch_u32(0, mark);
            Ok(to.into_vec())
        })
    }
}

impl std::fmt::Debug for BackChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackChannel").field("connection", &self.connection).finish_non_exhaustive()
    }
}
