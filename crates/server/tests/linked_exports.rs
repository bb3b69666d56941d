//! Exports whose paths lead through symbolic links: which export lies in which is decided by the directories
//! that the paths lead to. Over NFSv3, NFSv4 and the lane.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::local::{lane, open, run, user};
use common::v4::{NFS_OK, Session};
use common::{Client, Scratch, what};
use lane::{Access, OpenStatus, Target};
use proto::mount3::Mountstat3;
use proto::nfs3::{self, Lookup3Args, Nfsstat3, Outcome, Procedure, Rename3Args};
use proto::nfs4::{Nfsstat4, OpenClaim4, Operation, Putfh4Args};
use samehost_server::{Config, Server};
use xdr::Opaque;

/// For both clients.
const OUTER: &str = "127.0.0.1(rw,insecure,no_root_squash) 127.0.0.2(rw,insecure,no_root_squash)";
/// For the first client only.
const INNER: &str = "127.0.0.1(ro,insecure,no_root_squash,no_lane)";

/// The directories `disk/data/d` and `disk/other`, with a file `f` in each, and `named` for links.
struct Rig {
    scratch: Scratch,
}

impl Rig {
    fn new() -> Self {
        let rig = Self { scratch: Scratch::new() };
        for directory in ["disk/data/d", "disk/other", "named"] {
            fs::create_dir_all(rig.at(directory)).unwrap();
        }
        for file in ["disk/f", "disk/data/f", "disk/data/d/f", "disk/other/f"] {
            fs::write(rig.at(file), file).unwrap();
        }
        rig
    }

    fn at(&self, name: &str) -> PathBuf {
        // Without links above it, whatever the directory for temporary files is.
        self.scratch.dir.path().canonicalize().unwrap().join(name)
    }

    /// A link in `named`, to a path in this directory or relative to the link's directory.
    fn link(&self, name: &str, target: &str) {
        let target = if target.starts_with('.') { target.into() } else { self.at(target) };
        symlink(target, self.at(name)).unwrap();
    }

    /// Writes the exports file.
    fn export(&self, lines: &[(&str, &str)]) {
        let lines = lines.iter().map(|(path, clients)| format!("{} {clients}\n", self.at(path).display()));
        fs::write(self.at("exports"), lines.collect::<String>()).unwrap();
    }

    fn serve(&self, lines: &[(&str, &str)]) -> Server {
        self.export(lines);
        let (exports, export_files) = (Vec::new(), vec![self.at("exports")]);
        Server::start(Config { exports, export_files, ..self.scratch.config("") }).unwrap()
    }

    /// Why an export isn't served.
    fn problem(&self, server: &Server, path: &str) -> Option<String> {
        let exports = server.status().exports.into_iter();
        exports.filter(|export| export.path == self.at(path)).find_map(|export| export.problem)
    }

