//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.
//!
//! NFSv4.2 has the namespace `user.`, and NFSv4's access control list is the attribute `system.nfs4_acl`, as
//! with the kernel's client. Others fail with `EOPNOTSUPP` without a call to the server. NFSv3 has none: the
//! first request of a mount fails with `ENOSYS`, and the kernel sends no more.

use std::sync::Arc;

use client::{SetXattr, Version};
use rustix::io::Errno;

use super::{Filesystem, RequestContext};
use crate::fuse::reply::FuseReply;
use crate::inode::Inode;
use crate::users::User;

/// The name of NFSv4's access control list (nfs4_acl(5)).
const NFS4_ACL: &[u8] = b"system.nfs4_acl";

const USER: &[u8] = b"user.";

/// What a name stands for.
enum XattrName<'a> {
    /// An attribute of the namespace `user.`, without that.
    User(&'a [u8]),
    Nfs4Acl,
}

impl<'a> XattrName<'a> {
    fn parse(name: &'a [u8]) -> Result<Self, Errno> {
        match name.strip_prefix(USER) {
            Some(name) => Ok(Self::User(name)),
            None if name == NFS4_ACL => Ok(Self::Nfs4Acl),
            None => Err(Errno::OPNOTSUPP),
        }
    }
}

impl Filesystem {
    /// The file and the user of a request, if the session's version has extended attributes.
    fn xattr_target(&self, request: &RequestContext) -> Result<(Arc<Inode>, Arc<User>), Errno> {
        if self.session.version() == Version::V3 {
            return Err(Errno::NOSYS);
        }
        Ok((self.inode(request)?, self.user(request)))
    }

    pub(super) async fn get_xattr(
        &self,
        request: &RequestContext,
        name: &[u8],
        room: u32,
    ) -> Result<FuseReply, Errno> {
        let (inode, user) = self.xattr_target(request)?;
        let value = match XattrName::parse(name)? {
            XattrName::User(name) => user.session.xattr(&inode.handle, name).await,
            XattrName::Nfs4Acl => user.session.nfs4_acl(&inode.handle).await,
        };
        reply(value.map_err(|error| self.errno_for(&inode, &error))?, room)
    }

    pub(super) async fn set_xattr(
        &self,
        request: &RequestContext,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<FuseReply, Errno> {
        let (inode, user) = self.xattr_target(request)?;
        match XattrName::parse(name)? {
            XattrName::User(name) => user.session.set_xattr(&inode.handle, name, value, how).await,
            XattrName::Nfs4Acl => user.session.set_nfs4_acl(&inode.handle, value).await,
        }
        .map_err(|error| self.errno_for(&inode, &error))?;
        Ok(FuseReply::default())
    }

    /// The names of the namespace `user.`.
    pub(super) async fn list_xattrs(&self, request: &RequestContext, room: u32) -> Result<FuseReply, Errno> {
        let (inode, user) = self.xattr_target(request)?;
        let names = match user.session.list_xattrs(&inode.handle).await {
            Ok(names) => names,
            // Without such attributes the list is empty.
            Err(error) if error.status() == Some(client::Status::NotSupported) => Vec::new(),
            Err(error) => return Err(self.errno_for(&inode, &error)),
        };
        let list: Vec<u8> = names.iter().flat_map(|name| [USER, name, b"\0"].concat()).collect();
        reply(list, room)
    }

    pub(super) async fn remove_xattr(
        &self,
        request: &RequestContext,
        name: &[u8],
    ) -> Result<FuseReply, Errno> {
        let (inode, user) = self.xattr_target(request)?;
        match XattrName::parse(name)? {
            XattrName::User(name) => {
                let removed = user.session.remove_xattr(&inode.handle, name).await;
                removed.map_err(|error| self.errno_for(&inode, &error))?;
            }
            // Every file has a list.
            XattrName::Nfs4Acl => return Err(Errno::INVAL),
        }
        Ok(FuseReply::default())
    }
}

/// A value or list, or its size if the caller has no room at all.
fn reply(value: Vec<u8>, room: u32) -> Result<FuseReply, Errno> {
    let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match room {
        0 => Ok(FuseReply::with_capacity(8).xattr_size(size)),
        _ if size <= room => Ok(FuseReply(value)),
        _ => Err(Errno::RANGE),
    }
}
