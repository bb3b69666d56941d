//! `refer=` and `replicas=`: NFSv4's `fs_locations`, and the errors of a filesystem that is on other servers
//! only (RFC 8881 sections 11.3 to 11.4).

mod common;

use std::fs;

use common::v4::{NFS_OK, SEQUENCE, Session, get};
use common::{Client, Scratch, what};
use proto::nfs3::{Lookup3Args, Procedure};
use proto::nfs4::{
    Access4Args, Bitmap4, Close4Args, Fsid4, Getattr4Args, Name4Args, Nfsstat4, OpenClaim4, Operation,
    Putfh4Args, Readdir4Args,
};
use samehost_server::{Config, Server};
use xdr::{Decoder, Opaque};

const MOVED: u32 = Nfsstat4::Moved as u32;
const FSID: u32 = 8;
const RDATTR_ERROR: u32 = 11;
const FILEID: u32 = 20;
const FS_LOCATIONS: u32 = 24;
const MOUNTED_ON_FILEID: u32 = 55;

/// An export with a directory `moved`, which refers to other servers.
fn serve(inner: &str) -> (Scratch, Server) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("moved")).unwrap();
    fs::write(scratch.at("moved/f"), "data").unwrap();
    let open = "rw,insecure,no_root_squash";
    let exports = vec![
        format!("{} *({open})", scratch.export().display()),
        format!("{} *({open},{inner})", scratch.at("moved").display()),
    ];
    let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
    (scratch, server)
}

/// The path on this server, and the hosts and path of each location.
fn locations(bytes: &[u8]) -> (String, Vec<(Vec<String>, String)>) {
    let mut from = Decoder::new(bytes);
    let text = |from: &mut Decoder<'_>| String::from_utf8(from.opaque(1024).unwrap().to_vec()).unwrap();
    let path = |from: &mut Decoder<'_>| {
        let count = from.u32().unwrap();
        (0..count).map(|_| format!("/{}", text(from))).collect::<String>()
    };
    let root = path(&mut from);
    let count = from.u32().unwrap();
    let location = |from: &mut Decoder<'_>| {
        let hosts = from.u32().unwrap();
        ((0..hosts).map(|_| text(from)).collect(), path(from))
    };
    let list = (0..count).map(|_| location(&mut from)).collect();
    from.finish().unwrap();
    (root, list)
}

/// LOOKUP of `moved`, and then an operation.
fn at_moved(session: &mut Session, root: &[u8], operation: Operation, args: &impl xdr::Encode) -> u32 {
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(root) })
        .op(Operation::Lookup, &Name4Args { name: Opaque(b"moved") })
        .op(operation, args);
    session.run(&ops).status
}

/// GETATTR of `moved`: the attributes that it has, and their values.
fn attributes(session: &mut Session, root: &[u8], requested: &[u32]) -> (Bitmap4, Vec<u8>) {
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(root) })
        .op(Operation::Lookup, &Name4Args { name: Opaque(b"moved") })
        .op(Operation::Getattr, &Getattr4Args { attr_request: Bitmap4::of(requested) });
    let done = session.run(&ops);
    assert_eq!(done.status, NFS_OK);
    let (status, body) = done.after(&[SEQUENCE, (Operation::Putfh, 0), (Operation::Lookup, 0)]);
    assert_eq!(status, NFS_OK);
    let mut from = Decoder::new(body);
    let mask = from.get().unwrap();
    (mask, from.opaque(4096).unwrap().to_vec())
}

#[test]
fn a_referring_export_has_locations_and_no_files() {
    let (scratch, server) = serve("refer=/a/b@one+two:/c@192.0.2.7");
    let mut session = Session::new(&server, 2, b"referred");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    // Nothing but attributes: no handle leads there.
    assert_eq!(at_moved(&mut session, &root, Operation::Getfh, &()), MOVED);
    assert_eq!(at_moved(&mut session, &root, Operation::Savefh, &()), MOVED);
    assert_eq!(at_moved(&mut session, &root, Operation::Lookupp, &()), MOVED);
    assert_eq!(at_moved(&mut session, &root, Operation::Access, &Access4Args { access: 1 }), MOVED);
    let name = Name4Args { name: Opaque(b"f") };
    assert_eq!(at_moved(&mut session, &root, Operation::Lookup, &name), MOVED);
    assert_eq!(at_moved(&mut session, &root, Operation::Remove, &name), MOVED);
    let getattr = |numbers: &[u32]| Getattr4Args { attr_request: Bitmap4::of(numbers) };
    assert_eq!(at_moved(&mut session, &root, Operation::Getattr, &getattr(&[FSID])), MOVED);
    // With the locations there are the attributes of a filesystem that is absent.
    let requested = [FSID, FILEID, FS_LOCATIONS, MOUNTED_ON_FILEID];
    let (mask, values) = attributes(&mut session, &root, &requested);
    assert_eq!(mask, Bitmap4::of(&[FSID, FS_LOCATIONS, MOUNTED_ON_FILEID]));
    let fsid: Fsid4 = get(&values[..16]);
    assert_ne!(fsid, get::<Fsid4>(&session.attribute(&root, FSID)));
    let expected = vec![
        (vec!["one".to_owned(), "two".to_owned()], "/a/b".to_owned()),
        (vec!["192.0.2.7".to_owned()], "/c".to_owned()),
    ];
    let path = scratch.at("moved").display().to_string();
    assert_eq!(locations(&values[16..values.len() - 8]), (path, expected));
    // The other files of the server are where they were.
    assert_eq!(session.walk(&scratch.export()), root);
}

