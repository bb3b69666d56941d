//! The reply to a request, exactly one: from its handler or, if that is dropped before, from the guard.

use std::sync::Arc;

use rustix::io::Errno;
use sys::fuse_queue::FuseEntry;

use crate::filesystem::{Filesystem, Outcome, UndeliveredOpen};
use crate::queues::Inbox;

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum ReplyChannel {
    Device,
    Queue(FuseEntry, Arc<Inbox>),
}

/// Ensures the reply to a request: `EINTR` if it is dropped without one.
#[derive(Debug)]
pub(crate) struct ReplyGuard {
    filesystem: Arc<Filesystem>,
    unique: u64,
    /// `None`: the reply is sent.
    channel: Option<ReplyChannel>,
}

impl ReplyGuard {
    /// Of the request with this number.
    pub(crate) const fn new(filesystem: Arc<Filesystem>, unique: u64, channel: ReplyChannel) -> Self {
        Self { filesystem, unique, channel: Some(channel) }
    }

    /// Sends the reply. An error means that the kernel doesn't wait for it any more. That isn't known for a
    /// queue: it ends with the whole connection, and then all files are closed.
    fn send(&mut self, result: Result<&[u8], Errno>) -> Result<(), Errno> {
        match self.channel.take() {
            None => Ok(()),
            Some(ReplyChannel::Device) => {
                let device = self.filesystem.device();
                match result {
                    Ok(body) => device.reply(self.unique, body),
                    Err(errno) => device.reply_error(self.unique, errno),
                }
            }
            Some(ReplyChannel::Queue(mut entry, inbox)) => {
                set_reply(&mut entry, result);
                inbox.reply(entry);
                Ok(())
            }
        }
    }

    /// Sends the reply, whether or not the kernel still waits for it.
    pub(crate) fn send_and_forget(mut self, result: Result<&[u8], Errno>) {
        let _ = self.send(result);
    }

    /// Sends the result of a handler. If the kernel didn't take the reply, it returns the file that the
    /// handler has opened.
    pub(crate) fn deliver(mut self, result: Result<Outcome, Errno>) -> Option<UndeliveredOpen> {
        match result {
            Ok(outcome) => {
                let sent = self.send(Ok(&outcome.reply.0));
                if sent.is_err() {
                    self.filesystem.return_references(&outcome);
                }
                self.filesystem.buffers().put(outcome.reply.0);
                outcome.opened.filter(|_| sent.is_err())
            }
            Err(errno) => {
                let _ = self.send(Err(errno));
                None
            }
        }
    }

    /// As [`ReplyGuard::send_and_forget`], on the thread that has received the request. That of a queue
    /// commits the returned entry, which has the reply.
    pub(crate) fn send_here(mut self, result: Result<&[u8], Errno>) -> Option<FuseEntry> {
        match self.channel.take()? {
            ReplyChannel::Queue(mut entry, _) => {
                set_reply(&mut entry, result);
                Some(entry)
            }
            device @ ReplyChannel::Device => {
                self.channel = Some(device);
                self.send_and_forget(result);
                None
            }
        }
    }

    /// The kernel wants no reply.
    pub(crate) fn without_reply(mut self) {
        self.channel = None;
    }

    /// Whether a queue's thread commits the reply.
    pub(crate) const fn is_queued(&self) -> bool {
        matches!(self.channel, Some(ReplyChannel::Queue(..)))
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        if self.channel.is_some() {
            let _ = self.send(Err(Errno::INTR));
        }
    }
}

fn set_reply(entry: &mut FuseEntry, result: Result<&[u8], Errno>) {
    match result {
        Ok(body) if body.len() <= entry.capacity() => entry.set_reply(0, body),
        // The kernel asks for no more than INIT has negotiated.
        Ok(_) => entry.set_reply(-Errno::IO.raw_os_error(), &[]),
        Err(errno) => entry.set_reply(-errno.raw_os_error(), &[]),
    }
}
