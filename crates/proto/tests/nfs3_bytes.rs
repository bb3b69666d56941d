//! Arguments and results of every NFS version 3 procedure, compared with bytes written down by hand from the
//! layout in RFC 1813.

use crate::bytes::{hex, same};
use proto::nfs3::*;
use xdr::{Decoder, Encoder, Error, List, Opaque};

const HANDLE: Opaque<'static, FHSIZE> = Opaque(b"\x01\x02\x03\x04\x05");
const HANDLE_HEX: &str = "00000005 01020304 05000000 # nfs_fh3 of five bytes\n";
const DIROP: Diropargs3<'static> = Diropargs3 { dir: HANDLE, name: Opaque(b"a/\xff\0b") };
const DIROP_HEX: &str = "00000005 01020304 05000000  00000005 612fff00 62000000 # diropargs3\n";

const FATTR: Fattr3 = Fattr3 {
    kind: Ftype3::Reg,
    mode: 0o644,
    nlink: 2,
    uid: 1000,
    gid: 1001,
    size: 0x1_0000_0002,
    used: 4096,
    rdev: Specdata3 { specdata1: 8, specdata2: 1 },
    fsid: 0xabcd,
    fileid: 42,
    atime: Nfstime3 { seconds: 0x6500_0000, nseconds: 1 },
    mtime: Nfstime3 { seconds: 0x6500_0001, nseconds: 2 },
    ctime: Nfstime3 { seconds: 0xffff_ffff, nseconds: 999_999_999 },
};
const FATTR_HEX: &str = "
    00000001            # type NF3REG
    000001a4            # mode
    00000002            # nlink
    000003e8 000003e9   # uid, gid
    00000001 00000002   # size
    00000000 00001000   # used
    00000008 00000001   # rdev
    00000000 0000abcd   # fsid
    00000000 0000002a   # fileid
    65000000 00000001   # atime
    65000001 00000002   # mtime
    ffffffff 3b9ac9ff   # ctime
";
const YES: &str = "00000001\n";
const NO: &str = "00000000\n";
const OK: &str = "00000000 # NFS3_OK\n";

const WCC: WccData =
    WccData { before: Some(WccAttr { size: 7, mtime: FATTR.mtime, ctime: FATTR.ctime }), after: Some(FATTR) };
const WCC_BEFORE_HEX: &str = "
    00000001            # pre_op_attr follows
    00000000 00000007   # size
    65000001 00000002   # mtime
    ffffffff 3b9ac9ff   # ctime
    00000001            # post_op_attr follows
";
const NO_WCC_HEX: &str = "00000000 00000000 # neither before nor after\n";

const SATTR: Sattr3 = Sattr3 {
    mode: Some(0o755),
    uid: None,
    gid: Some(5),
    size: Some(0x2_0000_0000),
    atime: SetTime::SetToServerTime,
    mtime: SetTime::SetToClientTime(Nfstime3 { seconds: 9, nseconds: 8 }),
};
const SATTR_HEX: &str = "
    00000001 000001ed            # set_mode3
    00000000                     # set_uid3: no
    00000001 00000005            # set_gid3
    00000001 00000002 00000000   # set_size3
    00000001                     # set_atime: SET_TO_SERVER_TIME
    00000002 00000009 00000008   # set_mtime: SET_TO_CLIENT_TIME
";
const NO_SATTR_HEX: &str = "00000000 00000000 00000000 00000000 00000000 00000000 # sattr3: nothing\n";

#[test]
fn getattr() {
    same(&Getattr3Args { object: HANDLE }, &hex(&[HANDLE_HEX]));
    same(&Getattr3Res::Ok(FATTR), &hex(&[OK, FATTR_HEX]));
    same(&Getattr3Res::Fail(Nfsstat3::Stale, ()), &hex(&["00000046"]));
}

