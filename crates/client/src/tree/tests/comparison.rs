//! Every operation with its errors, both ways: the same results, the same files, the same reports of
//! attributes.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use super::side::{Both, Side, USER, inherit_list, make_dir_of};
use crate::attribute_sink::PreOpAttributes;
use crate::error::Status;
use crate::options::Version;
use crate::tree::failure::Failure;
use crate::types::{
    Access, Attributes, Create, FileKind, Found, Handle, Node, PosixAcl, SetAcl, SetAttributes, SetTime,
    SetXattr, Timestamp,
};

/// A directory both ways, as the cases see it.
struct At<'a> {
    side: &'a Side,
    /// The case's directory.
    dir: Handle,
}

type Result<T> = std::result::Result<T, Failure>;

impl At<'_> {
    fn file(&self, name: &str) -> Handle {
        self.side.lookup(&self.dir, name.as_bytes()).expect("prepared").handle
    }
}

/// What is the same both ways of a file that each way has made for itself.
fn alike(attributes: &Attributes) -> String {
    let Attributes { kind, mode, nlink, uid, gid, size, rdev, fsid, .. } = attributes;
    format!("{kind:?} {mode:o} links {nlink} owner {uid}:{gid} size {size} rdev {rdev:?} fsid {fsid:x}")
}

fn found(found: Found) -> String {
    alike(&found.attributes.expect("attributes"))
}

const NONE: SetAttributes =
    SetAttributes { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None };

const fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..NONE }
}

const fn size(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..NONE }
}

const fn owner(uid: Option<u32>, gid: Option<u32>) -> SetAttributes {
    SetAttributes { uid, gid, ..NONE }
}

const PAST: SetTime = SetTime::To(Timestamp { seconds: 1_000_000_000, nanoseconds: 7 });

const fn mtime(to: SetTime) -> SetAttributes {
    SetAttributes { mtime: Some(to), ..NONE }
}

/// The files of each case's directory.
fn prepare(uid: u32, dir: &Path) {
    make_dir_of(uid, dir);
    let own = |name: &str| std::os::unix::fs::lchown(dir.join(name), Some(uid), Some(uid)).unwrap();
    for (name, bits) in [("file", 0o644), ("secret", 0o000), ("program", 0o4755), ("read-only", 0o444)] {
        fs::write(dir.join(name), b"content").unwrap();
        own(name);
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    // Root's, and others may only read.
    fs::write(dir.join("roots"), b"content").unwrap();
    fs::set_permissions(dir.join("roots"), fs::Permissions::from_mode(0o644)).unwrap();
    // A program of a group that neither is in.
    fs::write(dir.join("foreign"), b"content").unwrap();
    std::os::unix::fs::chown(dir.join("foreign"), Some(uid), Some(77)).unwrap();
    fs::set_permissions(dir.join("foreign"), fs::Permissions::from_mode(0o6755)).unwrap();
    symlink("file", dir.join("link")).unwrap();
    own("link");
    fs::hard_link(dir.join("file"), dir.join("second-name")).unwrap();
    for (name, uid, bits) in [
        ("dir", uid, 0o755),
        ("full", uid, 0o755),
        ("locked", uid, 0o000),
        ("roots-dir", 0, 0o755),
        ("sticky", 0, 0o1777),
    ] {
        make_dir_of(uid, &dir.join(name));
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    // New files inherit the group, of which the user is a member.
    make_dir_of(uid, &dir.join("set-gid"));
    std::os::unix::fs::chown(dir.join("set-gid"), None, Some(uid + 1)).unwrap();
    fs::set_permissions(dir.join("set-gid"), fs::Permissions::from_mode(0o2775)).unwrap();
    // Everybody's, with the group of nobody here.
    make_dir_of(uid, &dir.join("foreign-dir"));
    std::os::unix::fs::chown(dir.join("foreign-dir"), Some(0), Some(77)).unwrap();
    fs::set_permissions(dir.join("foreign-dir"), fs::Permissions::from_mode(0o2777)).unwrap();
    make_dir_of(uid, &dir.join("with-list"));
    inherit_list(&dir.join("with-list"));
    fs::write(dir.join("full/entry"), b"x").unwrap();
    fs::write(dir.join("sticky/roots"), b"x").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    own("pipe");
}

/// All files below a directory, with what both ways must agree about.
fn contents(dir: &Path, prefix: &str, into: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, meta) = (entry.path(), fs::symlink_metadata(entry.path()).unwrap());
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let times = if meta.mtime() < 1_600_000_000 { meta.mtime() } else { 0 };
        into.push(format!(
            "{name} {:o} links {} owner {}:{} size {} {} {times}",
            meta.mode(),
            meta.nlink(),
            meta.uid(),
            meta.gid(),
            meta.len(),
            fs::read_link(&path).unwrap_or_default().display(),
        ));
        if meta.is_dir() {
            contents(&path, &format!("{name}/"), into);
        }
    }
    into.sort();
}

