//! Space allocation and copies within the filesystem, by fallocate(2), lseek(2) with `SEEK_DATA` and
//! `SEEK_HOLE`, copy_file_range(2) and `FICLONERANGE`. Changes are durable on return, unless the context has
//! asynchronous writes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ::io::{MAX_OFFSET, Stability};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use super::context::UserContext;
use super::types::AccessMode;
use crate::attributes::{FileKind, Wcc};
use crate::error::{Error, Result};
use crate::node::Node;

/// Bytes per copy_file_range(2), so that a long copy is interruptible.
const COPY_STEP: u64 = 64 << 20;

/// What a part of a file contains (RFC 7862, `data_content4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataContent {
    /// Data.
    Data,
    /// A hole, which reads as zeros. The end of the file counts as one.
    Hole,
}

/// A range of a file that is all data or all hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Which.
    pub what: DataContent,
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

impl UserContext<'_> {
    /// Reserves space for `length` bytes from `offset`, so that writing them can't fail for lack of space.
    /// Extends the file if it ends before.
    ///
    /// # Errors
    /// `NotSupported` by the filesystem, `NoSpace`, `FileTooLarge`, `Invalid` for a length of 0, those of
    /// [`UserContext::may`].
    pub fn allocate(&self, node: &Node, offset: u64, length: u64, wcc: &mut Wcc) -> Result<()> {
        self.reshape(node, offset, length, FallocateFlags::empty(), wcc)
    }

    /// Makes a hole of `length` bytes from `offset`; the file keeps its size.
    ///
    /// # Errors
    /// As for [`UserContext::allocate`].
    pub fn deallocate(&self, node: &Node, offset: u64, length: u64, wcc: &mut Wcc) -> Result<()> {
        // There is nothing to free beyond the end, and the kernel rejects ranges that end beyond the largest
        // offset.
        let length = length.min(MAX_OFFSET.saturating_sub(offset));
        let punch = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
        self.reshape(node, offset, length, punch, wcc)
    }

    fn reshape(
        &self,
        node: &Node,
        offset: u64,
        length: u64,
        how: FallocateFlags,
        wcc: &mut Wcc,
    ) -> Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > MAX_OFFSET) {
            return Err(Error::FileTooLarge);
        }
        self.changing(node, wcc, |before| {
            let file = self.file_for(node, before, AccessMode::Write)?;
            match fallocate(&*file, how, offset, length) {
                Err(Errno::NODEV | Errno::OPNOTSUPP) => return Err(Error::NotSupported),
                other => other?,
            }
            self.settle(node, &file)
        })
    }

    /// The offset of the next data or hole at or after `offset`; `None` if there is no more data.
    ///
    /// # Errors
    /// `NoDevice` for an offset at or beyond the end, those of [`UserContext::may`].
    pub fn seek(&self, node: &Node, offset: u64, what: DataContent) -> Result<Option<u64>> {
        let status = self.live(node)?;
        self.file_for(node, &status, AccessMode::Read)?;
        if offset >= status.attributes.size {
            return Err(Error::NoDevice);
        }
        // A description of its own, because seeking moves its offset.
        let file = self.open_for_inspection(node)?;
        let from = match what {
            DataContent::Data => SeekFrom::Data(offset),
            DataContent::Hole => SeekFrom::Hole(offset),
        };
        match seek(&file, from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The extents of `count` bytes from `offset`, up to the end of the file and at most `most` of them, and
    /// whether they reach the end.
    ///
    /// # Errors
    /// Those of [`UserContext::may`].
    pub fn extents(&self, node: &Node, offset: u64, count: u64, most: usize) -> Result<(Vec<Extent>, bool)> {
        let status = self.live(node)?;
        self.file_for(node, &status, AccessMode::Read)?;
        let size = status.attributes.size;
        let end = offset.saturating_add(count).min(size);
        // A description of its own, because seeking moves its offset.
        let file = self.open_for_inspection(node)?;
        let (mut at, mut extents) = (offset, Vec::new());
        while at < end && extents.len() < most {
            let data = match seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data.min(end),
                // No more data.
                Err(Errno::NXIO) => end,
                Err(errno) => return Err(errno.into()),
            };
            if data > at {
                extents.push(Extent { what: DataContent::Hole, offset: at, length: data - at });
                at = data;
                continue;
            }
            // If a process has just punched a hole here, it is read as zeros.
            let hole = seek(&file, SeekFrom::Hole(at))
                .map_or(end, |hole| if hole > at { hole.min(end) } else { end });
            extents.push(Extent { what: DataContent::Data, offset: at, length: hole - at });
            at = hole;
        }
        Ok((extents, at >= size))
    }

    /// Copies up to `count` bytes (0: to the end of the source) within the filesystem and returns how many
    /// were copied. Fewer mean the end of the source, or that the filesystem took no more.
    ///
    /// # Errors
    /// `Invalid` for overlapping ranges of one file, `CrossDevice`, `FileTooLarge`, `NoSpace`, those of
    /// [`UserContext::may`] for both.
    pub fn copy_range(
        &self,
        (source, from): (&Node, u64),
        (target, to): (&Node, u64),
        count: u64,
        wcc: &mut Wcc,
    ) -> Result<u64> {
        let source_status = self.live(source)?;
        let input = self.file_for(source, &source_status, AccessMode::Read)?;
        let available = source_status.attributes.size.saturating_sub(from);
        let count = if count == 0 { available } else { count.min(available) };
        if to.checked_add(count).is_none_or(|end| end > MAX_OFFSET) {
            return Err(Error::FileTooLarge);
        }
        self.overlapping(target, wcc, |before| {
            let output = self.file_for(target, before, AccessMode::Write)?;
            let mut done = 0;
            while done < count {
                let step = usize::try_from((count - done).min(COPY_STEP)).unwrap_or(usize::MAX);
                let (mut reading, mut writing) = (from + done, to + done);
                match copy_file_range(&*input, Some(&mut reading), &*output, Some(&mut writing), step) {
                    Ok(0) => break,
                    Ok(some) => done += some as u64,
                    Err(Errno::INTR) => {}
                    Err(_) if done > 0 => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
            self.settle(target, &output)?;
            Ok(done)
        })
    }

    /// Makes a range of one file share the other's blocks (0: to the end of the source).
    ///
    /// # Errors
    /// `NotSupported` by the filesystem, `Invalid` for ranges that aren't aligned to its blocks or overlap,
    /// those of [`UserContext::may`] for both.
    pub fn clone_range(
        &self,
        (source, from): (&Node, u64),
        (target, to): (&Node, u64),
        count: u64,
        wcc: &mut Wcc,
    ) -> Result<()> {
        let status = self.live(source)?;
        let input = self.file_for(source, &status, AccessMode::Read)?;
        self.changing(target, wcc, |before| {
            let output = self.file_for(target, before, AccessMode::Write)?;
            match sys::clone_range(&*output, to, &*input, from, count) {
                Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => return Err(Error::NotSupported),
                other => other?,
            }
            self.settle(target, &output)
        })
    }

    /// Checks permission, and returns the descriptor for `mode`.
    fn file_for(
        &self,
        node: &Node,
        status: &crate::attributes::FileStatus,
        mode: AccessMode,
    ) -> Result<Arc<OwnedFd>> {
        match node.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        self.check(node, status, mode)?;
        self.data_file(node, mode == AccessMode::Write)
    }

    /// Makes a change durable, unless writes are asynchronous.
    fn settle(&self, node: &Node, file: &OwnedFd) -> Result<()> {
        if !self.promises {
            return Ok(());
        }
        let all = Stability::FileSync;
        node.syncs().whole(all, || self.store.sync_whole(node, file, all))
    }
}
