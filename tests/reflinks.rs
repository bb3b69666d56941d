//! NFSv4.2's holes and copies on filesystems that share blocks (xfs, btrfs): CLONE, SEEK, ALLOCATE,
//! DEALLOCATE, READ_PLUS and IO_ADVISE in complete COMPOUNDs, compared with the filesystem's own state; and
//! on ext4, which doesn't share blocks.

extern crate server as samehost_server;

#[path = "../crates/server/tests/common/mod.rs"]
mod common;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::{LaneMode, OpenOptions, Options, Status, Url, Version};
use common::v4::{ANYBODY, NFS_OK, PUTFH, SEQUENCE, Session, get};
use common::{Scratch, encoded};
use proto::nfs4::*;
use samehost_tests::disk::Disk;
use samehost_tests::scratch::pattern;
use samehost_tests::{Serve, need_root, run_ok};
use server::{Config, Server};
use xdr::{Array, Encode, Opaque};

const KIB: u64 = 1 << 10;
const SIZE: u64 = 1 << 20;

/// A server of a filesystem, and a client with two open files: `a` has data, `b` is empty.
struct Rig {
    disk: Disk,
    session: Session,
    a: (Vec<u8>, Stateid4),
    b: (Vec<u8>, Stateid4),
    _server: Server,
    _scratch: Scratch,
}

fn put(file: &[u8]) -> Putfh4Args<'_> {
    Putfh4Args { object: Opaque(file) }
}

