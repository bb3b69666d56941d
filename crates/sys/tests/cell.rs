//! Attacks on cells by processes that were given a directory in one. They need root, and are skipped without.
//!
//! Each attack runs in a forked process, which may change its user, root and namespaces.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsPickFlags, MountFlags as LegacyFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick, mount, mount_bind, mount_change,
    mount_move, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{Gid, Uid, chdir, chroot, fchdir};
use rustix::thread::{UnshareFlags, set_thread_gid, set_thread_groups, set_thread_uid, unshare_unsafe};
use samehost_sys::cell::Cell;
use samehost_sys::mount::{CloneAttributes, MountFlags, clone_detached, set_flags};

/// An ordinary user.
const USER: u32 = 1000;
/// Another one.
const STRANGER: u32 = 2000;

const WRITABLE: CloneAttributes = CloneAttributes { read_only: false, no_devices: true, no_set_id: true };
const READ_ONLY: CloneAttributes = CloneAttributes { read_only: true, ..WRITABLE };

/// An exported directory, and a directory beside it.
struct Export {
    dir: tempfile::TempDir,
}

impl Export {
    /// `None` if this process may not make cells.
    fn new() -> Option<Export> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["export", "export/below", "export/below/deep", "outside"] {
            fs::create_dir(dir.path().join(name)).expect("makes");
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o777)).expect("chmod");
        }
        fs::write(dir.path().join("export/file"), b"data").expect("writes");
        fs::write(dir.path().join("outside/secret"), b"secret").expect("writes");
        let export = Export { dir };
        match Cell::new(export.open("export"), WRITABLE) {
            Ok(_) => Some(export),
            Err(error) => {
                assert!(matches!(error, Errno::PERM | Errno::NOSYS), "{error}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self, name: &str) -> OwnedFd {
        open(self.path(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opens")
    }

    fn cell(&self, attributes: CloneAttributes) -> Cell {
        Cell::new(self.open("export"), attributes).expect("a cell")
    }
}

/// Runs `attack` in a process of its own, and returns its result. It must not allocate.
fn in_child(attack: impl FnOnce() -> Result<()>) -> Result<()> {
    // SAFETY: the child makes system calls and ends; it uses no lock that another thread may hold.
    match unsafe { libc::fork() } {
        0 => {
            let code = match attack() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error(),
            };
            // SAFETY: ends the process.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
            match libc::WEXITSTATUS(status) {
                0 => Ok(()),
                code => Err(Errno::from_raw_os_error(code)),
            }
        }
    }
}

fn become_user(id: u32) -> Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(id))?;
    set_thread_uid(Uid::from_raw(id))
}

fn unshared(flags: UnshareFlags) -> Result<()> {
    // SAFETY: the table of descriptors isn't unshared.
    unsafe { unshare_unsafe(flags) }
}

/// Who attacks. All have the capabilities for mounting, in a namespace of their own.
#[derive(Clone, Copy, Debug)]
enum Attacker {
    /// An ordinary user with a user namespace and a mount namespace.
    User,
    /// Root of the initial user namespace, in another mount namespace.
    RootElsewhere,
    /// Root in this process's namespaces.
    Root,
}

const ATTACKERS: [Attacker; 3] = [Attacker::User, Attacker::RootElsewhere, Attacker::Root];