type Case = (&'static str, fn(&At<'_>) -> Result<String>);

const LONG_TARGET: [u8; 4096] = [b'x'; 4096];
const LONG_NAME: [u8; 256] = [b'x'; 256];

/// Operations with the same result both ways.
const CASES: &[Case] = &[
    ("lookup", |at| at.side.lookup(&at.dir, b"file").map(found)),
    ("lookup of a link", |at| at.side.lookup(&at.dir, b"link").map(found)),
    ("lookup of a directory", |at| at.side.lookup(&at.dir, b"dir").map(found)),
    ("lookup of nothing", |at| at.side.lookup(&at.dir, b"none").map(found)),
    ("lookup in a file", |at| at.side.lookup(&at.file("file"), b"x").map(found)),
    ("lookup in a link", |at| at.side.lookup(&at.file("link"), b"x").map(found)),
    ("lookup in a locked directory", |at| at.side.lookup(&at.file("locked"), b"x").map(found)),
    ("lookup twice", |at| {
        at.side.lookup(&at.dir, b"file")?;
        at.side.lookup(&at.dir, b"file")?;
        at.side.lookup(&at.dir, b"second-name").map(found)
    }),
    ("attributes", |at| at.side.attributes(&at.file("program")).map(|attributes| alike(&attributes))),
    ("attributes of a file with one name less", |at| {
        let file = at.file("file");
        at.side.remove(&at.dir, b"file")?;
        at.side.attributes(&file).map(|attributes| alike(&attributes))
    }),
    ("set nothing", |at| set(at, "file", NONE)),
    ("chmod", |at| set(at, "file", mode(0o7640))),
    ("chmod of a directory", |at| set(at, "dir", mode(0o2750))),
    ("chmod of a file of another group", |at| set(at, "foreign", mode(0o6711))),
    ("truncate a program of another group", |at| set(at, "foreign", size(1))),
    ("chown of a program of another group", |at| set(at, "foreign", owner(Some(USER), None))),
    ("create a program in a set-gid directory", |at| {
        at.side.create(&at.file("set-gid"), b"new", &Create::Guarded(mode(0o6755))).map(found)
    }),
    ("chmod of a link", |at| set(at, "link", mode(0o700))),
    ("chmod of root's file", |at| set(at, "roots", mode(0o666))),
    ("truncate", |at| set(at, "file", size(3))),
    ("extend", |at| set(at, "file", size(100_000))),
    ("truncate a directory", |at| set(at, "dir", size(0))),
    ("truncate a link", |at| set(at, "link", size(0))),
    ("truncate a pipe", |at| set(at, "pipe", size(0))),
    ("truncate too far", |at| set(at, "file", size(u64::MAX))),
    ("truncate root's file", |at| set(at, "roots", size(0))),
    ("truncate a program", |at| set(at, "program", size(0))),
    ("chown to root", |at| set(at, "file", owner(Some(0), None))),
    ("chown to oneself", |at| set(at, "program", owner(Some(USER), None))),
    ("chgrp to an own group", |at| set(at, "file", owner(None, Some(USER + 1)))),
    ("chgrp to another group", |at| set(at, "file", owner(None, Some(77)))),
    ("chown of a link", |at| set(at, "link", owner(None, Some(USER + 1)))),
    ("chown and chmod", |at| {
        set(at, "file", SetAttributes { mode: Some(0o4711), ..owner(Some(USER), None) })
    }),
    ("chown to no user", |at| set(at, "file", owner(Some(u32::MAX), None))),
    ("chgrp of root's file", |at| set(at, "roots", owner(None, Some(USER + 1)))),
    ("set the time", |at| set(at, "file", mtime(PAST))),
    ("set the time of a link", |at| set(at, "link", mtime(PAST))),
    ("set the time of a directory", |at| set(at, "dir", mtime(PAST))),
    ("set the time of a read-only file", |at| set(at, "read-only", mtime(PAST))),
    ("set the time of root's file", |at| set(at, "roots", mtime(PAST))),
    ("touch root's file", |at| set(at, "roots", mtime(SetTime::Now))),
    ("touch", |at| set(at, "read-only", mtime(SetTime::Now))),
    ("set everything", |at| {
        let all = SetAttributes {
            mode: Some(0o600),
            uid: None,
            gid: Some(USER + 1),
            size: Some(5),
            atime: Some(PAST),
            mtime: Some(PAST),
        };
        set(at, "file", all)
    }),
    ("a part of the attributes can't be set", |at| {
        set(at, "file", SetAttributes { gid: Some(77), ..size(1) })
    }),
    ("a guard that holds", |at| {
        let file = at.file("file");
        let ctime = at.side.attributes(&file)?.ctime;
        at.side.set_attributes(&file, &mode(0o600), Some(ctime)).map(|_| String::new())
    }),
    ("a guard that doesn't", |at| {
        let guard = Some(Timestamp { seconds: 1, nanoseconds: 2 });
        at.side.set_attributes(&at.file("file"), &mode(0o600), guard).map(|_| String::new())
    }),
    ("access to a file", |at| access(at, "file")),
    ("access to a secret", |at| access(at, "secret")),
    ("access to a program", |at| access(at, "program")),
    ("access to root's file", |at| access(at, "roots")),
    ("access to a directory", |at| access(at, "dir")),
    ("access to root's directory", |at| access(at, "roots-dir")),
    ("access to a locked directory", |at| access(at, "locked")),
    ("access to a link", |at| access(at, "link")),
    ("access to a pipe", |at| access(at, "pipe")),
    ("access: nothing wanted", |at| {
        at.side.access(&at.file("dir"), Access::default()).map(|granted| format!("{granted:?}"))
    }),
    ("read a link", |at| at.side.read_link(&at.file("link")).map(|target| format!("{target:?}"))),
    ("read a file as a link", |at| at.side.read_link(&at.file("file")).map(|target| format!("{target:?}"))),
    ("create", |at| create(at, "new", Create::Guarded(mode(0o666)))),
    ("create with all bits", |at| create(at, "new", Create::Guarded(mode(0o7777)))),
    ("create without a mode", |at| create(at, "new", Create::Unchecked(NONE))),
    ("create without permissions", |at| create(at, "new", Create::Guarded(mode(0)))),
    ("create with a size", |at| {
        create(at, "new", Create::Guarded(SetAttributes { mode: Some(0o444), ..size(4321) }))
    }),
    ("create with an owner", |at| {
        create(at, "new", Create::Unchecked(SetAttributes { mode: Some(0o4755), ..owner(Some(3), Some(4)) }))
    }),
    ("create with a time", |at| {
        create(at, "new", Create::Guarded(SetAttributes { mode: Some(0o600), ..mtime(PAST) }))
    }),
    ("create what exists", |at| create(at, "file", Create::Guarded(mode(0o600)))),
    ("create what may exist", |at| create(at, "file", Create::Unchecked(mode(0o600)))),
    ("create and truncate what exists", |at| {
        create(at, "file", Create::Unchecked(SetAttributes { mode: Some(0o600), ..size(0) }))
    }),
    ("create and truncate root's file", |at| create(at, "roots", Create::Unchecked(size(0)))),
    ("create over a directory", |at| create(at, "dir", Create::Unchecked(mode(0o600)))),
    ("create over a link", |at| create(at, "link", Create::Unchecked(mode(0o600)))),
    ("create exclusively what exists", |at| {
        create(at, "file", Create::Exclusive { verifier: [9; 8], mode: 0 })
    }),
    ("create in root's directory", |at| {
        at.side.create(&at.file("roots-dir"), b"new", &Create::Guarded(mode(0o600))).map(found)
    }),
    ("create in a set-gid directory", |at| {
        at.side.create(&at.file("set-gid"), b"new", &Create::Guarded(mode(0o666))).map(found)
    }),
    ("create in a set-gid directory of another group", |at| {
        at.side.create(&at.file("foreign-dir"), b"new", &Create::Guarded(mode(0o666))).map(found)
    }),
    ("create a program in a set-gid directory of another group", |at| {
        at.side.create(&at.file("foreign-dir"), b"new", &Create::Guarded(mode(0o6755))).map(found)
    }),
    ("create in a sticky directory", |at| {
        at.side.create(&at.file("sticky"), b"new", &Create::Unchecked(mode(0o666))).map(found)
    }),
    ("create what exists in a sticky directory", |at| {
        at.side.create(&at.file("sticky"), b"roots", &Create::Unchecked(mode(0o666))).map(found)
    }),
    ("create over a pipe", |at| create(at, "pipe", Create::Unchecked(mode(0o600)))),
    ("create and truncate a pipe", |at| create(at, "pipe", Create::Unchecked(size(0)))),
    ("create and truncate a directory", |at| create(at, "dir", Create::Unchecked(size(0)))),
    ("create and truncate a link", |at| create(at, "link", Create::Unchecked(size(0)))),
    ("create and extend what exists", |at| create(at, "file", Create::Unchecked(size(100)))),
    ("create too large a file", |at| create(at, "new", Create::Guarded(size(u64::MAX)))),
    ("create in a link", |at| {
        at.side.create(&at.file("link"), b"new", &Create::Guarded(mode(0o600))).map(found)
    }),
    ("create in a directory with a list", |at| {
        at.side.create(&at.file("with-list"), b"new", &Create::Guarded(mode(0o666))).map(found)
    }),
    ("mkdir in a directory with a list", |at| {
        let made = at.side.make_dir(&at.file("with-list"), b"new", &mode(0o777))?;
        let list = at.side.acls(&made.handle)?;
        Ok(format!("{} {list:?}", found(made)))
    }),
    ("create in a file", |at| {
        at.side.create(&at.file("file"), b"new", &Create::Guarded(mode(0o600))).map(found)
    }),
    ("mkdir", |at| at.side.make_dir(&at.dir, b"new", &mode(0o777)).map(found)),
    ("mkdir with all bits", |at| at.side.make_dir(&at.dir, b"new", &mode(0o7777)).map(found)),
    ("mkdir without a mode", |at| at.side.make_dir(&at.dir, b"new", &NONE).map(found)),
    ("mkdir with an owner", |at| at.side.make_dir(&at.dir, b"new", &owner(Some(3), Some(4))).map(found)),
    ("mkdir in a set-gid directory", |at| {
        at.side.make_dir(&at.file("set-gid"), b"new", &mode(0o777)).map(found)
    }),
    ("mkdir with a size", |at| at.side.make_dir(&at.dir, b"new", &size(7)).map(found)),
    ("mkdir over a link", |at| at.side.make_dir(&at.dir, b"link", &mode(0o777)).map(found)),
    ("mkdir in a file", |at| at.side.make_dir(&at.file("file"), b"new", &mode(0o777)).map(found)),
    ("symlink in a set-gid directory", |at| {
        at.side.symlink(&at.file("foreign-dir"), b"new", b"target", &NONE).map(found)
    }),
    ("the longest target", |at| at.side.symlink(&at.dir, b"new", &LONG_TARGET[1..], &NONE).map(found)),
    ("mknod in a set-gid directory", |at| {
        at.side.make_node(&at.file("foreign-dir"), b"new", Node::Fifo, &mode(0o2676)).map(found)
    }),
    ("mknod in a directory with a list", |at| {
        at.side.make_node(&at.file("with-list"), b"new", Node::Fifo, &mode(0o666)).map(found)
    }),
    ("mkdir of what exists", |at| at.side.make_dir(&at.dir, b"dir", &mode(0o777)).map(found)),
    ("mkdir in root's directory", |at| {
        at.side.make_dir(&at.file("roots-dir"), b"new", &mode(0o777)).map(found)
    }),
    ("symlink", |at| at.side.symlink(&at.dir, b"new", b"/some/target", &mode(0o600)).map(found)),
    ("symlink with an owner", |at| {
        at.side.symlink(&at.dir, b"new", b"target", &owner(Some(3), Some(4))).map(found)
    }),
    ("symlink of what exists", |at| at.side.symlink(&at.dir, b"file", b"target", &NONE).map(found)),
    ("mknod of a pipe", |at| at.side.make_node(&at.dir, b"new", Node::Fifo, &mode(0o666)).map(found)),
    ("mknod of a socket", |at| at.side.make_node(&at.dir, b"new", Node::Socket, &mode(0o622)).map(found)),
    ("mknod of a device", |at| {
        at.side.make_node(&at.dir, b"new", Node::Character(1, 3), &mode(0o666)).map(found)
    }),
    ("mknod of a block device", |at| {
        at.side.make_node(&at.dir, b"new", Node::Block(7, 200), &owner(Some(3), None)).map(found)
    }),
    ("mknod of what exists", |at| at.side.make_node(&at.dir, b"dir", Node::Fifo, &NONE).map(found)),
    ("remove", |at| done(at.side.remove(&at.dir, b"file"))),
    ("remove of nothing", |at| done(at.side.remove(&at.dir, b"none"))),
    ("remove of a directory", |at| done(at.side.remove(&at.dir, b"dir"))),
    ("remove of a link", |at| done(at.side.remove(&at.dir, b"link"))),
    ("remove in root's directory", |at| done(at.side.remove(&at.file("roots-dir"), b"none"))),
    ("remove in a sticky directory", |at| done(at.side.remove(&at.file("sticky"), b"roots"))),
    ("remove in a file", |at| done(at.side.remove(&at.file("file"), b"x"))),
    ("rmdir", |at| done(at.side.remove_dir(&at.dir, b"dir"))),
    ("rmdir of a full directory", |at| done(at.side.remove_dir(&at.dir, b"full"))),
    ("rmdir of a file", |at| done(at.side.remove_dir(&at.dir, b"file"))),
    ("rmdir of nothing", |at| done(at.side.remove_dir(&at.dir, b"none"))),
    ("rename", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, b"new")))),
    ("rename to another directory", |at| done(at.side.rename((&at.dir, b"file"), (&at.file("dir"), b"new")))),
    ("rename over a file", |at| done(at.side.rename((&at.dir, b"secret"), (&at.dir, b"file")))),
    ("rename to itself", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, b"file")))),
    ("rename to the same file's other name", |at| {
        done(at.side.rename((&at.dir, b"file"), (&at.dir, b"second-name")))
    }),
    ("rename of nothing", |at| done(at.side.rename((&at.dir, b"none"), (&at.dir, b"new")))),
    ("rename over a full directory", |at| done(at.side.rename((&at.dir, b"dir"), (&at.dir, b"full")))),
    ("rename of a file over a directory", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, b"dir")))),
    ("rename of a directory over a file", |at| done(at.side.rename((&at.dir, b"dir"), (&at.dir, b"file")))),
    ("rename of a directory below itself", |at| {
        done(at.side.rename((&at.dir, b"full"), (&at.file("full"), b"new")))
    }),
    ("rename in a sticky directory", |at| {
        done(at.side.rename((&at.file("sticky"), b"roots"), (&at.file("sticky"), b"new")))
    }),
    ("rename over a file in a sticky directory", |at| {
        done(at.side.rename((&at.dir, b"file"), (&at.file("sticky"), b"roots")))
    }),
    ("rename of a directory over an empty one", |at| {
        done(at.side.rename((&at.dir, b"full"), (&at.dir, b"dir")))
    }),
    // Its entry .. changes, for which it must be writable.
    ("rename of a locked directory to another directory", |at| {
        done(at.side.rename((&at.dir, b"locked"), (&at.file("dir"), b"new")))
    }),
    ("rename of a link over its target", |at| done(at.side.rename((&at.dir, b"link"), (&at.dir, b"file")))),
    ("rename of a file to a name in a file", |at| {
        done(at.side.rename((&at.dir, b"secret"), (&at.file("file"), b"new")))
    }),
    ("rename of a directory over its parent", |at| {
        at.side.make_dir(&at.file("full"), b"below", &mode(0o755))?;
        done(at.side.rename((&at.file("full"), b"below"), (&at.dir, b"full")))
    }),
    ("rename into root's directory", |at| {
        done(at.side.rename((&at.dir, b"file"), (&at.file("roots-dir"), b"new")))
    }),
    ("link", |at| done(at.side.link(&at.file("file"), &at.dir, b"new"))),
    ("link to a symbolic link", |at| done(at.side.link(&at.file("link"), &at.dir, b"new"))),
    ("link to a pipe", |at| done(at.side.link(&at.file("pipe"), &at.dir, b"new"))),
    ("link to a directory", |at| done(at.side.link(&at.file("dir"), &at.dir, b"new"))),
    ("link to a program of another group", |at| done(at.side.link(&at.file("foreign"), &at.dir, b"new"))),
    ("link to a secret", |at| done(at.side.link(&at.file("secret"), &at.dir, b"new"))),
    ("link in a file", |at| done(at.side.link(&at.file("secret"), &at.file("file"), b"new"))),
    ("link over itself", |at| done(at.side.link(&at.file("file"), &at.dir, b"file"))),
    ("link over a file", |at| done(at.side.link(&at.file("file"), &at.dir, b"secret"))),
    ("link to root's file", |at| done(at.side.link(&at.file("roots"), &at.dir, b"new"))),
    ("link in root's directory", |at| done(at.side.link(&at.file("file"), &at.file("roots-dir"), b"new"))),
    ("the list of a file", |at| at.side.acls(&at.file("program")).map(|list| format!("{list:?}"))),
    ("the list of a directory", |at| at.side.acls(&at.file("sticky")).map(|list| format!("{list:?}"))),
    ("the list of a link", |at| at.side.acls(&at.file("link")).map(|list| format!("{list:?}"))),
    ("the filesystem's size", |at| {
        at.side.fs_stat(&at.dir).map(|stat| format!("{} {}", stat.total_bytes, stat.total_files))
    }),
];

