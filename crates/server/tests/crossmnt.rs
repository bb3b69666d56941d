//! Filesystems that are mounted below an export (`crossmnt`, `nohide`), and exports that need a mount
//! (`mountpoint=`). They need root.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::disk::{Disk, run};
use common::local::user;
use common::v4::{NFS_OK, Session, get};
use common::{Client, Results, Scratch, wait_for, what};
use lane::{Access, Target};
use proto::nfs3::{self, Lookup3Args, Nfsstat3, Procedure};
use proto::nfs4::{
    Fsid4, Nfsstat4, OpenClaim4, Operation, Putfh4Args, Read4Args, SHARE_ACCESS_BOTH, StableHow4, Write4Args,
};
use samehost_server::{Config, Server};
use xdr::Opaque;

const OPEN: &str = "rw,insecure,no_root_squash";
const STALE: Option<Nfsstat3> = Some(Nfsstat3::Stale);

/// An export with directories to mount at, and a file in each that a mount hides.
struct Rig {
    scratch: Scratch,
    exports: PathBuf,
}

impl Rig {
    fn new(lines: &[&str]) -> Self {
        let scratch = Scratch::new();
        for name in ["disk", "other"] {
            fs::create_dir(scratch.at(name)).unwrap();
            fs::write(scratch.at(name).join("hidden"), "below").unwrap();
        }
        fs::write(scratch.at("file"), "outer").unwrap();
        let rig = Self { exports: scratch.dir.path().join("exports"), scratch };
        rig.export(lines);
        rig
    }

    /// Writes the exports file; `@` stands for the export's directory.
    fn export(&self, lines: &[&str]) {
        let directory = self.scratch.export().display().to_string();
        fs::write(&self.exports, lines.join("\n").replace('@', &directory)).unwrap();
    }

    fn serve(&self) -> Server {
        let (exports, export_files) = (Vec::new(), vec![self.exports.clone()]);
        Server::start(Config { exports, export_files, ..self.scratch.config("") }).unwrap()
    }

    /// A client of NFSv3, and the exported directory.
    fn client(&self, server: &Server) -> (Client, Vec<u8>) {
        let mut client = Client::new(server);
        let root = client.mnt(&self.scratch.export()).unwrap();
        (client, root)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.at(name)
    }
}

/// A tmpfs, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn at(path: PathBuf) -> Self {
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755,size=1m", "none"]).arg(&path));
        fs::write(path.join("f"), "data").unwrap();
        Self(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(&self.0, &["--lazy"]);
    }
}

fn unmount(path: &Path, options: &[&str]) -> Output {
    Command::new("umount").args(options).arg(path).output().unwrap()
}

fn try_lookup(client: &mut Client, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
    let results = client.nfs(Procedure::Lookup, &Lookup3Args { what: what(dir, name.as_bytes()) });
    match results.get::<nfs3::Lookup3Res<'_>>() {
        nfs3::Outcome::Ok(ok) => Ok(ok.object.0.to_vec()),
        nfs3::Outcome::Fail(status, _) => Err(status as u32),
    }
}

/// READDIRPLUS from the beginning.
fn readdirplus(client: &mut Client, dir: &[u8]) -> Results {
    let args = nfs3::Readdirplus3Args {
        dir: Opaque(dir),
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 4096,
        maxcount: 32768,
    };
    client.nfs(Procedure::Readdirplus, &args)
}

/// The status of GETATTR.
fn status_of(client: &mut Client, handle: &[u8]) -> u32 {
    client.nfs(Procedure::Getattr, &nfs3::Getattr3Args { object: Opaque(handle) }).status()
}

/// The status of PUTFH.
fn putfh(session: &mut Session, handle: &[u8]) -> u32 {
    let ops = session.sequence(false).op(Operation::Putfh, &Putfh4Args { object: Opaque(handle) });
    session.run(&ops).status
}

/// Whether a client of NFSv3 that looks up `disk` sees what is mounted there.
fn sees(client: &mut Client, root: &[u8], name: &str) -> bool {
    let directory = client.lookup(root, name);
    try_lookup(client, &directory, "f").is_ok()
}