#[test]
fn setattr() {
    let guarded = Setattr3Args {
        object: HANDLE,
        new_attributes: SATTR,
        guard: Some(Nfstime3 { seconds: 3, nseconds: 4 }),
    };
    same(&guarded, &hex(&[HANDLE_HEX, SATTR_HEX, YES, "00000003 00000004"]));
    let nothing = Setattr3Args { object: HANDLE, new_attributes: Sattr3::default(), guard: None };
    same(&nothing, &hex(&[HANDLE_HEX, NO_SATTR_HEX, NO]));
    same(&Setattr3Res::Ok(WCC), &hex(&[OK, WCC_BEFORE_HEX, FATTR_HEX]));
    same(&Setattr3Res::Fail(Nfsstat3::NotSync, WccData::default()), &hex(&["00002712", NO_WCC_HEX]));
}

#[test]
fn lookup() {
    same(&Lookup3Args { what: DIROP }, &hex(&[DIROP_HEX]));
    let found = Lookup3ResOk { object: HANDLE, obj_attributes: Some(FATTR), dir_attributes: None };
    same(&Lookup3Res::Ok(found), &hex(&[OK, HANDLE_HEX, YES, FATTR_HEX, NO]));
    same(&Lookup3Res::Fail(Nfsstat3::Noent, Some(FATTR)), &hex(&["00000002", YES, FATTR_HEX]));
}

#[test]
fn access() {
    let all =
        ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE | ACCESS3_EXECUTE;
    same(&Access3Args { object: HANDLE, access: all }, &hex(&[HANDLE_HEX, "0000003f"]));
    let granted = Access3ResOk { obj_attributes: Some(FATTR), access: ACCESS3_READ | ACCESS3_MODIFY };
    same(&Access3Res::Ok(granted), &hex(&[OK, YES, FATTR_HEX, "00000005"]));
    same(&Access3Res::Fail(Nfsstat3::Badhandle, None), &hex(&["00002711", NO]));
}

#[test]
fn readlink() {
    same(&Readlink3Args { symlink: HANDLE }, &hex(&[HANDLE_HEX]));
    let text = Readlink3ResOk { symlink_attributes: None, data: Opaque(b"../x") };
    same(&Readlink3Res::Ok(text), &hex(&[OK, NO, "00000004 2e2e2f78"]));
    same(&Readlink3Res::Fail(Nfsstat3::Inval, None), &hex(&["00000016", NO]));
}

#[test]
fn read() {
    let args = Read3Args { file: HANDLE, offset: u64::MAX, count: 0x2_0000 };
    same(&args, &hex(&[HANDLE_HEX, "ffffffff ffffffff 00020000"]));
    let body = Read3ResOk { attributes: Some(FATTR), count: 6, eof: true, data: Opaque(b"abcdef") };
    let whole = hex(&[OK, YES, FATTR_HEX, "00000006 00000001 00000006 61626364 65660000"]);
    same(&Read3Res::Ok(body), &whole);
    same(&Read3Res::Fail(Nfsstat3::Io, None), &hex(&["00000005", NO]));

    let head = Read3ResHead::Ok(Read3Head { attributes: Some(FATTR), count: 6, eof: true, length: 6 });
    same(&head, &whole[..whole.len() - 8]);
}

#[test]
fn write() {
    let args = Write3Args {
        file: HANDLE,
        offset: 1 << 32,
        count: 3,
        stable: StableHow::FileSync,
        data: Opaque(b"xyz"),
    };
    let whole = hex(&[HANDLE_HEX, "00000001 00000000 00000003 00000002 00000003 78797a00"]);
    same(&args, &whole);
    let head = Write3Head { file: HANDLE, offset: 1 << 32, count: 3, stable: StableHow::FileSync, length: 3 };
    same(&head, &whole[..whole.len() - 4]);
    let body = Write3ResOk { file_wcc: WCC, count: 3, committed: StableHow::DataSync, verf: *b"verifier" };
    let expected = hex(&[OK, WCC_BEFORE_HEX, FATTR_HEX, "00000003 00000001 76657269 66696572"]);
    same(&Write3Res::Ok(body), &expected);
    same(&Write3Res::Fail(Nfsstat3::Nospc, WccData::default()), &hex(&["0000001c", NO_WCC_HEX]));
}