/// Changes of access control lists. The wire reports more attributes: SETACL sets both lists, so GETACL is
/// asked before.
const CASES_OF_LISTS: &[Case] = &[
    ("set the list of a file", |at| set_acl(at, "file", SetAcl::Access(list(&[(7, 6)])))),
    ("set the list of a file to a mode", |at| set_acl(at, "file", SetAcl::Access(PosixAcl::of_mode(0o604)))),
    ("set a list with a mask only", |at| {
        set_acl(at, "file", SetAcl::Access(PosixAcl { mask: Some(4), ..PosixAcl::of_mode(0o660) }))
    }),
    ("set the list of a directory", |at| set_acl(at, "sticky", SetAcl::Access(list(&[(7, 5), (3, 0)])))),
    ("set the list of a set-id program", |at| set_acl(at, "program", SetAcl::Access(list(&[(7, 5)])))),
    ("set a default list", |at| set_acl(at, "dir", SetAcl::Default(Some(list(&[(7, 6)]))))),
    ("remove a default list", |at| set_acl(at, "with-list", SetAcl::Default(None))),
    ("remove a default list that isn't there", |at| set_acl(at, "dir", SetAcl::Default(None))),
    ("set the default list of a file", |at| set_acl(at, "file", SetAcl::Default(Some(list(&[]))))),
    ("set a list that isn't valid", |at| {
        set_acl(at, "file", SetAcl::Access(PosixAcl { mask: None, ..list(&[(7, 6)]) }))
    }),
    ("set the list of a link", |at| set_acl(at, "link", SetAcl::Access(list(&[(7, 6)])))),
    ("set the list of a pipe", |at| set_acl(at, "pipe", SetAcl::Access(list(&[(7, 6)])))),
    ("set the list of root's file", |at| set_acl(at, "roots", SetAcl::Access(list(&[(7, 6)])))),
];

