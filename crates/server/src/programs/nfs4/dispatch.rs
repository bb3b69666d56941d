//! From an operation's number to the function that does it.

use proto::nfs4::{MinorVersion, Nfsstat4, Operation};
use xdr::{Decode, Decoder};

use super::Result;
use super::compound::Compound;
use super::ops::{
    attributes, back_channel, client, copy, create, delegation, directory, handles, lock, names, open, read,
    read_plus, session, space, stateids, write, xattrs,
};

/// Runs one operation; its result's body is in the reply if it succeeds.
pub(super) fn run(c: &mut Compound<'_>, operation: Operation, args: &mut Decoder<'_>) -> Result<()> {
    use Operation as Op;
    let v40 = c.minor == MinorVersion::V0;
    match operation {
        Op::Access => with(c, args, attributes::access),
        Op::Close => with(c, args, open::close),
        Op::Commit => with(c, args, write::commit),
        Op::Create => with(c, args, create::create),
        Op::Delegreturn => with(c, args, delegation::delegreturn),
        Op::WantDelegation => with(c, args, delegation::want),
        Op::Getattr => with(c, args, attributes::getattr),
        Op::Getfh => handles::getfh(c),
        Op::Link => with(c, args, names::link),
        Op::Lock => with(c, args, lock::lock),
        Op::Lockt => with(c, args, lock::lockt),
        Op::Locku => with(c, args, lock::locku),
        Op::Lookup => with(c, args, handles::lookup),
        Op::Lookupp => handles::lookupp(c),
        Op::Nverify => with(c, args, attributes::nverify),
        Op::Open => with(c, args, open::open),
        Op::OpenDowngrade => with(c, args, open::downgrade),
        Op::Putfh => with(c, args, handles::putfh),
        Op::Putpubfh | Op::Putrootfh => handles::putrootfh(c),
        Op::Read => with(c, args, read::read),
        Op::Readdir => with(c, args, directory::readdir),
        Op::Readlink => attributes::readlink(c),
        Op::Remove => with(c, args, names::remove),
        Op::Rename => with(c, args, names::rename),
        Op::Restorefh => handles::restorefh(c),
        Op::Savefh => handles::savefh(c),
        Op::Secinfo => with(c, args, handles::secinfo),
        Op::Setattr => with(c, args, attributes::setattr),
        Op::Verify => with(c, args, attributes::verify),
        Op::Write => with(c, args, write::write),
        Op::BackchannelCtl => with(c, args, back_channel::backchannel_ctl),
        Op::BindConnToSession => with(c, args, back_channel::bind_conn_to_session),
        Op::ExchangeId => with(c, args, session::exchange_id),
        Op::CreateSession => with(c, args, session::create_session),
        Op::DestroySession => with(c, args, session::destroy_session),
        Op::DestroyClientid => with(c, args, session::destroy_clientid),
        Op::FreeStateid => with(c, args, stateids::free_stateid),
        Op::ReclaimComplete => with(c, args, session::reclaim_complete),
        Op::SecinfoNoName => with(c, args, handles::secinfo_no_name),
        Op::TestStateid => with(c, args, stateids::test_stateid),
        Op::Allocate => with(c, args, space::allocate),
        Op::Deallocate => with(c, args, space::deallocate),
        Op::Seek => with(c, args, space::seek),
        Op::ReadPlus => with(c, args, read_plus::read_plus),
        Op::IoAdvise => with(c, args, space::io_advise),
        Op::Copy => with(c, args, copy::copy),
        Op::OffloadCancel => with(c, args, copy::offload_cancel),
        Op::OffloadStatus => with(c, args, copy::offload_status),
        Op::Clone => with(c, args, copy::clone),
        Op::Getxattr => with(c, args, xattrs::get),
        Op::Setxattr => with(c, args, xattrs::set),
        Op::Listxattrs => with(c, args, xattrs::list),
        Op::Removexattr => with(c, args, xattrs::remove),
        Op::Setclientid if v40 => with(c, args, client::setclientid),
        Op::SetclientidConfirm if v40 => with(c, args, client::setclientid_confirm),
        Op::Renew if v40 => with(c, args, client::renew),
        Op::OpenConfirm if v40 => with(c, args, client::open_confirm),
        Op::ReleaseLockowner if v40 => with(c, args, client::release_lockowner),
        // `compound` runs it.
        Op::Sequence => Err(Nfsstat4::SequencePos),
        // What 4.1 has only to refuse, and what is optional and not here.
        Op::OpenConfirm
        | Op::Renew
        | Op::Setclientid
        | Op::SetclientidConfirm
        | Op::ReleaseLockowner
        | Op::Openattr
        | Op::Delegpurge
        | Op::GetDirDelegation
        | Op::Getdeviceinfo
        | Op::Getdevicelist
        | Op::Layoutcommit
        | Op::Layoutget
        | Op::Layoutreturn
        | Op::SetSsv
        | Op::CopyNotify
        | Op::Layouterror
        | Op::Layoutstats
        | Op::WriteSame => Err(Nfsstat4::Notsupp),
    }
}

/// Decodes an operation's arguments and runs it.
fn with<'a, A: Decode<'a>>(
    c: &mut Compound<'_>,
    args: &mut Decoder<'a>,
    operation: impl FnOnce(&mut Compound<'_>, A) -> Result<()>,
) -> Result<()> {
    let args = args.get().map_err(|_| Nfsstat4::Badxdr)?;
    operation(c, args)
}
