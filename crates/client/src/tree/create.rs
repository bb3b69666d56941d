//! CREATE, MKDIR, SYMLINK and MKNOD.
//!
//! A file gets exactly the requested mode, less what a default access control list takes away, as on the
//! server, whose umask is 0. This process's umask belongs to its application. If it has taken bits away, a
//! chmod(2) adds them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{FileType, Mode, OFlags, makedev, mkdirat, mknodat, openat2, symlinkat};
use rustix::io::Errno;
use sys::KernelHandle;
use user_ids::with_set_id_kept;

use super::attributes::S_ISGID;
use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, Entry, LocalTree, STRICT_RESOLVE, entry_name};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{Attributes, Create, FileKind, Found, Node, SetAttributes};

/// The server's modes of new files and directories if the client sends none.
const DEFAULT_FILE_MODE: u32 = 0o644;
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// A mode bit: the group may run the program.
const S_IXGRP: u32 = 0o010;

/// The longest target of a symbolic link in bytes (`PATH_MAX` without the NUL).
const MAX_TARGET: usize = 4095;

/// How often the creation of a file is tried while others make and remove its name.
pub(super) const MAX_ATTEMPTS: usize = 8;

/// The result of creating a file.
pub(super) enum Created {
    /// A new file, with the descriptor that it was created with.
    New {
        /// `None`: the file is there, but something kept its handle from being known.
        found: Option<Found>,
        file: OwnedFd,
    },
    /// What has the name already, of any type. It is unchanged.
    Existing(Entry),
}

impl LocalTree {
    pub(crate) fn create(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        how: &Create,
    ) -> Result<Option<Found>> {
        let asked = Instant::now();
        let Entry { file, handle, mut attributes } =
            match self.create_open(call, directory, name, how, OFlags::WRONLY)? {
                Created::New { found, .. } => return Ok(found),
                Created::Existing(entry) => entry,
            };
        if attributes.kind != FileKind::Regular {
            return Err(Status::Exists.into());
        }
        if let Create::Unchecked(SetAttributes { size: size @ Some(_), .. }) = how {
            let only_size = SetAttributes { size: *size, ..SetAttributes::default() };
            self.apply(call, file.as_fd(), None, &attributes, &only_size)?;
            attributes = self.live(&file).map_err(Failure::after_change)?;
        }
        let found = Found { handle, attributes: Some(attributes) };
        self.report_found(&found, asked);
        Ok(Some(found))
    }

    /// Creates a file and opens it for `access`, or finds what has the name, if `how` allows that.
    pub(super) fn create_open(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        how: &Create,
        access: OFlags,
    ) -> Result<Created> {
        call.check_waits()?;
        let (asked, name) = (Instant::now(), entry_name(name)?);
        let set = match how {
            Create::Unchecked(set) | Create::Guarded(set) => *set,
            // The mode follows in a SETATTR. Nothing repeats a local call, so no verifier is needed.
            Create::Exclusive { .. } => SetAttributes { mode: Some(0), ..SetAttributes::default() },
        };
        let asked_mode = set.mode.unwrap_or(DEFAULT_FILE_MODE) & 0o7777;
        // Exclusively, so that the kernel opens nothing that exists: it would wait for a pipe's other end,
        // and begin what a device does when it is opened.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | access;
        let created = self.changing_names(call, directory, |at| {
            if keeps_set_gid(asked_mode) && loses_set_gid(call, &self.live(at)?) {
                return Err(Failure::NotLocal);
            }
            let mode = self.masked(call, at.as_fd(), asked_mode)?;
            let open = || openat2(&**at, &name, flags, Mode::from_raw_mode(mode), STRICT_RESOLVE);
            // The kernel leaves set-gid out unless the thread may set it.
            let keep = call.is_root() && mode & S_ISGID != 0;
            for _ in 0..MAX_ATTEMPTS {
                match with_set_id_kept(keep, || self.with_room(open)) {
                    Ok(file) => {
                        let found = self
                            .complete_file(call, (at, directory), &name, &file, (mode, &set))
                            .map_err(Failure::after_change)?;
                        return Ok(Created::New { found, file });
                    }
                    Err(Errno::EXIST) if !matches!(how, Create::Unchecked(_)) => {
                        return Err(Status::Exists.into());
                    }
                    Err(Errno::EXIST) => match self.entry(call, (at, directory), &name) {
                        // Another process has removed it meanwhile.
                        Err(Failure::Status(Status::NoEntry | Status::Stale)) => {}
                        existing => return existing.map(Created::Existing),
                    },
                    Err(errno) => return self.gone_or(at, Err(errno.into())),
                }
            }
            Err(Failure::NotLocal)
        })?;
        if let Created::New { found: Some(found), .. } = &created {
            self.report_found(found, asked);
        }
        Ok(created)
    }

