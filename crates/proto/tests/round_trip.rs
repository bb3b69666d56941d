//! Every wire type: what is encoded is decoded again, whole; cut anywhere, it is an error; and bytes that are
//! anything at all decode to an error or to a value that survives the same.

extern crate samehost_proto as proto;

mod sample;

use proptest::collection::vec;
use proptest::prelude::*;
use proto::nfs3::*;
use proto::{localio, mount3, rpcbind};
use sample::Source;
use std::fmt::Debug;
use xdr::{Decode, Decoder, Encode, Encoder};

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

/// `bytes`, which `value` was encoded to, are `value`, and no shorter part of them is a whole value.
fn survives<'a, T: Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(bytes.len() % xdr::UNIT, 0);
    let mut from = Decoder::new(bytes);
    let again = from.get::<T>();
    prop_assert_eq!(again.as_ref(), Ok(value));
    prop_assert_eq!(from.finish(), Ok(()));
    for end in 0..bytes.len() {
        prop_assert!(Decoder::new(&bytes[..end]).get::<T>().is_err(), "{:?} cut at {}", value, end);
    }
    Ok(())
}

macro_rules! round_trips {
    ($($test:ident: $type:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $test(seed in vec(any::<u8>(), 0..300)) {
                    let value: $type = Source::new(&seed).any();
                    let bytes = encoded(&value);
                    survives(&value, &bytes)?;
                    // Not a value at all, as a rule: it may be refused, it must not panic.
                    if let Ok(value) = Decoder::new(&seed).get::<$type>() {
                        let bytes = encoded(&value);
                        survives(&value, &bytes)?;
                    }
                    // Nearly a value.
                    if !bytes.is_empty() {
                        let mut damaged = bytes.clone();
                        let at = usize::from(seed.last().copied().unwrap_or(0)) % damaged.len();
                        damaged[at] ^= 1 << (at % 8);
                        let _ = Decoder::new(&damaged).get::<$type>();
                    }
                }
            )*
        }
    };
}

round_trips! {
    nfsstat3: Nfsstat3;
    fattr3: Fattr3;
    post_op_attr: PostOpAttr;
    pre_op_attr: PreOpAttr;
    wcc_data: WccData;
    sattr3: Sattr3;
    sattrguard3: Sattrguard3;
    diropargs3: Diropargs3<'_>;
    createhow3: Createhow3;
    mknoddata3: Mknoddata3;
    entry3: Entry3<'_>;
    entryplus3: Entryplus3<'_>;
    dirlist_tail: DirlistTail;
    getattr_args: Getattr3Args<'_>;
    getattr_res: Getattr3Res;
    setattr_args: Setattr3Args<'_>;
    setattr_res: Setattr3Res;
    lookup_args: Lookup3Args<'_>;
    lookup_res: Lookup3Res<'_>;
    access_args: Access3Args<'_>;
    access_res: Access3Res;
    readlink_args: Readlink3Args<'_>;
    readlink_res: Readlink3Res<'_>;
    read_args: Read3Args<'_>;
    read_res: Read3Res<'_>;
    read_res_head: Read3ResHead;
    write_args: Write3Args<'_>;
    write_head: Write3Head<'_>;
    write_res: Write3Res;
    create_args: Create3Args<'_>;
    create_res: Create3Res<'_>;
    mkdir_args: Mkdir3Args<'_>;
    mkdir_res: Mkdir3Res<'_>;
    symlink_args: Symlink3Args<'_>;
    symlink_res: Symlink3Res<'_>;
    mknod_args: Mknod3Args<'_>;
    mknod_res: Mknod3Res<'_>;
    remove_args: Remove3Args<'_>;
    remove_res: Remove3Res;
    rmdir_args: Rmdir3Args<'_>;
    rmdir_res: Rmdir3Res;
    rename_args: Rename3Args<'_>;
    rename_res: Rename3Res;
    link_args: Link3Args<'_>;
    link_res: Link3Res;
    readdir_args: Readdir3Args<'_>;
    readdir_res: Readdir3Res<'_>;
    readdir_res_head: ReaddirResHead;
    readdirplus_args: Readdirplus3Args<'_>;
    readdirplus_res: Readdirplus3Res<'_>;
    fsstat_args: Fsstat3Args<'_>;
    fsstat_res: Fsstat3Res;
    fsinfo_args: Fsinfo3Args<'_>;
    fsinfo_res: Fsinfo3Res;
    pathconf_args: Pathconf3Args<'_>;
    pathconf_res: Pathconf3Res;
    commit_args: Commit3Args<'_>;
    commit_res: Commit3Res;

    mount_mnt_args: mount3::Dirpath<'_>;
    mount_mnt_res: mount3::Mountres3<'_>;
    mount_dump_res: mount3::Mountlist<'_>;
    mount_export_res: mount3::Exports<'_>;

    localio_uuid_is_local_args: localio::UuidIsLocalArgs;

    pmap_mapping: rpcbind::Mapping;
    pmap_dump_res: rpcbind::Pmaplist;
    rpcb: rpcbind::Rpcb<'_>;
    rpcb_dump_res: rpcbind::Rpcblist<'_>;
}