fn list(users: &[(u32, u8)]) -> PosixAcl {
    PosixAcl { users: users.to_vec(), mask: Some(6), ..PosixAcl::of_mode(0o764) }
}

/// Sets one of a file's lists, and tells both and the mode.
fn set_acl(at: &At<'_>, name: &str, change: SetAcl) -> Result<String> {
    let file = at.file(name);
    at.side.set_acl(&file, &change)?;
    Ok(format!("{:o} {:?}", at.side.attributes(&file)?.mode, at.side.acls(&file)?))
}

/// What only the server answers, and that it then has an answer.
const NOT_LOCAL: &[Case] = &[
    ("lookup of .", |at| at.side.lookup(&at.dir, b".").map(found)),
    ("lookup of ..", |at| at.side.lookup(&at.dir, b"..").map(found)),
    ("lookup of a path", |at| at.side.lookup(&at.dir, b"dir/x").map(found)),
    ("lookup of the empty name", |at| at.side.lookup(&at.dir, b"").map(found)),
    ("lookup of a long name", |at| at.side.lookup(&at.dir, &LONG_NAME).map(found)),
    ("create with a NUL", |at| at.side.create(&at.dir, b"a\0b", &Create::Guarded(NONE)).map(found)),
    ("remove of .", |at| done(at.side.remove(&at.dir, b"."))),
    ("rmdir of ..", |at| done(at.side.remove_dir(&at.dir, b".."))),
    ("rename of .", |at| done(at.side.rename((&at.dir, b"."), (&at.dir, b"new")))),
    ("remove of a path", |at| done(at.side.remove(&at.dir, b"dir/../file"))),
    ("rmdir of .", |at| done(at.side.remove_dir(&at.dir, b"."))),
    ("rename to a path", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, b"dir/new")))),
    ("rename to ..", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, b"..")))),
    ("rename to a long name", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, &LONG_NAME)))),
    ("rename to the empty name", |at| done(at.side.rename((&at.dir, b"file"), (&at.dir, b"")))),
    ("link with a long name", |at| done(at.side.link(&at.file("file"), &at.dir, &LONG_NAME))),
    ("link to a path", |at| done(at.side.link(&at.file("file"), &at.dir, b"../new"))),
    ("mkdir with a long name", |at| at.side.make_dir(&at.dir, &LONG_NAME, &NONE).map(found)),
    ("mkdir of a path", |at| at.side.make_dir(&at.dir, b"../new", &NONE).map(found)),
    ("create with a long name", |at| at.side.create(&at.dir, &LONG_NAME, &Create::Guarded(NONE)).map(found)),
    ("create in ..", |at| at.side.create(&at.dir, b"../new", &Create::Unchecked(NONE)).map(found)),
    ("mknod of a path", |at| at.side.make_node(&at.dir, b"/new", Node::Fifo, &NONE).map(found)),
    ("symlink with a NUL in its target", |at| at.side.symlink(&at.dir, b"new", b"a\0b", &NONE).map(found)),
    ("symlink to nothing", |at| at.side.symlink(&at.dir, b"new", b"", &NONE).map(found)),
    ("symlink to a long target", |at| at.side.symlink(&at.dir, b"new", &LONG_TARGET, &NONE).map(found)),
    ("a handle that isn't the tree's", |at| {
        let mut bytes = at.dir.as_bytes().to_vec();
        bytes[20] ^= 1;
        at.side.attributes(&Handle::new(&bytes).expect("fits")).map(|attributes| alike(&attributes))
    }),
];