#[test]
fn readdir_lists_a_referring_export_with_its_error() {
    let (scratch, server) = serve("refer=/a@one");
    let mut session = Session::new(&server, 2, b"referred");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let mut list = |attributes: &[u32]| {
        let args = Readdir4Args {
            cookie: 0,
            cookieverf: [0; 8],
            dircount: 4096,
            maxcount: 8192,
            attr_request: Bitmap4::of(attributes),
        };
        session.on(&root, Operation::Readdir, &args).0
    };
    assert_eq!(list(&[RDATTR_ERROR, FSID, FILEID]), NFS_OK);
    assert_eq!(list(&[FSID, FS_LOCATIONS]), NFS_OK);
    assert_eq!(list(&[]), NFS_OK);
    assert_eq!(list(&[FSID, FILEID]), MOVED);
}

#[test]
fn replicas_are_named_and_the_files_are_served() {
    let (scratch, server) = serve("replicas=/a@one");
    let mut session = Session::new(&server, 1, b"replicas");
    session.reclaim_complete();
    let moved = session.walk(&scratch.at("moved"));
    let path = scratch.at("moved").display().to_string();
    let expected = (path, vec![(vec!["one".to_owned()], "/a".to_owned())]);
    assert_eq!(locations(&session.attribute(&moved, FS_LOCATIONS)), expected);
    assert!(session.lookup(&moved, b"f").is_ok());
    // Other exports have no other locations.
    let root = session.walk(&scratch.export());
    let path = scratch.export().display().to_string();
    assert_eq!(locations(&session.attribute(&root, FS_LOCATIONS)), (path, Vec::new()));
}

#[test]
fn what_clients_have_from_before_the_referral_is_moved_and_their_locks_are_released() {
    let scratch = Scratch::new();
    fs::write(scratch.at("f"), "data").unwrap();
    let exports = scratch.dir.path().join("exports");
    let line = |options: &str| {
        let path = scratch.export().display().to_string();
        fs::write(&exports, format!("{path} *(rw,insecure,no_root_squash{options})\n")).unwrap();
    };
    line("");
    let config = Config { exports: Vec::new(), export_files: vec![exports.clone()], ..scratch.config("") };
    let server = Server::start(config).unwrap();
    let mut session = Session::new(&server, 2, b"referred");
    session.reclaim_complete();
    let file = session.walk(&scratch.at("f"));
    let root = session.walk(&scratch.export());
    let (open, _) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    session.lock(&file, open, false).unwrap();
    let local = fs::File::options().write(true).open(scratch.at("f")).unwrap();
    let lock = || rustix::fs::fcntl_lock(&local, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert!(lock().is_err(), "the server holds the client's lock");
    line(",replicas=/a@one");
    server.reload().unwrap();
    assert!(lock().is_err(), "clients may stay");
    line(",refer=/a@one");
    server.reload().unwrap();
    lock().expect("no lock is left that its client couldn't release");
    let args = Close4Args { seqid: 0, open_stateid: open };
    assert_eq!(session.on(&file, Operation::Close, &args).0, MOVED);
    assert_eq!(session.on(&file, Operation::Access, &Access4Args { access: 1 }).0, MOVED);
    let args = Getattr4Args { attr_request: Bitmap4::of(&[FS_LOCATIONS]) };
    assert_eq!(session.on(&file, Operation::Getattr, &args).0, NFS_OK);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    assert_eq!(client.nfs(Procedure::Lookup, &Lookup3Args { what: what(&root, b"f") }).status(), 0);
}