#[test]
fn create() {
    for (mode, how) in [("00000000", Createhow3::Unchecked(SATTR)), ("00000001", Createhow3::Guarded(SATTR))]
    {
        same(&Create3Args { where_: DIROP, how }, &hex(&[DIROP_HEX, mode, SATTR_HEX]));
    }
    let exclusive = Create3Args { where_: DIROP, how: Createhow3::Exclusive(*b"12345678") };
    same(&exclusive, &hex(&[DIROP_HEX, "00000002 31323334 35363738"]));
    let made = NewObject3 { obj: Some(HANDLE), obj_attributes: Some(FATTR), dir_wcc: WCC };
    let expected = hex(&[OK, YES, HANDLE_HEX, YES, FATTR_HEX, WCC_BEFORE_HEX, FATTR_HEX]);
    same(&Create3Res::Ok(made), &expected);
    let unknown = NewObject3 { obj: None, obj_attributes: None, dir_wcc: WccData::default() };
    same(&Create3Res::Ok(unknown), &hex(&[OK, NO, NO, NO_WCC_HEX]));
    same(&Create3Res::Fail(Nfsstat3::Exist, WccData::default()), &hex(&["00000011", NO_WCC_HEX]));
}

#[test]
fn mkdir() {
    same(&Mkdir3Args { where_: DIROP, attributes: SATTR }, &hex(&[DIROP_HEX, SATTR_HEX]));
    same(&Mkdir3Res::Fail(Nfsstat3::Rofs, WccData::default()), &hex(&["0000001e", NO_WCC_HEX]));
}

#[test]
fn symlink() {
    let symlink = Symlinkdata3 { attributes: SATTR, data: Opaque(b"to") };
    same(&Symlink3Args { where_: DIROP, symlink }, &hex(&[DIROP_HEX, SATTR_HEX, "00000002 746f0000"]));
    same(&Symlink3Res::Fail(Nfsstat3::Dquot, WccData::default()), &hex(&["00000045", NO_WCC_HEX]));
}

#[test]
fn mknod() {
    let device = Devicedata3 { attributes: SATTR, spec: Specdata3 { specdata1: 4, specdata2: 64 } };
    let spec = "00000004 00000040";
    for (kind, what, rest) in [
        ("00000004", Mknoddata3::Chr(device), spec),
        ("00000003", Mknoddata3::Blk(device), spec),
        ("00000006", Mknoddata3::Sock(SATTR), ""),
        ("00000007", Mknoddata3::Fifo(SATTR), ""),
    ] {
        same(&Mknod3Args { where_: DIROP, what }, &hex(&[DIROP_HEX, kind, SATTR_HEX, rest]));
    }
    let regular = Mknod3Args { where_: DIROP, what: Mknoddata3::Other(Ftype3::Reg as u32) };
    same(&regular, &hex(&[DIROP_HEX, "00000001"]));
    same(&Mknod3Res::Fail(Nfsstat3::Badtype, WccData::default()), &hex(&["00002717", NO_WCC_HEX]));
}

#[test]
fn remove_and_rmdir() {
    same(&Remove3Args { object: DIROP }, &hex(&[DIROP_HEX]));
    same(&Remove3Res::Ok(WCC), &hex(&[OK, WCC_BEFORE_HEX, FATTR_HEX]));
    same(&Rmdir3Args { object: DIROP }, &hex(&[DIROP_HEX]));
    same(&Rmdir3Res::Fail(Nfsstat3::Notempty, WccData::default()), &hex(&["00000042", NO_WCC_HEX]));
}

#[test]
fn rename() {
    let to = Diropargs3 { dir: Opaque(b""), name: Opaque(b"") };
    same(&Rename3Args { from: DIROP, to }, &hex(&[DIROP_HEX, "00000000 00000000"]));
    let body = Rename3Body { fromdir_wcc: WCC, todir_wcc: WccData::default() };
    same(&Rename3Res::Ok(body), &hex(&[OK, WCC_BEFORE_HEX, FATTR_HEX, NO_WCC_HEX]));
    same(&Rename3Res::Fail(Nfsstat3::Xdev, body), &hex(&["00000012", WCC_BEFORE_HEX, FATTR_HEX, NO_WCC_HEX]));
}

