//! The state directory, its lock, and in it the key that seals file handles.
//!
//! One server uses a state directory. Two would give each other's clients' locks away: each ends records that
//! the other one has made, and a server that still drains may record and release what its successor has read.
//! So whatever reads or writes the directory needs a [`StateDirectory`], which holds its lock. The kernel
//! releases the lock when the last reference is gone, also when the process is killed.
//!
//! A user with the key can forge handles of files that aren't exported, and a user with write permission on
//! the directory can replace the key. So a directory that other users can write to, and a key that they can
//! read, are errors. Permission to list the directory is none: its files have modes of their own, and systemd
//! creates StateDirectory= with mode 0755.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, OFlags};
use sys::locks::FileLock;

/// The file with the key: 16 random bytes, readable by the server's user only.
const KEY_FILE: &str = "handle-key";
/// The file whose lock the server has that uses the directory. Its content names that server.
const LOCK_FILE: &str = "lock";
/// More bytes than a holder's name has.
const MAX_HOLDER: u64 = 256;
/// Mode bits by which other users than the owner can write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bits by which other users than the owner can do anything.
const OPEN_TO_OTHERS: u32 = 0o077;

/// A file or directory of the state directory that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct StateDirError {
    /// The file or directory.
    pub path: PathBuf,
    /// Why it can't be used.
    pub source: io::Error,
}

impl StateDirError {
    fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// Why a server can't have a state directory.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Another server has it.
    #[error("{} is used by {holder}", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The server that has it.
        holder: DirectoryHolder,
    },
    /// It can't be used by anybody.
    #[error(transparent)]
    Unusable(#[from] StateDirError),
}

/// The server that has a state directory, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectoryHolder(Option<(u32, String)>);

impl DirectoryHolder {
    /// This process's id and host name.
    fn own() -> (u32, String) {
        (std::process::id(), rustix::system::uname().nodename().to_string_lossy().into_owned())
    }

    /// The holder that a lock's file names. It is empty for a moment while a server takes the lock.
    fn of(text: &str) -> Self {
        let named = text.lines().next().and_then(|line| line.split_once(' '));
        Self(named.and_then(|(pid, host)| Some((pid.parse().ok()?, host.to_owned()))))
    }

    /// Its process, if that has this one's host name: in a container it would have another id here.
    #[must_use]
    pub fn local_pid(&self) -> Option<u32> {
        self.0.as_ref().filter(|(_, host)| *host == Self::own().1).map(|(pid, _)| *pid)
    }
}

impl fmt::Display for DirectoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.local_pid(), &self.0) {
            (Some(pid), _) => write!(f, "process {pid}"),
            (None, Some((pid, host))) => write!(f, "process {pid} on {}", host.escape_debug()),
            (None, None) => f.write_str("another process"),
        }
    }
}

/// A state directory that no other server uses while this value exists.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Its open file description has the lock.
    _lock: File,
}

impl StateDirectory {
    /// Takes the lock without waiting. Creates the directory if it doesn't exist.
    ///
    /// # Errors
    /// `InUse`; `Unusable` as for [`create`], and if the lock's file can't be opened or locked.
    pub fn acquire(directory: &Path) -> Result<Self, AcquireError> {
        create(directory)?;
        let path = directory.join(LOCK_FILE);
        let failed = |error: io::Error| StateDirError::new(&path, error);
        let mut file = open_lock(&path).map_err(failed)?;
        let whole = FileLock { first: 0, last: u64::MAX, exclusive: true };
        if sys::locks::lock(&file, &whole).map_err(|error| failed(error.into()))? {
            // Only messages need the name: without room on the disk there is none.
            let (pid, host) = DirectoryHolder::own();
            let _ = file.set_len(0).and_then(|()| file.write_all(format!("{pid} {host}\n").as_bytes()));
            return Ok(Self { path: directory.to_owned(), _lock: file });
        }
        let mut text = String::new();
        let _ = file.take(MAX_HOLDER).read_to_string(&mut text);
        Err(AcquireError::InUse { path: directory.to_owned(), holder: DirectoryHolder::of(&text) })
    }

