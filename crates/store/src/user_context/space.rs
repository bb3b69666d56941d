//! A file's space, and copies within the filesystem, by the kernel's own calls: fallocate(2), lseek(2)'s
//! `SEEK_DATA` and `SEEK_HOLE`, copy_file_range(2), `FICLONERANGE`. What they change is durable when they
//! return, unless the store makes no promises.

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

/// How much one copy_file_range(2) is asked for, in bytes: between two the copy can be seen to go on.
const COPY_STEP: u64 = 64 << 20;

/// What [`UserContext::seek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataContent {
    /// The next byte that is data.
    Data,
    /// The next byte that isn't; the end of the file counts as one.
    Hole,
}

/// A stretch of a file that is all data or all hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Which.
    pub what: DataContent,
    /// Where it begins.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
}

impl UserContext<'_> {
    /// Reserves space for `length` bytes from `offset`, so that writing them can't fail for want of it; the
    /// file grows if it ends before.
    ///
    /// # Errors
    /// `NotSupported` by the filesystem, `NoSpace`, `FileTooLarge`, `Invalid` for a length of 0, what
    /// [`UserContext::may`] says.
    pub fn allocate(&self, node: &Node, offset: u64, length: u64, wcc: &mut Wcc) -> Result<()> {
        self.reshape(node, offset, length, FallocateFlags::empty(), wcc)
    }

    /// Makes a hole of `length` bytes from `offset`; the file keeps its size.
    ///
    /// # Errors
    /// As for [`UserContext::allocate`].
    pub fn deallocate(&self, node: &Node, offset: u64, length: u64, wcc: &mut Wcc) -> Result<()> {
        // Beyond the end there is nothing to free, and the kernel wants an end that it can count to.
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

    /// Where the next data or hole at or behind `offset` is; `None` if there is no data any more.
    ///
    /// # Errors
    /// `NoDevice` for an offset at or behind the end, what [`UserContext::may`] says.
    pub fn seek(&self, node: &Node, offset: u64, what: DataContent) -> Result<Option<u64>> {
        let status = self.live(node)?;
        self.file_for(node, &status, AccessMode::Read)?;
        if offset >= status.attributes.size {
            return Err(Error::NoDevice);
        }
        // Nobody reads or writes at its offset.
        let file = self.open_to_look(node)?;
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

    /// What of `count` bytes from `offset` is data and what holes, up to the end of the file and in at most
    /// `most` stretches; and whether they reach the end.
    ///
    /// # Errors
    /// What [`UserContext::may`] says.
    pub fn extents(&self, node: &Node, offset: u64, count: u64, most: usize) -> Result<(Vec<Extent>, bool)> {
        let status = self.live(node)?;
        self.file_for(node, &status, AccessMode::Read)?;
        let size = status.attributes.size;
        let end = offset.saturating_add(count).min(size);
        // Nobody reads or writes at its offset.
        let file = self.open_to_look(node)?;
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
            // Should somebody have made a hole just here, it is read as zeros.
            let hole = seek(&file, SeekFrom::Hole(at))
                .map_or(end, |hole| if hole > at { hole.min(end) } else { end });
            extents.push(Extent { what: DataContent::Data, offset: at, length: hole - at });
            at = hole;
        }
        Ok((extents, at >= size))
    }

    /// Copies up to `count` bytes (0: to the end of the source) within the filesystem; how many were copied.
    /// Fewer are the source's end, or the filesystem took no more.
    ///
    /// # Errors
    /// `Invalid` for overlapping ranges of one file, `CrossDevice`, `FileTooLarge`, `NoSpace`, what
    /// [`UserContext::may`] says of both.
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

    /// Lets a range of one file share the other's blocks (0: to the end of the source).
    ///
    /// # Errors
    /// `NotSupported` by the filesystem, `Invalid` for ranges that aren't aligned to its blocks or overlap,
    /// what [`UserContext::may`] says of both.
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

    /// The descriptor for what `mode` asks, once it has been checked.
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

    /// Makes a change durable.
    fn settle(&self, node: &Node, file: &OwnedFd) -> Result<()> {
        if !self.promises {
            return Ok(());
        }
        let all = Stability::FileSync;
        node.syncs().whole(all, || self.store.sync_whole(node, file, all))
    }
}
