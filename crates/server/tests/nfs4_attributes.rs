//! NFSv4's attributes by GETATTR and by READDIR: for every kind of object and in every minor version they
//! must be the same. A client takes an entry's attributes and handle for the object's.

mod common;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use common::v4::{ANYBODY, NFS_OK, Ops, PUTFH, SEQUENCE, Session, compound, get};
use common::{Client, Scratch, encoded, wait_for};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::{Decoder, Encode, Opaque};

/// One more than the highest attribute number that is requested. RFC 9754 has 86 and 87.
const NUMBERS: u32 = 96;
/// A filesystem's use may change from one request to the next.
const VOLATILE: [u32; 6] = [
    attributes::FILES_AVAIL,
    attributes::FILES_FREE,
    attributes::FILES_TOTAL,
    attributes::SPACE_AVAIL,
    attributes::SPACE_FREE,
    attributes::SPACE_TOTAL,
];

/// A client of one minor version.
enum AnyClient {
    V40(Client),
    Later(Session),
}

impl AnyClient {
    fn new(server: &Server, minor: u32) -> Self {
        match minor {
            0 => Self::V40(Client::new(server)),
            _ => Self::Later(Session::new(server, minor, format!("client {minor}").as_bytes())),
        }
    }

    /// One operation on an object: its status and the body of its result.
    fn on(&mut self, at: &[u8], operation: Operation, args: &impl Encode) -> (u32, Vec<u8>) {
        match self {
            Self::Later(session) => session.on(at, operation, args),
            Self::V40(wire) => {
                let ops =
                    Ops::new().op(Operation::Putfh, &Putfh4Args { object: Opaque(at) }).op(operation, args);
                let done = compound(wire, 0, &ops);
                let (status, body) = done.after(&[PUTFH]);
                (status, body.to_vec())
            }
        }
    }

    /// LOOKUP, GETFH.
    fn lookup(&mut self, at: &[u8], name: &[u8]) -> Vec<u8> {
        let name = Name4Args { name: Opaque(name) };
        let put = Putfh4Args { object: Opaque(at) };
        let (done, mut before) = match self {
            Self::Later(session) => {
                let ops = session.sequence(false).op(Operation::Putfh, &put).op(Operation::Lookup, &name);
                (session.run(&ops.op(Operation::Getfh, &())), vec![SEQUENCE])
            }
            Self::V40(wire) => {
                let ops = Ops::new().op(Operation::Putfh, &put).op(Operation::Lookup, &name);
                (compound(wire, 0, &ops.op(Operation::Getfh, &())), vec![])
            }
        };
        before.extend([PUTFH, (Operation::Lookup, 0)]);
        let (status, body) = done.after(&before);
        assert_eq!(status, NFS_OK);
        get::<NfsFh4<'_>>(body).0.to_vec()
    }

    fn root(&mut self) -> Vec<u8> {
        let (done, mut before) = match self {
            Self::Later(session) => {
                let ops = session.sequence(false).op(Operation::Putrootfh, &()).op(Operation::Getfh, &());
                (session.run(&ops), vec![SEQUENCE])
            }
            Self::V40(wire) => {
                let ops = Ops::new().op(Operation::Putrootfh, &()).op(Operation::Getfh, &());
                (compound(wire, 0, &ops), vec![])
            }
        };
        before.push((Operation::Putrootfh, 0));
        get::<NfsFh4<'_>>(done.after(&before).1).0.to_vec()
    }

    /// GETATTR's result: the whole `fattr4`, or the error.
    fn getattr(&mut self, of: &[u8], requested: Bitmap4) -> Result<Vec<u8>, u32> {
        let (status, body) = self.on(of, Operation::Getattr, &Getattr4Args { attr_request: requested });
        if status == NFS_OK { Ok(body) } else { Err(status) }
    }