#[test]
fn link() {
    same(&Link3Args { file: HANDLE, link: DIROP }, &hex(&[HANDLE_HEX, DIROP_HEX]));
    let body = Link3Body { file_attributes: Some(FATTR), linkdir_wcc: WccData::default() };
    same(&Link3Res::Ok(body), &hex(&[OK, YES, FATTR_HEX, NO_WCC_HEX]));
    same(&Link3Res::Fail(Nfsstat3::Mlink, body), &hex(&["0000001f", YES, FATTR_HEX, NO_WCC_HEX]));
}

#[test]
fn readdir() {
    let args = Readdir3Args { dir: HANDLE, cookie: 0x1_0000_0009, cookieverf: *b"cookiev.", count: 4096 };
    same(&args, &hex(&[HANDLE_HEX, "00000001 00000009 636f6f6b 6965762e 00001000"]));

    let head = ReaddirHead { dir_attributes: Some(FATTR), cookieverf: *b"cookiev." };
    let entries = [
        Entry3 { fileid: 42, name: Opaque(b"."), cookie: 1 },
        Entry3 { fileid: 43, name: Opaque(b"hello"), cookie: 0xffff_ffff_ffff_fffe },
    ];
    let expected = hex(&[
        OK,
        YES,
        FATTR_HEX,
        "636f6f6b 6965762e",
        "00000001 00000000 0000002a 00000001 2e000000 00000000 00000001",
        "00000001 00000000 0000002b 00000005 68656c6c 6f000000 ffffffff fffffffe",
        "00000000 00000001 # no more entries, eof",
    ]);
    let reply = Dirlist3 { entries: List(entries.to_vec()), eof: true };
    same(&Readdir3Res::Ok(Readdir3ResOk { head, reply }), &expected);

    // A server's way: head, entries one by one, tail.
    let mut to = Encoder::new();
    to.put(&ReaddirResHead::Ok(head));
    for entry in entries {
        let before = to.position();
        to.put(&Some(entry));
        assert_eq!(to.position() - before, xdr::UNIT + Entry3::size(entry.name.0.len()));
    }
    let before = to.position();
    to.put(&DirlistTail { eof: true });
    assert_eq!(to.position() - before, DirlistTail::SIZE);
    assert_eq!(to.as_slice(), expected);

    same(&Readdir3Res::Fail(Nfsstat3::BadCookie, None), &hex(&["00002713", NO]));
}

#[test]
fn readdirplus() {
    let args = Readdirplus3Args {
        dir: HANDLE,
        cookie: 2,
        cookieverf: [0; COOKIEVERFSIZE],
        dircount: 512,
        maxcount: 8192,
    };
    same(&args, &hex(&[HANDLE_HEX, "00000000 00000002 00000000 00000000 00000200 00002000"]));
    let head = ReaddirHead { dir_attributes: None, cookieverf: [0; COOKIEVERFSIZE] };
    let entries = vec![
        Entryplus3 {
            fileid: 42,
            name: Opaque(b"ab"),
            cookie: 3,
            name_attributes: Some(FATTR),
            name_handle: Some(HANDLE),
        },
        Entryplus3 { fileid: 1, name: Opaque(b".."), cookie: 4, name_attributes: None, name_handle: None },
    ];
    let expected = hex(&[
        OK,
        NO,
        "00000000 00000000",
        "00000001 00000000 0000002a 00000002 61620000 00000000 00000003",
        YES,
        FATTR_HEX,
        YES,
        HANDLE_HEX,
        "00000001 00000000 00000001 00000002 2e2e0000 00000000 00000004 00000000 00000000",
        "00000000 00000000 # no more entries here, not eof",
    ]);
    let reply = Dirlist3 { entries: List(entries), eof: false };
    same(&Readdirplus3Res::Ok(Readdirplus3ResOk { head, reply }), &expected);
    same(&Readdirplus3Res::Fail(Nfsstat3::Toosmall, None), &hex(&["00002715", NO]));
}

