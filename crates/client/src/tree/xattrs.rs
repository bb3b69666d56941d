//! Extended attributes of the namespace `user.`: GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, LocalTree};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{Attributes, FileKind, SetXattr};

/// The kernel's limits on a value and on a list in bytes (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const MAX_SIZE: usize = 64 << 10;
/// The kernel's limit on a name with its namespace (`XATTR_NAME_MAX`).
const MAX_NAME: usize = 255;
const NAMESPACE: &[u8] = b"user.";

impl LocalTree {
    pub(crate) fn get_xattr(&self, call: Call<'_>, file: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        call.check_waits()?;
        let name = full_name(name)?;
        let descriptor = self.find(call, file)?;
        let path = self.xattr_path(&descriptor, &self.live(&descriptor)?)?;
        let mut value = vec![0; MAX_SIZE];
        let length = getxattr(&*path, &*name, &mut value[..]).map_err(of_xattr)?;
        value.truncate(length);
        Ok(value)
    }

    pub(crate) fn set_xattr(
        &self,
        call: Call<'_>,
        file: &Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        call.check_waits()?;
        let name = full_name(name)?;
        let flags = match how {
            SetXattr::Either => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        let changed = self.changing(call, file, |descriptor, before| {
            let path = self.xattr_path(descriptor, before)?;
            setxattr(&*path, &*name, value, flags).map_err(of_xattr)
        });
        changed.map(|((), _)| ())
    }

    pub(crate) fn remove_xattr(&self, call: Call<'_>, file: &Handle, name: &[u8]) -> Result<()> {
        call.check_waits()?;
        let name = full_name(name)?;
        let changed = self.changing(call, file, |descriptor, before| {
            let path = self.xattr_path(descriptor, before)?;
            removexattr(&*path, &*name).map_err(of_xattr)
        });
        changed.map(|((), _)| ())
    }

    /// All names, without the namespace.
    pub(crate) fn list_xattrs(&self, call: Call<'_>, file: &Handle) -> Result<Vec<Vec<u8>>> {
        call.check_waits()?;
        let descriptor = self.find(call, file)?;
        let path = self.xattr_path(&descriptor, &self.live(&descriptor)?)?;
        let mut list = vec![0; MAX_SIZE];
        let length = match listxattr(&*path, &mut list[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            other => other.map_err(of_xattr)?,
        };
        let names = list[..length].split(|byte| *byte == 0);
        Ok(names.filter_map(|name| name.strip_prefix(NAMESPACE)).map(<[u8]>::to_vec).collect())
    }

    /// A path of a file for system calls on extended attributes, which take no `O_PATH` descriptor.
    fn xattr_path(&self, file: &Descriptor, attributes: &Attributes) -> Result<String> {
        match attributes.kind {
            FileKind::Regular | FileKind::Directory => {}
            _ => return Err(Status::NotSupported.into()),
        }
        self.proc_entry(file.as_fd())?;
        Ok(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
    }
}

/// The name with its namespace.
fn full_name(name: &[u8]) -> Result<CString> {
    if name.is_empty() {
        return Err(Status::Invalid.into());
    }
    if name.len() + NAMESPACE.len() > MAX_NAME {
        return Err(Status::NameTooLong.into());
    }
    CString::new([NAMESPACE, name].concat()).map_err(|_| Status::Invalid.into())
}

/// As the server's translation of the same errno.
fn of_xattr(errno: Errno) -> Failure {
    match errno {
        Errno::NODATA => Status::NoAttribute.into(),
        Errno::TOOBIG | Errno::RANGE => Status::AttributeTooBig.into(),
        Errno::PERM => Status::Access.into(),
        other => other.into(),
    }
}