    /// All entries of a directory, page by page: each one's `fattr4`.
    fn readdir(
        &mut self,
        at: &[u8],
        requested: Bitmap4,
        maxcount: u32,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, u32> {
        let mut entries = BTreeMap::new();
        let (mut cookie, mut cookieverf) = (0, [0; 8]);
        loop {
            let args =
                Readdir4Args { cookie, cookieverf, dircount: maxcount, maxcount, attr_request: requested };
            let (status, body) = self.on(at, Operation::Readdir, &args);
            if status != NFS_OK {
                return Err(status);
            }
            let mut from = Decoder::new(&body);
            cookieverf = from.get().unwrap();
            while from.bool().unwrap() {
                cookie = from.u64().unwrap();
                let name = from.opaque(255).unwrap().to_vec();
                let values: Fattr4<'_> = from.get().unwrap();
                assert!(entries.insert(name, encoded(&values)).is_none(), "an entry is listed twice");
            }
            if from.bool().unwrap() {
                return Ok(entries);
            }
        }
    }
}

/// An object that is compared, by its directory and name.
struct Entry {
    directory: PathBuf,
    name: &'static str,
    what: &'static str,
}

/// Every kind of object. `above` is the directory above all exports.
fn entries(above: &Path) -> Vec<Entry> {
    let at = |directory: PathBuf, name, what| Entry { directory, name, what };
    let outer = above.join("export");
    vec![
        at(above.join("pseudo"), "deeper", "a pseudo directory"),
        at(above.join("pseudo/deeper"), "export", "the root of an export in a pseudo directory"),
        at(above.to_owned(), "export", "the root of an export beside a pseudo directory"),
        at(outer.clone(), "inner", "the root of an export in another export"),
        at(outer.clone(), "file", "a file"),
        at(outer.clone(), "directory", "a directory"),
        at(outer.clone(), "link", "a symbolic link"),
        at(outer.clone(), "fifo", "a FIFO"),
        at(outer.join("inner"), "file", "a file of an inner export"),
        at(above.join("pseudo/deeper/export"), "file", "a file of the export in a pseudo directory"),
    ]
}

/// A server that exports all of them.
fn serve(scratch: &Scratch) -> Server {
    let above = scratch.dir.path();
    for path in ["export/inner", "export/directory", "pseudo/deeper/export"] {
        std::fs::create_dir_all(above.join(path)).unwrap();
    }
    for path in ["export/file", "export/inner/file", "pseudo/deeper/export/file"] {
        std::fs::write(above.join(path), path).unwrap();
    }
    std::os::unix::fs::symlink("file", scratch.at("link")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(rustix::fs::CWD, scratch.at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let exports = ["export", "export/inner", "pseudo/deeper/export"];
    let exports = exports.iter().map(|path| format!("{} {ANYBODY}", above.join(path).display())).collect();
    Server::start(Config { exports, ..scratch.config("") }).unwrap()
}

#[test]
fn getattr_and_readdir_return_the_same_attributes() {
    let scratch = Scratch::new();
    let server = serve(&scratch);
    for minor in 0..=2 {
        let mut client = AnyClient::new(&server, minor);
        let root = client.root();
        for Entry { directory, name, what } in entries(scratch.dir.path()) {
            let parts =
                directory.as_os_str().as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
            let at = parts.fold(root.clone(), |at, part| client.lookup(&at, part));
            let object = client.lookup(&at, name.as_bytes());
            let mut both = |requested: Bitmap4| {
                let found = client.readdir(&at, requested, 1 << 16);
                (client.getattr(&object, requested), found.map(|entries| entries[name.as_bytes()].clone()))
            };
            let all: Vec<u32> =
                (0..NUMBERS).filter(|number| both(Bitmap4::of(&[*number])).0.is_ok()).collect();
            assert!(all.len() > 80, "4.{minor}, {what}: only the write-only ones can't be requested");
            for number in 0..NUMBERS {
                let requested = Bitmap4::of(&[number]);
                if VOLATILE.contains(&number) {
                    wait_for("a filesystem's use to stay", || matches!(both(requested), (a, b) if a == b));
                    continue;
                }
                let (by_getattr, by_readdir) = both(requested);
                assert_eq!(by_getattr, by_readdir, "4.{minor}, {what}, attribute {number}");
            }
            let together = Bitmap4::of(&all);
            wait_for("all of them together", || matches!(both(together), (a, b) if a == b));
            let (found, _) = both(Bitmap4::of(&[attributes::FILEHANDLE]));
            let found: Vec<u8> = get::<Fattr4<'_>>(&found.unwrap()).attr_vals.0.to_vec();
            assert_eq!(found, encoded(&Opaque::<100>(&object)), "4.{minor}, {what}: its handle is GETFH's");
        }
    }
}

/// Clients keep the listings of directories, and what isn't in them, until the change attribute changes.
#[test]
fn the_directories_of_the_pseudo_filesystem_change_with_the_exports() {
    let scratch = Scratch::new();
    let above = scratch.dir.path();
    std::fs::create_dir(above.join("another")).unwrap();
    let line = |name: &str| format!("{} {ANYBODY}\n", above.join(name).display());
    let list = above.join("list");
    std::fs::write(&list, line("export")).unwrap();
    let config = Config { exports: vec![], export_files: vec![list.clone()], ..scratch.config("") };
    let server = Server::start(config.clone()).unwrap();
    let facts = Bitmap4::of(&[attributes::CHANGE, attributes::TIME_METADATA, attributes::TIME_MODIFY]);
    // The change attribute, ctime and mtime in nanoseconds.
    let stamps = |client: &mut AnyClient| {
        let parts = above.as_os_str().as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let root = client.root();
        let at = parts.fold(root, |at, part| client.lookup(&at, part));
        let found = client.getattr(&at, facts).unwrap();
        let values: Fattr4<'_> = get(&found);
        let mut from = Decoder::new(values.attr_vals.0);
        let change = from.u64().unwrap();
        let mut time = || from.u64().unwrap() * 1_000_000_000 + u64::from(from.u32().unwrap());
        (change, time(), time())
    };
    let mut client = AnyClient::new(&server, 2);
    let mut before = stamps(&mut client);
    for exports in [line("export") + &line("another"), line("export")] {
        assert_eq!(stamps(&mut client), before, "nothing has changed");
        std::fs::write(&list, exports).unwrap();
        server.reload().unwrap();
        let after = stamps(&mut client);
        assert!(after.0 > before.0 && after.1 > before.1 && after.2 > before.2, "{before:?}, {after:?}");
        before = after;
    }
    server.stop();
    let server = Server::start(config).unwrap();
    let after = stamps(&mut AnyClient::new(&server, 2));
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?}, {after:?}: another run of the server");
}

/// Each page continues where the last one ended: each entry is listed once, and the list ends.
#[test]
fn a_pseudo_directory_is_listed_in_pages() {
    let scratch = Scratch::new();
    let above = scratch.dir.path();
    let names: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    let exports = names.iter().enumerate().map(|(number, name)| {
        // Half of the names are exports, half are directories that lead to one.
        let path = above.join("many").join(name).join(if number % 2 == 0 { "" } else { "x" });
        std::fs::create_dir_all(&path).unwrap();
        format!("{} {ANYBODY}", path.display())
    });
    let exports = exports.collect();
    let server = Server::start(Config { exports, ..scratch.config("") }).unwrap();
    for minor in 0..=2 {
        let mut client = AnyClient::new(&server, minor);
        let root = client.root();
        let path = above.join("many");
        let parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let at = parts.fold(root, |at, part| client.lookup(&at, part));
        let requested = Bitmap4::of(&[attributes::TYPE, attributes::FILEHANDLE, attributes::FILEID]);
        let listed = client.readdir(&at, requested, 400).unwrap();
        assert_eq!(listed.keys().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>(), names);
        let handles: std::collections::BTreeSet<_> = listed.values().collect();
        assert_eq!(handles.len(), names.len(), "each has a handle of its own");
    }
}