    /// Asserts that `disk/data` is served by the rules of `inner` only, whose path leads there, although it
    /// lies in the export `outer`, whose path leads to `disk`.
    fn assert_apart(&self, server: &Server, outer: &str, inner: &str) {
        let mut client = Client::new(server);
        let root = client.mnt(&self.at(outer)).unwrap();
        assert_eq!(client.mnt(&self.at("disk")).as_ref(), Ok(&root), "the directory's own path");
        let data = client.mnt(&self.at(inner)).unwrap();
        assert_eq!(client.lookup(&root, "data"), data, "the name leads into the inner export");
        for path in ["disk/data", &format!("{outer}/data")] {
            assert_eq!(client.mnt(&self.at(path)).as_ref(), Ok(&data), "{path}");
        }
        let d = client.lookup(&data, "d");
        for path in ["disk/data/d", &format!("{outer}/data/d"), &format!("{inner}/d")] {
            assert_eq!(client.mnt(&self.at(path)).as_ref(), Ok(&d), "{path}");
        }
        let file = client.lookup(&d, "f");
        assert_eq!(client.read(&file, 0, 99).unwrap().0, b"disk/data/d/f");
        assert!(matches!(client.write(&file, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, _)));
        let args = Rename3Args { from: what(&root, b"data"), to: what(&root, b"moved") };
        assert_eq!(client.nfs(Procedure::Rename, &args).status(), Nfsstat3::Acces as u32);

        let mut session = Session::new(server, 2, b"first");
        session.reclaim_complete();
        assert_eq!(session.walk(&self.at("disk")), root);
        assert_eq!(session.lookup(&root, b"data"), Ok(data.clone()));
        for path in ["disk/data", inner] {
            assert_eq!(session.walk(&self.at(path)), data, "{path}");
        }
        assert_eq!(session.walk(&self.at(outer)), root);
        let ops = session
            .sequence(false)
            .op(Operation::Putfh, &Putfh4Args { object: Opaque(&data) })
            .op(Operation::Lookupp, &())
            .op(Operation::Lookup, &proto::nfs4::Name4Args { name: Opaque(b"other") });
        assert_eq!(session.run(&ops).status, NFS_OK, "its parent is the outer export's directory");
        let name = OpenClaim4::Null(Opaque(b"f"));
        assert_eq!(session.open(&d, name, false).err(), Some(Nfsstat4::Rofs as u32));

        let mut second = Client::from(server, [127, 0, 0, 2].into(), 0);
        second.mnt(&self.at(outer)).unwrap();
        let looked_up = second.nfs(Procedure::Lookup, &Lookup3Args { what: what(&root, b"data") });
        assert_eq!(looked_up.status(), Nfsstat3::Acces as u32);
        for path in ["disk/data", "disk/data/d", &format!("{outer}/data/d"), inner, &format!("{inner}/d")] {
            assert_eq!(second.mnt(&self.at(path)), Err(Mountstat3::Acces), "{path}");
        }
        let mut session = Session::from(second, 2, b"second");
        session.reclaim_complete();
        assert_eq!(session.lookup(&root, b"data"), Err(Nfsstat4::Access as u32));

        run(async {
            let lane = lane(&self.scratch, &mut client).await;
            let root_user = user(0, 0, &[]);
            let file = Target::Entry { directory: &d, name: b"f" };
            let refused = open(&lane, file, Access::Read, &root_user).await.err();
            assert_eq!(refused, Some(OpenStatus::NoLane));
            let beside = Target::Entry { directory: &root, name: b"f" };
            open(&lane, beside, Access::Write, &root_user).await.unwrap();
        });
    }
}

#[test]
fn an_export_named_by_a_link_lies_in_the_export_around_its_directory() {
    let rig = Rig::new();
    rig.link("named/data", "disk/data");
    // A client's handle from the time before the inner line existed.
    let server = rig.serve(&[("disk", OUTER)]);
    let mut client = Client::new(&server);
    let root = client.mnt(&rig.at("disk")).unwrap();
    let data = client.lookup(&root, "data");
    let file = client.lookup(&data, "f");
    assert!(matches!(client.write(&file, 0, b"disk"), Outcome::Ok(_)));
    rig.export(&[("disk", OUTER), ("named/data", INNER)]);
    server.reload().unwrap();
    assert!(matches!(client.write(&file, 0, b"disk"), Outcome::Fail(Nfsstat3::Stale, _)));
    rig.assert_apart(&server, "disk", "named/data");
    // In the other order.
    let rig = Rig::new();
    rig.link("named/data", "disk/data");
    let server = rig.serve(&[("named/data", INNER), ("disk", OUTER)]);
    rig.assert_apart(&server, "disk", "named/data");
}

#[test]
fn links_anywhere_on_the_paths_of_both_exports_are_followed() {
    for (outer, inner) in [
        ("disk", "named/here/data"),
        ("named/here", "disk/data"),
        ("named/here", "named/again/data"),
        ("named/here", "named/data"),
        ("named/again", "named/data"),
    ] {
        let rig = Rig::new();
        rig.link("named/here", "disk");
        rig.link("named/again", "./../named/./here");
        rig.link("named/data", "./again/other/../data");
        let server = rig.serve(&[(outer, OUTER), (inner, INNER)]);
        rig.assert_apart(&server, outer, inner);
    }
}

/// Its path as written begins with the path of another export, which doesn't contain its directory.
#[test]
fn a_link_in_an_export_that_leads_out_of_it_stays_a_link_there() {
    let rig = Rig::new();
    rig.link("named/data", "disk/data");
    let read_only = "127.0.0.1(ro,insecure) 127.0.0.2(ro,insecure)";
    let server = rig.serve(&[("named", read_only), ("named/data", INNER)]);
    let mut client = Client::new(&server);
    let named = client.mnt(&rig.at("named")).unwrap();
    let data = client.mnt(&rig.at("named/data")).unwrap();
    let link = client.lookup(&named, "data");
    assert_ne!(link, data);
    assert_eq!(client.getattr(&link).kind, nfs3::Ftype3::Lnk);
    let mut session = Session::new(&server, 2, b"first");
    session.reclaim_complete();
    assert_eq!(session.lookup(&named, b"data"), Ok(link));
    assert_eq!(session.walk(&rig.at("disk/data")), data);
    // The client isn't admitted, and the outer export has nothing but a link.
    let mut second = Client::from(&server, [127, 0, 0, 2].into(), 0);
    assert_eq!(second.mnt(&rig.at("named/data")), Err(Mountstat3::Acces));
}

