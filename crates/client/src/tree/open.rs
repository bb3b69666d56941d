//! Opening files for reading and writing.
//!
//! Only regular files are opened. An open that a lease of an NFSv4 client delays (EWOULDBLOCK), and one that
//! open(2) refuses, goes to the server: NFS allows some users more than open(2) does (RFC 1813 section 4.4).

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_setfl};

use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, LocalTree, entry_name};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{Attributes, Create, FileKind, Found};

/// An open file, or what the name belongs to instead.
pub(crate) enum Opened {
    /// The file, whose attributes are known, with a file description of its own.
    File(OwnedFd, Box<Found>),
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
    /// Opens the file `name` in a directory for reading, writing or both.
    pub(crate) fn open(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        access: (bool, bool),
    ) -> Result<Opened> {
        let (asked, name) = (Instant::now(), entry_name(name)?);
        let at = self.find(call, directory)?;
        let entry = self.gone_or(&at, self.entry(call, (&at, directory), &name))?;
        self.open_known(&entry.file, &entry.handle, entry.attributes, access, asked)
    }

    /// Opens the file of a handle.
    pub(crate) fn open_handle(&self, call: Call<'_>, file: &Handle, access: (bool, bool)) -> Result<Opened> {
        let asked = Instant::now();
        let known = self.find(call, file)?;
        let attributes = self.live(&known)?;
        self.open_known(&known, file, attributes, access, asked)
    }

    fn open_known(
        &self,
        known: &Descriptor,
        handle: &Handle,
        attributes: Attributes,
        access: (bool, bool),
        asked: Instant,
    ) -> Result<Opened> {
        // Opening a pipe would wake its writer.
        if attributes.kind != FileKind::Regular {
            return Ok(Opened::Other(attributes.kind));
        }
        let file = self.open_again(known, access_flags(access)).map_err(|failure| match failure {
            Failure::Status(Status::Access | Status::NotPermitted) => Failure::NotLocal,
            other => other,
        })?;
        // Clears O_NONBLOCK, the only status flag that is set.
        fcntl_setfl(&file, OFlags::empty())?;
        let found = Found { handle: handle.clone(), attributes: Some(attributes) };
        self.report_found(&found, asked);
        Ok(Opened::File(file, Box::new(found)))
    }

    /// Creates the file `name` in a directory, and opens it; `how` as for CREATE. An existing file is opened
    /// if `how` allows.
    pub(crate) fn open_new(
        &self,
        call: Call<'_>,
        directory: &Handle,
        name: &[u8],
        how: &Create,
        access: (bool, bool),
    ) -> Result<Opened> {
        let created = self.create_open(call, directory, name, how, access_flags(access))?;
        match (created.found, created.file) {
            (Some(found), Some(file)) => Ok(Opened::File(file, Box::new(found))),
            (Some(found), None) => {
                self.open_handle(call, &found.handle, access).map_err(|failure| match (failure, how) {
                    // The file existed already and wasn't changed.
                    (Failure::NotLocal, Create::Unchecked(set)) if set.size.is_none() => failure,
                    _ => failure.after_change(),
                })
            }
            (None, _) => Err(Failure::Status(Status::Io)),
        }
    }
}
