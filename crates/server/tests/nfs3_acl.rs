//! NFSACL: access control lists are the filesystem's own, and they are enforced.

mod common;

use std::os::unix::fs::PermissionsExt as _;

use common::{Client, Results, Scratch, encoded, open_server, sys};
use proto::nfs3::{ACCESS3_LOOKUP, Access3Args, Access3Res, Nfsstat3, Outcome, Procedure};
use proto::nfsacl::{
    self, Aclent, CLASS_OBJ, DEFAULT, GROUP_OBJ, Getacl3Args, Getacl3Res, NFS_ACL, NFS_ACLCNT, NFS_DFACL,
    OTHER_OBJ, Secattr, Setacl3Args, Setacl3Res, USER, USER_OBJ,
};
use rpc::message::ReplyStatus;
use xdr::{Array, Encode, Opaque};

const OUTCAST: u32 = 4321;

fn call(client: &mut Client, procedure: nfsacl::Procedure, args: &impl Encode) -> Results {
    let (status, results) = client.raw(nfsacl::PROGRAM, nfsacl::VERSION, procedure.number(), &encoded(args));
    assert_eq!(status, ReplyStatus::Success);
    results
}

fn get(client: &mut Client, file: &[u8], mask: u32) -> Secattr {
    let args = Getacl3Args { fh: Opaque(file), mask };
    match call(client, nfsacl::Procedure::Getacl, &args).get::<Getacl3Res>() {
        Outcome::Ok(ok) => {
            assert!(ok.attributes.is_some());
            ok.lists
        }
        Outcome::Fail(status, _) => panic!("{status:?}"),
    }
}

fn set(client: &mut Client, file: &[u8], lists: Secattr) -> Nfsstat3 {
    let args = Setacl3Args { fh: Opaque(file), lists };
    call(client, nfsacl::Procedure::Setacl, &args).get::<Setacl3Res>().status()
}

fn list(entries: &[(u32, u32, u32)]) -> Array<Aclent, { nfsacl::MAX_ENTRIES }> {
    Array(entries.iter().map(|(tag, id, perm)| Aclent { tag: *tag, id: *id, perm: *perm }).collect())
}

fn only(mask: u32, acl: &[(u32, u32, u32)]) -> Secattr {
    Secattr { mask, acl_count: acl.len() as u32, acl: list(acl), ..Secattr::default() }
}

#[test]
fn a_list_can_be_read_and_set_and_is_enforced() {
    let (scratch, _server, mut client) = open_server();
    std::fs::create_dir(scratch.at("dir")).unwrap();
    std::fs::set_permissions(scratch.at("dir"), std::fs::Permissions::from_mode(0o750)).unwrap();
    let root = client.mnt(&scratch.export()).unwrap();
    let dir = client.lookup(&root, "dir");
    let plain = [(USER_OBJ, 0, 7), (GROUP_OBJ, 0, 5), (CLASS_OBJ, 0, 5), (OTHER_OBJ, 0, 0)];
    let lists = get(&mut client, &dir, NFS_ACL | NFS_DFACL);
    assert_eq!((lists.acl, lists.acl_count, lists.default_count), (list(&plain), 4, 0));
    assert_eq!(
        get(&mut client, &dir, NFS_ACLCNT),
        Secattr { mask: NFS_ACLCNT, acl_count: 4, ..Secattr::default() }
    );

    let shut =
        [(USER_OBJ, 0, 7), (USER, OUTCAST, 0), (GROUP_OBJ, 0, 5), (CLASS_OBJ, 0, 5), (OTHER_OBJ, 0, 5)];
    assert_eq!(set(&mut client, &dir, only(NFS_ACL, &shut)), Nfsstat3::Ok);
    assert_eq!(get(&mut client, &dir, NFS_ACL).acl, list(&shut));
    assert_eq!(client.getattr(&dir).mode, 0o755, "the mode doesn't show the entry");
    for (uid, granted) in [(OUTCAST, 0), (OUTCAST + 1, ACCESS3_LOOKUP)] {
        client.credential = sys(uid, uid, &[]);
        let args = Access3Args { object: Opaque(&dir), access: ACCESS3_LOOKUP };
        match client.nfs(Procedure::Access, &args).get::<Access3Res>() {
            Outcome::Ok(ok) => assert_eq!(ok.access, granted, "{uid}"),
            Outcome::Fail(status, _) => panic!("{status:?}"),
        }
        assert_eq!(
            set(&mut client, &dir, only(NFS_ACL, &plain)),
            Nfsstat3::Perm,
            "only the owner may set it"
        );
    }

    // The default list is set by itself, and an empty list removes it.
    client.credential = sys(0, 0, &[]);
    let inherited = shut.map(|(tag, id, perm)| (tag | DEFAULT, id, perm));
    let lists =
        Secattr { mask: NFS_DFACL, default_count: 5, default: list(&inherited), ..Secattr::default() };
    assert_eq!(set(&mut client, &dir, lists), Nfsstat3::Ok);
    let both = get(&mut client, &dir, NFS_ACL | NFS_DFACL);
    assert_eq!((both.acl, both.default), (list(&shut), list(&inherited)));
    let file = client.create(&dir, "file").unwrap();
    assert!(get(&mut client, &file, NFS_ACL).acl.0.iter().any(|entry| entry.id == OUTCAST));
    assert_eq!(set(&mut client, &dir, only(NFS_ACL | NFS_DFACL, &plain)), Nfsstat3::Ok);
    let lists = get(&mut client, &dir, NFS_ACL | NFS_DFACL);
    assert_eq!((lists.acl, lists.default_count), (list(&plain), 0));
    assert_eq!(client.getattr(&dir).mode, 0o750);
}

#[test]
fn an_invalid_list_is_refused() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "file").unwrap();
    let three = [(USER_OBJ, 0, 7), (GROUP_OBJ, 0, 5), (OTHER_OBJ, 0, 5)];
    let twice = [three[0], three[0], three[1], three[2]];
    for lists in [
        only(1 << 8, &three),
        only(NFS_ACL, &three[..2]),
        only(NFS_ACL, &twice),
        only(NFS_ACL, &[three[0], (USER, 1, 5), three[1], three[2]]),
        Secattr { mask: NFS_DFACL, default: list(&three), ..Secattr::default() },
    ] {
        assert_eq!(set(&mut client, &file, lists.clone()), Nfsstat3::Inval, "{lists:?}");
    }
    assert_eq!(set(&mut client, &[7; 32], only(NFS_ACL, &three)), Nfsstat3::Badhandle);
}

#[test]
fn a_read_only_export_keeps_its_lists() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(ro,insecure,no_root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let lists = get(&mut client, &root, NFS_ACL);
    assert_eq!(set(&mut client, &root, lists), Nfsstat3::Rofs);
}
