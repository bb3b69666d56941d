//! Access control lists and owners of NFSv4: lists that a client sets become POSIX lists in the kernel and
//! come back as such; new files inherit; owners are numbers or names.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use common::v4::{ANYBODY, NFS_OK, Session, get};
use common::{Scratch, encoded};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::{Array, Decoder, Opaque};

const READ: u32 = ACE_READ_DATA;
const WRITE: u32 = ACE_WRITE_DATA | ACE_APPEND_DATA;
const INHERIT: u32 = ACE_FILE_INHERIT | ACE_DIRECTORY_INHERIT;

const fn ace(kind: u32, flag: u32, access_mask: u32, who: &[u8]) -> Nfsace4<'_> {
    Nfsace4 { kind, flag, access_mask, who: Opaque(who) }
}

/// The kernel's list, entry by entry: tag, permissions, id.
fn kernel_list(path: &Path, name: &str) -> Option<Vec<(u16, u16, u32)>> {
    let mut bytes = [0; 1024];
    let length = match rustix::fs::getxattr(path, name, &mut bytes[..]) {
        Err(rustix::io::Errno::NODATA) => return None,
        other => other.unwrap(),
    };
    let entry = |bytes: &[u8]| {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (word(0), word(2), u32::from(word(4)) | u32::from(word(6)) << 16)
    };
    Some(bytes[4..length].chunks(8).map(entry).collect())
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NOBODY: u32 = u32::MAX;

/// A list with the rights that POSIX permissions have.
fn rights(value: &[u8]) -> Vec<(u32, u32, u32, Vec<u8>)> {
    let list: Acl4<'_> = get(value);
    let plain = |ace: &Nfsace4<'_>| (ace.kind, ace.flag, ace.access_mask & 0x67, ace.who.0.to_vec());
    list.0.iter().map(plain).collect()
}

#[test]
fn a_list_is_stored_in_the_kernel_and_read_back() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    std::fs::write(scratch.at("f"), "").unwrap();
    std::fs::set_permissions(scratch.at("f"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let file = session.lookup(&root, b"f").unwrap();
    assert_eq!(get::<u32>(&session.attribute(&file, attributes::ACLSUPPORT)), 3);
    let plain = rights(&session.attribute(&file, attributes::ACL));
    assert_eq!(
        plain,
        [
            (0, 0, READ | WRITE, b"OWNER@".to_vec()),
            (0, 0, READ, b"GROUP@".to_vec()),
            (0, 0, READ, b"EVERYONE@".to_vec())
        ],
        "the mode is 0644"
    );
    let list: Acl4<'_> = Array(vec![
        ace(ACE_ALLOWED, 0, READ | WRITE, b"OWNER@"),
        ace(ACE_ALLOWED, 0, READ | WRITE, b"1234"),
        ace(ACE_ALLOWED, ACE_IDENTIFIER_GROUP, READ, b"77"),
        ace(ACE_DENIED, 0, WRITE, b"EVERYONE@"),
        ace(ACE_ALLOWED, 0, READ | WRITE, b"GROUP@"),
    ]);
    assert_eq!(session.set(&file, attributes::ACL, &list), NFS_OK);
    let kept = kernel_list(&scratch.at("f"), ACCESS).unwrap();
    // Writing was denied to the group before it was allowed.
    let expected =
        [(1, 6, NOBODY), (2, 6, 1234), (4, 4, NOBODY), (8, 4, 77), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    assert_eq!(kept, expected);
    // The mode's group bits are the mask.
    assert_eq!(std::fs::metadata(scratch.at("f")).unwrap().mode() & 0o777, 0o660);
    let back = session.attribute(&file, attributes::ACL);
    let again: Acl4<'_> = get(&back);
    assert_eq!(session.set(&file, attributes::ACL, &again), NFS_OK);
    assert_eq!(
        kernel_list(&scratch.at("f"), ACCESS).unwrap(),
        expected,
        "a list that was read can be set again"
    );
}

#[test]
fn lists_without_a_posix_counterpart_and_other_users_are_refused() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    std::fs::write(scratch.at("f"), "").unwrap();
    let file = session.lookup(&root, b"f").unwrap();
    for (entry, status) in [
        (ace(2, 0, READ, b"OWNER@"), Nfsstat4::Attrnotsupp),
        (ace(ACE_ALLOWED, INHERIT, READ, b"OWNER@"), Nfsstat4::Attrnotsupp),
        (ace(ACE_ALLOWED, 0, READ, b"no such user"), Nfsstat4::Badowner),
        (ace(ACE_ALLOWED, 0, READ, b""), Nfsstat4::Inval),
    ] {
        let list: Acl4<'_> = Array(vec![entry]);
        assert_eq!(session.set(&file, attributes::ACL, &list), status as u32, "{entry:?}");
    }
    assert_eq!(kernel_list(&scratch.at("f"), ACCESS), None);
    let list: Acl4<'_> = Array(vec![ace(ACE_ALLOWED, 0, READ, b"EVERYONE@")]);
    session.wire.credential = common::sys(4000, 4000, &[]);
    assert_eq!(session.set(&file, attributes::ACL, &list), Nfsstat4::Perm as u32);
    std::os::unix::fs::chown(scratch.at("f"), Some(4000), None).unwrap();
    assert_eq!(session.set(&file, attributes::ACL, &list), NFS_OK);
    assert_eq!(std::fs::metadata(scratch.at("f")).unwrap().mode() & 0o777, 0o444);
}

