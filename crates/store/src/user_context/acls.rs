//! POSIX access control lists, as extended attributes of the namespace `system.`. The kernel stores and
//! checks them and keeps the mode consistent.

use std::ffi::CStr;

use rustix::fs::{XattrFlags, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::context::UserContext;
use crate::attributes::{FileKind, Wcc};
use crate::error::{Error, Result};
use crate::node::Node;
use sys::{PosixAcl, PosixAcls, xattr};
use user_ids::as_process_user;

/// Maximum size in the kernel (`XATTR_SIZE_MAX`).
const MAX_SIZE: usize = 64 << 10;
/// Room for some sixty entries.
const USUAL_SIZE: usize = 512;
const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

impl UserContext<'_> {
    /// The file's access list and, for a directory, its default list. A file without an access list has the
    /// one equivalent to its mode.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn acls(&self, node: &Node) -> Result<PosixAcls> {
        let mode = self.live(node)?.attributes.mode;
        let access = if node.kind() == FileKind::Symlink { None } else { self.acl(node, ACCESS)? };
        let default = if node.kind() == FileKind::Directory { self.acl(node, DEFAULT)? } else { None };
        Ok(PosixAcls { access: access.unwrap_or_else(|| PosixAcl::of_mode(mode)), default })
    }

    /// Whether a directory has a default list, which new entries inherit.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn has_default_acl(&self, dir: &Node) -> Result<bool> {
        self.acl(dir, DEFAULT).map(|acl| acl.is_some())
    }

    /// Whether the filesystem supports access control lists.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn supports_acls(&self, node: &Node) -> Result<bool> {
        Ok(node.kind() != FileKind::Symlink && self.read_acl(node, ACCESS)?.is_some())
    }

    /// Replaces the file's access list and, for a directory, its default list (`None` removes it). The kernel
    /// changes the mode accordingly.
    ///
    /// # Errors
    /// `NotSupported` by the filesystem or for a file that is neither regular nor a directory, `Permission`
    /// for others than the owner, `NoSpace`, `ReadOnly`, `Invalid`.
    pub fn set_acls(&self, node: &Node, acls: &PosixAcls, wcc: &mut Wcc) -> Result<()> {
        self.changing(node, wcc, |_| {
            let file = self.open_for_xattrs(node)?;
            let set = |name, acl: &PosixAcl| fsetxattr(&file, name, &acl.to_bytes(), XattrFlags::empty());
            set(ACCESS, &acls.access).map_err(of_acl)?;
            match &acls.default {
                Some(acl) => set(DEFAULT, acl).map_err(of_acl),
                None if node.kind() == FileKind::Directory => match fremovexattr(&file, DEFAULT) {
                    Err(Errno::NODATA) => Ok(()),
                    other => other.map_err(of_acl),
                },
                None => Ok(()),
            }
        })
    }

    /// A list, if the file has one.
    fn acl(&self, node: &Node, name: &CStr) -> Result<Option<PosixAcl>> {
        let Some(Some(bytes)) = self.read_acl(node, name)? else { return Ok(None) };
        PosixAcl::from_bytes(&bytes).map(Some).ok_or(Error::Io(Errno::INVAL))
    }

    /// The kernel's representation; the outer `None` where the filesystem doesn't support lists. Read as the
    /// process, because every user who may read the attributes may read the list.
    fn read_acl(&self, node: &Node, name: &CStr) -> Result<Option<Option<Vec<u8>>>> {
        let get = if node.kind() == FileKind::Directory { xattr::get_of_directory } else { xattr::get };
        let mut bytes = vec![0; USUAL_SIZE];
        loop {
            match as_process_user(|| Result::Ok(get(node.file(), name, &mut bytes[..])))? {
                Ok(length) => {
                    bytes.truncate(length);
                    return Ok(Some(Some(bytes)));
                }
                Err(Errno::NODATA) => return Ok(Some(None)),
                Err(Errno::OPNOTSUPP) => return Ok(None),
                Err(Errno::RANGE) if bytes.len() < MAX_SIZE => bytes.resize(MAX_SIZE, 0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn of_acl(errno: Errno) -> Error {
    match errno {
        Errno::OPNOTSUPP => Error::NotSupported,
        Errno::ACCESS | Errno::PERM => Error::Permission,
        Errno::TOOBIG | Errno::RANGE | Errno::INVAL => Error::Invalid,
        other => other.into(),
    }
}