impl Attacker {
    fn become_it(self) -> Result<()> {
        match self {
            Attacker::User => {
                become_user(USER)?;
                unshared(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            }
            Attacker::RootElsewhere => {
                unshared(UnshareFlags::NEWNS)?;
                mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            }
            Attacker::Root => {}
        }
        Ok(())
    }
}

fn inode(file: impl AsFd) -> Result<(u64, u64)> {
    rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

/// `EXDEV` if the path leads to anything but `root`.
fn leads_to(from: impl AsFd, path: &std::ffi::CStr, root: (u64, u64)) -> Result<()> {
    let found = openat(from, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if inode(&found)? == root { Ok(()) } else { Err(Errno::XDEV) }
}

#[test]
fn dot_dot_ends_at_the_root_after_chroot_and_fchdir_too() {
    let Some(export) = Export::new() else { return };
    let cell = export.cell(WRITABLE);
    let root = inode(cell.root()).expect("stat");
    for attacker in ATTACKERS {
        let escape = in_child(|| {
            attacker.become_it()?;
            for path in [c".", c"..", c"../..", c"below/../..", c"../../../../export/.."] {
                if path != c"../../../../export/.." {
                    leads_to(cell.root(), path, root)?;
                } else if leads_to(cell.root(), path, root) != Err(Errno::NOENT) {
                    return Err(Errno::XDEV);
                }
            }
            // Paths are resolved from a directory below another root now.
            fchdir(cell.root())?;
            leads_to(CWD, c"../..", root)?;
            chdir(c"below/deep")?;
            leads_to(CWD, c"../../../..", root)?;
            // The classic escape from chroot(2): a root below, and a directory outside of that.
            if !matches!(attacker, Attacker::User) {
                chroot(c".")?;
                fchdir(cell.root())?;
                leads_to(CWD, c"../../../..", root)?;
                chroot(c".")?;
                leads_to(CWD, c"/../..", root)?;
            }
            Ok(())
        });
        assert_eq!(escape, Ok(()), "{attacker:?}");
    }
    // With a user namespace the user may call chroot(2), too.
    let escape = in_child(|| {
        become_user(USER)?;
        unshared(UnshareFlags::NEWUSER)?;
        fchdir(cell.root())?;
        chroot(c"below")?;
        leads_to(CWD, c"../../..", root)
    });
    assert_eq!(escape, Ok(()));
}

#[test]
fn a_client_that_resolves_strictly_follows_no_link() {
    let Some(export) = Export::new() else { return };
    symlink(export.path("outside/secret"), export.path("export/absolute")).expect("links");
    symlink("../outside/secret", export.path("export/relative")).expect("links");
    symlink("/proc/self/root/etc", export.path("export/magic")).expect("links");
    symlink(export.path("outside"), export.path("export/way")).expect("links");
    let cell = export.cell(WRITABLE);
    let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for name in ["absolute", "relative", "magic", "way/secret"] {
        let opened = openat2(cell.root(), name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), strict);
        assert_eq!(opened.err(), Some(Errno::LOOP), "{name}");
    }
    // Even without, the link that leads out of the directory by `..` finds nothing in the cell.
    let opened = openat(cell.root(), "relative", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    assert_eq!(opened.err(), Some(Errno::NOENT));
}

/// A path to the descriptor, without allocation.
fn proc_path<'a>(file: BorrowedFd<'_>, buffer: &'a mut [u8; 32]) -> &'a std::ffi::CStr {
    use std::io::Write as _;
    let _ = write!(&mut buffer[..31], "/proc/self/fd/{}", file.as_raw_fd());
    std::ffi::CStr::from_bytes_until_nul(buffer).unwrap_or(c"/proc/self/fd/-1")
}

/// The options that protect the server's host, each by itself.
const PROTECTIONS: [u64; 3] = [libc::MOUNT_ATTR_RDONLY, libc::MOUNT_ATTR_NOSUID, libc::MOUNT_ATTR_NODEV];

/// Clears options of a mount, and with `AT_RECURSIVE` those of the mounts below.
fn clear(directory: impl AsFd, path: &std::ffi::CStr, flags: i32, options: u64) -> Result<()> {
    let attr = libc::mount_attr { attr_set: 0, attr_clr: options, propagation: 0, userns_fd: 0 };
    // SAFETY: the path ends with NUL; `attr` has the size that is passed and outlives the call.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if returned == 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()) }
}

/// What a holder of `directory` may try with its mount. The kernel must answer each attempt with EINVAL (or
/// ENOENT, for mounts on a mount whose namespace has ended). The error is the number of another attempt, from
/// 1, and its errno, 0 if it succeeded.
fn mount_attacks(directory: BorrowedFd<'_>) -> std::result::Result<(), [u8; 2]> {
    let mut buffer = [0; 32];
    let path = proc_path(directory, &mut buffer);
    let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    // Root may do that from anywhere since Linux 6.17, and others could before 6.16. Without any of what
    // follows it is harmless.
    let _ = mount_change(path, MountPropagationFlags::SHARED);
    let attempts = [
        set_flags(directory, MountFlags { read_only: false, no_exec: false }),
        open_tree(directory, c"", tree | OpenTreeFlags::AT_EMPTY_PATH).map(drop),
        open_tree(directory, c"", tree | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE)
            .map(drop),
        open_tree(directory, c".", tree).map(drop),
        open_tree(CWD, path, tree).map(drop),
        move_mount(directory, c"", CWD, c"/mnt", empty),
        mount_bind(path, c"/mnt"),
        mount_move(path, c"/mnt"),
        mount_remount(path, LegacyFlags::BIND, c""),
        unmount(path, UnmountFlags::DETACH),
        // Mounting something in the cell, which other holders would see.
        mount(c"none", path, c"tmpfs", LegacyFlags::empty(), None),
        mount_bind(c"/mnt", path),
        // Each option by itself, by the descriptor and by a path.
        clear(directory, c"", libc::AT_EMPTY_PATH, PROTECTIONS[0]),
        clear(directory, c"", libc::AT_EMPTY_PATH, PROTECTIONS[1]),
        clear(directory, c"", libc::AT_EMPTY_PATH, PROTECTIONS[2]),
        clear(directory, c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, PROTECTIONS[1]),
        clear(directory, c".", 0, PROTECTIONS[1]),
        clear(CWD, path, 0, PROTECTIONS[1]),
    ];
    for (number, attempt) in attempts.into_iter().enumerate() {
        if !matches!(attempt, Err(Errno::INVAL | Errno::NOENT)) {
            let errno = attempt.err().map_or(0, Errno::raw_os_error);
            return Err([number as u8 + 1, errno as u8]);
        }
    }
    Ok(())
}

#[test]
fn no_holder_can_change_clone_move_or_cover_the_mount() {
    let Some(export) = Export::new() else { return };
    for gone in [false, true] {
        let cell = export.cell(READ_ONLY);
        let root = cell.root().try_clone().expect("dup");
        let below = openat(&root, c"below", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        // Once with the namespace that the server keeps, once after its end.
        let _kept = (!gone).then_some(cell);
        for attacker in ATTACKERS {
            for directory in [&root, &below] {
                let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
                let ran = in_child(|| {
                    attacker.become_it()?;
                    mount_attacks(directory.as_fd()).or_else(|failed| {
                        rustix::io::write(&writer, &failed)?;
                        Err(Errno::PERM)
                    })
                });
                drop(writer);
                let mut failed = [0_u8; 2];
                let _ = rustix::io::read(&reader, &mut failed);
                assert_eq!(ran, Ok(()), "{attacker:?}, gone {gone}: attempt and errno {failed:?}");
                let attempt = openat(directory, c"new", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
                assert_eq!(attempt.err(), Some(Errno::ROFS));
            }
        }
    }
}

/// A mount grant is attached where everybody sees it, and namespaces that are made afterwards have copies.
/// The options of those are locked (mount_namespaces(7)).
#[test]
fn users_cannot_clear_the_options_of_an_attached_clone() {
    let Some(export) = Export::new() else { return };
    fs::set_permissions(export.dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::set_permissions(export.path("export/file"), fs::Permissions::from_mode(0o666)).expect("chmod");
    let at = std::ffi::CString::new(export.path("outside").into_os_string().into_encoded_bytes());
    let (export, at) = (&export, &at.expect("no NUL"));
    let attacks = move || {
        unshared(UnshareFlags::NEWNS).expect("root");
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
        let clone = clone_detached(export.open("export"), READ_ONLY).expect("clones");
        move_mount(&clone, c"", CWD, at.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .expect("attaches");
        for option in PROTECTIONS {
            let cleared = |attacker: Attacker, by_descriptor: bool| {
                in_child(|| {
                    attacker.become_it()?;
                    if by_descriptor {
                        clear(clone.as_fd(), c"", libc::AT_EMPTY_PATH, option)
                    } else {
                        clear(CWD, at, 0, option)
                    }
                })
            };
            // Its own copy, whose options are locked, and that of the host.
            assert_eq!(cleared(Attacker::User, false), Err(Errno::PERM), "{option:#x}");
            assert_eq!(cleared(Attacker::User, true), Err(Errno::INVAL), "{option:#x}");
            // Root elsewhere clears those of its own copy only, and root of the host reaches the directory
            // itself.
            assert_eq!(cleared(Attacker::RootElsewhere, false), Ok(()), "{option:#x}");
            assert_eq!(cleared(Attacker::RootElsewhere, true), Err(Errno::INVAL), "{option:#x}");
            let attributes = rustix::fs::fstatvfs(&clone).expect("statvfs").f_flag;
            let protected = rustix::fs::StatVfsMountFlags::RDONLY
                | rustix::fs::StatVfsMountFlags::NOSUID
                | rustix::fs::StatVfsMountFlags::NODEV;
            assert!(attributes.contains(protected), "{attributes:?}");
        }
        let written = in_child(|| {
            Attacker::User.become_it()?;
            chdir(at.as_c_str())?;
            openat(CWD, c"file", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
        });
        assert_eq!(written, Err(Errno::ROFS));
        // Those were attacks: for the host's root each of them works.
        for option in PROTECTIONS {
            assert_eq!(in_child(|| clear(CWD, at, 0, option)), Ok(()));
        }
        unmount(at.as_c_str(), UnmountFlags::DETACH).expect("unmounts");
    };
    std::thread::scope(|scope| scope.spawn(attacks).join().expect("the test passes"));
}

/// The reason for cells, and the evidence that the attacks above are attacks.
#[test]
fn a_detached_clone_would_not_withstand_them() {
    let Some(export) = Export::new() else { return };
    let clone = clone_detached(export.open("export"), READ_ONLY).expect("clones");
    let cleared = in_child(|| {
        Attacker::User.become_it()?;
        set_flags(&clone, MountFlags { read_only: false, no_exec: false })?;
        openat(&clone, c"new", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU).map(drop)
    });
    // Kernels that refuse user namespaces to users, or that have been repaired, refuse this.
    assert!(matches!(cleared, Ok(()) | Err(Errno::PERM | Errno::INVAL | Errno::ROFS)), "{cleared:?}");
}

#[test]
fn the_filesystem_itself_cannot_be_reconfigured() {
    let Some(export) = Export::new() else { return };
    let cell = export.cell(READ_ONLY);
    let attempt = in_child(|| {
        Attacker::User.become_it()?;
        let filesystem = fspick(cell.root(), c"", FsPickFlags::FSPICK_EMPTY_PATH)?;
        fsconfig_set_flag(filesystem.as_fd(), c"rw")?;
        fsconfig_reconfigure(filesystem.as_fd())
    });
    assert_eq!(attempt, Err(Errno::PERM));
}

#[test]
fn links_and_renames_between_two_cells_of_one_filesystem_fail() {
    let Some(export) = Export::new() else { return };
    let (one, two) = (export.cell(WRITABLE), export.cell(WRITABLE));
    let (from, to) = (one.root(), two.root());
    assert_eq!(inode(from), inode(to), "one directory");
    let linked = rustix::fs::linkat(from, c"file", to, c"linked", AtFlags::empty());
    assert_eq!(linked, Err(Errno::XDEV));
    assert_eq!(rustix::fs::renameat(from, c"file", to, c"moved"), Err(Errno::XDEV));
    let file = openat(from, c"file", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opens");
    assert_eq!(rustix::fs::linkat(&file, c"", to, c"linked", AtFlags::EMPTY_PATH), Err(Errno::XDEV));
    // From a cell to the server's own view, too.
    let outside = export.open("outside");
    assert_eq!(rustix::fs::renameat(from, c"file", &outside, c"moved"), Err(Errno::XDEV));
    rustix::fs::linkat(from, c"file", from, c"linked", AtFlags::empty()).expect("within a cell");
}

#[test]
fn a_directory_that_is_moved_out_of_the_export_leads_nowhere_else() {
    let Some(export) = Export::new() else { return };
    let cell = export.cell(WRITABLE);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = openat(cell.root(), c"below", flags, Mode::empty()).expect("opens");
    fs::rename(export.path("export/below"), export.path("outside/below")).expect("renames");
    for attacker in ATTACKERS {
        let tried = in_child(|| {
            attacker.become_it()?;
            // What is below stays reachable, as by its NFS handles.
            openat(&below, c"deep", flags, Mode::empty())?;
            let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            if openat2(&below, c"..", flags, Mode::empty(), strict).err() != Some(Errno::XDEV) {
                return Err(Errno::BUSY);
            }
            fchdir(&below)?;
            // No parent that lies outside of the cell is ever shown.
            for way in [c"..", c"../..", c"../secret", c"deep/../../secret"] {
                if openat(CWD, way, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).err() != Some(Errno::NOENT)
                {
                    return Err(Errno::XDEV);
                }
            }
            Ok(())
        });
        assert_eq!(tried, Ok(()), "{attacker:?}");
    }
}

#[test]
fn a_descriptor_that_is_passed_on_gives_its_new_holder_only_its_own_rights() {
    let Some(export) = Export::new() else { return };
    for (name, mode) in [("private", 0o600), ("public", 0o644)] {
        fs::write(export.path("export").join(name), b"x").expect("writes");
        fs::set_permissions(export.path("export").join(name), fs::Permissions::from_mode(mode))
            .expect("chmod");
        chown(export.path("export").join(name), Some(USER), Some(USER)).expect("chown");
    }
    let cell = export.cell(WRITABLE);
    let opened = |user, name: &'static std::ffi::CStr, flags| {
        in_child(|| {
            become_user(user)?;
            openat(cell.root(), name, flags | OFlags::CLOEXEC, Mode::empty()).map(drop)
        })
    };
    assert_eq!(opened(USER, c"private", OFlags::RDWR), Ok(()));
    assert_eq!(opened(STRANGER, c"private", OFlags::RDONLY), Err(Errno::ACCESS));
    assert_eq!(opened(STRANGER, c"public", OFlags::RDONLY), Ok(()));
    assert_eq!(opened(STRANGER, c"public", OFlags::RDWR), Err(Errno::ACCESS));
    let removed = in_child(|| {
        become_user(STRANGER)?;
        unshared(UnshareFlags::NEWUSER)?;
        rustix::fs::chmodat(cell.root(), c"public", Mode::RWXU, AtFlags::empty())
    });
    assert_eq!(removed, Err(Errno::PERM), "capabilities of its own user namespace count for nothing");
}

#[test]
fn set_user_id_programs_and_devices_have_no_effect() {
    let Some(export) = Export::new() else { return };
    let id = ["/usr/bin/id", "/bin/id"].into_iter().find(|path| Path::new(path).exists()).expect("id(1)");
    // By another process: a child that another test forks meanwhile must not inherit a descriptor for
    // writing, which would make the program busy.
    let copied = std::process::Command::new("cp").arg(id).arg(export.path("export/id")).status();
    assert!(copied.expect("cp(1)").success());
    fs::set_permissions(export.path("export/id"), fs::Permissions::from_mode(0o6755)).expect("chmod");
    let device = export.path("export/null");
    let number = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, &device, rustix::fs::FileType::CharacterDevice, Mode::from(0o666), number)
        .expect("makes");
    let cell = export.cell(WRITABLE);
    let opened = openat(cell.root(), c"null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    assert_eq!(opened.err(), Some(Errno::ACCESS), "even for root");
    let program = openat(cell.root(), c"id", OFlags::RDONLY, Mode::empty()).expect("opens");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    command.arg(format!("/proc/self/fd/{}", program.as_raw_fd())).arg("-u");
    let ran = command.output().expect("setpriv(1)");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "1000", "{ran:?}");
}

#[test]
fn nothing_that_is_mounted_below_appears() {
    let Some(export) = Export::new() else { return };
    // In a namespace of its own, with the export on a shared mount: mounts below propagate to its peers.
    let export = &export;
    let shown = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<(u64, u64, u64)> {
            unshared(UnshareFlags::NEWNS)?;
            mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            mount_bind(export.path("export"), export.path("export"))?;
            mount_change(export.path("export"), MountPropagationFlags::SHARED)?;
            let over = |name: &str| mount(c"none", export.path(name), c"tmpfs", LegacyFlags::empty(), None);
            over("export/below")?;
            let cell = Cell::new(export.open("export"), WRITABLE)?;
            let detached = clone_detached(export.open("export"), WRITABLE)?;
            unmount(export.path("export/below"), UnmountFlags::DETACH)?;
            over("export/below")?;
            let below = |root: BorrowedFd<'_>| {
                openat(root, c"below", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).and_then(inode)
            };
            let here = fs::metadata(export.path("export/below")).expect("stat").dev();
            Ok((here, below(cell.root().as_fd())?.0, below(detached.as_fd())?.0))
        });
        thread.join().expect("ran")
    });
    let (mounted, in_cell, in_clone) = shown.expect("mounts");
    let plain = fs::metadata(export.path("export/below")).expect("stat").dev();
    assert_ne!(mounted, plain);
    assert_eq!((in_cell, in_clone), (plain, plain));
}

#[test]
fn a_cell_becomes_read_only_for_those_who_are_in_it() {
    let Some(export) = Export::new() else { return };
    let cell = export.cell(WRITABLE);
    let held = cell.root().try_clone().expect("dup");
    let below = openat(&held, c"below", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("opens");
    let write = |directory: &OwnedFd| {
        openat(directory, c"w", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU)
    };
    let open_file = write(&held).expect("still writable");
    let read_only = MountFlags { read_only: true, no_exec: false };
    assert_eq!(cell.restrict(read_only), Err(Errno::BUSY));
    write(&below).expect("nothing has changed");
    drop(open_file);
    // Children of other tests have inherited the descriptor until they end.
    let started = std::time::Instant::now();
    while let Err(error) = cell.restrict(read_only) {
        assert_eq!(error, Errno::BUSY);
        assert!(started.elapsed().as_secs() < 60, "still busy");
        std::thread::yield_now();
    }
    for directory in [&held, &below] {
        assert_eq!(write(directory).err(), Some(Errno::ROFS));
        assert_eq!(rustix::fs::mkdirat(directory, c"d", Mode::RWXU), Err(Errno::ROFS));
    }
    assert_eq!(cell.restrict(MountFlags { read_only: false, no_exec: true }), Ok(()));
    assert_eq!(write(&held).err(), Some(Errno::ROFS), "nothing is cleared");
    drop(cell);
    assert_eq!(write(&held).err(), Some(Errno::ROFS));
    let mut data = String::new();
    std::io::Read::read_to_string(
        &mut File::from(
            openat(&held, c"file", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("opens"),
        ),
        &mut data,
    )
    .expect("reads");
    assert_eq!(data, "data");
}
