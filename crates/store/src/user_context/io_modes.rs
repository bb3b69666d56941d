//! I/O modes: the descriptors that they need, and the fallbacks for files that don't support them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ::io::{Alignment, Files, IoMode, IoModes, Payload, trace};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::context::UserContext;
use super::types::ReadResult;
use crate::error::{Error, Result};
use crate::node::Node;

/// A direct descriptor and its alignment.
pub(super) type DirectFile = (Arc<OwnedFd>, Alignment);

impl UserContext<'_> {
    /// Sets the modes for reads and writes, which apply as far as the filesystem and the file support them;
    /// see [`crate::Store::io_notes`].
    #[must_use]
    pub fn with_modes(self, modes: IoModes) -> Self {
        UserContext { modes, ..self }
    }

    /// The modes, as far as the filesystem is known to support them.
    #[must_use]
    pub fn modes(&self) -> IoModes {
        let known = |mode| self.store.fallbacks.instead_of(mode);
        IoModes { read: known(self.modes.read), write: known(self.modes.write) }
    }

    /// The mode that [`UserContext::fetch`] would use for this file. If it is buffered, [`UserContext::read`]
    /// and sending from [`UserContext::read_file`] are faster.
    pub fn read_mode(&self, node: &Node) -> IoMode {
        match self.store.fallbacks.instead_of(self.modes.read) {
            IoMode::Direct if self.alignment(node).is_none() => IoMode::Buffered,
            mode => mode,
        }
    }

    /// Reads `count` bytes at `offset` by the mode for reads, into newly allocated memory. Usually waits for
    /// the disk. The attributes are as for [`UserContext::read`].
    ///
    /// # Errors
    /// As for [`UserContext::read`].
    pub fn fetch(&self, node: &Node, offset: u64, count: usize) -> Result<(Payload, ReadResult)> {
        let (file, mut attributes) = self.read_file(node)?;
        let mode = self.read_mode(node);
        let direct = self.direct_file(node, false, mode)?;
        let payload =
            ::io::fetch(files(node, &file, direct.as_ref()), mode, offset, count, &self.store.fallbacks)?;
        trace::read_io_done(node.handle().as_bytes(), offset, payload.len() as u64);
        let end = offset.saturating_add(payload.len() as u64);
        if payload.len() < count && end < attributes.size {
            attributes = self.live(node)?.attributes;
        }
        // As for `UserContext::read_or_wait`.
        let eof = end >= attributes.size || payload.is_empty() && count > 0;
        let found = ReadResult { count: payload.len(), eof, attributes };
        Ok((payload, found))
    }

    /// The alignment for direct I/O with the file; `None` if it isn't supported or not known.
    pub(super) fn alignment(&self, node: &Node) -> Option<Alignment> {
        node.direct().alignment(|| {
            let alignment = Alignment::of(node.file());
            if alignment.is_none() {
                self.store.fallbacks.alignment_unknown();
            }
            alignment
        })
    }

    /// The node's direct descriptor, if `mode` is direct and the file supports it. The caller has checked
    /// permission.
    pub(super) fn direct_file(
        &self,
        node: &Node,
        for_writing: bool,
        mode: IoMode,
    ) -> Result<Option<DirectFile>> {
        // Another descriptor would break a lease (see `leases`).
        if mode != IoMode::Direct || node.is_leased() {
            return Ok(None);
        }
        let Some(alignment) = self.alignment(node) else { return Ok(None) };
        let slot = node.direct().file(for_writing);
        if let Some(file) = slot.get() {
            return Ok(Some((file, alignment)));
        }
        let access = if for_writing { OFlags::WRONLY } else { OFlags::RDONLY };
        let file = match self.reopen(node.file(), access | OFlags::DIRECT) {
            Ok(file) => Arc::new(file),
            // open(2): the filesystem doesn't support O_DIRECT.
            Err(Error::Invalid | Error::Io(Errno::INVAL)) => {
                self.store.fallbacks.refused(IoMode::Direct);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        slot.keep(&file, self.store.limits.data);
        Ok(Some((file, alignment)))
    }
}

/// The descriptors in the form that `io` takes.
pub(super) fn files<'f>(
    node: &'f Node,
    buffered: &'f Arc<OwnedFd>,
    direct: Option<&'f DirectFile>,
) -> Files<'f> {
    Files {
        buffered: buffered.as_fd(),
        direct: direct.map(|(file, alignment)| (file.as_fd(), *alignment)),
        handle: node.handle().as_bytes(),
    }
}
