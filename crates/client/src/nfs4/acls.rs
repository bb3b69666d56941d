//! The attribute `acl` (RFC 8881 section 6.2.1): as it is on the wire, which Linux's client shows as
//! `system.nfs4_acl`, and as POSIX lists.

use proto::nfs4::attributes as number;
use proto::nfs4::{Acl4, Bitmap4, Fattr4, Nfsstat4, Operation as Op, Setattr4Args};
use xdr::{Decoder, Opaque};

use super::compound::{Compound, malformed, refused};
use super::convert::{ACL, FILE, FILE_AND_ACL};
use super::state::ANONYMOUS;
use super::{Nfs4, aces, reply_attributes};
use crate::error::{Error, Result, Status};
use crate::types::{FileKind, Handle, Operation, PosixAcls, ReplyAcls, SetAcl};
use crate::user::User;

/// Whether these bytes are a list and nothing else.
fn is_acl(bytes: &[u8]) -> bool {
    let mut from = Decoder::new(bytes);
    from.get::<Acl4<'_>>().is_ok() && from.rest().is_empty()
}

impl Nfs4 {
    /// The list, as the server sends it.
    pub(super) async fn get_acl(&self, user: &User, file: &Handle) -> Result<Vec<u8>> {
        let compound = Compound::new().put_fh(file).get_attributes(&ACL);
        let reply = self.call(user, Operation::Getacl, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let attributes: Fattr4<'_> = results.get(Op::Getattr)?;
        match attributes.attrmask {
            mask if mask == ACL && is_acl(attributes.attr_vals.0) => Ok(attributes.attr_vals.0.to_vec()),
            // A server without lists leaves the attribute out.
            Bitmap4::EMPTY => Err(refused(Op::Getattr, Nfsstat4::Attrnotsupp)),
            _ => Err(malformed(Op::Getattr.name())),
        }
    }

    /// Sets the list.
    pub(super) async fn set_acl(&self, user: &User, file: &Handle, acl: &[u8]) -> Result<()> {
        if !is_acl(acl) {
            let object = "the NFSv4 access control list".to_owned();
            return Err(Error::Status { object, status: Status::Invalid });
        }
        let report = self.report();
        let attributes = Fattr4 { attrmask: Bitmap4::of(&[number::ACL]), attr_vals: Opaque(acl) };
        let args = Setattr4Args { stateid: ANONYMOUS, obj_attributes: attributes };
        let compound = Compound::once().put_fh(file).then(Op::Setattr, &args).get_attributes(&FILE);
        let reply = self.call(user, Operation::Setacl, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let _set: Bitmap4 = results.get(Op::Setattr)?;
        report.file(&mut results, file, None);
        Ok(())
    }

    /// The lists as POSIX ones, and whether the file is a directory.
    pub(super) async fn get_posix_acls(
        &self,
        user: &User,
        file: &Handle,
    ) -> Result<(bool, Result<PosixAcls>)> {
        let report = self.report();
        let compound = Compound::new().put_fh(file).get_attributes(&FILE_AND_ACL);
        let reply = self.call(user, Operation::Getacl, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let attributes = reply_attributes(&mut results)?;
        let known = attributes.file().ok_or_else(|| malformed(Op::Getattr.name()))?;
        report.send(file, None, Some(known));
        let directory = known.kind == FileKind::Directory;
        let acls = attributes.acls(directory);
        report.acls(file, &known, &acls);
        let acls = match acls {
            ReplyAcls::Posix(acls) => Ok(acls),
            ReplyAcls::NoPosix => Err(Error::NoPosixAcl),
            ReplyAcls::NotSupported => Err(refused(Op::Getattr, Nfsstat4::Attrnotsupp)),
        };
        Ok((directory, acls))
    }

    /// Changes one of the POSIX lists. The attribute has both, so the other one must be known.
    pub(super) async fn change_posix_acl(&self, user: &User, file: &Handle, change: &SetAcl) -> Result<()> {
        let refusal = |status| Error::Status { object: "the POSIX access control list".to_owned(), status };
        let (directory, acls) = self.get_posix_acls(user, file).await?;
        let mut must_remove = false;
        let acls = match (change, acls) {
            (SetAcl::Access(access), _) if !directory => PosixAcls { access: access.clone(), default: None },
            (SetAcl::Default(None), _) if !directory => return Ok(()),
            (SetAcl::Default(Some(_)), _) if !directory => return Err(refusal(Status::Invalid)),
            (change, acls) => {
                let mut acls = acls?;
                let had_default = acls.default.is_some();
                change.apply(&mut acls);
                must_remove = had_default && acls.default.is_none();
                acls
            }
        };
        let value = aces::encoded(&acls, directory).ok_or_else(|| refusal(Status::AttributeTooBig))?;
        self.set_acl(user, file, &value).await?;
        // Linux's server (seen with 6.1 and 6.12) sets the rest of the list, keeps the entries that are
        // inherited, and reports success. setfacl(1) ignores ENOTSUP here.
        if must_remove
            && let (_, Ok(PosixAcls { default: Some(_), .. })) = self.get_posix_acls(user, file).await?
        {
            return Err(Error::Status {
                object: "removing the default access control list, which the server keeps".to_owned(),
                status: Status::NotPermitted,
            });
        }
        Ok(())
    }
}
