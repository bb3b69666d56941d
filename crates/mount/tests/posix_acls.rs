//! POSIX access control lists through a mount, by getfacl(1) and setfacl(1): as in a local directory, over
//! each data path.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use client::{Operation, PosixAcl, SetAcl, Status, Version};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use samehost_mount::MountOptions;
use support::{Mounted, Served, Transport, shell_as};

const USER: u32 = 1000;
const OTHER_USER: u32 = 4321;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The data paths: a server with trees or without, a version, and a transport.
const DATA_PATHS: [(&str, bool, Version, Transport); 7] = [
    ("wire, 3", true, Version::V3, Transport::Wire),
    ("wire, 4.1", true, Version::V4_1, Transport::Wire),
    ("wire, 4.2", true, Version::V4_2, Transport::Wire),
    ("files, 3", false, Version::V3, Transport::Passed),
    ("files, 4.2", false, Version::V4_2, Transport::Passed),
    ("tree", true, Version::V4_2, Transport::Passed),
    ("tree, served", true, Version::V3, Transport::Served),
];

/// Steps that print the same over each data path and in a local directory. The umask is 0, because by NFSv3
/// it applies under a default list, too.
const STEPS: [(&str, &str); 12] = [
    ("no list", "touch f; chmod 640 f; getfacl -cn f; getfattr -m - f; ls -l f | cut -c1-11"),
    ("set", "setfacl -m u:1234:rw,g:77:r f; getfacl -cn f; stat -c %a f; ls -l f | cut -c1-11"),
    ("listed", "getfattr -m - f"),
    ("remove an entry", "setfacl -x u:1234 f; getfacl -cn f; stat -c %a f"),
    ("remove the list", "setfacl -b f; getfacl -cn f; getfattr -m - f; ls -l f | cut -c1-11"),
    ("a list that is a mode", "setfacl --set u::rwx,g::r-x,o::r-x f; getfacl -cn f; stat -c %a f"),
    (
        "the mode at once",
        "chmod 755 f; setfacl -m g::rwx f; stat -c %a f; setfacl -m u:5:r,o::- f; stat -c %a f",
    ),
    (
        "directories",
        "mkdir d; setfacl -m u:1234:rwx,d:u:1234:rwx,d:g:77:rx,d:o::- d; getfacl -cn d; stat -c %a d; \
         getfattr -m - d; ls -ld d | cut -c1-11",
    ),
    ("new entries", "mkdir d/s; touch d/f; chmod 770 d/s d/f; getfacl -cn d/s d/f; stat -c %a d/s d/f"),
    (
        "only a default list",
        "setfacl -b d; setfacl -d -m g:5:rx d; getfacl -cn d; \
         setfacl -k d; getfacl -cn d",
    ),
    (
        "copies",
        "mkdir x; setfacl -m u:5:rx,d:u:9:rwx x; touch a; setfacl -m u:5:rwx,g:6:rx,o::- a; cp -a a b; \
         cp -a x y; getfacl -cn b y; tar --acls -cf t a x; mkdir u; tar --acls -xf t -C u; \
         getfacl -cn u/a u/x",
    ),
    (
        "what isn't possible",
        "mkfifo p; ln -s a l; getfacl -cn p; setfacl -m d:u:5:r a; \
         setfattr -n system.posix_acl_access -v 0x0200000001000f00ffffffff a; getfacl -cn a",
    ),
];

/// With permissions that the mask takes away, which NFSv4 can't express.
const MASK: &str = "touch m; chmod 600 m; setfacl -m u:1234:rw,m::r m; getfacl -cn m; chmod 660 m; \
                    getfacl -cn m; mkdir n; setfacl -d -m u:7:rw,m::r n; mkdir n/s; getfacl -cn n n/s";

fn said(directory: &Path, script: &str) -> String {
    let script = format!("exec 2>&1; export LC_ALL=C; umask 0; cd {}; {script}", directory.display());
    shell_as(0, 0, "", &script).0
}

