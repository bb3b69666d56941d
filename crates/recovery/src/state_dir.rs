//! The state directory, and in it the key that seals file handles.
//!
//! A user with the key can forge handles of files that aren't exported, and a user with write permission on
//! the directory can replace the key. So a directory that other users can write to, and a key that they can
//! read, are errors. Permission to list the directory is none: its files have modes of their own, and systemd
//! creates StateDirectory= with mode 0755.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The file with the key: 16 random bytes, readable by the server's user only.
const KEY_FILE: &str = "handle-key";
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

/// Reads the key from `directory`, or creates the directory and the key. Servers that start at the same time
/// get the same key. A created key is on stable storage.
///
/// # Errors
/// Those of [`create`]; if the key can't be read or written, has another length, or can be read by other
/// users.
pub fn handle_key(directory: &Path) -> Result<[u8; 16], StateDirError> {
    create(directory)?;
    let path = directory.join(KEY_FILE);
    let failed = |error: io::Error| StateDirError::new(&path, error);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other.map_err(failed),
    }
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| failed(error.into()))?;
    let fresh = directory.join(format!(
        ".{KEY_FILE}.{}.{:x}",
        std::process::id(),
        u32::from_ne_bytes([key[0], key[1], key[2], key[3]])
    ));
    let written = write(&fresh, &key).and_then(|()| match fs::hard_link(&fresh, &path) {
        // Another server was quicker, and its key counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = fs::remove_file(&fresh);
    written.and_then(|()| sync(directory)).map_err(failed)?;
    read(&path).map_err(failed)
}

/// Creates a directory that only the server's user may enter, and its missing parents, durably; or checks the
/// existing one.
///
/// # Errors
/// If it can't be created, isn't a directory, or other users can write to it.
pub fn create(directory: &Path) -> Result<(), StateDirError> {
    create_missing(directory)?;
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

/// Creates the missing directories of a path, each on stable storage before the next.
fn create_missing(directory: &Path) -> Result<(), StateDirError> {
    let failed = |error: io::Error| StateDirError::new(directory, error);
    match fs::metadata(directory) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if let Ok(target) = fs::read_link(directory) {
        let target = target.display();
        return Err(failed(refused(format!(
            "it is a symbolic link to {target}, which isn't there; make that directory, or remove the link"
        ))));
    }
    let above = match directory.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    create_missing(above)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        // Another server was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(failed)?,
    }
    sync(above).map_err(failed)
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
        let mode = fs::metadata(directory.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    fn closed(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why(directory: &Path) -> String {
        handle_key(directory).unwrap_err().source.to_string()
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