    /// Finds what [`StateDirectory::acquire`] and [`StateDirectory::handle_key`] would refuse, and changes
    /// nothing. That another server has the directory is no obstacle.
    ///
    /// # Errors
    /// Theirs.
    pub fn check(directory: &Path) -> Result<(), StateDirError> {
        if !check_missing(directory)? {
            return Ok(());
        }
        check_directory(directory)?;
        let at =
            |path: &Path, checked: io::Result<()>| checked.map_err(|error| StateDirError::new(path, error));
        // What isn't there will be created.
        let can_create = || may(directory, Access::WRITE_OK | Access::EXEC_OK);
        let lock = directory.join(LOCK_FILE);
        let lockable = match fs::symlink_metadata(&lock) {
            Ok(found) => check_lock(&found).and_then(|()| may(&lock, Access::READ_OK | Access::WRITE_OK)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => can_create(),
            Err(error) => Err(error),
        };
        at(&lock, lockable)?;
        let key = directory.join(KEY_FILE);
        let usable = match read(&key) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => can_create(),
            other => other.map(drop),
        };
        at(&key, usable)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the key, or creates it. A created key is on stable storage.
    ///
    /// # Errors
    /// If the key can't be read or written, has another length, or can be read by other users.
    pub fn handle_key(&self) -> Result<[u8; 16], StateDirError> {
        let path = self.path.join(KEY_FILE);
        let failed = |error: io::Error| StateDirError::new(&path, error);
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(failed),
        }
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| failed(error.into()))?;
        let fresh = self.path.join(format!(".{KEY_FILE}.new"));
        // A power failure may have left one.
        let _ = fs::remove_file(&fresh);
        let written = write(&fresh, &key).and_then(|()| fs::rename(&fresh, &path));
        written.and_then(|()| sync(&self.path)).map_err(failed)?;
        read(&path).map_err(failed)
    }
}

/// Opens the lock's file, and creates it if it doesn't exist. Only the server's user may open it: who can
/// write to it can hold the lock.
fn open_lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags.bits() as i32);
    match fs::symlink_metadata(path) {
        // Opening a device may have side effects.
        Ok(found) => check_lock(&found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = options.open(path)?;
    check_lock(&file.metadata()?)?;
    Ok(file)
}

/// Checks the lock's file.
fn check_lock(found: &Metadata) -> io::Result<()> {
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    check_owner(found)?;
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & 0o7777;
        return Err(refused(format!(
            "others can write to it (mode {mode:04o}), and hold its lock: chmod 600"
        )));
    }
    Ok(())
}

/// Whether this process may do that with a file.
fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(rustix::fs::accessat(rustix::fs::CWD, path, access, AtFlags::EACCESS)?)
}

/// Creates a directory that only the server's user may enter, and its missing parents, durably; or checks the
/// existing one.
///
/// # Errors
/// If it can't be created, isn't a directory, or other users can write to it.
pub fn create(directory: &Path) -> Result<(), StateDirError> {
    create_missing(directory)?;
    check_directory(directory)
}

/// Checks a directory that exists.
fn check_directory(directory: &Path) -> Result<(), StateDirError> {
    let failed = |error: io::Error| StateDirError::new(directory, error);
    let found = fs::metadata(directory).map_err(failed)?;
    if !found.is_dir() {
        return Err(failed(refused("it is not a directory; move away what is there".to_owned())));
    }
    check_owner(&found).map_err(failed)?;
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & 0o7777;
        return Err(failed(refused(format!(
            "others can write to it (mode {mode:04o}) and replace the key that seals file handles: chmod go-w"
        ))));
    }
    Ok(())
}

