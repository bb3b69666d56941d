//! A reply in the making: the encoded part, and payload that stays in its file until it is sent.

use std::{os::fd::OwnedFd, sync::Arc};

use xdr::{Encode as _, Encoder};

use crate::message::{ReplyHeader, ReplyStatus};

/// Payload that follows the encoded part of a reply.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Where the bytes are.
    pub file: Arc<OwnedFd>,
    /// Where they start.
    pub offset: u64,
    /// How many bytes go out, whatever the file's size is by then.
    pub length: u32,
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

    /// Lets `length` bytes of `file` from `offset` on follow the encoded part (which includes the length word, if the
    /// type has one); the engine adds XDR's padding. Exactly `length` bytes are sent: where the file has become
    /// shorter meanwhile, zeroes. Nothing may be encoded after this; a second attachment replaces the first.
    pub fn attach_file(&mut self, file: Arc<OwnedFd>, offset: u64, length: u32) {
        self.attachment = Some(Attachment { file, offset, length });
    }

    /// The payload that follows the results.
    #[must_use]
    pub const fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// Takes the attachment away if it is below `limit` bytes.
    pub(super) fn take_small_attachment(&mut self, limit: u32) -> Option<Attachment> {
        self.attachment.take_if(|attachment| attachment.length < limit)
    }

    /// Writes the record's mark, now that its length is known; false if no record can be that long.
    pub(super) fn set_mark(&mut self) -> bool {
        let attached = self.attachment.as_ref().map_or(0, |attachment| attachment.length as usize);
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
