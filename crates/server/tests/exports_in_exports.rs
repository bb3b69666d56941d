//! An export inside of another on the same filesystem: the inner one's files are served by its own rules, by
//! any path, over NFSv3, NFSv4 and the lane, and with any handle.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use common::local::{lane, open, run, user};
use common::users::as_user;
use common::v4::{NFS_OK, Session};
use common::{Client, Scratch, what};
use lane::{Access, CreateMode, NewFile, OpenStatus, Target};
use proto::mount3::Mountstat3;
use proto::nfs3::{
    self, Getattr3Args, Link3Args, Lookup3Args, Mkdir3Args, Nfsstat3, Outcome, Procedure, Remove3Args,
    Rename3Args, Sattr3,
};
use proto::nfs4::{self, Bitmap4, Nfsstat4, OpenClaim4, Operation};
use samehost_server::{Config, Server};
use xdr::Opaque;

const STALE: u32 = Nfsstat3::Stale as u32;
const ACCESS: u32 = Nfsstat3::Acces as u32;
const XDEV: u32 = Nfsstat3::Xdev as u32;
const OUTER: &str = "127.0.0.1(rw,insecure,no_root_squash,async) 127.0.0.2(rw,insecure,no_root_squash,async)";
/// The second client isn't admitted.
const INNER: &str = "127.0.0.1(ro,insecure,no_root_squash,no_lane)";

/// `export` with `way/inner/d/f` in it; `way/inner` may be an export of its own.
struct Rig {
    scratch: Scratch,
    exports: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.at("way/inner/d")).unwrap();
        std::fs::create_dir(scratch.at("beside")).unwrap();
        for name in ["way/inner/f", "way/inner/d/f", "f", "beside/f"] {
            std::fs::write(scratch.at(name), "data").unwrap();
        }
        for name in ["way", "beside", "way/inner", "way/inner/d"] {
            std::fs::set_permissions(scratch.at(name), std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let exports = scratch.dir.path().join("exports");
        let rig = Self { scratch, exports };
        rig.export(false);
        rig
    }

    fn inner(&self) -> PathBuf {
        self.scratch.at("way/inner")
    }

    /// Writes the exports file.
    fn export(&self, with_inner: bool) {
        let mut lines = format!("{} {OUTER}\n", self.scratch.export().display());
        if with_inner {
            lines += &format!("{} {INNER}\n", self.inner().display());
        }
        std::fs::write(&self.exports, lines).unwrap();
    }

    fn serve(&self) -> Server {
        let exports = Vec::new();
        let export_files = vec![self.exports.clone()];
        Server::start(Config { exports, export_files, ..self.scratch.config("") }).unwrap()
    }
}

fn second(server: &Server) -> Client {
    Client::from(server, [127, 0, 0, 2].into(), 0)
}

fn try_lookup(client: &mut Client, dir: &[u8], name: &str) -> u32 {
    client.nfs(Procedure::Lookup, &Lookup3Args { what: what(dir, name.as_bytes()) }).status()
}

fn rename(client: &mut Client, from: (&[u8], &str), to: (&[u8], &str)) -> u32 {
    let args = Rename3Args { from: what(from.0, from.1.as_bytes()), to: what(to.0, to.1.as_bytes()) };
    client.nfs(Procedure::Rename, &args).status()
}

fn status_of(client: &mut Client, handle: &[u8]) -> u32 {
    client.nfs(Procedure::Getattr, &Getattr3Args { object: Opaque(handle) }).status()
}