impl Rig {
    fn new(kind: &str) -> Self {
        need_root();
        let disk = Disk::new(kind, 320);
        fs::write(disk.path().join("a"), pattern(3, SIZE as usize)).unwrap();
        fs::write(disk.path().join("b"), "").unwrap();
        let scratch = Scratch::new();
        let exports = vec![format!("{} {ANYBODY}", disk.path().display())];
        let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
        let mut session = Session::new(&server, 2, b"one");
        session.reclaim_complete();
        let root = session.walk(disk.path());
        let mut open = |name: &[u8]| {
            let (id, file) = session.open(&root, OpenClaim4::Null(Opaque(name)), false).unwrap();
            (file, id)
        };
        let (a, b) = (open(b"a"), open(b"b"));
        Self { disk, session, a, b, _server: server, _scratch: scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// SEQUENCE, PUTFH of the source, SAVEFH, PUTFH of `b`, CLONE: its status.
    fn clone(&mut self, from_a: bool, src_offset: u64, dst_offset: u64, count: u64) -> u32 {
        let (source, src_stateid) = if from_a { &self.a } else { &self.b };
        let (target, dst_stateid) = (&self.b.0, self.b.1);
        let args = Clone4Args { src_stateid: *src_stateid, dst_stateid, src_offset, dst_offset, count };
        let ops = self
            .session
            .sequence(false)
            .op(Operation::Putfh, &put(source))
            .op(Operation::Savefh, &())
            .op(Operation::Putfh, &put(target))
            .op(Operation::Clone, &args);
        let done = self.session.run(&ops);
        done.after(&[SEQUENCE, PUTFH, (Operation::Savefh, 0), PUTFH]).0
    }

    /// An operation on `b`: its status, and the result's body.
    fn on_b(&mut self, operation: Operation, args: &impl Encode) -> (u32, Vec<u8>) {
        self.session.on(&self.b.0, operation, args)
    }

    /// SEEK in `b`: whether it reached the end, and the offset.
    fn seek(&mut self, offset: u64, what: DataContent4) -> Result<(bool, u64), u32> {
        let args = Seek4Args { stateid: self.b.1, offset, what: what as u32 };
        match self.on_b(Operation::Seek, &args) {
            (NFS_OK, body) => {
                let found: SeekRes4 = get(&body);
                Ok((found.eof, found.offset))
            }
            (status, _) => Err(status),
        }
    }

    fn range(&mut self, operation: Operation, offset: u64, length: u64) -> u32 {
        let args = Allocate4Args { stateid: self.b.1, offset, length };
        self.on_b(operation, &args).0
    }

    fn attribute(&mut self, number: u32) -> u64 {
        let values = self.session.attribute(&self.b.0, number);
        values.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn is_shared(&self, name: &str) -> bool {
        is_shared(&self.path(name))
    }
}

/// Whether all blocks of a file are shared with another.
fn is_shared(file: &Path) -> bool {
    run_ok(Command::new("sync").arg("-f").arg(file));
    let said = run_ok(Command::new("filefrag").arg("-v").arg(file));
    let extents = said.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let shared: Vec<bool> = extents.map(|line| line.contains("shared")).collect();
    !shared.is_empty() && shared.iter().all(|shared| *shared)
}

fn check_clone(kind: &str) {
    let mut rig = Rig::new(kind);
    let data = pattern(3, SIZE as usize);
    let block = rig.attribute(attributes::CLONE_BLKSIZE);
    assert_eq!(block, 4096, "{kind}");
    assert_eq!(rig.clone(true, 0, 0, 0), NFS_OK, "the whole file");
    assert!(fs::read(rig.path("b")).unwrap() == data, "{kind}");
    assert!(rig.is_shared("a") && rig.is_shared("b"), "{kind}");
    // A write to one file doesn't change the other.
    let stateid = rig.b.1;
    let write = Write4Args { stateid, offset: 5000, stable: StableHow4::FileSync, data: Opaque(b"own") };
    assert_eq!(rig.on_b(Operation::Write, &write).0, NFS_OK);
    assert!(fs::read(rig.path("a")).unwrap() == data, "{kind}");
    assert_eq!(fs::read(rig.path("b")).unwrap()[5000..5003], *b"own");
    // A part of the file, and a range beyond the target's end, which leaves a hole.
    assert_eq!(rig.clone(true, 2 * block, 0, block), NFS_OK);
    assert_eq!(rig.clone(true, 0, 2 * SIZE, 16 * block), NFS_OK);
    let b = fs::read(rig.path("b")).unwrap();
    let (length, end) = ((16 * block) as usize, 2 * SIZE as usize);
    assert_eq!(b.len(), end + length);
    assert!(b[..4096] == data[2 * 4096..3 * 4096] && b[end..] == data[..length], "{kind}");
    assert_eq!(rig.seek(SIZE, DataContent4::Data), Ok((false, 2 * SIZE)));
    // Unaligned ranges, overlapping ranges, and ranges beyond the end.
    let refused = Nfsstat4::Inval as u32;
    assert_eq!(rig.clone(true, 100, 0, block), refused);
    assert_eq!(rig.clone(true, 0, 100, block), refused);
    assert_eq!(rig.clone(true, 0, 0, 100), refused);
    assert_eq!(rig.clone(false, 0, block, 2 * block), refused);
    assert_eq!(rig.clone(true, 0, 0, SIZE + block), refused);
    assert_eq!(rig.clone(false, 0, 8 * block, 2 * block), NFS_OK, "another part of the same file");
    check_empty_and_refill(&mut rig, kind);
}

/// Gives `b` data and checks operations on holes.
fn check_empty_and_refill(rig: &mut Rig, kind: &str) {
    assert_eq!(rig.clone(true, 0, 0, 0), NFS_OK);
    let sized = Fattr4 { attrmask: Bitmap4::of(&[attributes::SIZE]), attr_vals: Opaque(&SIZE.to_be_bytes()) };
    let resize = Setattr4Args { stateid: rig.b.1, obj_attributes: sized };
    assert_eq!(rig.on_b(Operation::Setattr, &resize).0, NFS_OK);
    check_holes(rig, kind);
}

fn check_holes(rig: &mut Rig, kind: &str) {
    let data = fs::read(rig.path("b")).unwrap();
    assert_eq!(data.len() as u64, SIZE);
    assert_eq!(rig.seek(0, DataContent4::Hole), Ok((true, SIZE)), "{kind}: all data, then the end");
    assert_eq!(rig.seek(10, DataContent4::Data), Ok((false, 10)));
    let used = rig.attribute(attributes::SPACE_USED);
    assert_eq!(rig.range(Operation::Deallocate, 64 * KIB, 64 * KIB), NFS_OK);
    assert_eq!(rig.range(Operation::Deallocate, SIZE - 128 * KIB, SIZE), NFS_OK, "the tail, and beyond");
    assert_eq!(rig.attribute(attributes::SIZE), SIZE, "{kind}");
    assert!(rig.attribute(attributes::SPACE_USED) <= used - 192 * KIB, "{kind}");
    assert_eq!(rig.seek(0, DataContent4::Hole), Ok((false, 64 * KIB)));
    assert_eq!(rig.seek(64 * KIB, DataContent4::Data), Ok((false, 128 * KIB)));
    assert_eq!(rig.seek(128 * KIB, DataContent4::Hole), Ok((false, SIZE - 128 * KIB)));
    assert_eq!(rig.seek(SIZE - 4096, DataContent4::Data), Ok((true, SIZE)), "{kind}: no more data");
    for what in [DataContent4::Data, DataContent4::Hole] {
        assert_eq!(rig.seek(SIZE, what), Err(Nfsstat4::Nxio as u32), "{kind}");
    }
    let stretch = |from: u64, to: u64| &data[from as usize..to as usize];
    let args = Read4Args { stateid: rig.b.1, offset: 0, count: 256 << 10 };
    let (status, body) = rig.on_b(Operation::ReadPlus, &args);
    let found: ReadPlus4ResOk<'_> = get(&body);
    let contents = Array(vec![
        ReadPlusContent4::Data(Data4 { offset: 0, data: Opaque(stretch(0, 64 * KIB)) }),
        ReadPlusContent4::Hole(DataInfo4 { offset: 64 * KIB, length: 64 * KIB }),
        ReadPlusContent4::Data(Data4 { offset: 128 * KIB, data: Opaque(stretch(128 * KIB, 256 * KIB)) }),
    ]);
    // Without the contents in the message: they are long.
    assert!((status, &found) == (NFS_OK, &ReadPlus4ResOk { eof: false, contents }), "{kind}");
    let holes = fs::read(rig.path("b")).unwrap();
    assert!(holes[64 << 10..128 << 10].iter().all(|byte| *byte == 0), "{kind}");
    // Allocation of a hole, and beyond the end, which moves.
    assert_eq!(rig.range(Operation::Allocate, 64 * KIB, 64 * KIB), NFS_OK);
    assert_eq!(rig.range(Operation::Allocate, SIZE, 256 * KIB), NFS_OK);
    assert_eq!(rig.attribute(attributes::SIZE), SIZE + 256 * KIB, "{kind}");
    let local = fs::metadata(rig.path("b")).unwrap();
    assert_eq!(rig.attribute(attributes::SPACE_USED), local.blocks() * 512);
    assert!(local.blocks() * 512 >= used + 128 * KIB, "{kind}: {} after {used}", local.blocks() * 512);
    assert!(fs::read(rig.path("b")).unwrap()[64 << 10..128 << 10].iter().all(|byte| *byte == 0));
    // IO_ADVISE succeeds and accepts no hint.
    let hints = Bitmap4::of(&[4]);
    let args = IoAdvise4Args { stateid: rig.b.1, offset: 0, count: 0, hints };
    assert_eq!(rig.on_b(Operation::IoAdvise, &args), (NFS_OK, encoded(&Bitmap4::EMPTY)));
}

#[test]
fn xfs_clones_share_blocks() {
    check_clone("xfs");
}

#[test]
fn btrfs_clones_share_blocks() {
    check_clone("btrfs");
}

#[test]
fn a_copy_from_a_server_to_the_same_filesystem_shares_blocks() {
    need_root();
    let disk = Disk::new("xfs", 320);
    let export = disk.path().join("export");
    fs::create_dir(&export).unwrap();
    fs::write(export.join("a"), pattern(3, SIZE as usize)).unwrap();
    let server = Serve::openly(&export).start();
    let copy = disk.path().join("copy");
    let url = server.url(export.join("a"));
    run_ok(&mut server.client(&["cp", "--lane", "required", &url, copy.to_str().unwrap()]));
    assert_eq!(fs::read(&copy).unwrap(), pattern(3, SIZE as usize));
    assert!(is_shared(&copy));
}

/// The library's `clone_range` on the wire, of a file that has uncommitted data.
#[test]
fn clones_by_the_library_share_blocks() {
    need_root();
    for kind in ["xfs", "btrfs", "ext4"] {
        let disk = Disk::new(kind, 320);
        let export = disk.path().join("export");
        fs::create_dir(&export).unwrap();
        fs::write(export.join("a"), pattern(3, SIZE as usize)).unwrap();
        let server = Serve::openly(&export).start();
        let options = Options::new().lane(LaneMode::Off).version(Version::V4_2).run_dir(server.run_dir());
        let url: Url = server.url(&export).parse().unwrap();
        let session = client::blocking::Session::connect(&url, options).unwrap();
        let cloned = session.run(async {
            let create = OpenOptions::new().read(true).write(true).create(true);
            let a = session.session().open(b"a", &create).await.unwrap();
            let b = session.session().open(b"b", &create).await.unwrap();
            a.write_at(&[7; 3 * 4096], 4096).await.unwrap();
            let cloned = a.clone_range(0, &b, 0, 0).await;
            if cloned.is_ok() {
                a.clone_range(4096, &b, 2 * SIZE, 8 * 4096).await.unwrap();
                assert_eq!(b.size().await.unwrap(), 2 * SIZE + 8 * 4096, "{kind}");
                let unaligned = a.clone_range(100, &b, 0, 4096).await.unwrap_err();
                assert_eq!(unaligned.status(), Some(Status::Invalid), "{kind}: {unaligned}");
            }
            a.close().await.unwrap();
            b.close().await.unwrap();
            cloned
        });
        if kind == "ext4" {
            assert_eq!(cloned.unwrap_err().status(), Some(Status::NotSupported));
            continue;
        }
        cloned.unwrap();
        let mut data = pattern(3, SIZE as usize);
        data[4096..4 * 4096].fill(7);
        assert!(fs::read(export.join("a")).unwrap() == data, "{kind}");
        let clone = fs::read(export.join("b")).unwrap();
        assert!(clone[..SIZE as usize] == data, "{kind}");
        assert!(clone[2 * SIZE as usize..] == data[4096..9 * 4096], "{kind}");
        assert!(is_shared(&export.join("a")) && is_shared(&export.join("b")), "{kind}");
        assert_eq!(server.status().calls("wire", "NFS4.CLONE"), 3, "{kind}");
    }
}

#[test]
fn ext4_refuses_clones() {
    let mut rig = Rig::new("ext4");
    assert_eq!(rig.attribute(attributes::CLONE_BLKSIZE), 0);
    assert_eq!(rig.clone(true, 0, 0, 0), Nfsstat4::Notsupp as u32);
    fs::copy(rig.path("a"), rig.path("b")).unwrap();
    run_ok(Command::new("sync").arg("-f").arg(rig.disk.path()));
    check_holes(&mut rig, "ext4");
}