#[test]
fn fsstat() {
    same(&Fsstat3Args { fsroot: HANDLE }, &hex(&[HANDLE_HEX]));
    let body = Fsstat3ResOk {
        obj_attributes: None,
        tbytes: 1,
        fbytes: 2,
        abytes: 3,
        tfiles: 4,
        ffiles: 5,
        afiles: 0x6_0000_0000,
        invarsec: 7,
    };
    let expected = hex(&[
        OK,
        NO,
        "00000000 00000001 00000000 00000002 00000000 00000003",
        "00000000 00000004 00000000 00000005 00000006 00000000 00000007",
    ]);
    same(&Fsstat3Res::Ok(body), &expected);
    same(&Fsstat3Res::Fail(Nfsstat3::Serverfault, None), &hex(&["00002716", NO]));
}

#[test]
fn fsinfo() {
    same(&Fsinfo3Args { fsroot: HANDLE }, &hex(&[HANDLE_HEX]));
    let body = Fsinfo3ResOk {
        obj_attributes: Some(FATTR),
        rtmax: 1,
        rtpref: 2,
        rtmult: 3,
        wtmax: 4,
        wtpref: 5,
        wtmult: 6,
        dtpref: 7,
        maxfilesize: 0x7fff_ffff_ffff_ffff,
        time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
        properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
    };
    let expected = hex(&[
        OK,
        YES,
        FATTR_HEX,
        "00000001 00000002 00000003 00000004 00000005 00000006 00000007",
        "7fffffff ffffffff 00000000 00000001 0000001b",
    ]);
    same(&Fsinfo3Res::Ok(body), &expected);
    same(&Fsinfo3Res::Fail(Nfsstat3::Notsupp, None), &hex(&["00002714", NO]));
}

