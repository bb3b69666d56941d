//! READDIR and READDIRPLUS.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{Access as Rights, FileType, OFlags, RawDir, SeekFrom, seek};
use rustix::io::Errno;
use sys::KernelHandle;

use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, LocalTree};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{DirEntry, FileKind, Found, Page, Plus};

/// The limits of the buffer for getdents64(2) in bytes. A page ends where the kernel has filled it, so that
/// the open directory's position is the page's end.
const MIN_BUFFER: usize = 1 << 10;
const MAX_BUFFER: usize = 32 << 10;

/// The bytes of an entry of READDIR or READDIRPLUS beside its name (RFC 1813 section 3.3.16), at least.
const ENTRY_SIZE: usize = 24;
const ENTRY_PLUS_SIZE: usize = ENTRY_SIZE + 88 + 48;

impl LocalTree {
    /// The entries behind a cookie, as [`crate::operations::Operations::read_dir_page`]. The page may exceed
    /// `count` by what the kernel returns at once.
    pub(crate) fn read_dir_page(
        &self,
        call: Call<'_>,
        directory: &Handle,
        (cookie, verifier): (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        call.check_waits()?;
        let asked = Instant::now();
        let at = self.find(call, directory)?;
        let attributes = self.live(&at)?;
        if attributes.kind != FileKind::Directory {
            return Err(Status::NotDirectory.into());
        }
        let identity = directory.identity();
        let ours = self.open_dirs.verifier(identity, &attributes);
        if cookie != 0 && !self.open_dirs.is_own(verifier, ours) {
            // A listing that began on the wire goes on there.
            return Err(Failure::NotLocal);
        }
        self.report(directory, None, Some(attributes), asked);
        let is_current = cookie == 0 || verifier == ours;
        let file = self.open_dir(&at, identity, cookie, is_current)?;
        let mut page = Page { verifier: if is_current { ours } else { verifier }, ..Page::default() };
        let (mut reached, root) = (cookie, attributes.fileid);
        {
            // An entry with attributes is some four times as long as the kernel's.
            let share = if plus.is_wanted() { 4 } else { 1 };
            let mut buffer = Vec::with_capacity((count as usize / share).clamp(MIN_BUFFER, MAX_BUFFER));
            let mut entries = RawDir::new(file.as_fd(), buffer.spare_capacity_mut());
            let mut size = 0;
            page.eof = loop {
                if size >= count as usize && entries.is_buffer_empty() {
                    break false;
                }
                let Some(entry) = entries.next() else { break true };
                let entry = entry.map_err(|errno| match errno {
                    // Linux returns this for a directory that was removed while open.
                    Errno::NOENT => Failure::from(Status::Stale),
                    errno => errno.into(),
                })?;
                let name = entry.file_name();
                let is_dots = matches!(name.to_bytes(), b"." | b"..");
                // What is above the tree's root isn't shown.
                let is_above = *identity == *self.root.identity && name.to_bytes() == b"..";
                let kind = kind(entry.file_type());
                let is_wanted = !is_dots && plus.includes(name.to_bytes(), entry.ino(), kind);
                let found = if is_wanted { self.listed(call, (&at, directory), name) } else { None };
                if let Some(found) = &found {
                    self.report_found(found, asked);
                }
                let entry_size = if is_wanted { ENTRY_PLUS_SIZE } else { ENTRY_SIZE };
                let (handle, attributes) = match found {
                    Some(found) => (Some(found.handle), found.attributes),
                    None if is_dots || is_wanted => (None, None),
                    None if matches!(plus, Plus::Attributes) => (None, self.attributes_at(&at, name).ok()),
                    None => (None, None),
                };
                reached = entry.next_entry_cookie();
                size += name.to_bytes().len() + entry_size;
                page.entries.push(DirEntry {
                    name: name.to_bytes().to_vec(),
                    fileid: if is_above { root } else { entry.ino() },
                    cookie: reached,
                    kind: attributes.map_or(kind, |found| Some(found.kind)),
                    handle,
                    attributes,
                    acls: None,
                });
            };
        }
        if !page.eof {
            self.open_dirs.put(identity, reached, file);
        }
        Ok(page)
    }

    /// The directory open for reading at the cookie. If `is_current`, the cookie is valid for any open
    /// directory.
    fn open_dir(
        &self,
        directory: &Descriptor,
        identity: &[u8],
        cookie: u64,
        is_current: bool,
    ) -> Result<OwnedFd> {
        let kept = if cookie == 0 { None } else { self.open_dirs.take(identity, cookie) };
        if let Some(file) = kept {
            // It may have been opened by another user.
            sys::empty_path::access(directory, Rights::READ_OK)?;
            return Ok(file);
        }
        if !is_current {
            return Err(Status::BadCookie.into());
        }
        let file = self.open_again(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if cookie != 0 {
            seek(&file, SeekFrom::Start(cookie)).map_err(|_| Failure::from(Status::BadCookie))?;
        }
        Ok(file)
    }

    /// An entry that was listed; `None` if it is gone, or can't be looked up.
    fn listed(&self, call: Call<'_>, directory: (&Descriptor, &Handle), name: &CStr) -> Option<Found> {
        if self.descriptors.has_room() {
            let entry = self.entry(call, directory, name).ok()?;
            return Some(Found { handle: entry.handle, attributes: Some(entry.attributes) });
        }
        // A large directory doesn't displace what is in use.
        let file = self.open_path(call, directory.0, name).ok()?;
        let attributes = self.attributes_of(&file).ok()?;
        let kernel = KernelHandle::of(&file, c"").ok()?;
        let handle = self.handle(&self.identity(&kernel).ok()?, directory.1, name).ok()?;
        Some(Found { handle, attributes: Some(attributes) })
    }
}

/// The type in an entry of getdents64(2). Some filesystems don't keep it there.
const fn kind(of: FileType) -> Option<FileKind> {
    Some(match of {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::Character,
        FileType::BlockDevice => FileKind::Block,
        FileType::Unknown => return None,
    })
}