/// Whether something is at the path. A link that leads nowhere is an error: no directory can be made there.
fn exists(directory: &Path) -> Result<bool, StateDirError> {
    let failed = |error: io::Error| StateDirError::new(directory, error);
    match fs::metadata(directory) {
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if let Ok(target) = fs::read_link(directory) {
        let target = target.display();
        return Err(failed(refused(format!(
            "it is a symbolic link to {target}, which isn't there; make that directory, or remove the link"
        ))));
    }
    Ok(false)
}

/// The directory in which this path's last name is.
fn above(directory: &Path) -> &Path {
    match directory.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    }
}

/// Creates the missing directories of a path, each on stable storage before the next.
fn create_missing(directory: &Path) -> Result<(), StateDirError> {
    if exists(directory)? {
        return Ok(());
    }
    let failed = |error: io::Error| StateDirError::new(directory, error);
    let above = above(directory);
    create_missing(above)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        // Another server was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(failed)?,
    }
    sync(above).map_err(failed)
}

/// Checks whether [`create_missing`] can succeed; whether the directory exists already.
fn check_missing(directory: &Path) -> Result<bool, StateDirError> {
    if exists(directory)? {
        return Ok(true);
    }
    let above = above(directory);
    if check_missing(above)? {
        let can_create = may(above, Access::WRITE_OK | Access::EXEC_OK);
        can_create.map_err(|error| StateDirError::new(directory, error))?;
    }
    Ok(false)
}

/// Writes a directory's entries to stable storage.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Opens a regular file for reading, and fails for any other: it doesn't follow symbolic links, and doesn't
/// wait for a FIFO.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may have side effects.
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_file() {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
    }
    Err(refused("it is not a regular file".to_owned()))
}

