//! Retransmissions: a call that changes something is executed once and answered twice.

mod common;

use std::io::Write as _;

use common::v4::Ops;
use common::{Client, encoded, open_server, sys, what};
use proto::nfs3::{
    Createhow3, Link3Args, Mkdir3Args, Mknod3Args, Mknoddata3, PROGRAM, Procedure, Remove3Args, Rename3Args,
    Rmdir3Args, Sattr3, Setattr3Args, StableHow, Symlink3Args, Symlinkdata3, Write3Args,
};
use proto::nfs4::{self, Operation, Putfh4Args, Stateid4, Write4Args};
use proto::nfsacl::{self, Aclent, GROUP_OBJ, NFS_ACL, OTHER_OBJ, Secattr, Setacl3Args, USER_OBJ};
use xdr::{Array, Opaque};

/// Sends the same call on two connections; the replies.
fn twice(
    server: &samehost_server::Server,
    client: &mut Client,
    procedure: Procedure,
    args: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    client.xid += 1;
    let record = client.record(PROGRAM, 3, procedure.number(), args);
    client.stream.write_all(&record).unwrap();
    let first = client.receive().unwrap();
    let mut again = Client::new(server);
    again.stream.write_all(&record).unwrap();
    (first, again.receive().unwrap())
}

#[test]
fn every_procedure_that_is_not_idempotent_is_executed_once() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let set = Sattr3::default();
    let file = client.create(&root, "file").unwrap();
    let ctime = client.getattr(&file).ctime;
    let guarded = Setattr3Args {
        object: Opaque(&file),
        new_attributes: Sattr3 { mode: Some(0o600), ..set },
        guard: Some(ctime),
    };
    let link = Symlinkdata3 { attributes: set, data: Opaque(b"target") };
    let calls = [
        // Each of these would fail the second time: the guard no longer matches, the name exists, or is gone.
        (Procedure::Setattr, encoded(&guarded)),
        (
            Procedure::Create,
            encoded(&proto::nfs3::Create3Args { where_: what(&root, b"c"), how: Createhow3::Guarded(set) }),
        ),
        (Procedure::Mkdir, encoded(&Mkdir3Args { where_: what(&root, b"d"), attributes: set })),
        (Procedure::Symlink, encoded(&Symlink3Args { where_: what(&root, b"l"), symlink: link })),
        (Procedure::Mknod, encoded(&Mknod3Args { where_: what(&root, b"p"), what: Mknoddata3::Fifo(set) })),
        (Procedure::Link, encoded(&Link3Args { file: Opaque(&file), link: what(&root, b"hard") })),
        (Procedure::Rename, encoded(&Rename3Args { from: what(&root, b"c"), to: what(&root, b"r") })),
        (Procedure::Remove, encoded(&Remove3Args { object: what(&root, b"r") })),
        (Procedure::Rmdir, encoded(&Rmdir3Args { object: what(&root, b"d") })),
    ];
    for (procedure, args) in calls {
        let (first, second) = twice(&server, &mut client, procedure, &args);
        assert_eq!(first[24..28], [0; 4], "{procedure} succeeds");
        assert_eq!(first, second, "{procedure}");
    }
}

#[test]
fn another_credential_xid_or_argument_is_another_call() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    client.create(&root, "f").unwrap();
    let args = encoded(&Remove3Args { object: what(&root, b"f") });
    let (first, second) = twice(&server, &mut client, Procedure::Remove, &args);
    assert_eq!(first, second);
    let noent = 2_u32.to_be_bytes();
    let mut other = Client::new(&server);
    other.xid = client.xid;
    other.credential = sys(0, 0, &[5]);
    other.stream.write_all(&other.record(PROGRAM, 3, 12, &args)).unwrap();
    assert_eq!(other.receive().unwrap()[24..28], noent, "another credential");
    other.credential = client.credential.clone();
    let other_args = encoded(&Remove3Args { object: what(&root, b"g") });
    other.stream.write_all(&other.record(PROGRAM, 3, 12, &other_args)).unwrap();
    assert_eq!(other.receive().unwrap()[24..28], noent, "another name");
    other.xid += 1;
    other.stream.write_all(&other.record(PROGRAM, 3, 12, &args)).unwrap();
    assert_eq!(other.receive().unwrap()[24..28], noent, "another xid");
    let mut elsewhere = Client::from(&server, [127, 0, 0, 9].into(), 0);
    elsewhere.xid = client.xid;
    elsewhere.stream.write_all(&elsewhere.record(PROGRAM, 3, 12, &args)).unwrap();
    assert_eq!(elsewhere.receive().unwrap()[24..28], noent, "another client");
}