#[test]
fn clients_of_nfsv3_cross_into_a_filesystem_with_its_own_fsid_and_handles() {
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    let disk = client.lookup(&root, "disk");
    let (outer, inner) = (client.getattr(&root), client.getattr(&disk));
    assert_ne!(outer.fsid, inner.fsid);
    assert_eq!(inner.fileid, fs::metadata(rig.at("disk")).unwrap().ino());
    let file = client.lookup(&disk, "f");
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"data");
    assert_eq!(client.getattr(&file).fsid, inner.fsid);
    assert_ne!(file[4..8], root[4..8], "another number in the handle");
    // The same by MOUNT, and changes are made there.
    assert_eq!(client.mnt(&rig.at("disk")).unwrap(), disk);
    client.create(&disk, "new").unwrap();
    assert!(rig.at("disk").join("new").exists());
    assert!(client.mnt(&rig.at("disk/f")).is_err());
    // Renames don't cross.
    let args = nfs3::Rename3Args { from: what(&root, b"file"), to: what(&disk, b"file") };
    assert_eq!(client.nfs(Procedure::Rename, &args).status(), Nfsstat3::Xdev as u32);
    // The mount point can't be removed.
    let args = nfs3::Rmdir3Args { object: what(&root, b"disk") };
    assert_ne!(client.nfs(Procedure::Rmdir, &args).status(), 0);
    let status = server.status().exports.into_iter().find(|export| export.crossed).unwrap();
    assert_eq!((status.path, status.problem), (rig.at("disk"), None));
}

#[test]
fn readdirplus_leaves_what_is_mounted_to_lookup() {
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    let results = readdirplus(&mut client, &root);
    let nfs3::Outcome::Ok(listed) = results.get::<nfs3::Readdirplus3Res<'_>>() else { panic!("no list") };
    let with_handle = |name: &[u8]| {
        listed.reply.entries.0.iter().find(|entry| entry.name.0 == name).unwrap().name_handle.is_some()
    };
    assert!(!with_handle(b"disk") && with_handle(b"other") && with_handle(b"file"));
}