#[test]
fn names_lead_into_the_inner_export_and_its_rules_apply_there() {
    let rig = Rig::new();
    rig.export(true);
    let server = rig.serve();
    let mut client = Client::new(&server);
    let root = client.mnt(&rig.scratch.export()).unwrap();
    let way = client.lookup(&root, "way");
    let inner = client.lookup(&way, "inner");
    assert_eq!(client.mnt(&rig.inner()).as_ref(), Ok(&inner));
    assert_eq!(client.getattr(&inner).fileid, std::fs::metadata(rig.inner()).unwrap().ino());
    let d = client.lookup(&inner, "d");
    let file = client.lookup(&d, "f");
    assert_eq!(client.read(&file, 0, 4).unwrap().0, b"data");
    assert!(matches!(client.write(&file, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, _)));
    assert_eq!(client.create(&d, "new"), Err(Nfsstat3::Rofs));

    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    let at = session.walk(&rig.scratch.at("way"));
    assert_eq!((&at, session.lookup(&at, b"inner")), (&way, Ok(inner.clone())));
    let name = OpenClaim4::Null(Opaque(b"f"));
    assert_eq!(session.open(&d, name, false).err(), Some(Nfsstat4::Rofs as u32));

    run(async {
        let lane = lane(&rig.scratch, &mut client).await;
        let root_user = user(0, 0, &[]);
        for access in [Access::Read, Access::Write, Access::ReadWrite] {
            let there = Target::Entry { directory: &d, name: b"f" };
            let new =
                Target::New(NewFile { directory: &d, name: b"new", mode: 0o644, how: CreateMode::Unchecked });
            for target in [there, new, Target::Handle(&file)] {
                let refused = open(&lane, target, access, &root_user).await.err();
                assert_eq!(refused, Some(OpenStatus::NoLane), "{target:?}");
            }
            let directory = Target::Entry { directory: &way, name: b"inner" };
            open(&lane, directory, access, &root_user).await.unwrap_err();
        }
        // The outer export is unaffected.
        let beside = Target::Entry { directory: &root, name: b"f" };
        open(&lane, beside, Access::Write, &root_user).await.unwrap();
    });
}

#[test]
fn renames_and_links_across_fail_and_the_inner_directory_cannot_be_moved() {
    let rig = Rig::new();
    rig.export(true);
    let server = rig.serve();
    let mut client = Client::new(&server);
    let root = client.mnt(&rig.scratch.export()).unwrap();
    let way = client.lookup(&root, "way");
    let inner = client.lookup(&way, "inner");
    assert_eq!(rename(&mut client, (&root, "f"), (&inner, "f")), XDEV);
    assert_eq!(rename(&mut client, (&inner, "f"), (&root, "g")), XDEV);
    let [outer_file, inner_file] = [&root, &inner].map(|dir| client.lookup(dir, "f"));
    for (file, dir) in [(&outer_file, &inner), (&inner_file, &root)] {
        let args = Link3Args { file: Opaque(file), link: what(dir, b"link") };
        assert_eq!(client.nfs(Procedure::Link, &args).status(), XDEV);
    }
    let mut session = Session::new(&server, 2, b"one");
    session.reclaim_complete();
    for (from, to) in [(&root, &inner), (&inner, &root)] {
        let args = nfs4::Rename4Args { oldname: Opaque(b"f"), newname: Opaque(b"h") };
        let ops = session
            .sequence(false)
            .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(from) })
            .op(Operation::Savefh, &())
            .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(to) })
            .op(Operation::Rename, &args);
        assert_eq!(session.run(&ops).status, Nfsstat4::Xdev as u32);
    }
    // If it were moved away, another directory could take its path before the server's next start.
    for (dir, name) in [(&way, "inner"), (&root, "way")] {
        assert_eq!(rename(&mut client, (dir, name), (&root, "elsewhere")), ACCESS, "{name}");
        assert_eq!(rename(&mut client, (&root, "beside"), (dir, name)), ACCESS, "{name}");
        let args = Remove3Args { object: what(dir, name.as_bytes()) };
        assert_eq!(client.nfs(Procedure::Rmdir, &args).status(), ACCESS, "{name}");
    }
    assert!(rig.inner().is_dir());
    assert_eq!(rename(&mut client, (&root, "beside"), (&way, "moved")), 0, "other directories can be moved");
    assert_eq!(client.create(&way, "inner"), Err(Nfsstat3::Exist));
    let attributes = Sattr3::default();
    let args = Mkdir3Args { where_: what(&way, b"inner"), attributes };
    assert_eq!(client.nfs(Procedure::Mkdir, &args).status(), Nfsstat3::Exist as u32);
}