/// As [`NOT_LOCAL`], for an owner who isn't root.
const NOT_LOCAL_FOR_OWNERS: &[Case] = &[
    ("create with set-gid in a set-gid directory of another group", |at| {
        at.side.create(&at.file("foreign-dir"), b"new", &Create::Unchecked(mode(0o2666))).map(found)
    }),
    ("mknod with set-gid in a set-gid directory of another group", |at| {
        at.side.make_node(&at.file("foreign-dir"), b"new", Node::Fifo, &mode(0o2666)).map(found)
    }),
    ("mkdir in a set-gid directory of another group", |at| {
        at.side.make_dir(&at.file("foreign-dir"), b"new", &mode(0o777)).map(found)
    }),
    ("truncate one's own read-only file", |at| set(at, "read-only", size(1))),
    ("truncate one's own secret", |at| set(at, "secret", size(1))),
];

/// Files without a name: the tree has no descriptor of them any longer, and the server says that they are
/// stale.
const GONE: &[Case] = &[
    ("attributes of a removed file", |at| {
        let file = at.file("secret");
        at.side.remove(&at.dir, b"secret")?;
        at.side.attributes(&file).map(|attributes| alike(&attributes))
    }),
    ("link to a removed file", |at| {
        let file = at.file("secret");
        at.side.remove(&at.dir, b"secret")?;
        done(at.side.link(&file, &at.dir, b"new"))
    }),
    ("create in a removed directory", |at| {
        let dir = at.file("dir");
        at.side.remove_dir(&at.dir, b"dir")?;
        at.side.create(&dir, b"new", &Create::Guarded(mode(0o600))).map(found)
    }),
];

