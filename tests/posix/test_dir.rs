//! The directories in which checks run, and the users as which they run.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::fs::{self as sys, Mode, OFlags, Stat};
use rustix::io::Result;
use rustix::process::{Gid, Uid};

/// A directory for checks.
#[derive(Debug, Clone)]
pub struct TestDir {
    dir: PathBuf,
    /// Whether it is on a local filesystem rather than an NFS mount.
    pub local: bool,
}

/// A user and its groups.
#[derive(Debug, Clone, Copy)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

/// A user.
pub const ANN: User = User { uid: 15_001, gid: 15_001, groups: &[] };
/// Another user.
pub const BEN: User = User { uid: 15_002, gid: 15_002, groups: &[] };
/// A user with [`CLUB`] as a supplementary group.
pub const CAT: User = User { uid: 15_003, gid: 15_003, groups: &[15_076, CLUB] };
/// A group.
pub const CLUB: u32 = 15_077;

/// Changes this thread's user, irrevocably.
pub fn become_user(user: User) {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups).expect("root is permitted");
    rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root is permitted");
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root is permitted");
}

/// Runs `call` as `user`, in a thread of its own.
pub fn user_context<R: Send>(user: User, call: impl FnOnce() -> R + Send) -> R {
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_user(user);
            call()
        });
        thread.join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Executes a program that was written a moment ago. Its descriptor may be open for a little longer: in a
/// process that another test forks, or on a mount while the kernel's last request for it is under way. Until
/// then execve(2) fails with ETXTBSY.
pub fn when_closed<T>(mut execute: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match execute() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

impl TestDir {
    /// Every user must be able to reach `dir`.
    pub fn new(dir: &Path, local: bool) -> Self {
        Self { dir: dir.to_owned(), local }
    }

    /// A new directory in it, accessible to every user.
    pub fn own(&self, name: &str) -> Self {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("root may");
        Self { dir, local: self.local }
    }

    /// Waits for a condition that holds at once on a local filesystem, and a little later on a mount.
    pub fn eventually(&self, mut condition: impl FnMut() -> bool) {
        let mut tries = 0;
        while !condition() {
            assert!(!self.local && tries < 6_000, "it doesn't become true");
            tries += 1;
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The path of a name in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// A new file with this mode and contents.
    pub fn file(&self, name: &str, mode: u32, contents: &[u8]) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, contents).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        chmod(&path, mode).expect("root may");
        path
    }

    /// A new file owned by a user.
    pub fn file_of(&self, name: &str, user: User, mode: u32) -> PathBuf {
        let path = self.file(name, mode, b"contents");
        chown_to(&path, user.uid, user.gid);
        // chown(2) has cleared the set-id bits.
        chmod(&path, mode).expect("root may");
        path
    }

    /// A new directory owned by a user.
    pub fn dir_of(&self, name: &str, user: User, mode: u32) -> PathBuf {
        let path = self.at(name);
        sys::mkdir(&path, Mode::from_raw_mode(0o700))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        chown_to(&path, user.uid, user.gid);
        chmod(&path, mode).expect("root may");
        path
    }
}

/// chown(2).
pub fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    sys::chown(path, uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

fn chown_to(path: &Path, uid: u32, gid: u32) {
    chown(path, Some(uid), Some(gid)).expect("root may");
}

/// chmod(2).
pub fn chmod(path: &Path, mode: u32) -> Result<()> {
    sys::chmod(path, Mode::from_raw_mode(mode))
}

/// open(2) without O_CREAT.
pub fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    sys::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// open(2) with O_CREAT.
pub fn create(path: &Path, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    sys::open(path, flags | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
}

/// mkdir(2).
pub fn mkdir(path: &Path, mode: u32) -> Result<()> {
    sys::mkdir(path, Mode::from_raw_mode(mode))
}

/// lstat(2) of an existing file.
pub fn lstat(path: &Path) -> Stat {
    sys::lstat(path).unwrap_or_else(|error| panic!("lstat of {}: {error}", path.display()))
}

/// The permission bits of an existing file.
pub fn mode(path: &Path) -> u32 {
    lstat(path).st_mode & 0o7777
}

/// Whether the name exists.
pub fn is_there(path: &Path) -> bool {
    sys::lstat(path).is_ok()
}

/// mtime and ctime, in ns.
pub fn changed(path: &Path) -> (i128, i128) {
    let stat = lstat(path);
    let ns = |seconds, nanoseconds| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    (ns(stat.st_mtime, stat.st_mtime_nsec as i64), ns(stat.st_ctime, stat.st_ctime_nsec as i64))
}

/// Waits until the kernel's coarse clock, which stamps files, has advanced.
pub fn tick() {
    std::thread::sleep(std::time::Duration::from_millis(12));
}
