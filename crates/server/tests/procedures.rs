//! Every procedure of RFC 1813, with correct weak cache consistency data.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use common::{open_server, what};
use proto::nfs3::{
    ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_MODIFY, ACCESS3_READ, Access3Args, Access3Res, Commit3Args,
    Commit3Res, Create3Args, Create3Res, Createhow3, FSF3_CANSETTIME, FSF3_LINK, FSF3_SYMLINK, Fsinfo3Args,
    Fsinfo3Res, Fsstat3Args, Fsstat3Res, Ftype3, Link3Args, Link3Res, Lookup3Args, Lookup3Res, Mkdir3Args,
    Mkdir3Res, Mknod3Args, Mknod3Res, Mknoddata3, Nfsstat3, Nfstime3, Outcome, Pathconf3Args, Pathconf3Res,
    Procedure, Readlink3Args, Readlink3Res, Remove3Res, Rename3Args, Rename3Res, Rmdir3Args, Rmdir3Res,
    Sattr3, SetTime, Setattr3Args, Setattr3Res, StableHow, Symlink3Args, Symlink3Res, Symlinkdata3, WccData,
    Write3Args, Write3Res,
};
use xdr::Opaque;

/// The change's before and after are those of two GETATTRs around it.
fn assert_wcc(wcc: &WccData, before: &proto::nfs3::Fattr3, after: &proto::nfs3::Fattr3) {
    assert_eq!(wcc.before, Some(before.into()));
    assert_eq!(wcc.after.as_ref(), Some(after));
}

#[test]
fn null_and_getattr() {
    let (scratch, _server, mut client) = open_server();
    let (status, results) = client.raw(proto::nfs3::PROGRAM, 3, 0, &[]);
    assert_eq!((status, results.0), (rpc::message::ReplyStatus::Success, vec![]));
    let root = client.mnt(&scratch.export()).unwrap();
    let attributes = client.getattr(&root);
    let real = std::fs::metadata(scratch.export()).unwrap();
    assert_eq!(attributes.kind, Ftype3::Dir);
    assert_eq!((attributes.mode, attributes.nlink), (0o777, real.nlink() as u32));
    assert_eq!((attributes.fileid, attributes.size), (real.ino(), real.size()));
    assert_eq!(
        attributes.mtime,
        Nfstime3 { seconds: real.mtime() as u32, nseconds: real.mtime_nsec() as u32 }
    );
}

#[test]
fn setattr_sets_each_attribute_and_checks_the_guard() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    client.write(&file, 0, b"0123456789");
    let mut set = |new_attributes: Sattr3, guard: Option<Nfstime3>| {
        let before = client.getattr(&file);
        let args = Setattr3Args { object: Opaque(&file), new_attributes, guard };
        let result: Setattr3Res = client.nfs(Procedure::Setattr, &args).get();
        let after = client.getattr(&file);
        if let Outcome::Ok(wcc) = &result {
            assert_wcc(wcc, &before, &after);
        }
        (result, before, after)
    };
    let (_, _, after) = set(Sattr3 { mode: Some(0o4751), ..Sattr3::default() }, None);
    assert_eq!(after.mode, 0o4751);
    let (_, _, after) = set(Sattr3 { uid: Some(12), gid: Some(34), ..Sattr3::default() }, None);
    assert_eq!((after.uid, after.gid), (12, 34));
    let (_, before, after) = set(Sattr3 { size: Some(4), ..Sattr3::default() }, None);
    assert_eq!((before.size, after.size), (10, 4));
    let then = Nfstime3 { seconds: 1_000_000_000, nseconds: 5 };
    let times = Sattr3 {
        atime: SetTime::SetToClientTime(then),
        mtime: SetTime::SetToClientTime(then),
        ..Sattr3::default()
    };
    let (_, _, after) = set(times, None);
    assert_eq!((after.atime, after.mtime), (then, then));
    let (_, _, after) = set(Sattr3 { mtime: SetTime::SetToServerTime, ..Sattr3::default() }, None);
    assert!(after.mtime > then && after.atime == then);
    // Nothing to set is no error.
    assert!(matches!(set(Sattr3::default(), None).0, Outcome::Ok(_)));

    let guard = after.ctime;
    let (result, _, _) = set(Sattr3 { mode: Some(0o600), ..Sattr3::default() }, Some(guard));
    assert!(matches!(result, Outcome::Ok(_)), "{result:?}");
    let (result, before, after) = set(Sattr3 { mode: Some(0o644), ..Sattr3::default() }, Some(then));
    assert!(matches!(result, Outcome::Fail(Nfsstat3::NotSync, WccData { after: Some(_), .. })));
    assert_eq!(before.mode, after.mode);
    let current = after.ctime;
    let (result, _, after) = set(Sattr3 { mode: Some(0o640), ..Sattr3::default() }, Some(current));
    assert!(matches!(result, Outcome::Ok(_)) && after.mode == 0o640);

    let bad = SetTime::SetToClientTime(Nfstime3 { seconds: 1, nseconds: 1_000_000_000 });
    let (result, _, _) = set(Sattr3 { mtime: bad, ..Sattr3::default() }, None);
    assert!(matches!(result, Outcome::Fail(Nfsstat3::Inval, _)));
    let (result, _, _) = set(Sattr3 { size: Some(u64::MAX), ..Sattr3::default() }, None);
    assert!(matches!(result, Outcome::Fail(Nfsstat3::Fbig | Nfsstat3::Inval, _)), "{result:?}");
}

