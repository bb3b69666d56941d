//! Where checks are run, and as whom.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, Mode, OFlags, Stat};
use rustix::io::Result;
use rustix::process::{Gid, Uid};

/// A directory to work in.
#[derive(Debug, Clone)]
pub struct Place {
    dir: PathBuf,
    /// A local filesystem, and no NFS client's.
    pub local: bool,
}

/// A user and its groups.
#[derive(Debug, Clone, Copy)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

/// Somebody.
pub const ANN: User = User { uid: 15_001, gid: 15_001, groups: &[] };
/// Somebody else.
pub const BEN: User = User { uid: 15_002, gid: 15_002, groups: &[] };
/// Of the group 15077, but not in the first place.
pub const CAT: User = User { uid: 15_003, gid: 15_003, groups: &[15_076, CLUB] };
/// The group.
pub const CLUB: u32 = 15_077;

/// Changes this thread's user; only to another one with nothing in between.
pub fn become_user(user: User) {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups).expect("root may");
    rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root may");
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
}

/// Runs `what` as `user`, in a thread of its own.
pub fn user_context<R: Send>(user: User, what: impl FnOnce() -> R + Send) -> R {
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_user(user);
            what()
        });
        thread.join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Place {
    /// `dir` must be open to everybody on the way there.
    pub fn new(dir: &Path, local: bool) -> Self {
        Self { dir: dir.to_owned(), local }
    }

    /// A new directory in it, for everybody.
    pub fn own(&self, name: &str) -> Self {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("root may");
        Self { dir, local: self.local }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// A name in it.
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

    /// A new file of a user's.
    pub fn file_of(&self, name: &str, user: User, mode: u32) -> PathBuf {
        let path = self.file(name, mode, b"contents");
        give(&path, user.uid, user.gid);
        // Giving it away took set-id bits.
        chmod(&path, mode).expect("root may");
        path
    }

    /// A new directory of a user's.
    pub fn dir_of(&self, name: &str, user: User, mode: u32) -> PathBuf {
        let path = self.at(name);
        sys::mkdir(&path, Mode::from_raw_mode(0o700))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        give(&path, user.uid, user.gid);
        chmod(&path, mode).expect("root may");
        path
    }
}

/// chown(2).
pub fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    sys::chown(path, uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

fn give(path: &Path, uid: u32, gid: u32) {
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

/// lstat(2) of something that is there.
pub fn look(path: &Path) -> Stat {
    sys::lstat(path).unwrap_or_else(|error| panic!("lstat of {}: {error}", path.display()))
}

/// The permission bits of something that is there.
pub fn mode(path: &Path) -> u32 {
    look(path).st_mode & 0o7777
}

/// Whether it is there.
pub fn is_there(path: &Path) -> bool {
    sys::lstat(path).is_ok()
}

/// When its data and when its attributes were last changed, in ns.
pub fn changed(path: &Path) -> (i128, i128) {
    let stat = look(path);
    let ns = |seconds, nanoseconds| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    (ns(stat.st_mtime, stat.st_mtime_nsec as i64), ns(stat.st_ctime, stat.st_ctime_nsec as i64))
}

/// Waits until a clock of the kernel's that stamps files has moved on.
pub fn tick() {
    std::thread::sleep(std::time::Duration::from_millis(12));
}