#[test]
fn of_two_exports_of_one_directory_the_first_is_served() {
    let rig = Rig::new();
    rig.link("named/data", "disk/data");
    let server = rig.serve(&[("disk", OUTER), ("disk/data", INNER), ("named/data", OUTER)]);
    assert_eq!(rig.problem(&server, "disk/data"), None);
    let problem = rig.problem(&server, "named/data").unwrap();
    assert!(
        problem.contains(&format!("the same directory as {}", rig.at("disk/data").display())),
        "{problem}"
    );
    let notices = server.notices();
    assert!(notices.iter().any(|notice| notice.contains("named/data is not served: ")), "{notices:?}");
    let mut client = Client::new(&server);
    let root = client.mnt(&rig.at("disk")).unwrap();
    let data = client.lookup(&root, "data");
    assert_eq!(client.mnt(&rig.at("disk/data")).as_ref(), Ok(&data));
    let file = client.lookup(&data, "f");
    assert!(matches!(client.write(&file, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, _)));
    let mut second = Client::from(&server, [127, 0, 0, 2].into(), 0);
    let looked_up = second.nfs(Procedure::Lookup, &Lookup3Args { what: what(&root, b"data") });
    assert_eq!(looked_up.status(), Nfsstat3::Acces as u32);
    for path in ["disk/data", "named/data"] {
        assert!(second.mnt(&rig.at(path)).is_err(), "{path}");
    }
    // Without the first line, the second applies.
    rig.export(&[("disk", OUTER), ("named/data", OUTER)]);
    server.reload().unwrap();
    assert_eq!(rig.problem(&server, "named/data"), None);
    let data = second.mnt(&rig.at("named/data")).unwrap();
    assert_eq!(second.lookup(&root, "data"), data);
}

/// A client that replaces the link would choose what is exported.
#[test]
fn links_that_clients_can_change_are_not_followed() {
    let rig = Rig::new();
    rig.link("named/data", "disk/data");
    let everybody = "*(ro,insecure)";
    let server = rig.serve(&[("named", OUTER), ("named/data", everybody), ("disk", OUTER)]);
    let problem = rig.problem(&server, "named/data").unwrap();
    for part in [
        format!("the symbolic link {} ", rig.at("named/data").display()),
        format!("clients of {} ", rig.at("named").display()),
        format!("write {} ", rig.at("disk/data").display()),
    ] {
        assert!(problem.contains(&part), "{part} in {problem}");
    }
    let mut client = Client::new(&server);
    let root = client.mnt(&rig.at("disk")).unwrap();
    assert!(client.mnt(&rig.at("named/data")).is_err());
    // The other export's rules don't apply to it, either.
    let looked_up = client.nfs(Procedure::Lookup, &Lookup3Args { what: what(&root, b"data") });
    assert_eq!(looked_up.status(), Nfsstat3::Acces as u32);
    // With a line for the directory's own path, that is served.
    rig.export(&[("named", OUTER), ("named/data", everybody), ("disk/data", everybody), ("disk", OUTER)]);
    server.reload().unwrap();
    assert!(rig.problem(&server, "named/data").is_some());
    let data = client.lookup(&root, "data");
    assert_eq!(client.mnt(&rig.at("disk/data")).as_ref(), Ok(&data));
    rig.export(&[("named", OUTER), ("named/data", everybody), ("disk", OUTER)]);
    server.reload().unwrap();
    // A client replaces the link.
    let named = client.mnt(&rig.at("named")).unwrap();
    assert!(matches!(client.remove(&named, "data"), Outcome::Ok(_)));
    let target = rig.at("state");
    let link = nfs3::Symlinkdata3 {
        attributes: nfs3::Sattr3::default(),
        data: Opaque(target.as_os_str().as_encoded_bytes()),
    };
    let args = nfs3::Symlink3Args { where_: what(&named, b"data"), symlink: link };
    assert_eq!(client.nfs(Procedure::Symlink, &args).status(), 0);
    server.reload().unwrap();
    assert!(rig.problem(&server, "named/data").is_some());
    // One that clients can only read is followed.
    rig.export(&[("named", everybody), ("named/data", everybody), ("disk", OUTER)]);
    server.reload().unwrap();
    assert_eq!(rig.problem(&server, "named/data"), None);
    // One in the exported directory itself.
    rig.link("disk/itself", "disk");
    rig.export(&[("disk/itself", OUTER), ("named", everybody)]);
    server.reload().unwrap();
    assert!(rig.problem(&server, "disk/itself").unwrap().contains("symbolic link"));
}

