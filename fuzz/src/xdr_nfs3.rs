//! Arguments and results of NFSv3 and of every program beside it.

use super::round_trip::round_trip;
use proto::{localio, mount3, nfs3, rpcbind};

/// Decodes `data` as each type in turn.
pub fn run(data: &[u8]) {
    round_trip!(
        data, usize::eq;
        nfs3::Getattr3Args<'_>,
        nfs3::Getattr3Res,
        nfs3::Setattr3Args<'_>,
        nfs3::Setattr3Res,
        nfs3::Lookup3Args<'_>,
        nfs3::Lookup3Res<'_>,
        nfs3::Access3Args<'_>,
        nfs3::Access3Res,
        nfs3::Readlink3Args<'_>,
        nfs3::Readlink3Res<'_>,
        nfs3::Read3Args<'_>,
        nfs3::Read3Res<'_>,
        nfs3::Read3ResHead,
        nfs3::Write3Args<'_>,
        nfs3::Write3Head<'_>,
        nfs3::Write3Res,
        nfs3::Create3Args<'_>,
        nfs3::Create3Res<'_>,
        nfs3::Mkdir3Args<'_>,
        nfs3::Symlink3Args<'_>,
        nfs3::Mknod3Args<'_>,
        nfs3::Remove3Args<'_>,
        nfs3::Rename3Args<'_>,
        nfs3::Rename3Res,
        nfs3::Link3Args<'_>,
        nfs3::Link3Res,
        nfs3::Readdir3Args<'_>,
        nfs3::Readdir3Res<'_>,
        nfs3::Readdirplus3Args<'_>,
        nfs3::Readdirplus3Res<'_>,
        nfs3::Fsstat3Res,
        nfs3::Fsinfo3Res,
        nfs3::Pathconf3Res,
        nfs3::Commit3Args<'_>,
        nfs3::Commit3Res,
        mount3::Dirpath<'_>,
        mount3::Mountres3<'_>,
        mount3::Mountlist<'_>,
        mount3::Exports<'_>,
        localio::UuidIsLocalArgs,
        rpcbind::Mapping,
        rpcbind::Pmaplist,
        rpcbind::Rpcb<'_>,
        rpcbind::Rpcblist<'_>,
    );
    if let Some(address) = rpcbind::from_universal(data) {
        assert_eq!(rpcbind::from_universal(rpcbind::to_universal(address).as_bytes()), Some(address));
    }
}
