//! Opening files for reading and writing.
//!
//! Only regular files are opened. An open that a lease of an NFSv4 client delays (EWOULDBLOCK), and one that
//! open(2) refuses, goes to the server: NFS allows some users more than open(2) does (RFC 1813 section 4.4).

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, fcntl_setfl, openat2};
use rustix::io::Errno;
use sys::KernelHandle;

use super::create::{Created, MAX_ATTEMPTS};
use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, LocalTree, NO_WAIT, STRICT_RESOLVE, Waits, entry_name};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{Attributes, Create, FileKind, Found};

/// An open file, or what the name belongs to instead.
pub(crate) enum Opened {
    /// The file, whose attributes are known, with a file description of its own.
    File(OwnedFd, Box<Found>),
    /// The same of a file that the open has created.
    New(OwnedFd, Box<Found>),
    /// A file that isn't regular.
    Other(FileKind),
}

/// Reading, writing or both.
fn access_flags((read, write): (bool, bool)) -> OFlags {
    match (read, write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    }
}

impl LocalTree {
    /// Opens the file `name` in a directory for reading, writing or both. A listing may have shown its kind.
    pub(crate) fn open(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        listed: Option<FileKind>,
        access: (bool, bool),
    ) -> Result<Opened> {
        let (asked, name) = (Instant::now(), entry_name(name)?);
        let at = self.find(call, directory)?;
        if listed == Some(FileKind::Regular) {
            return self.open_regular(call, (&at, directory), &name, access, asked);
        }
        let entry = self.gone_or(&at, self.entry(call, (&at, directory), &name))?;
        self.open_known(call, (&entry.file, &entry.handle), entry.attributes, access, asked)
    }

    /// Opens a file by its name, without a look at its kind before. If a pipe has the name by now, its writer
    /// is woken.
    fn open_regular(
        &self,
        call: Call<'_>,
        (at, directory): (&Descriptor, &Handle),
        name: &CStr,
        access: (bool, bool),
        asked: Instant,
    ) -> Result<Opened> {
        let flags = access_flags(access) | NO_WAIT;
        let resolve = STRICT_RESOLVE | call.waits.resolve_flags();
        let file = match self.with_room(|| openat2(at, name, flags, Mode::empty(), resolve)) {
            Ok(file) => file,
            Err(Errno::AGAIN) if call.waits == Waits::Forbidden => return Err(Failure::WouldWait),
            Err(Errno::LOOP) => return Ok(Opened::Other(FileKind::Symlink)),
            Err(Errno::ISDIR) => return Ok(Opened::Other(FileKind::Directory)),
            // Also of sockets, devices, and pipes without a reader.
            Err(Errno::ACCESS | Errno::PERM | Errno::NXIO) => return Err(Failure::NotLocal),
            Err(errno) => return self.gone_or(at, Err(errno.into())),
        };
        let attributes = self.attributes_of(&file)?;
        if attributes.kind != FileKind::Regular {
            return Ok(Opened::Other(attributes.kind));
        }
        let identity = self.identity(&KernelHandle::of(&file, c"")?)?;
        let handle = match self.descriptors.get(&identity) {
            Some(known) => self.handle_of(&known, directory, name)?,
            None => self.handle(&identity, directory, name)?,
        };
        self.opened(file, Found { handle, attributes: Some(attributes) }, asked)
    }

    /// Opens the file of a handle.
    pub(crate) fn open_handle(&self, call: Call<'_>, file: &Handle, access: (bool, bool)) -> Result<Opened> {
        let asked = Instant::now();
        let known = self.find(call, file)?;
        let attributes = self.live(&known)?;
        self.open_known(call, (&known, file), attributes, access, asked)
    }

    fn open_known(
        &self,
        call: Call<'_>,
        (known, handle): (&Descriptor, &Handle),
        attributes: Attributes,
        access: (bool, bool),
        asked: Instant,
    ) -> Result<Opened> {
        // Opening a pipe would wake its writer.
        if attributes.kind != FileKind::Regular {
            return Ok(Opened::Other(attributes.kind));
        }
        let flags = access_flags(access);
        let file = match self.open_by_name(call, handle, flags) {
            Some(file) => file,
            None => self.open_again(known, flags).map_err(|failure| match failure {
                Failure::Status(Status::Access | Status::NotPermitted) => Failure::NotLocal,
                other => other,
            })?,
        };
        self.opened(file, Found { handle: handle.clone(), attributes: Some(attributes) }, asked)
    }

    /// Opens the file of a handle by the name under which it was found. `None` if that is another file's by
    /// now, or can't be opened. If the other file is a pipe, its writer is woken.
    fn open_by_name(&self, call: Call<'_>, handle: &Handle, flags: OFlags) -> Option<OwnedFd> {
        let (directory, name) = self.place(handle)?;
        let resolve = STRICT_RESOLVE | call.waits.resolve_flags();
        let file = openat2(&*directory, &name, flags | NO_WAIT, Mode::empty(), resolve).ok()?;
        let identity = self.identity(&KernelHandle::of(&file, c"").ok()?).ok()?;
        (*identity == *handle.identity()).then_some(file)
    }

    /// A file that was opened with [`NO_WAIT`].
    fn opened(&self, file: OwnedFd, found: Found, asked: Instant) -> Result<Opened> {
        // Clears O_NONBLOCK, the only status flag that is set.
        fcntl_setfl(&file, OFlags::empty())?;
        self.report_found(&found, asked);
        Ok(Opened::File(file, Box::new(found)))
    }

    /// Creates the file `name` in a directory, and opens it; `how` as for CREATE, without a size. An existing
    /// file is opened unchanged, if `how` allows.
    pub(crate) fn open_new(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        how: &Create,
        access: (bool, bool),
    ) -> Result<Opened> {
        for _ in 0..MAX_ATTEMPTS {
            let asked = Instant::now();
            let entry = match self.create_open(call, directory, name, how, access_flags(access))? {
                Created::New { found: Some(found), file } => return Ok(Opened::New(file, Box::new(found))),
                // The server finds it.
                Created::New { found: None, .. } if matches!(how, Create::Unchecked(_)) => break,
                Created::New { found: None, .. } => return Err(Status::Io.into()),
                Created::Existing(entry) => entry,
            };
            match self.open_known(call, (&entry.file, &entry.handle), entry.attributes, access, asked) {
                // Another process has removed its last name meanwhile.
                Err(Failure::Status(Status::NoEntry | Status::Stale)) => {}
                result => return result,
            }
        }
        Err(Failure::NotLocal)
    }
}