#[test]
fn a_changed_link_has_an_effect_at_the_next_reload() {
    let rig = Rig::new();
    rig.link("named/now", "disk/data");
    let server = rig.serve(&[("named/now", OUTER)]);
    let mut client = Client::new(&server);
    let data = client.mnt(&rig.at("named/now")).unwrap();
    let old = client.lookup(&data, "f");
    let mut session = Session::new(&server, 2, b"first");
    session.reclaim_complete();
    session.open(&data, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    fs::remove_file(rig.at("named/now")).unwrap();
    rig.link("named/now", "disk/other");
    for path in ["named/now", "disk/data"] {
        assert_eq!(client.mnt(&rig.at(path)).as_ref(), Ok(&data), "{path}");
    }
    assert_eq!(client.read(&old, 0, 99).unwrap().0, b"disk/data/f");
    let reloaded = server.reload().unwrap();
    assert_eq!(reloaded.changed, [rig.at("named/now")]);
    let other = client.mnt(&rig.at("named/now")).unwrap();
    assert_eq!(client.mnt(&rig.at("disk/other")).as_ref(), Ok(&other));
    assert_eq!(client.mnt(&rig.at("disk/data")), Err(Mountstat3::Acces));
    let file = client.lookup(&other, "f");
    assert_eq!(client.read(&file, 0, 99).unwrap().0, b"disk/other/f");
    assert_eq!(session.walk(&rig.at("named/now/f")), file);
    assert_eq!(session.walk(&rig.at("disk/other/f")), file);
    // Handles of the former directory are of no use, although both are on one filesystem.
    for handle in [&data, &old] {
        let args = nfs3::Getattr3Args { object: Opaque(handle) };
        assert_eq!(client.nfs(Procedure::Getattr, &args).status(), Nfsstat3::Stale as u32);
        let ops = session.sequence(false).op(Operation::Putfh, &Putfh4Args { object: Opaque(handle) });
        assert_eq!(session.run(&ops).status, Nfsstat4::Stale as u32);
    }
}

/// The directory is moved, and the link with it: the same directory, in another export.
#[test]
fn a_moved_directory_lies_where_it_is_now() {
    let rig = Rig::new();
    rig.link("named/now", "disk/data");
    let lines = [("disk", OUTER), ("named/now", INNER)];
    let server = rig.serve(&lines);
    fs::rename(rig.at("disk/data"), rig.at("disk/moved")).unwrap();
    fs::remove_file(rig.at("named/now")).unwrap();
    rig.link("named/now", "disk/moved");
    fs::create_dir(rig.at("disk/data")).unwrap();
    server.reload().unwrap();
    let mut client = Client::from(&server, [127, 0, 0, 2].into(), 0);
    let root = client.mnt(&rig.at("disk")).unwrap();
    let looked_up = client.nfs(Procedure::Lookup, &Lookup3Args { what: what(&root, b"moved") });
    assert_eq!(looked_up.status(), Nfsstat3::Acces as u32);
    let data = client.lookup(&root, "data");
    client.create(&data, "new").unwrap();
    let mut first = Client::new(&server);
    let moved = first.mnt(&rig.at("named/now")).unwrap();
    assert_eq!(first.lookup(&root, "moved"), moved);
    assert_eq!(first.mnt(&rig.at("disk/moved")), Ok(moved));
}

#[test]
fn mnt_answers_for_paths_as_written_only() {
    let rig = Rig::new();
    rig.link("named/data", "disk/data");
    rig.link("named/unknown", "disk/data");
    rig.link("disk/data/link", "disk/other");
    let server = rig.serve(&[("named/data", OUTER), ("disk/other", OUTER)]);
    let mut client = Client::new(&server);
    for (path, status) in [
        ("named/unknown", Mountstat3::Acces),
        ("named/data/link", Mountstat3::Notdir),
        ("disk/data/link", Mountstat3::Notdir),
        ("named/data/../other", Mountstat3::Inval),
    ] {
        assert_eq!(client.mnt(&rig.at(path)), Err(status), "{path}");
    }
    assert_eq!(client.mnt(Path::new("/")), Err(Mountstat3::Acces));
}