#[test]
fn new_files_inherit_a_list_or_get_the_umask() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let all = READ | WRITE | ACE_EXECUTE | ACE_DELETE_CHILD;
    let inherited = INHERIT | ACE_INHERIT_ONLY;
    let list: Acl4<'_> = Array(vec![
        ace(ACE_ALLOWED, 0, all, b"OWNER@"),
        ace(ACE_ALLOWED, inherited, all, b"OWNER@"),
        ace(ACE_ALLOWED, inherited, all, b"1234"),
    ]);
    let values = encoded(&list);
    let create = Create4Args {
        objtype: Createtype4::Other(NfsFtype4::Dir as u32),
        objname: Opaque(b"d"),
        createattrs: Fattr4 { attrmask: Bitmap4::of(&[attributes::ACL]), attr_vals: Opaque(&values) },
    };
    assert_eq!(session.on(&root, Operation::Create, &create).0, NFS_OK);
    assert_eq!(kernel_list(&scratch.at("d"), ACCESS).unwrap_or_default(), []);
    assert_eq!(std::fs::metadata(scratch.at("d")).unwrap().mode() & 0o777, 0o700);
    let default = kernel_list(&scratch.at("d"), DEFAULT).unwrap();
    let expected = [(1, 7, NOBODY), (2, 7, 1234), (4, 0, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)];
    assert_eq!(default, expected);
    let directory = session.lookup(&root, b"d").unwrap();
    let masked = encoded(&(0o666_u64 << 32 | 0o077));
    let attributes = Fattr4 { attrmask: Bitmap4::of(&[attributes::MODE_UMASK]), attr_vals: Opaque(&masked) };
    for (at, path, mode) in [(&directory, "d/new", 0o660), (&root, "new", 0o600)] {
        let open = Open4Args {
            seqid: 0,
            share_access: SHARE_ACCESS_BOTH,
            share_deny: 0,
            owner: StateOwner4 { clientid: session.clientid, owner: Opaque(b"opener") },
            openhow: Openflag4::Create(Createhow4::Guarded(attributes)),
            claim: OpenClaim4::Null(Opaque(b"new")),
        };
        assert_eq!(session.on(at, Operation::Open, &open).0, NFS_OK);
        assert_eq!(std::fs::metadata(scratch.at(path)).unwrap().permissions().mode() & 0o777, mode, "{path}");
    }
    let list = kernel_list(&scratch.at("d/new"), ACCESS).unwrap();
    assert!(list.contains(&(2, 7, 1234)) && list.contains(&(0x10, 6, NOBODY)), "{list:?}");
    // Setting a list without inheritance removes the default list.
    let plain: Acl4<'_> = Array(vec![ace(ACE_ALLOWED, 0, all, b"OWNER@")]);
    assert_eq!(session.set(&directory, attributes::ACL, &plain), NFS_OK);
    assert_eq!(kernel_list(&scratch.at("d"), DEFAULT), None);
    assert_eq!(session.set(&directory, attributes::MODE_UMASK, &(0o666_u64 << 32)), Nfsstat4::Inval as u32);
}

#[test]
fn owners_are_sent_as_numbers_or_names_and_accepted_as_both() {
    for (names, root_is) in [(false, "0"), (true, "root@example.org")] {
        let scratch = Scratch::new();
        let config =
            Config { nfs4_domain: Some("example.org".into()), nfs4_names: names, ..scratch.config(ANYBODY) };
        let server = Server::start(config).unwrap();
        let mut session = Session::new(&server, 1, b"one");
        session.reclaim_complete();
        let root = session.walk(&scratch.export());
        let f = scratch.at("f");
        std::fs::write(&f, "").unwrap();
        let file = session.lookup(&root, b"f").unwrap();
        assert_eq!(
            Decoder::new(&session.attribute(&file, attributes::OWNER)).opaque(100).unwrap(),
            root_is.as_bytes()
        );
        for (owner, status, uid) in [
            (&b"1234"[..], NFS_OK, 1234),
            (b"root@EXAMPLE.org", NFS_OK, 0),
            (b"root@elsewhere.org", Nfsstat4::Badowner as u32, 0),
            (b"no such user@example.org", Nfsstat4::Badowner as u32, 0),
        ] {
            assert_eq!(session.set(&file, attributes::OWNER, &Opaque::<'_, 100>(owner)), status);
            assert_eq!(std::fs::metadata(&f).unwrap().uid(), uid);
        }
    }
}