#[test]
fn failures_are_remembered_too() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let args = encoded(&Remove3Args { object: what(&root, b"f") });
    client.xid += 1;
    let record = client.record(PROGRAM, 3, 12, &args);
    client.stream.write_all(&record).unwrap();
    let first = client.receive().unwrap();
    std::fs::write(scratch.at("f"), "").unwrap();
    let mut again = Client::new(&server);
    again.stream.write_all(&record).unwrap();
    assert_eq!(again.receive().unwrap(), first);
    assert!(scratch.at("f").exists(), "the retransmission of a REMOVE that failed removes nothing");
}

/// Has a procedure executed with `older` and then with `newer` arguments, and sends the first call again: on
/// its connection, and on another one as a client does that has lost the first.
fn send_late(
    server: &samehost_server::Server,
    client: &mut Client,
    (program, version, procedure): (u32, u32, u32),
    (older, newer): (&[u8], &[u8]),
) {
    client.xid += 1;
    let record = client.record(program, version, procedure, older);
    client.stream.write_all(&record).unwrap();
    let answered = client.receive().unwrap();
    assert_eq!(answered[24..28], [0; 4], "it succeeds");
    let (_, results) = client.raw(program, version, procedure, newer);
    assert_eq!(results.status(), 0);
    let mut next = Client::new(server);
    for connection in [client, &mut next] {
        connection.stream.write_all(&record).unwrap();
        assert_eq!(connection.receive().unwrap(), answered);
    }
}

/// The sizes of a WRITE of which all data is hashed, and of one of which a part is.
const SIZES: [usize; 2] = [100, 4096];

#[test]
fn a_late_retransmission_of_a_write_leaves_newer_data() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    for size in SIZES {
        let (older, newer) = (vec![b'a'; size], vec![b'b'; size]);
        let [older_args, newer_args] = [&older, &newer].map(|data| {
            let (file, data, stable) = (Opaque(&file[..]), Opaque(&data[..]), StableHow::Unstable);
            encoded(&Write3Args { file, offset: 0, count: size as u32, stable, data })
        });
        let write = (PROGRAM, 3, Procedure::Write.number());
        send_late(&server, &mut client, write, (&older_args, &newer_args));
        assert_eq!(std::fs::read(scratch.at("f")).unwrap(), newer);
    }
}

#[test]
fn a_late_retransmission_of_a_write_by_nfs4_0_leaves_newer_data() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    for size in SIZES {
        let (older, newer) = (vec![b'a'; size], vec![b'b'; size]);
        let [older_args, newer_args] = [&older, &newer].map(|data| {
            let stateid = Stateid4 { seqid: 0, other: [0; 12] };
            let (stable, data) = (nfs4::StableHow4::Unstable, Opaque(&data[..]));
            Ops::new()
                .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
                .op(Operation::Write, &Write4Args { stateid, offset: 0, stable, data })
                .minor(0)
        });
        let compound = (nfs4::PROGRAM, nfs4::VERSION, nfs4::COMPOUND);
        send_late(&server, &mut client, compound, (&older_args, &newer_args));
        assert_eq!(std::fs::read(scratch.at("f")).unwrap(), newer);
    }
}

#[test]
fn a_late_retransmission_of_setacl_leaves_the_newer_list() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    let [older, newer] = [4, 6].map(|perm| {
        let entries = [(USER_OBJ, perm), (GROUP_OBJ, 0), (OTHER_OBJ, 0)];
        let acl = Array(entries.map(|(tag, perm)| Aclent { tag, id: 0, perm }).to_vec());
        let lists = Secattr { mask: NFS_ACL, acl_count: 3, acl, ..Secattr::default() };
        encoded(&Setacl3Args { fh: Opaque(&file), lists })
    });
    let setacl = (nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::Procedure::Setacl.number());
    send_late(&server, &mut client, setacl, (&older, &newer));
    assert_eq!(client.getattr(&file).mode, 0o600);
}
