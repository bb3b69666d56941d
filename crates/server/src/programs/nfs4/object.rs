//! The object that a handle stands for: a file of an export, a directory of the pseudo-filesystem, or a file
//! that was removed while it was open.

use std::rc::Rc;
use std::sync::Arc;

use store::{FileHandle, Node, UserContext};

use super::namespace::PseudoId;
use super::status::{self, Result};
use crate::authorization::access::ExportAccess;

/// A file of an export, to which the client has been admitted.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub admitted: Rc<ExportAccess>,
    pub node: Arc<Node>,
}

/// The object that a handle stands for.
#[derive(Debug, Clone)]
pub(super) enum Object {
    /// A removed file that a client has open: its state can still be closed.
    Gone(FileHandle),
    Pseudo(PseudoId),
    File(File),
}

/// An object's handle: in the results of GETFH and the attribute `filehandle`, and in PUTFH's arguments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handle {
    Pseudo([u8; PseudoId::HANDLE]),
    File(FileHandle),
}

impl Handle {
    /// The handle on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Pseudo(bytes) => bytes,
            Self::File(handle) => handle.as_bytes(),
        }
    }
}

impl Object {
    /// Whether it is in a filesystem that is on other servers only.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::File(file) if file.admitted.is_absent())
    }

    pub fn handle(&self) -> Handle {
        match self {
            Self::Gone(handle) => Handle::File(*handle),
            Self::Pseudo(id) => Handle::Pseudo(id.handle()),
            Self::File(file) => Handle::File(*file.node.handle()),
        }
    }
}

impl File {
    /// Makes this thread act as the client's user.
    pub fn user_context(&self) -> Result<UserContext<'_>> {
        self.admitted.user_context().map_err(status::of_store)
    }

    /// Another file of the same export.
    pub fn sibling(&self, node: Arc<Node>) -> Self {
        Self { admitted: Rc::clone(&self.admitted), node }
    }
}