#[test]
fn clients_of_nfsv4_cross_and_come_back() {
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    let covered = fs::metadata(rig.at("other")).unwrap();
    let server = rig.serve();
    let mut session = Session::new(&server, 2, b"crossing");
    session.reclaim_complete();
    let root = session.walk(&rig.scratch.export());
    let disk = session.walk(&rig.at("disk"));
    let fsid = |session: &mut Session, at: &[u8]| get::<Fsid4>(&session.attribute(at, 8));
    assert_ne!(fsid(&mut session, &root), fsid(&mut session, &disk));
    let file = session.walk(&rig.at("disk/f"));
    assert_eq!(fsid(&mut session, &file), fsid(&mut session, &disk));
    // mounted_on_fileid is of the outer filesystem, and not fileid.
    let (fileid, mounted_on) =
        (get::<u64>(&session.attribute(&disk, 20)), get::<u64>(&session.attribute(&disk, 55)));
    assert_ne!(fileid, mounted_on);
    assert_ne!(mounted_on, covered.ino());
    let ops = session
        .sequence(false)
        .op(Operation::Putfh, &Putfh4Args { object: Opaque(&disk) })
        .op(Operation::Lookupp, &())
        .op(Operation::Getfh, &());
    let done = session.run(&ops);
    assert_eq!(done.status, NFS_OK);
    assert!(done.bytes.windows(root.len()).any(|bytes| bytes == root), "LOOKUPP leads to the outer export");
    let (id, opened) = session.open(&disk, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    session.close(&opened, id);
}

/// In an export, and in a filesystem that is mounted below it.
#[test]
fn opens_and_locks_outlive_an_export_that_becomes_read_only() {
    let line = |access| format!("@ *({access},insecure,no_root_squash,crossmnt)");
    let rig = Rig::new(&[&line("rw")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    let server = rig.serve();
    let mut holder = Session::new(&server, 2, b"holder");
    let mut other = Session::new(&server, 2, b"other");
    holder.reclaim_complete();
    other.reclaim_complete();
    let mut files = Vec::new();
    for (directory, name) in [(rig.scratch.export(), "file"), (rig.at("disk"), "f")] {
        let [held, wanted] = [&mut holder, &mut other].map(|session| {
            let directory = session.walk(&directory);
            let claim = OpenClaim4::Null(Opaque(name.as_bytes()));
            session.open_shared(&directory, claim, false, SHARE_ACCESS_BOTH, 0).unwrap()
        });
        let locked = holder.lock(&held.1, held.0, false).unwrap();
        files.push((locked, wanted.0, held.1));
    }
    let mut check = |written: u32| {
        for (locked, wanted, file) in &files {
            let write = Write4Args {
                stateid: *locked,
                offset: 0,
                stable: StableHow4::Unstable,
                data: Opaque(b"new"),
            };
            assert_eq!(holder.on(file, Operation::Write, &write).0, written);
            let read = Read4Args { stateid: *locked, offset: 0, count: 10 };
            assert_eq!(holder.on(file, Operation::Read, &read).0, NFS_OK);
            assert_eq!(other.lock(file, *wanted, false), Err(Nfsstat4::Denied as u32));
        }
    };
    check(NFS_OK);
    for (access, written) in [("ro", Nfsstat4::Rofs as u32), ("rw", NFS_OK)] {
        rig.export(&[&line(access)]);
        assert_eq!(server.reload().unwrap().changed.len(), 1);
        check(written);
    }
}

#[test]
fn what_is_mounted_without_crossmnt_is_hidden() {
    let rig = Rig::new(&[&format!("@ *({OPEN})")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    assert!(!sees(&mut client, &root, "disk"));
    let below = client.lookup(&root, "disk");
    assert!(try_lookup(&mut client, &below, "hidden").is_ok());
    assert_eq!(client.mnt(&rig.at("disk")).unwrap(), below);
}

#[test]
fn clients_of_one_export_may_differ_in_what_they_see() {
    let rig = Rig::new(&[&format!("@ 127.0.0.1({OPEN},crossmnt) 127.0.0.2({OPEN}) *(ro,insecure,crossmnt)")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    let server = rig.serve();
    let [mut first, mut second, mut third] =
        [1, 2, 3].map(|host| Client::from(&server, [127, 0, 0, host].into(), 0));
    let root = first.mnt(&rig.scratch.export()).unwrap();
    assert!(sees(&mut first, &root, "disk") && sees(&mut third, &root, "disk"));
    assert!(!sees(&mut second, &root, "disk"));
    // Not by a handle either that another client has.
    let disk = first.lookup(&root, "disk");
    let file = first.lookup(&disk, "f");
    assert_eq!(second.read(&file, 0, 1).err(), STALE);
    assert!(third.read(&file, 0, 1).is_ok());
    assert_eq!(third.create(&disk, "new").err(), Some(Nfsstat3::Rofs), "the third client's options apply");
}

#[test]
fn filesystems_appear_and_go_while_the_server_runs() {
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)")]);
    let (disk, other) = (Disk::ext4(&[]), Disk::ext4(&[]));
    for (disk, text) in [(&disk, "first"), (&other, "second")] {
        fs::write(disk.path().join("f"), text).unwrap();
        assert!(unmount(disk.path(), &[]).status.success());
    }
    let server = rig.serve();
    let mut client = Client::new(&server);
    let mut session = Session::new(&server, 2, b"crossing");
    session.reclaim_complete();
    let root = client.mnt(&rig.scratch.export()).unwrap();
    let place = rig.at("disk");
    assert!(!sees(&mut client, &root, "disk"));

    disk.mount_at(&place);
    wait_for("the filesystem to be seen", || sees(&mut client, &root, "disk"));
    let directory = client.lookup(&root, "disk");
    let file = client.lookup(&directory, "f");
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"first");
    // While a client has a file open the filesystem is busy.
    let walked = session.walk(&place);
    let (id, opened) = session.open(&walked, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    let refused = unmount(&place, &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("busy"), "{refused:?}");
    session.close(&opened, id);
    // Out of use it isn't, and nothing holds its device afterwards.
    wait_for("the filesystem to be out of use", || unmount(&place, &[]).status.success());
    wait_for("its device to be free", || !disk.is_in_use());
    wait_for("its handles to be stale", || client.read(&file, 0, 10).err() == STALE);
    assert_eq!(putfh(&mut session, &opened), Nfsstat4::Stale as u32);
    assert!(!sees(&mut client, &root, "disk"));

    // Another filesystem at the same path has other handles.
    other.mount_at(&place);
    wait_for("the other filesystem to be seen", || sees(&mut client, &root, "disk"));
    assert_eq!(client.read(&file, 0, 10).err(), STALE);
    let now = client.lookup(&root, "disk");
    let second = client.lookup(&now, "f");
    assert_eq!(client.read(&second, 0, 10).unwrap().0, b"second");
    // A lazy unmount ends what clients have open.
    let walked = session.walk(&place);
    let (_, opened) = session.open(&walked, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    assert!(unmount(&place, &["--lazy"]).status.success());
    wait_for("its device to be free", || !other.is_in_use());
    assert_eq!(putfh(&mut session, &opened), Nfsstat4::Stale as u32);
    assert_eq!(client.read(&second, 0, 10).err(), STALE);

    // The first one's handles are valid again when it is back.
    disk.mount_at(&place);
    wait_for("the first filesystem to be back", || client.read(&file, 0, 10).is_ok());
    assert!(unmount(&place, &["--lazy"]).status.success());
    wait_for("its device to be free", || !disk.is_in_use());
}

#[test]
fn a_line_of_its_own_wins() {
    let inner = "127.0.0.1(ro,insecure,no_root_squash)";
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)"), &format!("@/disk {inner}")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    fs::create_dir(rig.at("disk/deeper")).unwrap();
    let _deeper = Tmpfs::at(rig.at("disk/deeper"));
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    let disk = client.lookup(&root, "disk");
    assert!(sees(&mut client, &root, "disk"));
    assert_eq!(client.create(&disk, "new").err(), Some(Nfsstat3::Rofs));
    // The inner line doesn't cross.
    assert!(!sees(&mut client, &disk, "deeper"));
    // Another client is admitted to the outer export only.
    let mut stranger = Client::from(&server, [127, 0, 0, 2].into(), 0);
    assert!(!sees(&mut stranger, &root, "disk"));
    assert_eq!(status_of(&mut stranger, &disk), Nfsstat3::Stale as u32);
    // Without the line, the outer one's options apply to all of it.
    rig.export(&[&format!("@ *({OPEN},crossmnt)")]);
    server.reload().unwrap();
    for client in [&mut client, &mut stranger] {
        let disk = client.lookup(&root, "disk");
        client.create(&disk, "new").unwrap();
        assert!(sees(client, &disk, "deeper"));
    }
}

/// The lines of a mount point and of a directory below it, whose paths lead there through symbolic links.
#[test]
fn lines_with_links_in_their_paths_win_too() {
    let inner = "127.0.0.1(ro,insecure,no_root_squash)";
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)"), &format!("@-link {inner}")]);
    let link = rig.at("").parent().unwrap().join("export-link");
    let _mounted = Tmpfs::at(rig.at("disk"));
    fs::create_dir(rig.at("disk/in")).unwrap();
    fs::write(rig.at("disk/in/f"), "data").unwrap();
    for (target, below) in [("disk", false), ("disk/in", true)] {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(rig.at(target), &link).unwrap();
        let server = rig.serve();
        let (mut client, root) = rig.client(&server);
        let found = client.mnt(&link).unwrap();
        assert_eq!(client.mnt(&rig.at(target)).as_ref(), Ok(&found));
        let disk = client.lookup(&root, "disk");
        assert_eq!(if below { client.lookup(&disk, "in") } else { disk.clone() }, found);
        assert_eq!(client.create(&found, "new").err(), Some(Nfsstat3::Rofs));
        let mut session = Session::new(&server, 2, b"a client");
        session.reclaim_complete();
        assert_eq!(session.walk(&rig.at(target)), found);
        // Another client is admitted to the outer export only.
        let mut stranger = Client::from(&server, [127, 0, 0, 2].into(), 0);
        if below {
            assert_eq!(try_lookup(&mut stranger, &disk, "in"), Err(Nfsstat3::Acces as u32));
        } else {
            assert!(!sees(&mut stranger, &root, "disk"));
        }
        assert_eq!(status_of(&mut stranger, &found), Nfsstat3::Stale as u32);
    }
}

#[test]
fn an_export_inside_a_crossed_filesystem_keeps_its_rules() {
    let inner = "127.0.0.1(ro,insecure,no_root_squash)";
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)"), &format!("@/disk/in {inner}")]);
    let _mounted = Tmpfs::at(rig.at("disk"));
    fs::create_dir(rig.at("disk/in")).unwrap();
    fs::write(rig.at("disk/in/f"), "data").unwrap();
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    let disk = client.lookup(&root, "disk");
    let within = client.lookup(&disk, "in");
    assert_eq!(within, client.mnt(&rig.at("disk/in")).unwrap());
    assert_eq!(client.create(&within, "new").err(), Some(Nfsstat3::Rofs));
    let mut stranger = Client::from(&server, [127, 0, 0, 2].into(), 0);
    assert_eq!(try_lookup(&mut stranger, &disk, "in"), Err(Nfsstat3::Acces as u32));
}

#[test]
fn nohide_shows_an_export_in_the_one_around_it() {
    for (options, expected) in [("", false), (",nohide", true), (",nohide,hide", false)] {
        let rig = Rig::new(&[&format!("@ *({OPEN})"), &format!("@/disk *({OPEN}{options})")]);
        let _mounted = Tmpfs::at(rig.at("disk"));
        let server = rig.serve();
        let (mut client, root) = rig.client(&server);
        assert_eq!(sees(&mut client, &root, "disk"), expected, "{options}");
    }
}

#[test]
fn filesystems_of_the_kernel_and_what_is_below_them_are_not_crossed() {
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)")]);
    run(Command::new("mount").args(["-t", "ramfs", "none"]).arg(rig.at("other")));
    let _kernel = Tmpfs(rig.at("other"));
    fs::create_dir(rig.at("other/t")).unwrap();
    let _below = Tmpfs::at(rig.at("other/t"));
    fs::write(rig.at("other/f"), "").unwrap();
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    assert!(!sees(&mut client, &root, "other"));
    assert!(client.mnt(&rig.at("other/t")).is_err());
}

#[test]
fn the_lane_reaches_crossed_filesystems_and_trees_stop_at_them() {
    let rig = Rig::new(&[&format!("@ *({OPEN},crossmnt)")]);
    let mounted = Tmpfs::at(rig.at("disk"));
    fs::set_permissions(rig.at("disk"), fs::Permissions::from_mode(0o755)).unwrap();
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    let disk = client.lookup(&root, "disk");
    let file = client.lookup(&disk, "f");
    let tree = |server: &Server, crossed: bool| {
        server.status().exports.into_iter().find(|export| export.crossed == crossed).unwrap().tree
    };
    assert_eq!(tree(&server, false), "something is mounted in it");
    assert_eq!(tree(&server, true), "given");
    common::local::run(async {
        let lane = common::local::lane(&rig.scratch, &mut client).await;
        let granted = common::local::open(&lane, Target::Handle(&file), Access::Read, &user(0, 0, &[])).await;
        let granted = granted.unwrap();
        drop(mounted);
        wait_for("the grant to be recalled", || !granted.grant.is_live());
    });
    wait_for("the handle to be stale", || client.read(&file, 0, 1).err() == STALE);
    wait_for("the outer export to be given as a tree", || tree(&server, false) == "given");
}

#[test]
fn an_export_with_mountpoint_is_served_while_something_is_mounted_there() {
    let rig = Rig::new(&[&format!("@/disk *({OPEN},mp)"), &format!("@/other *({OPEN},mountpoint=@/disk)")]);
    let server = rig.serve();
    let mut client = Client::new(&server);
    let paths = [rig.at("disk"), rig.at("other")];
    for path in &paths {
        assert!(client.mnt(path).is_err());
    }
    let problems = server.notices().join("\n");
    assert!(problems.contains("nothing is mounted at"), "{problems}");
    let mounted = Tmpfs::at(rig.at("disk"));
    for path in &paths {
        wait_for("the export to be served", || client.mnt(path).is_ok());
    }
    let disk = client.mnt(&paths[0]).unwrap();
    let (file, other) = (client.lookup(&disk, "f"), client.mnt(&paths[1]).unwrap());
    drop(mounted);
    wait_for("the end of service", || client.read(&file, 0, 1).err() == STALE);
    wait_for("the end of service", || status_of(&mut client, &other) == Nfsstat3::Stale as u32);
    let _mounted = Tmpfs::at(rig.at("disk"));
    wait_for("the export to be served again", || status_of(&mut client, &other) == 0);
}

/// A client could choose by it what is exported.
#[test]
fn a_mount_behind_a_link_that_clients_can_change_is_not_served() {
    let rig = Rig::new(&[&format!("@ *({OPEN})"), &format!("@/link *({OPEN},mp)")]);
    std::os::unix::fs::symlink(rig.at("disk"), rig.at("link")).unwrap();
    let server = rig.serve();
    let (mut client, root) = rig.client(&server);
    let problem = || {
        let mut exports = server.status().exports.into_iter();
        exports.find(|export| export.path == rig.at("link")).unwrap().problem.unwrap()
    };
    assert!(problem().contains("may change the symbolic link"), "{}", problem());
    let _mounted = Tmpfs::at(rig.at("disk"));
    // The server has seen the mount when it serves another one that came later.
    rig.export(&[&format!("@ *({OPEN})"), &format!("@/link *({OPEN},mp)"), &format!("@/other *({OPEN},mp)")]);
    server.reload().unwrap();
    let _later = Tmpfs::at(rig.at("other"));
    wait_for("the later mount", || client.mnt(&rig.at("other")).is_ok());
    assert!(problem().contains("may change the symbolic link"), "{}", problem());
    assert!(client.mnt(&rig.at("link")).is_err());
    assert!(!sees(&mut client, &root, "disk"));
}

#[test]
fn nordirplus_makes_clients_use_readdir() {
    let scratch = Scratch::new();
    let server = scratch.serve(&format!("*({OPEN},nordirplus)"));
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    assert_eq!(readdirplus(&mut client, &root).status(), Nfsstat3::Notsupp as u32);
    let args = nfs3::Readdir3Args { dir: Opaque(&root), cookie: 0, cookieverf: [0; 8], count: 4096 };
    assert_eq!(client.nfs(Procedure::Readdir, &args).status(), 0);
}
