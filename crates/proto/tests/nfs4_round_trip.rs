//! Every wire type of NFSv4: what is encoded is decoded again, whole; cut anywhere, it is an error; and bytes that are
//! anything at all decode to an error or to a value that survives the same.

extern crate samehost_proto as proto;

mod sample;

use proptest::collection::vec;
use proptest::prelude::*;
use proto::nfs4::*;
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
    fattr4: Fattr4<'_>;
    stateid4: Stateid4;
    nfstime4: Nfstime4;
    settime4: Settime4;
    fsid4: Fsid4;
    specdata4: Specdata4;
    change_info4: ChangeInfo4;
    nfs_ftype4: NfsFtype4;
    stable_how4: StableHow4;
    state_owner4: StateOwner4<'_>;
    read4_args: Read4Args;
    read4_res_ok: Read4ResOk<'_>;
    write4_args: Write4Args<'_>;
    write4_res_ok: Write4ResOk;
    commit4_args: Commit4Args;
    allocate4_args: Allocate4Args;
    data_content4: DataContent4;
    seek4_args: Seek4Args;
    seek_res4: SeekRes4;
    netaddr4: Netaddr4<'_>;
    netloc4: Netloc4<'_>;
    copy4_args: Copy4Args<'_>;
    write_response4: WriteResponse4;
    copy4_res_ok: Copy4ResOk;
    clone4_args: Clone4Args;
    io_advise4_args: IoAdvise4Args;
    xattr4_args: Xattr4Args<'_>;
    setxattr4_args: Setxattr4Args<'_>;
    setxattr_option4: SetxattrOption4;
    listxattrs4_args: Listxattrs4Args;
    listxattrs4_res_ok: Listxattrs4ResOk<'_>;
    access4_args: Access4Args;
    access4_res_ok: Access4ResOk;
    getattr4_args: Getattr4Args;
    setattr4_args: Setattr4Args<'_>;
    verify4_args: Verify4Args<'_>;
    readdir4_args: Readdir4Args;
    nfs_lock_type4: NfsLockType4;
    open_to_lock_owner4: OpenToLockOwner4<'_>;
    exist_lock_owner4: ExistLockOwner4;
    locker4: Locker4<'_>;
    lock4_args: Lock4Args<'_>;
    lock4_denied: Lock4Denied<'_>;
    lockt4_args: Lockt4Args<'_>;
    locku4_args: Locku4Args;
    createtype4: Createtype4<'_>;
    create4_args: Create4Args<'_>;
    name4_args: Name4Args<'_>;
    putfh4_args: Putfh4Args<'_>;
    rename4_args: Rename4Args<'_>;
    rename4_res_ok: Rename4ResOk;
    createhow4: Createhow4<'_>;
    creatverfattr: Creatverfattr<'_>;
    openflag4: Openflag4<'_>;
    open_claim4: OpenClaim4<'_>;
    open_claim_delegate_cur4: OpenClaimDelegateCur4<'_>;
    open4_args: Open4Args<'_>;
    nfsace4: Nfsace4<'_>;
    open_read_delegation4: OpenReadDelegation4<'_>;
    nfs_space_limit4: NfsSpaceLimit4;
    nfs_modified_limit4: NfsModifiedLimit4;
    open_write_delegation4: OpenWriteDelegation4<'_>;
    open_none_delegation4: OpenNoneDelegation4;
    open_delegation4: OpenDelegation4<'_>;
    open4_res_ok: Open4ResOk<'_>;
    close4_args: Close4Args;
    open_downgrade4_args: OpenDowngrade4Args;
    open_confirm4_args: OpenConfirm4Args;
    client_owner4: ClientOwner4<'_>;
    state_protect_ops4: StateProtectOps4;
    ssv_sp_parms4: SsvSpParms4<'_>;
    state_protect4_a: StateProtect4A<'_>;
    nfs_impl_id4: NfsImplId4<'_>;
    exchange_id4_args: ExchangeId4Args<'_>;
    server_owner4: ServerOwner4<'_>;
    state_protect4_r: StateProtect4R;
    exchange_id4_res_ok: ExchangeId4ResOk<'_>;
    channel_attrs4: ChannelAttrs4;
    authsys_parms: AuthsysParms<'_>;
    gss_cb_handles4: GssCbHandles4<'_>;
    callback_sec_parms4: CallbackSecParms4<'_>;
    create_session4_args: CreateSession4Args<'_>;
    create_session4_res_ok: CreateSession4ResOk;
    destroy_session4_args: DestroySession4Args;
    clientid4_args: Clientid4Args;
    stateid4_args: Stateid4Args;
    sequence4_args: Sequence4Args;
    sequence4_res_ok: Sequence4ResOk;
    test_stateid4_args: TestStateid4Args;
    reclaim_complete4_args: ReclaimComplete4Args;
    bind_conn_to_session4_args: BindConnToSession4Args;
    channel_dir_from_client4: ChannelDirFromClient4;
    bind_conn_to_session4_res_ok: BindConnToSession4ResOk;
    backchannel_ctl4_args: BackchannelCtl4Args<'_>;
    secinfo_style4: SecinfoStyle4;
    nfsstat4: Nfsstat4;
    nfs_client_id4: NfsClientId4<'_>;
    setclientid4_args: Setclientid4Args<'_>;
    setclientid4_res_ok: Setclientid4ResOk;
    setclientid_confirm4_args: SetclientidConfirm4Args;
    release_lockowner4_args: ReleaseLockowner4Args<'_>;
    bitmap4: Bitmap4;
}