    /// Sets what couldn't be set on creation.
    fn complete_file(
        &self,
        call: Call<'_>,
        directory: (&Descriptor, &Handle),
        name: &CStr,
        file: &OwnedFd,
        (mode, set): (u32, &SetAttributes),
    ) -> Result<Option<Found>> {
        let mut attributes = self.attributes_of(file)?;
        let fixed = self.undo_umask(directory.0.as_fd(), file.as_fd(), &attributes, mode)?;
        let rest = SetAttributes { mode: None, size: set.size.filter(|size| *size > 0), ..*set };
        if self.finish(call, file.as_fd(), Some(file), &attributes, &rest)? || fixed {
            attributes = self.attributes_of(file)?;
        }
        let Ok(kernel) = KernelHandle::of(file, c"") else { return Ok(None) };
        let handle = self.handle(&self.identity(&kernel)?, directory.1, name)?;
        Ok(Some(Found { handle, attributes: Some(attributes) }))
    }

    pub(crate) fn make_dir(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let mode = set.mode.unwrap_or(DEFAULT_DIRECTORY_MODE) & 0o7777;
        // mkdir(2) ignores set-id bits, and inherits set-gid from the parent.
        let set_id = (mode & 0o6000 != 0).then_some(mode);
        let rest = SetAttributes { mode: set_id, ..*set };
        let mode = mode & 0o1777;
        self.make(call, directory, name, (FileKind::Directory, mode, &rest), |at, name, mode| {
            mkdirat(at, name, Mode::from_raw_mode(mode))
        })
    }

    pub(crate) fn symlink(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        if target.is_empty() || target.len() > MAX_TARGET {
            return Err(Failure::NotLocal);
        }
        let target = CString::new(target).map_err(|_| Failure::NotLocal)?;
        let rest = SetAttributes { mode: None, ..*set };
        self.make(call, directory, name, (FileKind::Symlink, 0, &rest), |at, name, _| {
            symlinkat(&target, at, name)
        })
    }

    pub(crate) fn make_node(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        node: Node,
    ) -> Result<Option<Found>> {
        let (kind, file_type, device) = match node {
            Node::Block(major, minor) => (FileKind::Block, FileType::BlockDevice, makedev(major, minor)),
            Node::Character(major, minor) => {
                (FileKind::Character, FileType::CharacterDevice, makedev(major, minor))
            }
            Node::Socket => (FileKind::Socket, FileType::Socket, 0),
            Node::Fifo => (FileKind::Fifo, FileType::Fifo, 0),
        };
        let mode = set.mode.unwrap_or(DEFAULT_FILE_MODE) & 0o7777;
        let rest = SetAttributes { mode: None, ..*set };
        self.make(call, directory, name, (kind, mode, &rest), |at, name, mode| {
            mknodat(at, name, file_type, Mode::from_raw_mode(mode), device)
        })
    }

