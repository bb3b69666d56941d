//! Extended attributes of the namespace `user.` (RFC 8276), which NFSv4.2 has.

use proto::nfs4::{
    ChangeInfo4, Listxattrs4Args, Listxattrs4ResOk, MAX_XATTR, Operation as Op, Setxattr4Args,
    SetxattrOption4, Xattr4Args,
};
use xdr::Opaque;

use super::Nfs4;
use super::compound::Compound;
use super::convert::FILE;
use super::open::before;
use crate::error::{Error, Result, Status};
use crate::types::{Handle, Operation, SetXattr, XattrPage};
use crate::user::User;

/// The largest part of a list that is requested, in bytes: Linux has no longer lists (`XATTR_LIST_MAX`).
const MAX_PAGE: u32 = 64 << 10;

impl Nfs4 {
    /// GETXATTR.
    pub(super) async fn xattr(&self, user: &User, file: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        self.need_4_2(Op::Getxattr)?;
        let compound = Compound::new().put_fh(file).then(Op::Getxattr, &Xattr4Args { name: Opaque(name) });
        let reply = self.call(user, Operation::Getxattr, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let value: Opaque<'_, MAX_XATTR> = results.get(Op::Getxattr)?;
        Ok(value.0.to_vec())
    }

    /// SETXATTR.
    pub(super) async fn store_xattr(
        &self,
        user: &User,
        file: &Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.need_4_2(Op::Setxattr)?;
        if value.len() > MAX_XATTR {
            let object = Op::Setxattr.name().to_owned();
            return Err(Error::Status { object, status: Status::AttributeTooBig });
        }
        let option = match how {
            SetXattr::Either => SetxattrOption4::Either,
            SetXattr::Create => SetxattrOption4::Create,
            SetXattr::Replace => SetxattrOption4::Replace,
        };
        let args = Setxattr4Args { option, key: Opaque(name), value: Opaque(value) };
        let report = self.report();
        let compound = Compound::once().put_fh(file).then(Op::Setxattr, &args).get_attributes(&FILE);
        let reply = self.call(user, Operation::Setxattr, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let info: ChangeInfo4 = results.get(Op::Setxattr)?;
        report.file(&mut results, file, before(info));
        Ok(())
    }

    /// LISTXATTRS.
    pub(super) async fn xattr_page(&self, user: &User, file: &Handle, cookie: u64) -> Result<XattrPage> {
        self.need_4_2(Op::Listxattrs)?;
        let maxcount = MAX_PAGE.min(self.client.max_transfers().0);
        let compound =
            Compound::new().put_fh(file).then(Op::Listxattrs, &Listxattrs4Args { cookie, maxcount });
        let reply = self.call(user, Operation::Listxattrs, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let page: Listxattrs4ResOk<'_> = results.get(Op::Listxattrs)?;
        let names = page.names.0.iter().map(|name| name.0.to_vec()).collect();
        Ok(XattrPage { names, next: (!page.eof).then_some(page.cookie) })
    }

    /// REMOVEXATTR.
    pub(super) async fn delete_xattr(&self, user: &User, file: &Handle, name: &[u8]) -> Result<()> {
        self.need_4_2(Op::Removexattr)?;
        let report = self.report();
        let compound = Compound::once()
            .put_fh(file)
            .then(Op::Removexattr, &Xattr4Args { name: Opaque(name) })
            .get_attributes(&FILE);
        let reply = self.call(user, Operation::Removexattr, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let info: ChangeInfo4 = results.get(Op::Removexattr)?;
        report.file(&mut results, file, before(info));
        Ok(())
    }
}