#[test]
fn a_client_of_the_outer_export_only_is_denied() {
    let rig = Rig::new();
    rig.export(true);
    let server = rig.serve();
    let mut client = second(&server);
    let root = client.mnt(&rig.scratch.export()).unwrap();
    let way = client.lookup(&root, "way");
    assert_eq!(try_lookup(&mut client, &way, "inner"), ACCESS);
    for path in [rig.inner(), rig.inner().join("d")] {
        assert_eq!(client.mnt(&path), Err(Mountstat3::Acces), "{path:?}");
    }
    // It is listed, but can't be entered.
    let args = nfs3::Readdirplus3Args {
        dir: Opaque(&way),
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 4096,
        maxcount: 8192,
    };
    let listing = client.nfs(Procedure::Readdirplus, &args);
    assert_eq!(listing.status(), 0);
    let mut admitted = Client::new(&server);
    let handle = admitted.lookup(&way, "inner");
    let has = |bytes: &[u8]| listing.0.windows(bytes.len()).any(|part| part == bytes);
    assert!(has(b"inner") && !has(&handle));
    // The handle is invalid for it.
    assert_eq!(status_of(&mut client, &handle), STALE);

    let mut session = Session::from(second(&server), 2, b"second");
    session.reclaim_complete();
    assert_eq!(session.lookup(&way, b"inner"), Err(Nfsstat4::Access as u32));
    for (wanted, listed) in [
        (Bitmap4::of(&[nfs4::attributes::FILEID]), false),
        (Bitmap4::of(&[nfs4::attributes::RDATTR_ERROR, nfs4::attributes::FILEID]), true),
        (Bitmap4::EMPTY, true),
    ] {
        let args = nfs4::Readdir4Args {
            cookie: 0,
            cookieverf: [0; 8],
            dircount: 4096,
            maxcount: 8192,
            attr_request: wanted,
        };
        let (status, body) = session.on(&way, Operation::Readdir, &args);
        assert_eq!(status, NFS_OK, "{wanted:?}");
        assert_eq!(body.windows(5).any(|part| part == b"inner"), listed, "{wanted:?}");
    }
}

/// The outer export's handles for its root, for directories and a file in the future inner export, and for
/// a file outside of it.
fn handles(client: &mut Client, rig: &Rig) -> (Vec<u8>, [Vec<u8>; 3], Vec<u8>) {
    let root = client.mnt(&rig.scratch.export()).unwrap();
    let way = client.lookup(&root, "way");
    let inner = client.lookup(&way, "inner");
    let d = client.lookup(&inner, "d");
    let file = client.lookup(&d, "f");
    let beside = client.lookup(&root, "beside");
    let beside = client.lookup(&beside, "f");
    (root, [inner, d, file], beside)
}

/// Asserts that these handles are stale over every protocol.
fn assert_closed(server: &Server, client: &mut Client, [inner, d, file]: &[Vec<u8>; 3]) {
    for handle in [inner, d, file] {
        assert_eq!(status_of(client, handle), STALE);
    }
    assert_eq!(client.read(file, 0, 4), Err(Nfsstat3::Stale));
    assert!(matches!(client.write(file, 0, b"x"), Outcome::Fail(Nfsstat3::Stale, _)));
    for dir in [inner, d] {
        assert_eq!(client.create(dir, "new"), Err(Nfsstat3::Stale));
        assert_eq!(try_lookup(client, dir, "f"), STALE);
    }
    let mut session = Session::new(server, 2, b"with old handles");
    session.reclaim_complete();
    for handle in [inner, d, file] {
        let ops = session.sequence(false).op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(handle) });
        assert_eq!(session.run(&ops).status, Nfsstat4::Stale as u32);
    }
}

