//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.
//!
//! NFSv4.2 has the namespace `user.`, and NFSv4's access control list is the attribute `system.nfs4_acl`, as
//! with the kernel's client. POSIX access control lists are two attributes (`acls`). Others fail with
//! `EOPNOTSUPP` without a call to the server. NFSv3 with the option `noacl` has none: the first request of a
//! mount fails with `ENOSYS`, and the kernel sends no more.

use std::sync::Arc;
use std::time::Instant;

use client::{SetXattr, Version};
use rustix::io::Errno;

use super::acls::AclName;
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
    PosixAcl(AclName),
}

impl<'a> XattrName<'a> {
    fn parse(name: &'a [u8], version: Version) -> Result<Self, Errno> {
        let has_nfs4 = version != Version::V3;
        match (name.strip_prefix(USER), AclName::parse(name)) {
            (_, Some(list)) => Ok(Self::PosixAcl(list)),
            (Some(name), _) if has_nfs4 => Ok(Self::User(name)),
            (None, _) if has_nfs4 && name == NFS4_ACL => Ok(Self::Nfs4Acl),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

impl Filesystem {
    /// The file and the user of a request, if the mount has any extended attributes.
    fn xattr_target(&self, request: &RequestContext) -> Result<(Arc<Inode>, Arc<User>), Errno> {
        if self.session.version() == Version::V3 && !self.options.acl {
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
        let value = match XattrName::parse(name, self.session.version())? {
            XattrName::User(name) => user.session.xattr(&inode.handle, name).await,
            XattrName::Nfs4Acl => user.session.nfs4_acl(&inode.handle).await,
            XattrName::PosixAcl(list) => return reply(self.get_acl(&user, &inode, list).await?, room),
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
        match XattrName::parse(name, self.session.version())? {
            XattrName::User(name) => {
                let result = user.session.set_xattr(&inode.handle, name, value, how).await;
                inode.lock().xattr_names.forget(Instant::now());
                result
            }
            XattrName::Nfs4Acl => {
                let result = user.session.set_nfs4_acl(&inode.handle, value).await;
                self.forget_permissions(&inode);
                self.kernel.invalidate_attributes(&inode);
                result
            }
            XattrName::PosixAcl(list) => {
                self.set_acl(&user, &inode, list, Some(value)).await?;
                return Ok(FuseReply::default());
            }
        }
        .map_err(|error| self.errno_for(&inode, &error))?;
        Ok(FuseReply::default())
    }

    /// The names of the namespace `user.` and of the POSIX access control lists.
    pub(super) async fn list_xattrs(&self, request: &RequestContext, room: u32) -> Result<FuseReply, Errno> {
        let (inode, user) = self.xattr_target(request)?;
        let mut list = self.user_xattr_names(&user, &inode).await?;
        for name in self.acl_names(&user, &inode).await {
            list.extend([name, b"\0"].concat());
        }
        reply(list, room)
    }

    /// The names of the namespace `user.`, as listxattr(2) returns them. GNU ls asks for those of each file
    /// (coreutils 9.6). No listing has them, so they are cached like access control lists. In a tree they
    /// cost no call.
    async fn user_xattr_names(&self, user: &User, inode: &Arc<Inode>) -> Result<Vec<u8>, Errno> {
        let asked = Instant::now();
        let before = {
            let state = inode.lock();
            let attributes = state.attributes.get().copied();
            let is_current = state.attributes.is_current(asked, &self.options.attributes);
            if is_current && let Some(known) = state.xattr_names.get(asked) {
                return Ok(known.as_ref().map_or_else(Vec::new, |names| names.to_vec()));
            }
            attributes
        };
        let names = match user.session.list_xattrs(&inode.handle).await {
            Ok(names) => names,
            // Without such attributes the list is empty.
            Err(error) if error.status() == Some(client::Status::NotSupported) => Vec::new(),
            Err(error) => return Err(self.errno_for(inode, &error)),
        };
        let list: Vec<u8> = names.iter().flat_map(|name| [USER, name, b"\0"].concat()).collect();
        if let Some(before) = before.filter(|_| !self.session.has_tree()) {
            inode.learn_xattr_names(&list, &before, asked);
        }
        Ok(list)
    }

    pub(super) async fn remove_xattr(
        &self,
        request: &RequestContext,
        name: &[u8],
    ) -> Result<FuseReply, Errno> {
        let (inode, user) = self.xattr_target(request)?;
        match XattrName::parse(name, self.session.version())? {
            XattrName::PosixAcl(list) => self.set_acl(&user, &inode, list, None).await?,
            XattrName::User(name) => {
                let removed = user.session.remove_xattr(&inode.handle, name).await;
                inode.lock().xattr_names.forget(Instant::now());
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
