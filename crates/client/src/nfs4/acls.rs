//! Access control lists as they are on the wire: the attribute `acl` (RFC 8881 section 6.2.1) in XDR, which
//! Linux's client shows as `system.nfs4_acl`.

use proto::nfs4::attributes as number;
use proto::nfs4::{Acl4, Bitmap4, Fattr4, Nfsstat4, Operation as Op, Setattr4Args};
use xdr::{Decoder, Opaque};

use super::Nfs4;
use super::compound::{Compound, malformed, refused};
use super::convert::{ACL, FILE};
use super::operations::ANONYMOUS;
use crate::error::{Error, Result, Status};
use crate::types::{Handle, Operation};
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
}
