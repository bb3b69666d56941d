//! Small files that the request which opens them also reads (NFSv4, [`OpenOptions::content`]): the kernel's
//! first READ needs no request of its own.
//!
//! The content is as new as the attributes of the same reply, or newer. A READ gets it while the file's
//! attributes are current and have the same change attribute, so it sees every change that the attributes of
//! that moment show: this mount's own at once, foreign ones within `acregmin`, and after a lock all that
//! others have written before. The first READ takes it, whether it is of use or not.
//!
//! [`OpenOptions::content`]: client::OpenOptions::content

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use client::{DataPath, FileKind};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::Filesystem;
use crate::fuse::request::{OpenArgs, ReadArgs};
use crate::inode::Inode;
use crate::open_table::OpenFile;

/// The largest file that is read when it is opened, in bytes. The session may permit less.
const MAX_CONTENT: u32 = 64 << 10;

/// The bytes of all files that were read and not asked for yet.
const MAX_BYTES: usize = 16 << 20;

/// The content of a file that was just opened.
#[derive(Debug)]
pub(crate) struct ContentAtOpen {
    data: Vec<u8>,
    _room: Room,
}

/// Bounds the content that waits for READs.
#[derive(Debug, Default)]
pub(super) struct ContentsAtOpen(Arc<AtomicUsize>);

/// Room for some content, until this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    all: Arc<AtomicUsize>,
    pub(super) len: u32,
}

impl ContentsAtOpen {
    fn reserve(&self, len: u32) -> Option<Room> {
        let add = |bytes: usize| bytes.checked_add(len as usize).filter(|sum| *sum <= MAX_BYTES);
        self.0.fetch_update(SeqCst, SeqCst, add).ok()?;
        Some(Room { all: self.0.clone(), len })
    }
}

impl Room {
    /// What an open has read, which isn't more than the room.
    pub(super) fn hold(self, data: Vec<u8>) -> Mutex<Option<ContentAtOpen>> {
        Mutex::new(Some(ContentAtOpen { data, _room: self }))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.fetch_sub(self.len as usize, SeqCst);
    }
}

impl Filesystem {
    /// Room for the content of a file that an open is to read: a small one whose data the kernel doesn't
    /// have, as far as is known.
    pub(super) fn room_for_content(&self, inode: &Inode, args: &OpenArgs) -> Option<Room> {
        let is_for_reading =
            args.read && !args.write && !args.flags.intersects(OFlags::TRUNC | OFlags::DIRECT);
        let times = &self.options.attributes;
        let is_valid_for_a_while = times.on && !times.file_min.is_zero();
        if !is_for_reading || !is_valid_for_a_while || inode.pages.was_read() {
            return None;
        }
        let attributes = inode.attributes().filter(|known| known.kind == FileKind::Regular)?;
        let len = u32::try_from(attributes.size).ok().filter(|len| (1..=MAX_CONTENT).contains(len))?;
        self.contents.reserve(len)
    }

    /// The reply to a READ from what its open has read.
    pub(super) fn read_content(&self, open: &OpenFile, args: &ReadArgs, now: Instant) -> Option<Vec<u8>> {
        let ContentAtOpen { mut data, .. } = open.content.lock().take()?;
        let change = open.file.attributes_at_open()?.change;
        let is_current = {
            let state = open.inode.lock();
            let is_same = state.attributes.get().is_some_and(|known| known.change == change);
            is_same
                && state.attributes.is_current(now, &self.options.attributes)
                && !state.opens.has_kernel_writer()
        };
        if !is_current || open.file.data_path() != DataPath::Wire || args.flags.contains(OFlags::DIRECT) {
            return None;
        }
        let start = usize::try_from(args.offset).map_or(data.len(), |offset| offset.min(data.len()));
        data.drain(..start);
        data.truncate(args.size as usize);
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let contents = ContentsAtOpen::default();
        let held: Vec<_> = std::iter::from_fn(|| contents.reserve(MAX_CONTENT)).collect();
        assert_eq!(held.len() * MAX_CONTENT as usize, MAX_BYTES);
        assert!(contents.reserve(1).is_none());
        let kept = held.into_iter().map(|room| room.hold(Vec::new())).collect::<Vec<_>>();
        assert!(contents.reserve(1).is_none());
        drop(kept);
        assert!(contents.reserve(MAX_BYTES as u32).is_some());
    }
}