fn for_each_data_path(test: impl Fn(&str, &Served, &Mounted)) {
    for (name, has_tree, version, transport) in DATA_PATHS {
        let served = if has_tree { Served::start() } else { Served::without_tree() };
        let mounted = served.mount_by(version, transport, MountOptions::default());
        test(name, &served, &mounted);
    }
}

#[test]
fn lists_are_those_of_a_local_directory() {
    for_each_data_path(|name, served, mounted| {
        let plain = tempfile::tempdir_in(served.export()).unwrap();
        fs::create_dir(served.export().join("mounted")).unwrap();
        let at = mounted.path("mounted");
        for (step, script) in STEPS {
            assert_eq!(said(&at, script), said(plain.path(), script), "{name}: {step}");
        }
        let masked = (said(&at, MASK), said(plain.path(), MASK));
        if !name.starts_with("tree") && !name.ends_with('3') {
            // The permissions that are effective, and no others.
            assert!(masked.0.contains("user:1234:r--\n"), "{name}: {}", masked.0);
            assert!(!masked.0.contains("effective"), "{name}: {}", masked.0);
        } else {
            assert_eq!(masked.0, masked.1, "{name}");
        }
        // What the server's filesystem has.
        let real = said(&served.export().join("mounted"), "getfacl -cn f b y u/a u/x d/s");
        assert_eq!(said(&at, "getfacl -cn f b y u/a u/x d/s"), real, "{name}");
    });
}

/// The server lets a user read whom the list names, and only the owner change it.
#[test]
fn the_server_decides_by_the_list() {
    for_each_data_path(|name, _, mounted| {
        let at = mounted.root().display().to_string();
        let script =
            "echo secret >f; chmod 600 f; setfacl -m u:1000:r f; mkdir d; echo inside >d/f; chmod 755 d";
        assert_eq!(said(mounted.root(), script), "", "{name}");
        let reads = |uid, file: &str| shell_as(uid, uid, "", &format!("cat {at}/{file}")).1;
        assert!(reads(USER, "f") && !reads(OTHER_USER, "f"), "{name}");
        let (why, done) = shell_as(USER, USER, "", &format!("setfacl -m u:4321:r {at}/f"));
        assert!(!done && why.contains("not permitted"), "{name}: {why}");
        assert_eq!(said(mounted.root(), "setfacl -b f"), "", "{name}");
        assert!(!reads(USER, "f"), "{name}: without the list");
        // Names that the kernel has cached are no way around a list.
        (0..3).for_each(|_| assert!(reads(OTHER_USER, "d/f"), "{name}"));
        assert_eq!(said(mounted.root(), "setfacl -m u:4321:- d; stat -c %a d"), "755\n", "{name}");
        assert!(!reads(OTHER_USER, "d/f") && reads(USER, "d/f"), "{name}");
    });
}

fn list(entries: usize) -> PosixAcl {
    let users = (0..entries as u32 - 4).map(|uid| (10_000 + uid, 4)).collect();
    PosixAcl { users, mask: Some(4), ..PosixAcl::of_mode(0o640) }
}