#[test]
fn old_handles_are_stale_once_the_inner_directory_is_exported() {
    let rig = Rig::new();
    let server = rig.serve();
    let mut client = Client::new(&server);
    let (root, old, beside) = handles(&mut client, &rig);
    assert!(matches!(client.write(&old[2], 0, b"data"), Outcome::Ok(_)));
    run(async {
        let mut lanes = Client::new(&server);
        let lane = lane(&rig.scratch, &mut lanes).await;
        let root_user = user(0, 0, &[]);
        open(&lane, Target::Handle(&old[2]), Access::Write, &root_user).await.unwrap();
        let granted = open(&lane, Target::Handle(&old[2]), Access::Write, &root_user).await.unwrap();
        rig.export(true);
        server.reload().unwrap();
        common::wait_for("the grant's recall", || granted.grant.try_get().is_none());
        for access in [Access::Read, Access::Write] {
            for target in [
                Target::Handle(&old[2]),
                Target::Entry { directory: &old[1], name: b"f" },
                Target::New(NewFile {
                    directory: &old[1],
                    name: b"new",
                    mode: 0o644,
                    how: CreateMode::Unchecked,
                }),
            ] {
                let refused = open(&lane, target, access, &root_user).await.err();
                assert_eq!(refused, Some(OpenStatus::Stale), "{target:?}");
            }
        }
    });
    assert_closed(&server, &mut client, &old);
    assert_eq!(
        client.read(&beside, 0, 4).unwrap().0,
        b"data",
        "files outside of the inner export aren't affected"
    );
    let way = client.lookup(&root, "way");
    let inner = client.lookup(&way, "inner");
    assert_ne!(inner, old[0]);
    // After a restart, too.
    drop(server);
    let server = rig.serve();
    let mut client = Client::new(&server);
    assert_closed(&server, &mut client, &old);
    assert_eq!(client.read(&beside, 0, 4).unwrap().0, b"data");
    assert!(!rig.inner().join("d/new").exists() && !rig.inner().join("new").exists());
    // They are valid again when it isn't exported any more.
    rig.export(false);
    server.reload().unwrap();
    assert_eq!(client.read(&old[2], 0, 4).unwrap().0, b"data");
    assert_eq!(status_of(&mut client, &inner), STALE);
}

#[test]
fn moved_files_follow_the_inner_export_and_hard_linked_files_the_export_of_each_name() {
    let rig = Rig::new();
    rig.export(true);
    let server = rig.serve();
    let mut client = Client::new(&server);
    let root = client.mnt(&rig.scratch.export()).unwrap();
    let beside = client.lookup(&root, "beside");
    let moved = [beside.clone(), client.lookup(&beside, "f")];
    let linked = client.lookup(&root, "f");
    drop(server);
    std::fs::rename(rig.scratch.at("beside"), rig.inner().join("beside")).unwrap();
    std::fs::hard_link(rig.scratch.at("f"), rig.inner().join("linked")).unwrap();
    let server = rig.serve();
    let mut client = Client::new(&server);
    for handle in &moved {
        assert_eq!(status_of(&mut client, handle), STALE);
    }
    assert!(matches!(client.write(&linked, 0, b"data"), Outcome::Ok(_)));
    let way = client.lookup(&root, "way");
    let inner = client.lookup(&way, "inner");
    let other_name = client.lookup(&inner, "linked");
    assert_ne!(other_name, linked);
    assert!(matches!(client.write(&other_name, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, _)));
    let args = nfs3::Access3Args { object: Opaque(&other_name), access: nfs3::ACCESS3_MODIFY };
    let nfs3::Access3Res::Ok(ok) = client.nfs(Procedure::Access, &args).get() else { panic!() };
    assert_eq!(ok.access, 0);
}