#[test]
fn lookup_finds_names_dots_and_nothing_else() {
    let (scratch, _server, mut client) = open_server();
    std::fs::create_dir(scratch.at("d")).unwrap();
    std::fs::write(scratch.at("d/\u{fc}"), "x").unwrap();
    let root = client.mnt(&scratch.export()).unwrap();
    let dir = client.lookup(&root, "d");
    let file = client.lookup(&dir, "\u{fc}");
    assert_eq!(client.getattr(&file).size, 1);
    assert_eq!(client.lookup(&dir, "."), dir);
    assert_eq!(client.lookup(&dir, ".."), root);
    assert_eq!(client.lookup(&root, ".."), root, "the root is its own parent");
    let args = Lookup3Args { what: what(&dir, b"missing") };
    let results = client.nfs(Procedure::Lookup, &args);
    let Outcome::Fail(Nfsstat3::Noent, Some(attributes)) = results.get::<Lookup3Res<'_>>() else {
        panic!("{:?}", results.0);
    };
    assert_eq!(attributes, client.getattr(&dir));
}

#[test]
fn access_answers_for_the_calling_user() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    std::fs::write(scratch.at("f"), "x").unwrap();
    std::fs::set_permissions(scratch.at("f"), std::fs::Permissions::from_mode(0o754)).unwrap();
    let file = client.lookup(&root, "f");
    let all = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE;
    for (uid, gid, expected) in [(0, 0, all), (7, 0, ACCESS3_READ | ACCESS3_EXECUTE), (7, 7, ACCESS3_READ)] {
        let mut user = common::Client::new(&server).with_user(uid, gid, &[]);
        let result: Access3Res =
            user.nfs(Procedure::Access, &Access3Args { object: Opaque(&file), access: all }).get();
        let Outcome::Ok(ok) = result else { panic!("{result:?}") };
        assert_eq!(ok.access, expected, "{uid}:{gid}");
        assert!(ok.obj_attributes.is_some());
    }
}

