//! Extended attributes (RFC 8276), NFSv4's access control lists (RFC 8881 section 6.2), and birth times.
//!
//! What the session's NFS version doesn't have isn't done in its tree either: a session can do the same with
//! and without a lane.

use super::Session;
use super::local_first::LocalFirst;
use crate::error::{Error, Result, not_supported};
use crate::operations::Operations as _;
use crate::options::Version;
use crate::types::{Handle, SetXattr, Timestamp};

/// The kernel's limit on a list of extended attributes in bytes (`XATTR_LIST_MAX`).
const MAX_LIST: usize = 64 << 10;

impl Session {
    /// The value of an extended attribute of the namespace `user.`, as all methods for them. Its name is
    /// without the namespace: `mime_type` for `user.mime_type`.
    ///
    /// # Errors
    /// [`Status::NoAttribute`](crate::Status::NoAttribute); [`Status::NotSupported`
    /// ](crate::Status::NotSupported) by the session's version (NFSv4.2 has them), the server, the filesystem
    /// or the type of file; the server's or the call's.
    pub async fn xattr(&self, file: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        self.if_4_2("GETXATTR")?.perform(&[file], |nfs, user| nfs.get_xattr(user, file, name)).await
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Status::Exists`](crate::Status::Exists) and [`Status::NoAttribute`](crate::Status::NoAttribute) as
    /// `how` says; [`Status::AttributeTooBig`](crate::Status::AttributeTooBig) for more than 64 KiB; those
    /// of [`Session::xattr`].
    pub async fn set_xattr(&self, file: &Handle, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.if_4_2("SETXATTR")?
            .perform(&[file], |nfs, user| nfs.set_xattr(user, file, name, value, how))
            .await
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Those of [`Session::xattr`].
    pub async fn list_xattrs(&self, file: &Handle) -> Result<Vec<Vec<u8>>> {
        let caller = self.if_4_2("LISTXATTRS")?;
        let (mut names, mut size, mut cookie) = (Vec::new(), 0, 0);
        loop {
            let page = caller.perform(&[file], |nfs, user| nfs.list_xattrs(user, file, cookie)).await?;
            size += page.names.iter().map(|name| name.len() + 1).sum::<usize>();
            let is_empty = page.names.is_empty();
            names.extend(page.names);
            match page.next {
                None => return Ok(names),
                // Without this limit a server could continue the list without end.
                Some(next) if next != cookie && !is_empty && size <= MAX_LIST => cookie = next,
                Some(_) => {
                    return Err(Error::Protocol {
                        object: "LISTXATTRS".to_owned(),
                        what: "the list neither ends nor goes on, or is longer than Linux permits",
                    });
                }
            }
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of [`Session::xattr`].
    pub async fn remove_xattr(&self, file: &Handle, name: &[u8]) -> Result<()> {
        self.if_4_2("REMOVEXATTR")?.perform(&[file], |nfs, user| nfs.remove_xattr(user, file, name)).await
    }

    /// When a file was made; `None` if its filesystem doesn't tell. It doesn't change: the server is asked
    /// once for each handle, and not at all for one that a LOOKUP or an open by name has found.
    ///
    /// # Errors
    /// [`Status::NotSupported`](crate::Status::NotSupported) by NFSv3; the server's or the call's.
    pub async fn birth_time(&self, file: &Handle) -> Result<Option<Timestamp>> {
        if self.version() == Version::V3 {
            return Err(not_supported("reading the birth time"));
        }
        if let Some(birth) = file.birth() {
            return Ok(birth);
        }
        let birth = self.local_first().perform(&[file], |nfs, user| nfs.birth_time(user, file)).await?;
        file.note_birth(birth);
        Ok(birth)
    }

    /// A file's NFSv4 access control list: the value of Linux's attribute `system.nfs4_acl`, `fattr4_acl` in
    /// XDR.
    ///
    /// # Errors
    /// [`Status::NotSupported`](crate::Status::NotSupported) by NFSv3, the server or the filesystem; the
    /// server's or the call's.
    pub async fn nfs4_acl(&self, file: &Handle) -> Result<Vec<u8>> {
        self.settle_pending(|pending| pending == file).await;
        self.local_first().perform(&[file], |nfs, user| nfs.nfs4_acl(user, file)).await
    }

    /// Sets a file's NFSv4 access control list, in the same form.
    ///
    /// # Errors
    /// [`Status::Invalid`](crate::Status::Invalid) if the bytes are no list, or one of its names is unknown
    /// to the server; those of [`Session::nfs4_acl`].
    pub async fn set_nfs4_acl(&self, file: &Handle, acl: &[u8]) -> Result<()> {
        self.settle(file).await;
        self.local_first().perform(&[file], |nfs, user| nfs.set_nfs4_acl(user, file, acl)).await
    }

    /// The way for an operation of NFSv4.2.
    fn if_4_2(&self, operation: &str) -> Result<LocalFirst<'_>> {
        if self.version() == Version::V4_2 { Ok(self.local_first()) } else { Err(not_supported(operation)) }
    }
}