/// Operations of NFSv4.2 with the same result both ways.
const CASES_OF_4_2: &[Case] = &[
    ("set an attribute", |at| {
        xattr(at, "file", b"a", &[(SetXattr::Create, b"one"), (SetXattr::Either, b"two")])
    }),
    ("create an attribute twice", |at| {
        xattr(at, "file", b"a", &[(SetXattr::Create, b"one"), (SetXattr::Create, b"two")])
    }),
    ("replace an attribute", |at| {
        xattr(at, "dir", b"a", &[(SetXattr::Either, b"one"), (SetXattr::Replace, b"two")])
    }),
    ("replace a missing attribute", |at| xattr(at, "file", b"a", &[(SetXattr::Replace, b"")])),
    ("an attribute of a link", |at| xattr(at, "link", b"a", &[(SetXattr::Either, b"")])),
    ("an attribute of a pipe", |at| xattr(at, "pipe", b"a", &[(SetXattr::Either, b"")])),
    ("an attribute of root's file", |at| xattr(at, "roots", b"a", &[(SetXattr::Either, b"")])),
    ("an attribute of a read-only file", |at| xattr(at, "read-only", b"a", &[(SetXattr::Either, b"")])),
    ("an attribute without a name", |at| xattr(at, "file", b"", &[(SetXattr::Either, b"")])),
    ("an attribute with a NUL", |at| xattr(at, "file", b"a\0", &[(SetXattr::Either, b"")])),
    ("an attribute with a long name", |at| xattr(at, "file", &LONG_NAME, &[(SetXattr::Either, b"")])),
    ("no attribute", |at| at.side.xattr(&at.file("file"), b"a").map(|value| format!("{value:?}"))),
    ("no attributes", |at| at.side.list_xattrs(&at.file("file")).map(|names| format!("{names:?}"))),
    ("attributes of a link", |at| at.side.list_xattrs(&at.file("link")).map(|names| format!("{names:?}"))),
    ("remove an attribute", |at| {
        xattr(at, "file", b"a", &[(SetXattr::Either, b"one")])?;
        at.side.remove_xattr(&at.file("file"), b"a")?;
        at.side.list_xattrs(&at.file("file")).map(|names| format!("{names:?}"))
    }),
    ("remove a missing attribute", |at| done(at.side.remove_xattr(&at.file("file"), b"a"))),
    ("remove an attribute of root's file", |at| done(at.side.remove_xattr(&at.file("roots"), b"a"))),
];