#[test]
fn read_and_write_of_all_sizes() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let mut offset = 0;
    for length in [1, 2, 3, 4, 5, 4095, 4096, 32_767, 32_768, 100_000] {
        let before = client.getattr(&file);
        let Outcome::Ok(ok) = client.write(&file, offset as u64, &data[offset..offset + length]) else {
            panic!()
        };
        assert_eq!((ok.count as usize, ok.committed), (length, StableHow::Unstable));
        assert_wcc(&ok.file_wcc, &before, &client.getattr(&file));
        offset += length;
    }
    let size = offset;
    for (offset, count) in
        [(0, 1), (1, 2), (3, 4093), (0, 32_767), (0, 32_768), (5, 100_000), (0, 1 << 20), (size - 1, 10)]
    {
        let (read, eof) = client.read(&file, offset as u64, count).unwrap();
        let end = (offset + count as usize).min(size);
        assert_eq!(read, &data[offset..end], "{offset}+{count}");
        assert_eq!(eof, end == size);
    }
    for offset in [size as u64, size as u64 + 1, i64::MAX as u64, u64::MAX] {
        for count in [0, 1, 4096, 65_536, u32::MAX] {
            assert_eq!(client.read(&file, offset, count).unwrap(), (vec![], true), "{offset}+{count}");
        }
    }
    // A count above the maximum is cut, not refused.
    assert_eq!(client.read(&file, 0, u32::MAX).unwrap().0.len(), size);
}

#[test]
fn write_stability_and_commit() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    let mut verifiers = Vec::new();
    for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
        let args = Write3Args { file: Opaque(&file), offset: 0, count: 3, stable, data: Opaque(b"abc") };
        let result: Write3Res = client.nfs(Procedure::Write, &args).get();
        let Outcome::Ok(ok) = result else { panic!("{result:?}") };
        assert!(ok.committed >= stable && ok.count == 3);
        verifiers.push(ok.verf);
    }
    let args = Commit3Args { file: Opaque(&file), offset: 0, count: 0 };
    let result: Commit3Res = client.nfs(Procedure::Commit, &args).get();
    let Outcome::Ok(ok) = result else { panic!("{result:?}") };
    assert_eq!(ok.file_wcc.after, Some(client.getattr(&file)));
    verifiers.push(ok.verf);
    assert!(verifiers.windows(2).all(|pair| pair[0] == pair[1]));
    // A count that isn't the data's.
    let args = Write3Args {
        file: Opaque(&file),
        offset: 0,
        count: 4,
        stable: StableHow::Unstable,
        data: Opaque(b"abc"),
    };
    let result: Write3Res = client.nfs(Procedure::Write, &args).get();
    assert!(matches!(result, Outcome::Fail(Nfsstat3::Inval, _)));
    let args = Write3Args {
        file: Opaque(&file),
        offset: u64::MAX - 1,
        count: 3,
        stable: StableHow::Unstable,
        data: Opaque(b"abc"),
    };
    let result: Write3Res = client.nfs(Procedure::Write, &args).get();
    assert!(matches!(result, Outcome::Fail(Nfsstat3::Fbig, WccData { after: Some(_), .. })), "{result:?}");
    assert_eq!(client.getattr(&file).size, 3);
}

#[test]
fn create_in_all_three_modes() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let before = client.getattr(&root);
    let how = Createhow3::Guarded(Sattr3 { mode: Some(0o600), size: Some(0), ..Sattr3::default() });
    let args = Create3Args { where_: what(&root, b"f"), how };
    let results = client.nfs(Procedure::Create, &args);
    let Outcome::Ok(ok) = results.get::<Create3Res<'_>>() else { panic!() };
    let attributes = ok.obj_attributes.unwrap();
    assert_eq!((attributes.kind, attributes.mode, attributes.size), (Ftype3::Reg, 0o600, 0));
    assert_wcc(&ok.dir_wcc, &before, &client.getattr(&root));
    let file = ok.obj.unwrap().0.to_vec();

    let results = client.nfs(Procedure::Create, &args);
    let Outcome::Fail(Nfsstat3::Exist, wcc) = results.get::<Create3Res<'_>>() else { panic!() };
    assert!(wcc.before.is_some() && wcc.after.is_some());
    client.write(&file, 0, b"data");
    assert_eq!(client.create(&root, "f").unwrap(), file);
    assert_eq!(client.getattr(&file).size, 4, "UNCHECKED leaves the file alone");
    let truncate = Createhow3::Unchecked(Sattr3 { size: Some(0), ..Sattr3::default() });
    assert_eq!(client.create_how(&root, "f", truncate).unwrap(), file);
    assert_eq!(client.getattr(&file).size, 0, "but for its size");

    let exclusive = client.create_how(&root, "x", Createhow3::Exclusive([9; 8])).unwrap();
    assert_eq!(client.create_how(&root, "x", Createhow3::Exclusive([9; 8])), Ok(exclusive), "a retry");
    assert_eq!(client.create_how(&root, "x", Createhow3::Exclusive([8; 8])), Err(Nfsstat3::Exist));
}

