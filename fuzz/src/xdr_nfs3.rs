//! Arguments and results of every program: whatever bytes decode to a value, that value encodes to as many bytes,
//! and those decode to it again.

use proto::{localio, mount3, nfs3, rpcbind};
use std::fmt::Debug;
use xdr::{Decode, Decoder, Encode, Encoder};

/// Reads `data` as each type in turn.
pub fn run(data: &[u8]) {
    macro_rules! there_and_back {
        ($($name:ty,)*) => {$(
            let mut from = Decoder::new(data);
            if let Ok(value) = from.get::<$name>() {
                let mut to = Encoder::new();
                to.put(&value);
                again(&value, to.as_slice(), data.len() - from.rest().len());
            }
        )*};
    }
    there_and_back!(
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

/// `bytes`, which `value` was encoded to, are as many as it was decoded from, and are it. What the padding held may
/// differ.
fn again<'a, T: Encode + Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8], consumed: usize) {
    assert_eq!(bytes.len(), consumed, "{value:?}");
    let mut from = Decoder::new(bytes);
    assert_eq!(from.get::<T>().as_ref(), Ok(value));
    assert_eq!(from.finish(), Ok(()), "{value:?}");
}