/// Sets an attribute several times. The result is its value and all names.
fn xattr(at: &At<'_>, file: &str, name: &[u8], values: &[(SetXattr, &[u8])]) -> Result<String> {
    let file = at.file(file);
    for (how, value) in values {
        at.side.set_xattr(&file, name, value, *how)?;
    }
    let value = at.side.xattr(&file, name)?;
    at.side.list_xattrs(&file).map(|names| format!("{value:?} {names:?}"))
}

fn done(result: Result<()>) -> Result<String> {
    result.map(|()| String::new())
}

fn set(at: &At<'_>, name: &str, set: SetAttributes) -> Result<String> {
    let after = at.side.set_attributes(&at.file(name), &set, None)?;
    Ok(alike(&after.expect("attributes")))
}

fn access(at: &At<'_>, name: &str) -> Result<String> {
    let all =
        Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE | Access::EXECUTE;
    at.side.access(&at.file(name), all).map(|granted| format!("{granted:?}"))
}

fn create(at: &At<'_>, name: &str, how: Create) -> Result<String> {
    at.side.create(&at.dir, name.as_bytes(), &how).map(found)
}

/// What the sink received since the last call, in no order, without what differs from file to file.
fn reports(at: &At<'_>) -> Vec<String> {
    let who = |file: &Handle, attributes: Option<Attributes>| match attributes {
        _ if *file == at.dir => "the directory".to_owned(),
        Some(attributes) => format!("a file, {}", alike(&attributes)),
        None => "a file".to_owned(),
    };
    let all = at.side.seen.take();
    let mut all: Vec<_> = all
        .iter()
        .map(|(file, update)| {
            let before = update.before.map(|before| match before {
                PreOpAttributes::Times { size, .. } => size,
                PreOpAttributes::Change { before, .. } => before,
            });
            let is_directory = update.attributes.is_some_and(|now| now.kind == FileKind::Directory);
            let before = if is_directory { before.map(|_| 0) } else { before };
            format!(
                "{}, before {before:?}, now {}",
                who(file, update.attributes),
                update.attributes.is_some()
            )
        })
        .collect();
    all.sort();
    all
}

