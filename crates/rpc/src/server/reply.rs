//! A reply being built: the encoded part, and a payload that stays in its file or in memory until it is sent.

use std::{
    fmt::Debug,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use xdr::{Encode as _, Encoder};

use crate::message::{ReplyHeader, ReplyStatus};

/// Bytes in memory that another component manages. Dropping the payload gives them back.
pub trait Payload: AsRef<[u8]> + Send + Debug {}

impl<T: AsRef<[u8]> + Send + Debug> Payload for T {}

/// A file open for reading that payloads are sent from.
pub trait PayloadFile: AsFd + Send + Sync + Debug {
    /// It couldn't be read in the middle of a reply. The length was announced by then and the engine has no
    /// bytes to send, so it ends the connection. The client will repeat the call, on another one: the program
    /// has to read the file itself from now on, or this would repeat itself.
    fn failed(&self);
}

impl PayloadFile for OwnedFd {
    fn failed(&self) {}
}

/// The payload that follows the encoded part of a reply.
#[derive(Debug)]
pub enum Attachment {
    /// A part of a file.
    File(FilePart),
    /// Bytes in memory.
    Memory(Box<dyn Payload>),
}

/// A part of a file.
#[derive(Debug, Clone)]
pub struct FilePart {
    /// The file.
    pub file: Arc<dyn PayloadFile>,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes to send, whatever the file's size is by then.
    pub length: u32,
}

impl Attachment {
    /// The number of bytes to send.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::File(part) => part.length as usize,
            Self::Memory(bytes) => (**bytes).as_ref().len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Measures a call whose payload is read after its results were encoded.
#[derive(Debug, Clone, Copy)]
pub struct CallTimer {
    /// The program's own.
    pub label: u64,
    /// When the call began.
    pub began: Instant,
}

/// A reply being built.
#[derive(Debug)]
pub struct Reply {
    encoder: Encoder,
    attachment: Option<Attachment>,
    timer: Option<CallTimer>,
}

/// The offset of the results, behind the record's mark and the header.
const RESULTS: usize = crate::record::MARK + ReplyHeader::SUCCESS_LENGTH;

impl Reply {
    /// A successful reply without results, in a buffer of its own.
    #[must_use]
    pub fn new(xid: u32) -> Self {
        Self::in_buffer(Vec::new(), xid)
    }

    /// A successful reply without results, in `buffer`, whose contents are discarded.
    pub(super) fn in_buffer(mut buffer: Vec<u8>, xid: u32) -> Self {
        buffer.clear();
        let mut reply = Self { encoder: Encoder::from_vec(buffer), attachment: None, timer: None };
        reply.status(ReplyHeader { xid, status: ReplyStatus::Success });
        reply
    }

    /// Starts again with `header`.
    pub(super) fn status(&mut self, header: ReplyHeader) {
        self.attachment = None;
        self.encoder.truncate(0);
        self.encoder.u32(0); // the mark
        header.encode(&mut self.encoder);
    }

    /// The encoder for the results.
    #[inline]
    pub const fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// The results encoded so far, without the RPC header.
    #[must_use]
    pub fn results(&self) -> &[u8] {
        self.encoder.as_slice().get(RESULTS..).unwrap_or_default()
    }

    /// Appends `length` bytes of `file` from `offset` on behind the encoded part (which includes the length
    /// word, if the type has one). The engine adds XDR's padding. Exactly `length` bytes are sent: zeroes
    /// where the file has become shorter meanwhile. If they can't be read, the connection ends
    /// ([`PayloadFile::failed`]). Nothing may be encoded after this. A second attachment replaces the first.
    pub fn attach_file(&mut self, file: Arc<impl PayloadFile + 'static>, offset: u64, length: u32) {
        self.attachment = Some(Attachment::File(FilePart { file, offset, length }));
    }

    /// Appends `bytes` behind the encoded part, as [`Reply::attach_file`] does a file's. They aren't copied.
    pub fn attach_bytes(&mut self, bytes: Box<dyn Payload>) {
        self.attachment = Some(Attachment::Memory(bytes));
    }

    /// Whether a part of a file is attached.
    #[must_use]
    pub const fn has_file(&self) -> bool {
        matches!(self.attachment, Some(Attachment::File(_)))
    }

    /// Has [`Program::completed`](super::Program::completed) called once the payload is ready to be sent.
    pub const fn set_timer(&mut self, timer: CallTimer) {
        self.timer = Some(timer);
    }

    /// Takes the timer away.
    pub const fn take_timer(&mut self) -> Option<CallTimer> {
        self.timer.take()
    }

    /// The payload that follows the results.
    #[must_use]
    pub const fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// Removes the attachment if it is less than `limit` bytes of a file.
    pub(super) fn take_small_file(&mut self, limit: u32) -> Option<FilePart> {
        match self.attachment.take_if(|attached| matches!(attached, Attachment::File(p) if p.length < limit))
        {
            Some(Attachment::File(part)) => Some(part),
            _ => None,
        }
    }

    /// Writes the record's mark. False if the record would be too long.
    pub(super) fn set_mark(&mut self) -> bool {
        let attached = self.attachment.as_ref().map_or(0, Attachment::len);
        let length = self.encoder.position() - crate::record::MARK + attached + xdr::padding(attached);
        let mark = crate::record::mark(length);
        if let Ok(mark) = mark {
            self.encoder.patch_u32(0, mark);
        }
        mark.is_ok()
    }

    /// The record so far, and what follows it.
    pub(super) fn into_parts(self) -> (Vec<u8>, Option<Attachment>) {
        (self.encoder.into_vec(), self.attachment)
    }
}