#[test]
fn pathconf() {
    same(&Pathconf3Args { object: HANDLE }, &hex(&[HANDLE_HEX]));
    let body = Pathconf3ResOk {
        obj_attributes: None,
        linkmax: 65_000,
        name_max: 255,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    let expected = hex(&[OK, NO, "0000fde8 000000ff 00000001 00000001 00000000 00000001"]);
    same(&Pathconf3Res::Ok(body), &expected);
    same(&Pathconf3Res::Fail(Nfsstat3::Jukebox, None), &hex(&["00002718", NO]));
}

#[test]
fn commit() {
    same(
        &Commit3Args { file: HANDLE, offset: 5, count: 0 },
        &hex(&[HANDLE_HEX, "00000000 00000005 00000000"]),
    );
    let body = Commit3ResOk { file_wcc: WccData::default(), verf: *b"\0\0\0\x01\0\0\0\x02" };
    same(&Commit3Res::Ok(body), &hex(&[OK, NO_WCC_HEX, "00000001 00000002"]));
    same(&Commit3Res::Fail(Nfsstat3::Io, WCC), &hex(&["00000005", WCC_BEFORE_HEX, FATTR_HEX]));
}

#[test]
fn every_status_has_the_number_of_the_rfc() {
    use Nfsstat3::*;
    let numbers = [
        (Ok, 0),
        (Perm, 1),
        (Noent, 2),
        (Io, 5),
        (Nxio, 6),
        (Acces, 13),
        (Exist, 17),
        (Xdev, 18),
        (Nodev, 19),
        (Notdir, 20),
        (Isdir, 21),
        (Inval, 22),
        (Fbig, 27),
        (Nospc, 28),
        (Rofs, 30),
        (Mlink, 31),
        (Nametoolong, 63),
        (Notempty, 66),
        (Dquot, 69),
        (Stale, 70),
        (Remote, 71),
        (Badhandle, 10001),
        (NotSync, 10002),
        (BadCookie, 10003),
        (Notsupp, 10004),
        (Toosmall, 10005),
        (Serverfault, 10006),
        (Badtype, 10007),
        (Jukebox, 10008),
    ];
    for number in 0..=11_000_u32 {
        let known = numbers.iter().find(|(_, n)| *n == number).map(|(status, _)| *status);
        assert_eq!(Decoder::new(&number.to_be_bytes()).get::<Nfsstat3>().ok(), known, "{number}");
    }
}

#[test]
fn procedures_are_numbered_and_named() {
    let names = [
        "NULL",
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "ACCESS",
        "READLINK",
        "READ",
        "WRITE",
        "CREATE",
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "REMOVE",
        "RMDIR",
        "RENAME",
        "LINK",
        "READDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
        "COMMIT",
    ];
    assert_eq!(Procedure::ALL.len(), names.len());
    for (number, name) in (0..).zip(names) {
        let procedure = Procedure::from_number(number).unwrap();
        assert_eq!((procedure.number(), procedure.name()), (number, name));
        assert_eq!(Procedure::ALL[number as usize], procedure);
        assert_eq!(procedure.to_string(), name);
    }
    assert_eq!(Procedure::from_number(22), None);
}

#[test]
fn lengths_are_refused_above_their_bounds() {
    let long = |len: usize| {
        let mut to = Encoder::new();
        to.opaque(&vec![b'x'; len]);
        to.into_vec()
    };
    let decode = |bytes: &[u8]| Decoder::new(bytes).get::<NfsFh3<'_>>().map(|handle| handle.0.len());
    assert_eq!(decode(&long(64)), Ok(64));
    assert_eq!(decode(&long(65)), Err(Error::TooLong { max: 64, len: 65 }));

    // A name that is too long for any filesystem arrives; one that is absurd doesn't.
    let decode = |bytes: &[u8]| Decoder::new(bytes).get::<Filename3<'_>>().map(|name| name.0.len());
    assert_eq!(decode(&long(256)), Ok(256));
    assert_eq!(decode(&long(4096)), Ok(4096));
    assert_eq!(decode(&long(4097)), Err(Error::TooLong { max: 4096, len: 4097 }));

    // Declared lengths that the record doesn't hold cost nothing.
    let lie = |len: u32| {
        let mut to = Encoder::new();
        to.put(&Write3Head { file: HANDLE, offset: 0, count: len, stable: StableHow::Unstable, length: len });
        to.into_vec()
    };
    let decode = |bytes: &[u8]| Decoder::new(bytes).get::<Write3Args<'_>>().map(|_| ());
    assert!(matches!(decode(&lie(1)), Err(Error::Truncated { needed: 4, left: 0 })));
    assert!(matches!(decode(&lie(u32::MAX)), Err(Error::TooLong { max: MAX_DATA, len: 0xffff_ffff })));
}

#[test]
fn a_directory_list_has_a_bound() {
    let entry = Some(Entry3 { fileid: 1, name: Opaque(b""), cookie: 1 });
    let mut to = Encoder::new();
    for _ in 0..MAX_DIR_ENTRIES {
        to.put(&entry);
    }
    let full = to.position();
    to.put(&DirlistTail { eof: false });
    let whole = Decoder::new(to.as_slice()).get::<Dirlist3<Entry3<'_>>>().unwrap();
    assert_eq!(whole.entries.0.len(), MAX_DIR_ENTRIES);

    to.truncate(full);
    to.put(&entry);
    to.put(&DirlistTail { eof: false });
    let over = Decoder::new(to.as_slice()).get::<Dirlist3<Entry3<'_>>>();
    assert_eq!(over, Err(Error::TooLong { max: MAX_DIR_ENTRIES, len: MAX_DIR_ENTRIES + 1 }));
}

#[test]
fn invalid_values_are_refused() {
    let refused = |value: u32, of: &'static str| Some(Error::Discriminant { of, value });
    assert_eq!(Decoder::new(&hex(&["00000000"])).get::<Ftype3>().err(), refused(0, "Ftype3"));
    assert_eq!(Decoder::new(&hex(&["00000008"])).get::<Ftype3>().err(), refused(8, "Ftype3"));
    assert_eq!(Decoder::new(&hex(&["00000003"])).get::<StableHow>().err(), refused(3, "StableHow"));
    assert_eq!(Decoder::new(&hex(&["00000003"])).get::<SetTime>().err(), refused(3, "SetTime"));
    assert_eq!(Decoder::new(&hex(&["00000003"])).get::<Createhow3>().err(), refused(3, "Createhow3"));
    assert_eq!(Decoder::new(&hex(&["00000002"])).get::<PostOpAttr>().err(), Some(Error::NotBoolean(2)));
    assert_eq!(Decoder::new(&hex(&["0000270f"])).get::<Getattr3Res>().err(), refused(9999, "Nfsstat3"));
}
