//! A reply in the making: the encoded part, and payload that stays where it is, in its file or in memory,
//! until it is sent.

use std::{fmt::Debug, os::fd::OwnedFd, sync::Arc};

use xdr::{Encode as _, Encoder};

use crate::message::{ReplyHeader, ReplyStatus};

/// Bytes in memory that somebody else manages; they are given back by being dropped.
pub trait Payload: AsRef<[u8]> + Send + Debug {}

impl<T: AsRef<[u8]> + Send + Debug> Payload for T {}

/// Payload that follows the encoded part of a reply.
#[derive(Debug)]
pub enum Attachment {
    /// In a file.
    File(FilePart),
    /// In memory.
    Memory(Box<dyn Payload>),
}

/// A part of a file.
#[derive(Debug, Clone)]
pub struct FilePart {
    /// Where the bytes are.
    pub file: Arc<OwnedFd>,
    /// Where they start.
    pub offset: u64,
    /// How many bytes go out, whatever the file's size is by then.
    pub length: u32,
}

impl Attachment {
    /// How many bytes go out.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::File(part) => part.length as usize,
            Self::Memory(bytes) => (**bytes).as_ref().len(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reply in the making.
#[derive(Debug)]
pub struct Reply {
    encoder: Encoder,
    attachment: Option<Attachment>,
}

/// Where the results start: behind the record's mark and the header.
const RESULTS: usize = crate::record::MARK + ReplyHeader::SUCCESS_LENGTH;

impl Reply {
    /// A successful reply without results, in a buffer of its own.
    #[must_use]
    pub fn new(xid: u32) -> Self {
        Self::in_buffer(Vec::new(), xid)
    }

    /// Uses `buffer`, whatever it holds.
    pub(super) fn in_buffer(mut buffer: Vec<u8>, xid: u32) -> Self {
        buffer.clear();
        let mut reply = Self { encoder: Encoder::from_vec(buffer), attachment: None };
        reply.status(ReplyHeader { xid, status: ReplyStatus::Success });
        reply
    }

    /// Starts anew with `header`.
    pub(super) fn status(&mut self, header: ReplyHeader) {
        self.attachment = None;
        self.encoder.truncate(0);
        self.encoder.u32(0); // the mark
        header.encode(&mut self.encoder);
    }

    /// Where the results go.
    #[inline]
    pub const fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// The results encoded so far, without the RPC header.
    #[must_use]
    pub fn results(&self) -> &[u8] {
        self.encoder.as_slice().get(RESULTS..).unwrap_or_default()
    }

    /// Lets `length` bytes of `file` from `offset` on follow the encoded part (which includes the length
    /// word, if the type has one); the engine adds XDR's padding. Exactly `length` bytes are sent: where the
    /// file has become shorter meanwhile, zeroes. Nothing may be encoded after this; a second attachment
    /// replaces the first.
    pub fn attach_file(&mut self, file: Arc<OwnedFd>, offset: u64, length: u32) {
        self.attachment = Some(Attachment::File(FilePart { file, offset, length }));
    }

    /// Lets `bytes` follow the encoded part, as [`Reply::attach_file`] does a file's; they aren't copied.
    pub fn attach_bytes(&mut self, bytes: Box<dyn Payload>) {
        self.attachment = Some(Attachment::Memory(bytes));
    }

    /// The payload that follows the results.
    #[must_use]
    pub const fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// Takes the attachment away if it is less than `limit` bytes of a file.
    pub(super) fn take_small_file(&mut self, limit: u32) -> Option<FilePart> {
        match self.attachment.take_if(|attached| matches!(attached, Attachment::File(p) if p.length < limit))
        {
            Some(Attachment::File(part)) => Some(part),
            _ => None,
        }
    }

    /// Writes the record's mark, now that its length is known; false if no record can be that long.
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
