//! `fs_locations` (RFC 8881 section 11.16), and filesystems that are absent (section 11.3).
//!
//! An export with `refer=` is absent to clients of NFSv4: operations on it are NFS4ERR_MOVED, except those
//! that read the attributes by which clients find the other servers.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use exports::{FsLocation, FsLocations};
use proto::nfs4::attributes::{FS_LOCATIONS, FSID, MOUNTED_ON_FILEID, RDATTR_ERROR};
use proto::nfs4::{Bitmap4, Fsid4};
use xdr::Encoder;

use crate::authorization::access::ExportAccess;

/// The attributes of an absent filesystem.
pub(super) const ABSENT: Bitmap4 = Bitmap4::of(&[RDATTR_ERROR, FSID, FS_LOCATIONS, MOUNTED_ON_FILEID]);

/// The value of `fs_locations`.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    /// The path of the filesystem on this server.
    root: PathBuf,
    others: Vec<FsLocation>,
}

impl Locations {
    /// Those of an export in a namespace whose root is `top`; empty unless they are `requested`.
    pub fn of(export: &ExportAccess, top: impl FnOnce() -> PathBuf, requested: &Bitmap4) -> Self {
        if !requested.contains(FS_LOCATIONS) {
            return Self::default();
        }
        let others = export.options().locations.as_ref().map(|locations| locations.list.clone());
        let root = export.location().strip_prefix(top()).unwrap_or(export.location());
        Self { root: root.to_owned(), others: others.unwrap_or_default() }
    }

    /// Appends the attribute.
    pub fn put(&self, to: &mut Encoder) {
        put_path(self.root.as_os_str().as_bytes(), to);
        to.length(self.others.len());
        for location in &self.others {
            to.length(location.hosts.len());
            location.hosts.iter().for_each(|host| to.opaque(host.as_bytes()));
            put_path(location.path.as_bytes(), to);
        }
    }
}

/// The fsid of an absent filesystem: that of no other filesystem, and the same in every run.
pub(super) const fn absent_fsid(export: u32) -> Fsid4 {
    Fsid4 { major: u64::MAX, minor: export as u64 }
}

impl ExportAccess {
    /// Whether the export refers clients of NFSv4 to other servers.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.options().locations, Some(FsLocations { refers: true, .. }))
    }
}

/// A `pathname4`.
fn put_path(path: &[u8], to: &mut Encoder) {
    let parts = || path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    to.length(parts().count());
    parts().for_each(|part| to.opaque(part));
}
