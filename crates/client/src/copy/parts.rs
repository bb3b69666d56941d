//! The data and the holes of a source.
//!
//! They are searched for while the copy goes on, each just before it is needed. What is written into a hole
//! after that may be missed, as by cp(1).

use std::ops::Range;

use super::end::{End, Request};
use crate::error::Result;
use crate::types::SeekTo;

/// How many bytes of a source need no space before its holes are searched for. Each search is a request.
const MIN_HOLES: u64 = 64 << 10;

/// The bytes that are copied where a hole is found at the beginning of data. It has been made since the data
/// was found. Each search must get ahead, also if a server answers so every time.
const VANISHED: u64 = 64 << 10;

/// How much data with short holes is one part, so that a copy begins before all of them are found.
const MAX_JOINED: u64 = 16 << 20;

/// What is known of a source before it is copied.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The size in bytes.
    pub size: u64,
    /// Whether its holes are searched for and kept.
    keeps_holes: bool,
}

impl Shape {
    /// The shape of `from` for a copy to `to`. Holes are kept if the source looks sparse, and the target has
    /// zeros where nothing is written.
    pub async fn new(from: &End, to: &End) -> Result<Self> {
        let (size, used) = from.size_and_used().await?;
        let is_sparse = size.saturating_sub(used) >= MIN_HOLES;
        Ok(Self { size, keeps_holes: is_sparse && to.is_empty_file().await? })
    }
}

/// A part of the source.
pub(super) enum Part {
    /// Data to be copied. The last part is data without an end: it ends where the source does then.
    Data(Range<u64>),
    /// Zeros that need no space.
    Hole(Range<u64>),
}

/// The parts of a source, in their order and without gaps.
pub(super) struct Parts {
    from: End,
    shape: Shape,
    /// The end of the last part.
    at: u64,
    /// Whether data was found at `at`.
    is_at_data: bool,
    ended: bool,
    /// Shorter holes between data are copied with it.
    min_hole: u64,
}

impl Parts {
    pub fn new(from: &End, shape: Shape, min_hole: u64) -> Self {
        Self { from: from.clone(), shape, at: 0, is_at_data: false, ended: false, min_hole }
    }

    pub async fn next(&mut self) -> Result<Option<Part>> {
        if self.ended {
            return Ok(None);
        }
        if !self.is_at_data && self.is_searching() {
            let (end, is_data) = match self.search(SeekTo::Data, self.at).await {
                Some(data) => (data, true),
                // The source may have become shorter, and then the hole is, too.
                None if self.is_searching() => (self.from.size().await?.min(self.shape.size), false),
                None => (self.at, false),
            };
            self.is_at_data = is_data;
            if end > self.at {
                return Ok(Some(Part::Hole(self.advance(end))));
            }
        }
        if self.is_at_data && self.is_searching() {
            self.is_at_data = false;
            if let Some(end) = self.data_end().await {
                return Ok(Some(Part::Data(self.advance(end))));
            }
        }
        self.ended = true;
        Ok(Some(Part::Data(self.advance(u64::MAX))))
    }

    /// The end of the part that begins with data at `at`. `None` if no hole follows.
    async fn data_end(&mut self) -> Option<u64> {
        let mut end = self.at;
        while end - self.at < MAX_JOINED {
            let found = self.search(SeekTo::Hole, end).await?;
            let hole = if found > end { found } else { end.saturating_add(VANISHED).min(self.shape.size) };
            if self.min_hole == 0 {
                return Some(hole);
            }
            match self.search(SeekTo::Data, hole).await {
                Some(data) if data.saturating_sub(hole) < self.min_hole => end = data.max(hole),
                _ => return Some(hole),
            }
        }
        self.is_at_data = true;
        Some(end)
    }

    fn is_searching(&self) -> bool {
        self.shape.keeps_holes && self.at < self.shape.size
    }

    /// Searches what the source had at the beginning, from an offset on. A search that fails is the last one:
    /// the copy can do without, and if the source can't be read at all, that is the error to report.
    async fn search(&mut self, to: SeekTo, offset: u64) -> Option<u64> {
        match self.from.seek(to, offset).await {
            Ok(found) => found.filter(|found| *found < self.shape.size),
            Err(error) => {
                tracing::debug!(%error, "holes of the source are copied from here on");
                self.shape.keeps_holes = false;
                None
            }
        }
    }

    fn advance(&mut self, end: u64) -> Range<u64> {
        std::mem::replace(&mut self.at, end)..end
    }
}

/// What is done with the source, one step after the other or several at once.
pub(super) enum TransferStep {
    Copy(Request),
    Skip(Range<u64>),
}

/// The steps of a copy in chunks.
pub(super) struct TransferSteps {
    parts: Parts,
    chunk: usize,
    /// What is left of the last part with data.
    data: Range<u64>,
}

impl TransferSteps {
    pub fn new(parts: Parts, chunk: usize) -> Self {
        Self { parts, chunk, data: 0..0 }
    }

    pub async fn next(&mut self) -> Result<Option<TransferStep>> {
        if self.data.is_empty() {
            match self.parts.next().await? {
                Some(Part::Data(data)) => self.data = data,
                Some(Part::Hole(hole)) => return Ok(Some(TransferStep::Skip(hole))),
                None => return Ok(None),
            }
        }
        let Range { start: offset, end } = self.data;
        let size = self.parts.shape.size;
        let left = end.min(size).saturating_sub(offset);
        let expected = usize::try_from(left).map_or(self.chunk, |left| left.min(self.chunk));
        let len = if end > size { self.chunk.min(expected.saturating_add(1)) } else { expected };
        self.data.start = if expected < self.chunk { end } else { offset + expected as u64 };
        Ok(Some(TransferStep::Copy(Request { offset, expected, len })))
    }
}
