//! Users' extended attributes (xattr(7), RFC 8276): the namespace `user.`, which names on the wire don't
//! include.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::context::UserContext;
use crate::attributes::{FileKind, Wcc};
use crate::error::{Error, Result};
use crate::node::Node;

/// The kernel's `XATTR_SIZE_MAX` and `XATTR_LIST_MAX`.
const MAX_SIZE: usize = 64 << 10;
/// `XATTR_NAME_MAX`, including the namespace.
const MAX_NAME: usize = 255;
const NAMESPACE: &[u8] = b"user.";

/// How [`UserContext::set_xattr`] treats an existing attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Create or replace it.
    Either,
    /// Create it; `Exists` if it exists.
    Create,
    /// Replace it; `NoAttribute` if it doesn't exist.
    Replace,
}

impl UserContext<'_> {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` by the filesystem or the type of file, `Access`, `NameTooLong`,
    /// `Invalid` for an invalid name.
    pub fn get_xattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        let name = full_name(name)?;
        let file = self.open_for_xattrs(node)?;
        let mut value = vec![0; MAX_SIZE];
        let length = fgetxattr(&file, &name, &mut value[..]).map_err(of_xattr)?;
        value.truncate(length);
        Ok(value)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `NoSpace`, `TooBig` and as for [`UserContext::get_xattr`]; `ReadOnly`.
    pub fn set_xattr(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        wcc: &mut Wcc,
    ) -> Result<()> {
        let name = full_name(name)?;
        if value.len() > MAX_SIZE {
            return Err(Error::TooBig);
        }
        let flags = match how {
            SetXattr::Either => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        self.changing(node, wcc, |_| {
            let file = self.open_for_xattrs(node)?;
            fsetxattr(&file, &name, value, flags).map_err(of_xattr)
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As for [`UserContext::set_xattr`].
    pub fn remove_xattr(&self, node: &Node, name: &[u8], wcc: &mut Wcc) -> Result<()> {
        let name = full_name(name)?;
        self.changing(node, wcc, |_| {
            let file = self.open_for_xattrs(node)?;
            fremovexattr(&file, &name).map_err(of_xattr)
        })
    }

    /// The names of all attributes, without the namespace.
    ///
    /// # Errors
    /// As for [`UserContext::get_xattr`].
    pub fn list_xattrs(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
        let file = self.open_for_xattrs(node)?;
        let mut list = vec![0; MAX_SIZE];
        let length = match flistxattr(&file, &mut list[..]) {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            other => other.map_err(of_xattr)?,
        };
        let names = list[..length].split(|byte| *byte == 0);
        Ok(names.filter_map(|name| name.strip_prefix(NAMESPACE)).map(<[u8]>::to_vec).collect())
    }

    /// Whether the filesystem supports them.
    #[must_use]
    pub fn supports_xattrs(&self, node: &Node) -> bool {
        !matches!(self.get_xattr(node, b"samehost"), Err(Error::NotSupported))
    }

    /// A descriptor for access to attributes, which an `O_PATH` one doesn't give. The kernel checks the
    /// user's permissions for the attributes.
    pub(super) fn open_for_xattrs(&self, node: &Node) -> Result<Arc<OwnedFd>> {
        match node.kind() {
            FileKind::Regular | FileKind::Directory => {}
            _ => return Err(Error::NotSupported),
        }
        self.live(node)?;
        let file = self.open_for_inspection(node)?;
        self.assume_ids()?;
        Ok(file)
    }
}

fn full_name(name: &[u8]) -> Result<CString> {
    if name.is_empty() {
        return Err(Error::Invalid);
    }
    if name.len() + NAMESPACE.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    CString::new([NAMESPACE, name].concat()).map_err(|_| Error::Invalid)
}

fn of_xattr(errno: Errno) -> Error {
    match errno {
        Errno::NODATA => Error::NoAttribute,
        Errno::TOOBIG | Errno::RANGE => Error::TooBig,
        // Linux returns this for types of file that can't have user attributes.
        Errno::PERM => Error::Access,
        other => other.into(),
    }
}
