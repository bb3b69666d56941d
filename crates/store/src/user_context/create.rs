//! CREATE, MKDIR, SYMLINK, MKNOD and LINK.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, futimens, linkat, makedev, mkdirat, mknodat,
    openat, openat2, symlinkat,
};
use rustix::path::DecInt;

use super::context::UserContext;
use super::types::{CreateHow, SpecialFile};
use crate::attributes::{Attributes, FileKind, SetAttributes, Wcc};
use crate::error::{Error, Result};
use crate::export_tree::{PATH_ONLY, STRICT_RESOLVE};
use crate::name;
use crate::node::Node;

/// The mode of a new file if the client sends none.
const DEFAULT_FILE_MODE: u32 = 0o644;
/// The same for a directory.
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

impl UserContext<'_> {
    /// Creates a regular file, or uses an existing one as `how` allows.
    ///
    /// `Exclusive` stores the verifier in the new file's time stamps (62 of its 64 bits, because the upper
    /// bit of each half doesn't fit into all filesystems). So a retry finds its own file even after a restart
    /// of the server. The client then sets the real times with SETATTR.
    ///
    /// # Errors
    /// `Exists`, `Access`, `ReadOnly`, `NoSpace`, `Quota`, those of names, `NotDirectory`, `Stale`;
    /// `Permission` as for [`UserContext::check_set_id`].
    pub fn create(&self, dir: &Node, name: &[u8], how: &CreateHow, wcc: &mut Wcc) -> Result<Arc<Node>> {
        let (node, file) = self.create_open(dir, name, how, OFlags::WRONLY, wcc)?;
        if let Some(file) = file {
            node.data_file(true).keep(&Arc::new(file), self.store.limits.data);
        }
        Ok(node)
    }

    /// As [`UserContext::create`]; also returns the descriptor that a new file was created with, open for
    /// `access`.
    pub(super) fn create_open(
        &self,
        dir: &Node,
        name: &[u8],
        how: &CreateHow,
        access: OFlags,
        wcc: &mut Wcc,
    ) -> Result<(Arc<Node>, Option<OwnedFd>)> {
        let (mode, set) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => {
                (set.mode.unwrap_or(DEFAULT_FILE_MODE), *set)
            }
            CreateHow::Exclusive(_, mode) => (*mode, SetAttributes::default()),
        };
        let name = self.entry_name(dir, name, Error::Exists, wcc)?;
        self.changing(dir, wcc, |_| {
            self.check_set_id(FileKind::Regular, mode)?;
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | access;
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match self.with_room(|| openat2(dir.file(), &name, flags, mode, STRICT_RESOLVE)) {
                Ok(file) => Ok((self.created(dir, &name, &file, how, &set)?, Some(file))),
                Err(rustix::io::Errno::EXIST) => Ok((self.existing(dir, &name, how)?, None)),
                Err(errno) => self.gone_or(dir, Err(errno.into())),
            }
        })
    }

    /// Completes a new file.
    fn created(
        &self,
        dir: &Node,
        name: &CStr,
        file: &OwnedFd,
        how: &CreateHow,
        set: &SetAttributes,
    ) -> Result<Arc<Node>> {
        if let CreateHow::Exclusive(verifier, _) = how {
            let (atime, mtime) = verifier_times(*verifier);
            let at = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
            futimens(file, &Timestamps { last_access: at(atime), last_modification: at(mtime) })?;
        }
        let path_only = openat(
            &self.store.proc,
            DecInt::new(file.as_raw_fd()),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let node = self.adopt(dir, name, path_only)?.node;
        self.check_found(&node)?;
        // The mode was set on creation, and the size is 0.
        let rest = SetAttributes { mode: None, size: set.size.filter(|size| *size > 0), ..*set };
        self.finish(node, &rest)
    }

    fn existing(&self, dir: &Node, name: &CStr, how: &CreateHow) -> Result<Arc<Node>> {
        if let CreateHow::Guarded(_) = how {
            return Err(Error::Exists);
        }
        let node = match self.child(dir, name) {
            Err(Error::NestedExport(_)) => return Err(Error::Exists),
            found => found?,
        };
        if node.kind() != FileKind::Regular {
            return Err(Error::Exists);
        }
        let _turn = self.store.locks.enter(node.fileid());
        let status = self.live(&node)?;
        match how {
            CreateHow::Exclusive(verifier, _) if !made_with(&status.attributes, *verifier) => {
                Err(Error::Exists)
            }
            CreateHow::Unchecked(SetAttributes { size: Some(size), .. }) => {
                let only_size = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                self.apply(&node, &status, &only_size)?;
                Ok(node)
            }
            _ => Ok(node),
        }
    }

    /// Sets the attributes that couldn't be set on creation. Only root may give files away. Owner and group
    /// from other users are ignored, as in the Linux server, because some clients always send them.
    fn finish(&self, node: Arc<Node>, set: &SetAttributes) -> Result<Arc<Node>> {
        let mut set = *set;
        if !self.is_root() {
            (set.uid, set.gid) = (None, None);
        }
        if !set.is_empty() {
            self.apply(&node, &self.live(&node)?, &set)?;
        }
        Ok(node)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As for [`UserContext::create`].
    pub fn mkdir(&self, dir: &Node, name: &[u8], set: &SetAttributes, wcc: &mut Wcc) -> Result<Arc<Node>> {
        let mode = set.mode.unwrap_or(DEFAULT_DIRECTORY_MODE) & 0o7777;
        let name = self.entry_name(dir, name, Error::Exists, wcc)?;
        self.changing(dir, wcc, |_| {
            self.check_set_id(FileKind::Directory, mode)?;
            let made = mkdirat(dir.file(), &name, Mode::from_raw_mode(mode & 0o1777)).map_err(Error::from);
            self.gone_or(dir, made)?;
            let node = self.child(dir, &name)?;
            // mkdir(2) ignores set-id bits, and inherits set-gid from the parent.
            let set_id = (mode & 0o6000 != 0).then_some(mode);
            self.finish(node, &SetAttributes { mode: set_id, size: None, ..*set })
        })
    }

    /// Creates a symbolic link to `target`: 1 to 4095 bytes without NUL. Its mode can't be chosen.
    ///
    /// # Errors
    /// As for [`UserContext::create`]; `Invalid` and `NameTooLong` for the target.
    pub fn symlink(
        &self,
        dir: &Node,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
        wcc: &mut Wcc,
    ) -> Result<Arc<Node>> {
        let name = self.entry_name(dir, name, Error::Exists, wcc)?;
        self.changing(dir, wcc, |_| {
            let target = name::link_target(target)?;
            let made = symlinkat(&target, dir.file(), &name).map_err(Error::from);
            self.gone_or(dir, made)?;
            let node = self.child(dir, &name)?;
            self.finish(node, &SetAttributes { mode: None, size: None, ..*set })
        })
    }

    /// Creates a device, a socket or a pipe. Only root may create devices.
    ///
    /// # Errors
    /// As for [`UserContext::create`]; `Permission` for devices, too; `Invalid` for device numbers that Linux
    /// doesn't have.
    pub fn mknod(
        &self,
        dir: &Node,
        name: &[u8],
        what: SpecialFile,
        set: &SetAttributes,
        wcc: &mut Wcc,
    ) -> Result<Arc<Node>> {
        let (kind, device) = match what {
            SpecialFile::BlockDevice(major, minor) => (FileType::BlockDevice, device_number(major, minor)?),
            SpecialFile::CharacterDevice(major, minor) => {
                (FileType::CharacterDevice, device_number(major, minor)?)
            }
            SpecialFile::Socket => (FileType::Socket, 0),
            SpecialFile::Fifo => (FileType::Fifo, 0),
        };
        let bits = set.mode.unwrap_or(DEFAULT_FILE_MODE) & 0o7777;
        let mode = Mode::from_raw_mode(bits);
        let name = self.entry_name(dir, name, Error::Exists, wcc)?;
        self.changing(dir, wcc, |_| {
            self.check_set_id(FileKind::Fifo, bits)?;
            let made = mknodat(dir.file(), &name, kind, mode, device).map_err(Error::from);
            self.gone_or(dir, made)?;
            let node = self.child(dir, &name)?;
            self.finish(node, &SetAttributes { mode: None, size: None, ..*set })
        })
    }

    /// Creates another name for a file. This changes the node's own attributes, too, which must be asked for
    /// afterwards.
    ///
    /// # Errors
    /// As for [`UserContext::create`]; `Permission` for directories (as Linux returns) and where the kernel
    /// protects hard links, `TooManyLinks`, `CrossDevice`.
    pub fn link(&self, node: &Node, dir: &Node, name: &[u8], wcc: &mut Wcc) -> Result<()> {
        let name = self.entry_name(dir, name, Error::Exists, wcc)?;
        self.changing(dir, wcc, |_| {
            if node.kind() == FileKind::Directory {
                return Err(Error::IsDirectory);
            }
            self.live(node)?;
            let from = DecInt::new(node.file().as_raw_fd());
            let made = linkat(&self.store.proc, from, dir.file(), &name, AtFlags::SYMLINK_FOLLOW);
            self.gone_or(dir, made.map_err(Error::from))
        })
    }

    /// Checks the name of an entry. If it is invalid, fills in the directory's attributes all the same.
    pub(super) fn entry_name(
        &self,
        dir: &Node,
        name: &[u8],
        dots: Error,
        wcc: &mut Wcc,
    ) -> Result<std::ffi::CString> {
        let checked = if dir.kind() == FileKind::Directory {
            name::entry(name, dots)
        } else {
            Err(Error::NotDirectory)
        };
        checked.inspect_err(|_| {
            let attributes = self.live(dir).ok().map(|status| status.attributes);
            *wcc = Wcc { before: attributes, after: attributes };
        })
    }

    /// Opens the file with this name, without following a symbolic link.
    pub(super) fn peek(&self, dir: &Node, name: &CStr) -> Result<OwnedFd> {
        Ok(openat2(dir.file(), name, PATH_ONLY, Mode::empty(), STRICT_RESOLVE)?)
    }
}

/// mknod(2) would cut larger numbers off and make another device: Linux has 12 bits for the major number and
/// 20 for the minor one.
fn device_number(major: u32, minor: u32) -> Result<u64> {
    if major < 1 << 12 && minor < 1 << 20 { Ok(makedev(major, minor)) } else { Err(Error::Invalid) }
}

/// The verifier as access and modification time in seconds, each a non-negative 32-bit number.
fn verifier_times(verifier: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = verifier;
    (u32::from_be_bytes([e, f, g, h]) & 0x7fff_ffff, u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff)
}

fn made_with(attributes: &Attributes, verifier: [u8; 8]) -> bool {
    let (atime, mtime) = verifier_times(verifier);
    attributes.size == 0
        && attributes.atime.seconds == i64::from(atime)
        && attributes.mtime.seconds == i64::from(mtime)
        && attributes.mtime.nanoseconds == 0
        && attributes.atime.nanoseconds == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_becomes_two_times_of_31_bits() {
        assert_eq!(verifier_times([0xff; 8]), (0x7fff_ffff, 0x7fff_ffff));
        assert_eq!(verifier_times([0, 0, 0, 1, 0, 0, 0, 2]), (2, 1));
    }
}