/// Checks that a file or directory belongs to the server's user or to root: an owner can always change it.
fn check_owner(of: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    // An owner that isn't mapped into this user namespace is shown as the overflow uid.
    let known = [0, own, sys::overflow_uid()];
    if known.contains(&of.uid()) {
        return Ok(());
    }
    Err(refused(format!("it belongs to uid {}, who can replace what is in it: chown {own}", of.uid())))
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn read(path: &Path) -> io::Result<[u8; 16]> {
    let file = open_regular(path)?;
    let found = file.metadata()?;
    check_owner(&found)?;
    if found.mode() & OPEN_TO_OTHERS != 0 {
        return Err(refused(format!(
            "others can read it (mode {:04o}), and who has it can make handles of any file: remove it, and \
             clients mount anew; or, if nobody can have read it, chmod 600",
            found.mode() & 0o7777
        )));
    }
    let mut bytes = Vec::new();
    file.take(17).read_to_end(&mut bytes)?;
    bytes
        .try_into()
        .map_err(|_| refused("not a key of 16 bytes; remove it and every client mounts anew".to_owned()))
}

fn write(path: &Path, key: &[u8; 16]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_stable_and_private() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a/b");
        let key = handle_key(&directory).unwrap();
        assert_eq!(handle_key(&directory).unwrap(), key);
        assert_ne!(handle_key(&scratch.path().join("c")).unwrap(), key);
        // What a power failure has left.
        fs::remove_file(directory.join(KEY_FILE)).unwrap();
        fs::write(directory.join(".handle-key.new"), "half").unwrap();
        let key = handle_key(&directory).unwrap();
        assert_eq!(handle_key(&directory).unwrap(), key);
        let mode = fs::metadata(directory.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|at| at.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [KEY_FILE, LOCK_FILE]);
    }

    #[test]
    fn one_server_has_a_state_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let first = StateDirectory::acquire(scratch.path()).unwrap();
        // Several servers can run in one process.
        let second = StateDirectory::acquire(scratch.path()).unwrap_err();
        let said = format!("{} is used by process {}", scratch.path().display(), std::process::id());
        assert_eq!(second.to_string(), said);
        drop(first);
        StateDirectory::acquire(scratch.path()).unwrap();
        // Another host name's: a container with this directory.
        assert_eq!(DirectoryHolder::of("7 elsewhere\n").to_string(), "process 7 on elsewhere");
        for unknown in ["", "x y", "7"] {
            assert_eq!(DirectoryHolder::of(unknown).to_string(), "another process");
        }
    }

    #[test]
    fn a_lock_that_others_could_hold_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let lock = scratch.path().join(LOCK_FILE);
        fs::write(&lock, "").unwrap();
        for mode in [0o602, 0o620, 0o666] {
            closed(&lock, mode);
            assert!(why(scratch.path()).contains("chmod 600"), "{mode:o}");
        }
        fs::remove_file(&lock).unwrap();
        let elsewhere = scratch.path().join("elsewhere");
        std::os::unix::fs::symlink("elsewhere", &lock).unwrap();
        assert!(why(scratch.path()).contains("not a regular file"));
        assert!(!elsewhere.exists());
        fs::remove_file(&lock).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(why(scratch.path()).contains("not a regular file"), "without waiting for a reader");
    }

    fn closed(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn handle_key(directory: &Path) -> Result<[u8; 16], StateDirError> {
        match StateDirectory::acquire(directory) {
            Ok(directory) => directory.handle_key(),
            Err(AcquireError::Unusable(error)) => Err(error),
            Err(in_use) => panic!("{in_use}"),
        }
    }

    /// Why a directory can't be used. A check says the same.
    fn why(directory: &Path) -> String {
        let checked = StateDirectory::check(directory).unwrap_err();
        let error = handle_key(directory).unwrap_err();
        assert_eq!(checked.to_string(), error.to_string());
        error.source.to_string()
    }

    #[test]
    fn a_check_changes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a/b");
        StateDirectory::check(&directory).unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        let used = StateDirectory::acquire(&directory).unwrap();
        StateDirectory::check(&directory).expect("by a server that runs");
        used.handle_key().unwrap();
        StateDirectory::check(&directory).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    }

    #[test]
    fn a_damaged_or_readable_key_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        let key = scratch.path().join(KEY_FILE);
        for bytes in [&[0; 15][..], &[0; 17], &[]] {
            fs::write(&key, bytes).unwrap();
            closed(&key, 0o600);
            assert!(why(scratch.path()).contains("not a key of 16 bytes"));
        }
        fs::write(&key, [7; 16]).unwrap();
        for mode in [0o604, 0o640, 0o620] {
            closed(&key, mode);
            assert!(why(scratch.path()).contains("chmod 600"), "{mode:o}");
        }
        closed(&key, 0o600);
        assert_eq!(handle_key(scratch.path()).unwrap(), [7; 16]);
        fs::rename(&key, scratch.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &key).unwrap();
        assert!(why(scratch.path()).contains("not a regular file"));
        fs::remove_file(&key).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &key, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(why(scratch.path()).contains("not a regular file"), "without waiting for a writer");
    }

    #[test]
    fn an_unusable_state_directory_is_an_error_with_a_reason() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("directory", at("link")).unwrap();
        for (name, said) in [
            ("file", "not a directory"),
            ("dangling", "a symbolic link to nowhere, which isn't there"),
            ("dangling/below", "a symbolic link to nowhere, which isn't there"),
        ] {
            let why = why(&at(name));
            assert!(why.contains(said), "{name}: {why}");
        }
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            closed(&at("directory"), mode);
            assert!(why(&at("directory")).contains("chmod go-w"), "{mode:o}");
            assert!(why(&at("link")).contains("chmod go-w"), "{mode:o}");
        }
        assert_eq!(fs::read_dir(at("directory")).unwrap().count(), 0, "nothing is created in it");
        closed(&at("directory"), 0o755);
        handle_key(&at("link")).expect("the mode that systemd gives it");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("directory"), Some(12345), None).unwrap();
            assert!(why(&at("directory")).contains("uid 12345"));
        }
    }
}
