//! Files over NFSv4: holes, files that are removed while they are open, and nested exports.

mod common;

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use common::Scratch;
use common::v4::{ANYBODY, NFS_OK, Session, get};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::{Array, Decoder, Opaque};

const ANY: Stateid4 = Stateid4 { seqid: 0, other: [0; 12] };
const KIB: u64 = 1 << 10;

fn data(offset: u64, data: &[u8]) -> ReadPlusContent4<'_> {
    ReadPlusContent4::Data(Data4 { offset, data: Opaque(data) })
}

const fn hole<'a>(offset: u64, length: u64) -> ReadPlusContent4<'a> {
    ReadPlusContent4::Hole(DataInfo4 { offset, length })
}

#[test]
fn holes_are_read_as_holes() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    let local = File::create(scratch.at("f")).unwrap();
    let some = vec![7; 64 << 10];
    local.write_all_at(&some, 128 * KIB).unwrap();
    local.set_len(512 * KIB).unwrap();
    let file = session.lookup(&root, b"f").unwrap();
    let mut holds = |offset, count, eof, contents: Vec<ReadPlusContent4<'_>>| {
        let args = Read4Args { stateid: ANY, offset, count };
        let (status, body) = session.on(&file, Operation::ReadPlus, &args);
        assert_eq!(status, NFS_OK);
        let found: ReadPlus4ResOk<'_> = get(&body);
        // Not printed: it is long.
        assert!(found == ReadPlus4ResOk { eof, contents: Array(contents) }, "{count} bytes from {offset}");
    };
    let all = vec![hole(0, 128 * KIB), data(128 * KIB, &some), hole(192 * KIB, 320 * KIB)];
    holds(0, 1 << 20, true, all);
    // A part of the data; all data; a part of a hole; behind the end.
    holds(130 * KIB, 4096, false, vec![data(130 * KIB, &some[..4096])]);
    holds(128 * KIB, 64 << 10, false, vec![data(128 * KIB, &some)]);
    holds(500 * KIB, 4096, false, vec![hole(500 * KIB, 4096)]);
    holds(2000 * KIB, 4096, true, vec![]);
    // Data up to the end.
    local.set_len(192 * KIB).unwrap();
    holds(190 * KIB, 1 << 20, true, vec![data(190 * KIB, &some[..2048])]);
}

#[test]
fn a_file_that_is_removed_while_open_stays_readable_and_writable() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    std::fs::write(scratch.at("f"), "still there").unwrap();
    let (id, file) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    std::fs::remove_file(scratch.at("f")).unwrap();
    let (status, body) =
        session.on(&file, Operation::Read, &Read4Args { stateid: id, offset: 0, count: 100 });
    assert_eq!((status, get::<Read4ResOk<'_>>(&body).data.0), (NFS_OK, &b"still there"[..]));
    let write = Write4Args { stateid: id, offset: 0, stable: StableHow4::Unstable, data: Opaque(b"STILL") };
    assert_eq!(session.on(&file, Operation::Write, &write).0, NFS_OK);
    assert_eq!(get::<u32>(&session.attribute(&file, attributes::NUMLINKS)), 0);
    let (status, body) =
        session.on(&file, Operation::Read, &Read4Args { stateid: id, offset: 0, count: 100 });
    assert_eq!((status, get::<Read4ResOk<'_>>(&body).data.0), (NFS_OK, &b"STILL there"[..]));
    session.close(&file, id);
    let args = Getattr4Args { attr_request: Bitmap4::of(&[attributes::SIZE]) };
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) })
        .op(Operation::Getattr, &args);
    assert_eq!(session.run(&ops).status, Nfsstat4::Stale as u32);
}

/// The entries of a directory, with FILEID and MOUNTED_ON_FILEID.
fn list(session: &mut Session, directory: &[u8]) -> Vec<(Vec<u8>, u64, u64)> {
    let args = Readdir4Args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 4096,
        maxcount: 16_384,
        attr_request: Bitmap4::of(&[attributes::FILEID, attributes::MOUNTED_ON_FILEID]),
    };
    let (status, body) = session.on(directory, Operation::Readdir, &args);
    assert_eq!(status, NFS_OK);
    let mut from = Decoder::new(&body[8..]);
    let mut entries = Vec::new();
    while from.bool().unwrap() {
        from.u64().unwrap();
        let name = from.opaque(255).unwrap().to_vec();
        let values: Fattr4<'_> = from.get().unwrap();
        let mut values = Decoder::new(values.attr_vals.0);
        entries.push((name, values.u64().unwrap(), values.u64().unwrap()));
    }
    entries.sort();
    entries
}

#[test]
fn a_nested_export_is_entered_from_the_outer_one() {
    let scratch = Scratch::new();
    let inner = scratch.at("a/inner");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(inner.join("covered"), "").unwrap();
    let number = |path: &std::path::Path| std::fs::metadata(path).unwrap().ino();
    let covered = number(&inner);
    // Another filesystem is mounted there.
    rustix::mount::mount("tmpfs", &inner, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    struct Unmount(std::path::PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    let _unmount = Unmount(inner.clone());
    std::fs::write(inner.join("f"), "").unwrap();
    let outer = scratch.export();
    let only_inner = "127.0.0.2(rw,insecure,no_root_squash)";
    let exports = vec![
        format!("{} 127.0.0.1(rw,insecure,no_root_squash)", outer.display()),
        format!("{} 127.0.0.1(rw,insecure,no_root_squash) {only_inner}", inner.display()),
    ];
    let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
    let mut session = Session::new(&server, 1, b"one");
    session.reclaim_complete();
    let directory = session.walk(&outer.join("a"));
    let root = session.lookup(&directory, b"inner").unwrap();
    assert_eq!(root, session.walk(&inner));
    session.lookup(&root, b"f").unwrap();
    assert_eq!(session.lookup(&root, b"covered"), Err(Nfsstat4::Noent as u32));
    assert_eq!(list(&mut session, &directory), [(b"inner".to_vec(), number(&inner), covered)]);
    assert_eq!(get::<u64>(&session.attribute(&root, attributes::MOUNTED_ON_FILEID)), covered);
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(&root) })
        .op(Operation::Lookupp, &())
        .op(Operation::Getfh, &());
    let done = session.run(&ops);
    let (status, body) = done.after(&[common::v4::SEQUENCE, common::v4::PUTFH, (Operation::Lookupp, 0)]);
    assert_eq!((status, get::<NfsFh4<'_>>(body).0), (NFS_OK, &directory[..]));
    // A client of the inner export alone sees the directories that lead there.
    let mut other = Session::from(common::Client::from(&server, [127, 0, 0, 2].into(), 0), 1, b"two");
    other.reclaim_complete();
    assert_eq!(other.walk(&inner), root);
    let above = other.walk(&outer);
    assert_eq!(list(&mut other, &above).into_iter().map(|(name, ..)| name).collect::<Vec<_>>(), [b"a"]);
}