fn compare(uid: u32) {
    let Some(both) = Both::new(uid) else { return };
    let local_only_differs = if uid == 0 { &[][..] } else { NOT_LOCAL_FOR_OWNERS };
    let base = both.path();
    let mut number = 0;
    let mut run = |side: &Side, way: &str, (_, case): &Case| {
        number += 1;
        let name = format!("{way}-{number}");
        prepare(uid, &base.join(&name));
        let dir = side.lookup(&both.root, name.as_bytes()).expect("just made").handle;
        side.seen.take();
        let at = At { side, dir };
        let result = case(&at);
        let reports = reports(&at);
        let mut files = Vec::new();
        contents(&base.join(&name), "", &mut files);
        (result, files, reports)
    };
    for case in CASES {
        let (wire, tree) = (run(&both.wire, "wire", case), run(&both.tree, "tree", case));
        assert_eq!(tree.0, wire.0, "{} as {uid}: the result", case.0);
        assert_eq!(tree.1, wire.1, "{} as {uid}: the files", case.0);
        assert_eq!(tree.2, wire.2, "{} as {uid}: the reports", case.0);
    }
    for case in CASES_OF_LISTS {
        let (wire, tree) = (run(&both.wire, "wire", case), run(&both.tree, "tree", case));
        assert_eq!(tree.0, wire.0, "{} as {uid}: the result", case.0);
        assert_eq!(tree.1, wire.1, "{} as {uid}: the files", case.0);
    }
    for case in GONE {
        assert_eq!(run(&both.wire, "wire", case).0, Err(Failure::Status(Status::Stale)), "{}", case.0);
        assert_eq!(run(&both.tree, "tree", case).0, Err(Failure::NotLocal), "{}", case.0);
    }
    let untouched = run(&both.tree, "tree", &("nothing", |_| Ok(String::new()))).1;
    for case in NOT_LOCAL.iter().chain(local_only_differs) {
        let (result, files, _) = run(&both.tree, "tree", case);
        assert_eq!(result, Err(Failure::NotLocal), "{} as {uid}", case.0);
        assert_eq!(files, untouched, "{} as {uid} has changed nothing", case.0);
        assert_ne!(run(&both.wire, "wire", case).0, Err(Failure::Status(Status::ServerFault)), "{}", case.0);
    }
}

#[test]
fn the_tree_and_the_wire_agree_about_root() {
    if rustix::process::geteuid().is_root() {
        compare(0);
    }
}

#[test]
fn the_tree_and_the_wire_agree_on_a_thread_without_the_right_to_set_ids() {
    if rustix::process::geteuid().is_root() {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                user_ids::drop_fsetid();
                compare(0);
            });
            thread.join().expect("they agree");
        });
    }
}

#[test]
fn the_tree_and_the_wire_agree_about_a_user() {
    if rustix::process::geteuid().is_root() {
        compare(USER);
    }
}

fn compare_4_2(uid: u32) {
    let Some(both) = Both::by(uid, Version::V4_2) else { return };
    for (number, (what, case)) in CASES_OF_4_2.iter().enumerate() {
        let [wire, tree] = [(&both.wire, "wire"), (&both.tree, "tree")].map(|(side, way)| {
            let name = format!("{way}-{number}");
            prepare(uid, &both.path().join(&name));
            let dir = side.lookup(&both.root, name.as_bytes()).expect("just made").handle;
            case(&At { side, dir })
        });
        assert_eq!(tree, wire, "{what} as {uid}");
    }
}

#[test]
fn the_tree_and_nfs_4_2_agree() {
    if rustix::process::geteuid().is_root() {
        compare_4_2(0);
        compare_4_2(USER);
    }
}

#[test]
fn the_same_file_has_the_same_handle_and_attributes_both_ways() {
    let Some(both) = Both::new(rustix::process::geteuid().as_raw()) else { return };
    prepare(USER, &both.path().join("dir"));
    let lookup = |directory: &Handle, name: &str| {
        let wire = both.wire.lookup(directory, name.as_bytes()).expect("there");
        let tree = both.tree.lookup(directory, name.as_bytes()).expect("there");
        assert_eq!(tree, wire, "{name}");
        assert!(wire.handle.is_sealed() && !tree.handle.is_sealed());
        tree.handle
    };
    let dir = lookup(&both.root, "dir");
    // The wire needs the seal.
    let sealed = both.wire.lookup(&both.root, b"dir").expect("there").handle;
    assert!(dir.seal(&sealed));
    for name in ["file", "second-name", "link", "pipe", "secret", "locked", "set-gid"] {
        lookup(&dir, name);
    }
    assert_eq!(both.tree.attributes(&both.root), both.wire.attributes(&both.root));
}