/// Where handles are resolved by path: a server without privileges, and `subtree_check`.
#[test]
fn old_handles_are_stale_where_handles_are_paths() {
    const OWNER: u32 = 12_345;
    for (user, option) in [(OWNER, ""), (0, ",subtree_check")] {
        as_user(user, || {
            let scratch = Scratch::new();
            std::fs::create_dir_all(scratch.at("way/inner/d")).unwrap();
            std::fs::create_dir_all(scratch.at("beside")).unwrap();
            for name in ["way/inner/d/f", "beside/f"] {
                std::fs::write(scratch.at(name), "data").unwrap();
            }
            let exports = scratch.dir.path().join("exports");
            let rig = Rig { scratch, exports };
            let export = |with_inner: bool| {
                let mut lines = format!(
                    "{} 127.0.0.1(rw,insecure,no_root_squash{option})\n",
                    rig.scratch.export().display()
                );
                if with_inner {
                    lines +=
                        &format!("{} 127.0.0.1(ro,insecure,no_root_squash{option})\n", rig.inner().display());
                }
                std::fs::write(&rig.exports, lines).unwrap();
            };
            export(false);
            let server = rig.serve();
            let client = || Client::new(&server).with_user(user, user, &[]);
            let mut first = client();
            let (root, old, beside) = handles(&mut first, &rig);
            export(true);
            server.reload().unwrap();
            for handle in &old {
                assert_eq!(status_of(&mut first, handle), STALE, "{user}{option}");
            }
            assert_eq!(first.read(&beside, 0, 4).unwrap().0, b"data");
            let way = first.lookup(&root, "way");
            let inner = first.lookup(&way, "inner");
            let d = first.lookup(&inner, "d");
            let file = first.lookup(&d, "f");
            assert_eq!(first.read(&file, 0, 4).unwrap().0, b"data");
            assert!(matches!(first.write(&file, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, _)));
            drop(server);
            let server = rig.serve();
            let mut again = Client::new(&server).with_user(user, user, &[]);
            for handle in &old {
                assert_eq!(status_of(&mut again, handle), STALE, "{user}{option} after a restart");
            }
            assert_eq!(again.read(&file, 0, 4).unwrap().0, b"data");
            assert_eq!(again.read(&beside, 0, 4).unwrap().0, b"data");
        });
    }
}

/// As with knfsd, whose clients mount `server:/` and paths below it.
#[test]
fn an_export_with_fsid_0_is_the_root_of_nfsv4s_namespace() {
    let rig = Rig::new();
    let options = "rw,insecure,no_root_squash";
    let lines = [
        format!("{} *({options})", rig.scratch.export().display()),
        format!("{} 127.0.0.1({options},fsid=0)", rig.scratch.at("way").display()),
        format!("{} *({options})", rig.inner().display()),
        format!("{} *({options})", rig.scratch.at("beside").display()),
    ];
    std::fs::write(&rig.exports, lines.join("\n")).unwrap();
    let server = rig.serve();
    let mut session = Session::new(&server, 2, b"rooted");
    session.reclaim_complete();
    let root = session.walk(std::path::Path::new("/"));
    let file = session.walk(std::path::Path::new("/inner/f"));
    let inner = session.lookup(&root, b"inner").unwrap();
    assert_eq!(session.lookup(&inner, b"f").unwrap(), file);
    // It has no parent, and other exports aren't there.
    assert_eq!(session.on(&root, Operation::Lookupp, &()).0, Nfsstat4::Noent as u32);
    assert_eq!(session.lookup(&root, b"beside"), Err(Nfsstat4::Noent as u32));
    let first = rig.scratch.export().components().nth(1).unwrap().as_os_str().as_encoded_bytes().to_vec();
    assert_eq!(session.lookup(&root, &first), Err(Nfsstat4::Noent as u32));
    // NFSv3 has the server's paths, and a client to which the root isn't exported all of its exports.
    let mut wire = Client::new(&server);
    assert_eq!(wire.mnt(&rig.scratch.at("way")).unwrap(), root);
    wire.mnt(&rig.scratch.at("beside")).unwrap();
    let mut other = Session::from(second(&server), 2, b"not rooted");
    other.reclaim_complete();
    other.walk(&rig.scratch.at("beside/f"));
}