#[test]
fn mkdir_symlink_mknod_readlink() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let mode = |mode| Sattr3 { mode: Some(mode), ..Sattr3::default() };
    let results =
        client.nfs(Procedure::Mkdir, &Mkdir3Args { where_: what(&root, b"d"), attributes: mode(0o750) });
    let Outcome::Ok(ok) = results.get::<Mkdir3Res<'_>>() else { panic!() };
    assert_eq!(ok.obj_attributes.unwrap().mode, 0o750);
    assert!(scratch.at("d").is_dir());

    let data = Symlinkdata3 { attributes: Sattr3::default(), data: Opaque(b"../some/\xff where") };
    let results = client.nfs(Procedure::Symlink, &Symlink3Args { where_: what(&root, b"l"), symlink: data });
    let Outcome::Ok(ok) = results.get::<Symlink3Res<'_>>() else { panic!() };
    assert_eq!(ok.obj_attributes.unwrap().kind, Ftype3::Lnk);
    let link = ok.obj.unwrap().0.to_vec();
    let results = client.nfs(Procedure::Readlink, &Readlink3Args { symlink: Opaque(&link) });
    let Outcome::Ok(ok) = results.get::<Readlink3Res<'_>>() else { panic!() };
    assert_eq!(ok.data.0, b"../some/\xff where");
    let results = client.nfs(Procedure::Readlink, &Readlink3Args { symlink: Opaque(&root) });
    assert!(matches!(results.get::<Readlink3Res<'_>>(), Outcome::Fail(Nfsstat3::Inval, Some(_))));

    for (name, what_, kind) in [
        ("p", Mknoddata3::Fifo(mode(0o600)), Ftype3::Fifo),
        ("s", Mknoddata3::Sock(mode(0o600)), Ftype3::Sock),
        (
            "c",
            Mknoddata3::Chr(proto::nfs3::Devicedata3 {
                attributes: mode(0o600),
                spec: proto::nfs3::Specdata3 { specdata1: 1, specdata2: 3 },
            }),
            Ftype3::Chr,
        ),
    ] {
        let args = Mknod3Args { where_: what(&root, name.as_bytes()), what: what_ };
        let results = client.nfs(Procedure::Mknod, &args);
        match results.get::<Mknod3Res<'_>>() {
            Outcome::Ok(ok) => {
                let attributes = ok.obj_attributes.unwrap();
                assert_eq!(attributes.kind, kind);
                if kind == Ftype3::Chr {
                    assert_eq!((attributes.rdev.specdata1, attributes.rdev.specdata2), (1, 3));
                }
            }
            // A container may forbid devices even to root.
            Outcome::Fail(status, _) => assert_eq!((kind, status), (Ftype3::Chr, Nfsstat3::Perm)),
        }
    }
    for kind in [Ftype3::Reg as u32, Ftype3::Dir as u32, 99] {
        let args = Mknod3Args { where_: what(&root, b"other"), what: Mknoddata3::Other(kind) };
        let results = client.nfs(Procedure::Mknod, &args);
        assert!(matches!(results.get::<Mknod3Res<'_>>(), Outcome::Fail(Nfsstat3::Badtype, _)));
    }
}

#[test]
fn remove_rmdir_rename_link() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    for dir in ["d", "e", "full"] {
        std::fs::create_dir(scratch.at(dir)).unwrap();
    }
    std::fs::write(scratch.at("full/f"), "").unwrap();
    let (d, e) = (client.lookup(&root, "d"), client.lookup(&root, "e"));
    let file = client.create(&d, "f").unwrap();

    let (before_d, before_e) = (client.getattr(&d), client.getattr(&e));
    let result: Rename3Res =
        client.nfs(Procedure::Rename, &Rename3Args { from: what(&d, b"f"), to: what(&e, b"g") }).get();
    let Outcome::Ok(ok) = result else { panic!("{result:?}") };
    assert_wcc(&ok.fromdir_wcc, &before_d, &client.getattr(&d));
    assert_wcc(&ok.todir_wcc, &before_e, &client.getattr(&e));
    assert_eq!(client.lookup(&e, "g"), file, "the handle stays");

    let before = client.getattr(&d);
    let result: Link3Res =
        client.nfs(Procedure::Link, &Link3Args { file: Opaque(&file), link: what(&d, b"h") }).get();
    let Outcome::Ok(ok) = result else { panic!("{result:?}") };
    assert_eq!(ok.file_attributes.unwrap().nlink, 2);
    assert_wcc(&ok.linkdir_wcc, &before, &client.getattr(&d));
    let result: Link3Res =
        client.nfs(Procedure::Link, &Link3Args { file: Opaque(&file), link: what(&d, b"h") }).get();
    assert!(matches!(result, Outcome::Fail(Nfsstat3::Exist, _)));

    let before = client.getattr(&d);
    let Remove3Res::Ok(wcc) = client.remove(&d, "h") else { panic!() };
    assert_wcc(&wcc, &before, &client.getattr(&d));
    assert!(matches!(client.remove(&d, "h"), Outcome::Fail(Nfsstat3::Noent, WccData { after: Some(_), .. })));
    assert!(matches!(client.remove(&root, "d"), Outcome::Fail(Nfsstat3::Isdir, _)));

    let mut rmdir = |name: &[u8]| -> Rmdir3Res {
        client.nfs(Procedure::Rmdir, &Rmdir3Args { object: what(&root, name) }).get()
    };
    assert!(matches!(rmdir(b"full"), Outcome::Fail(Nfsstat3::Notempty, _)));
    assert!(matches!(rmdir(b"d"), Outcome::Ok(_)));
    assert!(matches!(rmdir(b"d"), Outcome::Fail(Nfsstat3::Noent, _)));
    assert!(matches!(rmdir(b"."), Outcome::Fail(Nfsstat3::Inval, _)));
    assert!(matches!(rmdir(b".."), Outcome::Fail(Nfsstat3::Exist, _)));
    assert!(matches!(rmdir(b"full/f"), Outcome::Fail(Nfsstat3::Acces, _)));
}

#[test]
fn fsstat_fsinfo_and_pathconf_return_correct_values() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let result: Fsstat3Res = client.nfs(Procedure::Fsstat, &Fsstat3Args { fsroot: Opaque(&root) }).get();
    let Outcome::Ok(stat) = result else { panic!("{result:?}") };
    let real = rustix::fs::statvfs(scratch.export()).unwrap();
    assert_eq!(stat.tbytes, real.f_blocks * real.f_frsize);
    assert_eq!(stat.tfiles, real.f_files);
    assert!(stat.fbytes <= stat.tbytes && stat.abytes <= stat.fbytes);
    let result: Fsinfo3Res = client.nfs(Procedure::Fsinfo, &Fsinfo3Args { fsroot: Opaque(&root) }).get();
    let Outcome::Ok(info) = result else { panic!("{result:?}") };
    assert_eq!((info.rtmax, info.wtmax), (1 << 20, 1 << 20));
    let needed = FSF3_LINK | FSF3_SYMLINK | FSF3_CANSETTIME;
    assert_eq!(info.properties & needed, needed);
    assert!(info.maxfilesize > 1 << 32 && info.time_delta.seconds == 0);
    let result: Pathconf3Res =
        client.nfs(Procedure::Pathconf, &Pathconf3Args { object: Opaque(&root) }).get();
    let Outcome::Ok(conf) = result else { panic!("{result:?}") };
    assert_eq!((conf.name_max, conf.no_trunc, conf.chown_restricted), (255, true, true));
    assert!(!conf.case_insensitive && conf.case_preserving && conf.linkmax > 1);
}