#[test]
fn what_is_no_list_or_too_long_is_refused() {
    for_each_data_path(|name, served, mounted| {
        let (file, plain) = (mounted.path("f"), served.export().join("plain"));
        fs::write(&file, b"").unwrap();
        fs::write(&plain, b"").unwrap();
        let set_on =
            |file: &Path, value: &[u8]| rustix::fs::setxattr(file, ACCESS, value, XattrFlags::empty());
        let set = |value: &[u8]| set_on(&file, value);
        let session = mounted.mount.session();
        let run = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let before = session.counters().calls(Operation::Setacl);
        let valid = list(10).to_bytes();
        let mut unmasked = list(4);
        (unmasked.users, unmasked.mask) = (vec![(1, 4)], None);
        let garbage = [&b"garbage"[..], &[3, 0, 0, 0], &valid[..valid.len() - 1], &unmasked.to_bytes()];
        for value in garbage {
            let refusal = set_on(&plain, value);
            // Of another version, `EOPNOTSUPP`.
            assert!(matches!(refusal, Err(Errno::INVAL | Errno::OPNOTSUPP)), "{refusal:?}");
            assert_eq!(set(value), refusal, "{name}: {value:?}");
        }
        let handle = run.block_on(session.walk(b"f", client::Follow::No)).unwrap().handle;
        let refused = run.block_on(session.set_acl(&handle, &SetAcl::Access(unmasked)));
        assert_eq!(refused.unwrap_err().status(), Some(Status::Invalid), "{name}");
        // The kernel's FUSE has room for a page.
        assert_eq!(set(&list(512).to_bytes()), Err(Errno::TOOBIG), "{name}");
        let too_long = if name.ends_with('3') && !name.contains("tree") { 1025 } else { 8192 };
        let refused = run.block_on(session.set_acl(&handle, &SetAcl::Access(list(too_long))));
        assert_eq!(refused.unwrap_err().status(), Some(Status::AttributeTooBig), "{name}");
        assert_eq!(session.counters().calls(Operation::Setacl), before, "{name}: nothing was sent");
        assert_eq!(set(&list(511).to_bytes()), Ok(()), "{name}");
        let mut value = vec![0; 8192];
        let length = rustix::fs::getxattr(&file, ACCESS, &mut value[..]).unwrap();
        assert_eq!(PosixAcl::from_bytes(&value[..length]), Some(list(511)), "{name}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "{name}");
    });
}

/// Even on a slow machine nothing expires during the test.
fn without_expiry() -> MountOptions {
    let mut options = MountOptions::default();
    for time in [&mut options.attributes.file_min, &mut options.attributes.directory_min] {
        *time = Duration::from_secs(3600);
    }
    options
}

/// A directory `d` in the export with so many files, of which one has a list.
fn make_files(served: &Served, count: usize) {
    let directory = served.export().join("d");
    fs::create_dir(&directory).unwrap();
    (0..count).for_each(|n| fs::write(directory.join(format!("file-{n}")), b"").unwrap());
    assert_eq!(said(&directory, "setfacl -m u:7:r file-7"), "");
}

/// The calls of every kind.
fn all_calls(mounted: &Mounted) -> u64 {
    let counters = mounted.mount.session().counters();
    Operation::ALL.iter().map(|operation| counters.calls(*operation)).sum()
}

/// By NFSv4 the listing brings the lists, and the replies for all these files fit into one page.
#[test]
fn a_listing_with_lists_costs_the_same_calls_for_more_files() {
    const PROGRAMS: [&str; 3] = [
        "ls -l d | grep -c '+'",
        // Doesn't ask for the directory's lists first.
        "cd d && ls -l | grep -c '+'",
        "getfacl -RcnE d | grep -c user:7:",
    ];
    for version in [Version::V4_1, Version::V4_2] {
        let [few, many] = [20, 300].map(|count| {
            let served = Served::start();
            make_files(&served, count);
            PROGRAMS.map(|program| {
                let mounted = served.mount_by(version, Transport::Wire, without_expiry());
                let before = all_calls(&mounted);
                assert_eq!(said(mounted.root(), program), "1\n", "{version:?}: {program}");
                all_calls(&mounted) - before
            })
        });
        println!("{version:?}: {few:?} calls");
        assert_eq!(few, many, "{version:?}");
    }
}

/// By NFSv3 nothing but GETACL tells the lists: N files cost N calls, made at once in groups. A second
/// listing costs none by any version.
#[test]
fn a_second_listing_costs_no_calls() {
    const FILES: usize = 300;
    for (version, calls_of_first) in [(Version::V3, FILES as u64), (Version::V4_2, 0)] {
        let served = Served::start();
        make_files(&served, FILES);
        let mounted = served.mount_by(version, Transport::Wire, without_expiry());
        let calls = || mounted.mount.session().counters().calls(Operation::Getacl);
        let ls = || said(mounted.root(), "ls -l d | grep -c '+'");
        assert_eq!(ls(), "1\n", "{version:?}");
        let first = calls();
        assert!((calls_of_first..calls_of_first + 10).contains(&first), "{version:?}: {first}");
        assert_eq!(ls(), "1\n", "{version:?}");
        assert!(calls() <= first + 1, "{version:?}: {} after {first}", calls());

        let options = MountOptions { acl: false, ..without_expiry() };
        let without = served.mount_by(version, Transport::Wire, options);
        assert_eq!(
            said(without.root(), "ls -l d | grep -c '+'; setfacl -m u:7:r d/file-7 || echo failed"),
            { "0\nsetfacl: d/file-7: Operation not supported\nfailed\n" }
        );
        assert_eq!(without.mount.session().counters().calls(Operation::Getacl), 0, "{version:?}");
    }
}

/// GNU ls of coreutils 9.6 and later asks for the names of all extended attributes of each file, and then for
/// the lists that are among them.
#[test]
fn names_of_extended_attributes_are_asked_for_once() {
    const FILES: usize = 40;
    let served = Served::start();
    make_files(&served, FILES);
    fs::write(served.export().join("d/file-9"), b"").unwrap();
    let mounted = served.mount_by(Version::V4_2, Transport::Wire, without_expiry());
    let calls = |operation| mounted.mount.session().counters().calls(operation);
    let list = || said(mounted.root(), "cd d && getfattr -m - * | grep -v ^# | grep . | sort | uniq -c");
    assert_eq!(list(), "      1 system.posix_acl_access\n");
    let first = calls(Operation::Listxattrs);
    assert_eq!(first, FILES as u64);
    assert_eq!(list(), "      1 system.posix_acl_access\n");
    assert_eq!(calls(Operation::Listxattrs), first);
    let changed = "cd d && setfattr -n user.a -v 1 file-9 && getfattr -m - file-9 && \
                   setfattr -x user.a file-9 && getfattr -m - file-9";
    assert_eq!(said(mounted.root(), changed), "# file: file-9\nuser.a\n\n");
    assert_eq!(calls(Operation::Listxattrs), first + 2, "after each change");
}

/// A listing whose reader doesn't ask for lists is without them.
#[test]
fn a_listing_without_demand_has_no_lists() {
    let served = Served::start();
    make_files(&served, 30);
    let mounted = served.mount_by(Version::V4_2, Transport::Wire, without_expiry());
    let calls = || mounted.mount.session().counters().calls(Operation::Getacl);
    assert_eq!(said(mounted.root(), "find d -type f -size 0 | wc -l"), "30\n");
    let before = calls();
    assert!(said(mounted.root(), "getfacl -cnE d/file-7").contains("user:7:r"));
    assert_eq!(calls(), before + 1);
}

/// Changes by others show when the attributes expire.
#[test]
fn a_foreign_change_shows_with_the_attributes() {
    let served = Served::start();
    let file = served.export().join("f");
    fs::write(&file, b"").unwrap();
    for (name, _, version, transport) in DATA_PATHS {
        rustix::fs::setxattr(&file, ACCESS, &list(10).to_bytes(), XattrFlags::empty()).unwrap();
        let mut options = MountOptions::default();
        for time in [&mut options.attributes.file_min, &mut options.attributes.file_max] {
            *time = Duration::from_millis(50);
        }
        let mounted = served.mount_by(version, transport, options);
        let shown = || said(mounted.root(), "getfacl -cn f");
        assert!(shown().contains("user:10000:r--"), "{name}: {}", shown());
        rustix::fs::removexattr(&file, ACCESS).unwrap();
        support::wait_for("the list to be gone", || !shown().contains("user:10000"));
        assert_eq!(rustix::fs::getxattr(mounted.path("f"), DEFAULT, &mut [0; 8]), Err(Errno::NODATA));
    }
}
