//! Access control lists: the extended attributes in which Linux keeps them.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::failure::{Failure, Result};
use super::local::{Call, LocalTree};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{FileKind, PosixAcl, PosixAcls, SetAcl};

/// The kernel's limit on an extended attribute in bytes (`XATTR_SIZE_MAX`).
const MAX_XATTR: usize = 64 << 10;
/// Room for some sixty entries of a list.
const USUAL_XATTR: usize = 512;
const ACCESS_ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

impl LocalTree {
    /// As the server's answer to GETACL: made of the mode if there is no list.
    pub(crate) fn acls(&self, call: Call<'_>, file: &Handle) -> Result<PosixAcls> {
        call.check_waits()?;
        let asked = std::time::Instant::now();
        let descriptor = self.find(call, file)?;
        let attributes = self.live(&descriptor)?;
        self.report(file, None, Some(attributes), asked);
        let mut acls = PosixAcls::of_mode(attributes.mode);
        if attributes.kind != FileKind::Symlink
            && let Some(access) = self.acl(descriptor.as_fd(), ACCESS_ACL)?
        {
            // NFSACL doesn't distinguish such a mask from none.
            let says_nothing = !access.has_names() && access.mask == Some(access.group);
            acls.access = PosixAcl { mask: access.mask.filter(|_| !says_nothing), ..access };
        }
        if attributes.kind == FileKind::Directory {
            acls.default = self.acl(descriptor.as_fd(), DEFAULT_ACL)?;
        }
        self.report_acls(file, &attributes, &acls, asked);
        Ok(acls)
    }

    pub(crate) fn set_acl(&self, call: Call<'_>, file: &Handle, change: &SetAcl) -> Result<()> {
        call.check_waits()?;
        let changed = self.changing(call, file, |descriptor, before| {
            let directory = match before.kind {
                FileKind::Directory => true,
                FileKind::Regular => false,
                _ => return Err(Status::NotSupported.into()),
            };
            self.proc_entry(descriptor.as_fd())?;
            let path = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
            let set = |name, list: &PosixAcl| {
                setxattr(&*path, name, &list.to_bytes(), XattrFlags::empty()).map_err(of_acl)
            };
            match change {
                SetAcl::Access(list) => set(ACCESS_ACL, list),
                SetAcl::Default(Some(list)) if directory => set(DEFAULT_ACL, list),
                SetAcl::Default(Some(_)) => Err(Status::Invalid.into()),
                SetAcl::Default(None) if directory => match removexattr(&*path, DEFAULT_ACL) {
                    Err(Errno::NODATA) => Ok(()),
                    other => other.map_err(of_acl),
                },
                SetAcl::Default(None) => Ok(()),
            }
        });
        changed.map(|((), _)| ())
    }

    /// Whether new entries of a directory get their permissions from a list.
    pub(super) fn has_default_acl(&self, directory: BorrowedFd<'_>) -> Result<bool> {
        self.read_acl(directory, DEFAULT_ACL).map(|list| list.is_some())
    }

    /// A list, if the file has one.
    fn acl(&self, file: BorrowedFd<'_>, name: &CStr) -> Result<Option<PosixAcl>> {
        let Some(bytes) = self.read_acl(file, name)? else { return Ok(None) };
        PosixAcl::from_bytes(&bytes).map(Some).ok_or(Status::Io.into())
    }

    /// A list in the kernel's representation.
    fn read_acl(&self, file: BorrowedFd<'_>, name: &CStr) -> Result<Option<Vec<u8>>> {
        // getxattr(2) takes no `O_PATH` descriptor, so the file is named by a path.
        self.proc_entry(file)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut bytes = vec![0; USUAL_XATTR];
        loop {
            match getxattr(&*path, name, &mut bytes[..]) {
                Ok(length) => {
                    bytes.truncate(length);
                    return Ok(Some(bytes));
                }
                Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
                Err(Errno::RANGE) if bytes.len() < MAX_XATTR => bytes.resize(MAX_XATTR, 0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// As the server's translation of the same errno.
fn of_acl(errno: Errno) -> Failure {
    match errno {
        Errno::ACCESS | Errno::PERM => Status::NotPermitted.into(),
        Errno::TOOBIG | Errno::RANGE => Status::AttributeTooBig.into(),
        Errno::INVAL => Status::Invalid.into(),
        other => other.into(),
    }
}