    /// The common part of the last three. The system call gets the mode without the
    /// umask's bits; `set` is what follows.
    fn make(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        (kind, asked_mode, set): (FileKind, u32, &SetAttributes),
        system_call: impl FnOnce(BorrowedFd<'_>, &CStr, u32) -> rustix::io::Result<()>,
    ) -> Result<Option<Found>> {
        call.check_waits()?;
        let (asked, name) = (Instant::now(), entry_name(name)?);
        let (made, _) = self.changing(call, directory, |at, before| {
            // A directory inherits set-gid.
            let has_set_gid = kind == FileKind::Directory || keeps_set_gid(asked_mode);
            if has_set_gid && loses_set_gid(call, before) {
                return Err(Failure::NotLocal);
            }
            let keep = call.is_root() && asked_mode & S_ISGID != 0;
            let mode = self.masked(call, at.as_fd(), asked_mode)?;
            let set = SetAttributes { mode: set.mode.map(|all| all & !(asked_mode & !mode)), ..*set };
            let made = with_set_id_kept(keep, || system_call(at.as_fd(), &name, mode));
            self.gone_or(at, made.map_err(Failure::from))?;
            self.complete(call, (at, directory), &name, (mode, &set)).map_err(Failure::after_change)
        })?;
        if let Some(found) = &made {
            self.report_found(found, asked);
        }
        Ok(made)
    }

    /// Finds what was made, and sets what couldn't be set on creation.
    fn complete(
        &self,
        call: Call<'_>,
        directory: (&Descriptor, &Handle),
        name: &CStr,
        (mode, set): (u32, &SetAttributes),
    ) -> Result<Option<Found>> {
        let Ok(Entry { file, handle, mut attributes }) = self.entry(call, directory, name) else {
            return Ok(None);
        };
        let fixed =
            set.mode.is_none() && self.undo_umask(directory.0.as_fd(), file.as_fd(), &attributes, mode)?;
        let set = SetAttributes { size: None, ..*set };
        if self.finish(call, file.as_fd(), None, &attributes, &set)? || fixed {
            attributes = self.attributes_of(&*file)?;
        }
        Ok(Some(Found { handle, attributes: Some(attributes) }))
    }

    /// Sets the attributes that couldn't be set on creation. Only root may give files away. Owner and group
    /// from other users are ignored, as the server does. Returns whether there was something to set.
    fn finish(
        &self,
        call: Call<'_>,
        file: BorrowedFd<'_>,
        writable: Option<&OwnedFd>,
        attributes: &Attributes,
        set: &SetAttributes,
    ) -> Result<bool> {
        let mut set = *set;
        if !call.is_root() {
            (set.uid, set.gid) = (None, None);
        }
        if !set.is_empty() {
            self.apply(call, file, writable, attributes, &set)?;
        }
        Ok(!set.is_empty())
    }

    /// The mode of a new file in a directory.
    fn masked(&self, call: Call<'_>, directory: BorrowedFd<'_>, mode: u32) -> Result<u32> {
        let masked = mode & !call.umask;
        Ok(if masked != mode && self.has_default_acl(directory)? { mode } else { masked })
    }

    /// Adds the permission bits of `mode` that this process's umask has taken from a new file. Returns
    /// whether there were any.
    fn undo_umask(
        &self,
        directory: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
        attributes: &Attributes,
        mode: u32,
    ) -> Result<bool> {
        let missing = mode & 0o777 & !attributes.mode;
        if missing == 0 || attributes.kind == FileKind::Symlink {
            return Ok(false);
        }
        // With a default list the umask doesn't apply, and the list has taken the bits.
        if self.has_default_acl(directory)? {
            return Ok(false);
        }
        self.change_mode(file, attributes.kind, attributes.mode | missing)?;
        Ok(true)
    }
}

/// Whether the kernel gives a new file with this mode set-gid, whatever its group is.
const fn keeps_set_gid(mode: u32) -> bool {
    mode & (S_ISGID | S_IXGRP) == S_ISGID
}

/// Whether the chmod(2) that undoes a umask would take set-gid away from what is made in a directory, because
/// the user isn't in the group that it gets.
fn loses_set_gid(call: Call<'_>, directory: &Attributes) -> bool {
    directory.mode & S_ISGID != 0 && !call.is_root() && !is_member(call, directory.gid)
}

fn is_member(call: Call<'_>, group: u32) -> bool {
    call.user.gid == group || call.user.groups.contains(&group)
}
