//! Access control lists: the extended attributes in which Linux keeps them.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::Instant;

use rustix::fs::{XattrFlags, removexattr, setxattr};
use rustix::io::Errno;
use sys::{KernelHandle, xattr};

use super::descriptors::Descriptor;
use super::failure::{Failure, Result};
use super::local::{Call, LocalTree};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{Attributes, FileKind, PosixAcl, PosixAcls, SetAcl};

/// The kernel's limit on an extended attribute in bytes (`XATTR_SIZE_MAX`).
const MAX_XATTR: usize = 64 << 10;
/// Room for some sixty entries of a list.
const USUAL_XATTR: usize = 512;
const ACCESS_ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// How a file is named whose list is read.
enum Named<'a> {
    /// By its descriptor.
    Descriptor(&'a Descriptor),
    /// The same, of a directory.
    Directory(&'a Descriptor),
    /// By its name in a directory, which may belong to another file by now.
    Entry(&'a Descriptor, &'a CStr),
}

impl LocalTree {
    /// As the server's answer to GETACL: made of the mode if there is no list.
    pub(crate) fn acls(&self, call: Call<'_>, file: &Handle) -> Result<PosixAcls> {
        call.check_waits()?;
        let asked = Instant::now();
        let descriptor = self.find(call, file)?;
        let attributes = self.live(&descriptor)?;
        self.report(file, None, Some(attributes), asked);
        let acls = match attributes.kind {
            FileKind::Symlink => PosixAcls::of_mode(attributes.mode),
            FileKind::Directory => PosixAcls {
                default: self.acl(&Named::Directory(&descriptor), DEFAULT_ACL)?,
                ..self.access_acl(&Named::Directory(&descriptor), &attributes)?
            },
            _ => match self.acls_by_name(file, &descriptor, &attributes) {
                Some(acls) => acls,
                None => self.access_acl(&Named::Descriptor(&descriptor), &attributes)?,
            },
        };
        self.report_acls(file, &attributes, &acls, asked);
        Ok(acls)
    }

    /// Reads the list by the file's name. `None` if that fails, or if the file may not have had this name all
    /// the time since it had the attributes: whatever takes a name away from a file changes its ctime.
    fn acls_by_name(&self, handle: &Handle, file: &Descriptor, before: &Attributes) -> Option<PosixAcls> {
        let (directory, name) = self.place(handle)?;
        let acls = self.access_acl(&Named::Entry(&directory, &name), before).ok()?;
        let identity = self.identity(&KernelHandle::of(&*directory, &name).ok()?).ok()?;
        let is_still = identity == file.identity && self.attributes_of(file).ok()?.ctime == before.ctime;
        is_still.then_some(acls)
    }

    /// The access list of a file with these attributes.
    fn access_acl(&self, named: &Named<'_>, attributes: &Attributes) -> Result<PosixAcls> {
        let of_mode = PosixAcls::of_mode(attributes.mode);
        let Some(access) = self.acl(named, ACCESS_ACL)? else { return Ok(of_mode) };
        // NFSACL doesn't distinguish such a mask from none.
        let says_nothing = !access.has_names() && access.mask == Some(access.group);
        let access = PosixAcl { mask: access.mask.filter(|_| !says_nothing), ..access };
        Ok(PosixAcls { access, ..of_mode })
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
        match xattr::get_of_directory(directory, DEFAULT_ACL, &mut []) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(of_reading(errno)),
        }
    }

    /// A list, if the file has one.
    fn acl(&self, named: &Named<'_>, name: &CStr) -> Result<Option<PosixAcl>> {
        let Some(bytes) = self.read_acl(named, name)? else { return Ok(None) };
        PosixAcl::from_bytes(&bytes).map(Some).ok_or(Status::Io.into())
    }

    /// A list in the kernel's representation.
    fn read_acl(&self, named: &Named<'_>, list: &CStr) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; USUAL_XATTR];
        loop {
            let read = match named {
                Named::Descriptor(file) => xattr::get(file, list, &mut bytes),
                Named::Directory(directory) => xattr::get_of_directory(directory, list, &mut bytes),
                Named::Entry(directory, name) => xattr::get_at(directory, name, list, &mut bytes),
            };
            match read {
                Ok(length) => {
                    bytes.truncate(length);
                    return Ok(Some(bytes));
                }
                Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
                Err(Errno::RANGE) if bytes.len() < MAX_XATTR => bytes.resize(MAX_XATTR, 0),
                Err(errno) => return Err(of_reading(errno)),
            }
        }
    }
}

/// Why a list can't be read.
fn of_reading(errno: Errno) -> Failure {
    // Without /proc the server has to read it.
    if errno == Errno::NOENT { Failure::NotLocal } else { errno.into() }
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
