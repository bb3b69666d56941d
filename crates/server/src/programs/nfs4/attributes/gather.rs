//! Gathering an object's attributes, as far as they were requested.

use std::path::PathBuf;

use acl::to_nfs4;
use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Fsid4, Nfsstat4};
use store::{Attributes, FileKind, PosixAcls, UserContext};

use super::fs_facts::FsFacts;
use super::locations::{Locations, absent_fsid};
use super::{ObjectAttributes, PSEUDO_FSID, of_pseudo};
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::namespace::{Namespace, PseudoId};
use crate::programs::nfs4::nested;
use crate::programs::nfs4::object::{File, Handle, Object};
use crate::programs::nfs4::status::{self, Result};

impl<'a> Context<'a> {
    /// The attributes of a directory of the pseudo-filesystem.
    pub fn pseudo_attributes(&self, namespace: &Namespace, id: PseudoId) -> Result<ObjectAttributes<'a>> {
        let children = namespace.directory(id).ok_or(Nfsstat4::Stale)?.children.len();
        let attributes = of_pseudo(id, children, namespace.change());
        Ok(ObjectAttributes {
            minor: self.minor,
            attributes,
            handle: Object::Pseudo(id).handle(),
            fsid: PSEUDO_FSID,
            mounted_on: id.fileid(),
            facts: FsFacts::NONE,
            acl: to_nfs4(&PosixAcls::of_mode(attributes.mode), true),
            owners: &self.service.owners,
            lease: self.lease_seconds(),
            locations: Locations::default(),
            is_absent: false,
        })
    }

    /// A file's attributes, as far as they are `requested`; `attributes` are the store's.
    ///
    /// # Errors
    /// `Moved` in an absent filesystem, unless `fs_locations` is requested.
    pub fn file_attributes(
        &self,
        user_context: &UserContext<'_>,
        file: &File,
        attributes: &Attributes,
        requested: &Bitmap4,
    ) -> Result<ObjectAttributes<'a>> {
        let is_absent = file.admitted.is_absent();
        if is_absent && !requested.contains(number::FS_LOCATIONS) {
            return Err(Nfsstat4::Moved);
        }
        let is_root = file.admitted.root().is_ok_and(|root| root == *file.node.handle());
        let mounted_on = if is_root && requested.contains(number::MOUNTED_ON_FILEID) {
            let covered = nested::mounted_on(self, file)?;
            covered.unwrap_or_else(|| PseudoId::of_path(file.admitted.location()).fileid())
        } else {
            attributes.fileid
        };
        let top = || {
            let root = nested::namespace(self);
            root.root_export().map_or_else(PathBuf::new, |root| root.location().to_owned())
        };
        let acl = if requested.contains(number::ACL) {
            let lists = user_context.acls(&file.node).map_err(status::of_store)?;
            to_nfs4(&lists, file.node.kind() == FileKind::Directory)
        } else {
            Vec::new()
        };
        Ok(ObjectAttributes {
            minor: self.minor,
            attributes: *attributes,
            handle: Handle::File(*file.node.handle()),
            fsid: if is_absent {
                absent_fsid(file.admitted.export())
            } else {
                Fsid4 { major: attributes.fsid, minor: 0 }
            },
            mounted_on,
            facts: FsFacts::of(user_context, &file.node, requested)?,
            acl,
            owners: &self.service.owners,
            lease: self.lease_seconds(),
            locations: Locations::of(&file.admitted, top, requested),
            is_absent,
        })
    }

    fn lease_seconds(&self) -> u32 {
        u32::try_from(self.service.state.lease.as_secs()).unwrap_or(u32::MAX)
    }
}
