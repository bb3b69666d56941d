//! Every wire type but NFSv4's survives the wire (see `sample::survives`).

use proto::nfs3::*;
use proto::{localio, mount3, rpcbind};

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
