//! The byte stream under record marking: one connected socket, read and written by server and client alike.
//!
//! A [`Transport`] owns its socket: no other code reads from it or writes to it. No operation waits: a socket
//! that isn't ready returns EAGAIN (or `Pending`), and the owner's event loop decides when to try again.
//! [`Capabilities`] tells what a transport can do beyond moving bytes. Both ends ask there, so that a
//! transport that encrypts in user space needs no change in them.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BufMut as _;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What a transport can do beside moving bytes between memory and the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// [`Transport::send_file`] moves bytes from the page cache to the peer without a copy in user space. A
    /// transport without it sends payloads from memory only.
    pub sendfile: bool,
    /// A receive that is shorter than the data that has arrived costs nothing: the rest stays in the kernel,
    /// and the next receive can put it somewhere else. So a payload can be received straight to its
    /// destination. A transport without it is read in the largest pieces that fit.
    pub placed_receive: bool,
}

/// A connected stream. `S` owns the socket: an [`OwnedFd`] where the caller polls for readiness itself (the
/// server), tokio's [`TcpStream`] where the runtime does (the client).
#[derive(Debug)]
pub struct Transport<S> {
    stream: S,
    capabilities: Capabilities,
}

impl<S: AsFd> Transport<S> {
    /// A connection without encryption, over TCP or a Unix stream socket. `stream` is non-blocking.
    pub const fn plain(stream: S) -> Self {
        Self { stream, capabilities: Capabilities { sendfile: true, placed_receive: true } }
    }

    /// What this transport can do.
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

impl<S: AsFd> AsFd for Transport<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Transport<OwnedFd> {
    /// Receives the data that has arrived, up to the length of `into`. 0 means that the peer will send no
    /// more.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when no data has arrived, and the errors of recv(2).
    pub fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match rustix::net::recv(&self.stream, &mut *into, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                other => return other.map(|(received, _)| received),
            }
        }
    }

    /// Sends as much of `slices` as the socket takes. `more` means that a file's bytes follow at once, which
    /// may then share a segment with these.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when the socket is full, and the errors of sendmsg(2).
    pub fn send(&self, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Errno> {
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, more);
        rustix::net::sendmsg(&self.stream, slices, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Sends up to `count` bytes of `file` from `offset` on, and advances `offset`. 0 means that the file
    /// ends there. Needs [`Capabilities::sendfile`].
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when the socket is full, and the errors of sendfile(2): those of the socket, those of
    /// the file, and [`Errno::INVAL`] and similar ones for a file that sendfile(2) can't read.
    pub fn send_file(&self, file: impl AsFd, offset: &mut u64, count: usize) -> Result<usize, Errno> {
        rustix::fs::sendfile(&self.stream, file, Some(offset), count)
    }

    /// Refuses further bytes from the peer. Bytes that have arrived can still be received.
    pub fn shutdown_receiving(&self) {
        // It fails only if the peer has ended the connection already.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Read);
    }

    /// Ends the connection in both directions. The socket stays open until this is dropped.
    pub fn shutdown(&self) {
        // It fails only if the peer has ended the connection already.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
    }
}

impl Transport<TcpStream> {
    /// The port of this end.
    pub fn local_port(&self) -> Option<u16> {
        self.stream.local_addr().ok().map(|address| address.port())
    }

    /// Receives the data that has arrived, up to the length of `into`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the peer will send no more, and the errors of recv(2).
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(some(buffer.filled().len()))
    }

    /// Receives at most `limit` bytes onto the end of `into`, within its capacity where that suffices.
    ///
    /// # Errors
    /// As [`Transport::poll_receive`].
    pub fn poll_append(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let mut limited = into.limit(limit);
        let received = ready!(pin!(self.stream.read_buf(&mut limited)).poll(cx))?;
        Poll::Ready(some(received))
    }

    /// Sends as much of `slices` as the socket takes.
    ///
    /// # Errors
    /// The errors of sendmsg(2).
    pub fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

fn some(received: usize) -> io::Result<usize> {
    if received == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(received) }
}
