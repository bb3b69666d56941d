//! Datagrams with descriptors over a SOCK_SEQPACKET socket.

use crate::message::MAX_MESSAGE;
use crate::request::MAX_PREFETCH;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Room for one datagram, and one byte to detect a longer one.
pub(crate) type Buffer = [u8; MAX_MESSAGE + 1];

/// The result of a receive.
pub(crate) enum Received {
    /// A datagram of this length, with descriptors if they were allowed and sent.
    Datagram {
        /// Bytes in the buffer.
        length: usize,
        /// The descriptors, in the order in which they were sent.
        fds: Vec<OwnedFd>,
        /// The sender passed more descriptors than this process has room for (RLIMIT_NOFILE).
        no_room: bool,
    },
    /// The other end has hung up.
    HangUp,
    /// A protocol violation: a datagram that is too long, or unexpected descriptors, which were closed.
    Violation(&'static str),
}

/// Sends one datagram, whole or not at all. Never waits.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PREFETCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives a datagram that may carry no descriptor. It offers no room for one, so that the kernel never adds
/// a peer's descriptors to this process's table.
pub(crate) fn receive_bytes(socket: impl AsFd, buffer: &mut Buffer, wait: bool) -> Result<Received, Errno> {
    receive(socket, buffer, &mut RecvAncillaryBuffer::default(), false, wait)
}

/// Receives a datagram that may carry descriptors, at most [`MAX_PREFETCH`].
pub(crate) fn receive_descriptors(
    socket: impl AsFd,
    buffer: &mut Buffer,
    wait: bool,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PREFETCH))];
    receive(socket, buffer, &mut RecvAncillaryBuffer::new(&mut space), true, wait)
}

fn receive(
    socket: impl AsFd,
    buffer: &mut Buffer,
    control: &mut RecvAncillaryBuffer<'_>,
    room: bool,
    wait: bool,
) -> Result<Received, Errno> {
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::DONTWAIT, !wait);
    let message = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], control, flags) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(Received::HangUp),
            Err(error) => return Err(error),
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let cut = message.flags.contains(ReturnFlags::CTRUNC);
    if message.bytes > MAX_MESSAGE || message.flags.contains(ReturnFlags::TRUNC) {
        return Ok(Received::Violation("a datagram above 8 KiB"));
    }
    if !room && (cut || !fds.is_empty()) {
        return Ok(Received::Violation("unexpected descriptors"));
    }
    if message.bytes == 0 {
        // An empty datagram looks the same. The protocol has none.
        return Ok(Received::HangUp);
    }
    Ok(Received::Datagram { length: message.bytes, fds, no_room: cut })
}

/// Registers a socket with tokio. An `OwnedFd` is what `AsyncFd` requires: it stays open, and the same, until
/// it is dropped. (`AsyncFd::with_interest` is deprecated because other types don't guarantee that, and its
/// successor is unsafe for every type; unsafe code lives in `sys` alone.)
///
/// Register for reading or writing, not both: the kernel reports a Unix socket as writable each time the
/// other end reads from it, which would wake the task twice for every Open.
#[allow(deprecated)]
pub(crate) fn watch(socket: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, interest)
}

/// Waits until there is room to send. Rare: a client has fewer requests in flight than a socket has room for.
pub(crate) async fn writable(socket: impl AsFd) -> std::io::Result<()> {
    let socket = watch(socket.as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
    socket.writable().await.map(drop)
}
