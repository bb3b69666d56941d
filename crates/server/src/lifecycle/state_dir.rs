//! What outlives a run of the server: the state directory, and in it the key that seals file handles.
//!
//! Who has the key can make handles of files that no export leads to, and who can write to the directory can
//! replace it. So a directory that others can write to, and a key that others can read, are errors. That the
//! directory can be listed is none: what lies in it is closed by itself, and systemd makes its
//! StateDirectory= with mode 0755.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The key's file: 16 random bytes, readable by the server's user only.
const KEY_FILE: &str = "handle-key";
/// Mode bits by which others than the owner can write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bits by which others than the owner can do anything.
const OPEN_TO_OTHERS: u32 = 0o077;

/// Where something went wrong, and what.
pub(crate) type Failure = (PathBuf, io::Error);

/// Reads the key from `directory`, or makes directory and key. Of two servers that start at the same time
/// both get the same key. A key that was made is on stable storage.
pub(crate) fn handle_key(directory: &Path) -> Result<[u8; 16], Failure> {
    make(directory)?;
    let path = directory.join(KEY_FILE);
    let failed = |error: io::Error| (path.clone(), error);
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
        // Another server was quicker: its key is everybody's.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = fs::remove_file(&fresh);
    written.and_then(|()| sync(directory)).map_err(failed)?;
    read(&path).map_err(failed)
}

/// Makes a directory that only the server's user may enter, and those above it that are missing, durably; or
/// checks the one that is there.
///
/// # Errors
/// Where it can't be made, isn't a directory, or can be written to by others.
pub(crate) fn make(directory: &Path) -> Result<(), Failure> {
    make_missing(directory)?;
    let failed = |error: io::Error| (directory.to_owned(), error);
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

/// Makes what is missing of a path, each directory on stable storage before anything is put into it.
fn make_missing(directory: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| (directory.to_owned(), error);
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
    make_missing(above)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        // Another server was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(failed)?,
    }
    sync(above).map_err(failed)
}

/// Puts a directory's entries on stable storage.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Opens a regular file for reading, and nothing else: a symbolic link isn't followed, and a FIFO isn't
/// waited for.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may do something.
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

/// Who owns a directory or a file can do with it as he likes.
fn check_owner(of: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    // Of an owner without a number here nothing can be said.
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
    fn the_key_stays_and_is_private() {
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
        handle_key(directory).unwrap_err().1.to_string()
    }

    #[test]
    fn a_key_that_is_damaged_or_open_to_others_is_an_error() {
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
        assert!(why(scratch.path()).contains("not a regular file"), "and it isn't waited for");
    }

    #[test]
    fn a_state_directory_that_cannot_be_one_is_told_why() {
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
        assert_eq!(fs::read_dir(at("directory")).unwrap().count(), 0, "nothing is put there before");
        closed(&at("directory"), 0o755);
        handle_key(&at("link")).expect("as systemd makes it");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("directory"), Some(12345), None).unwrap();
            assert!(why(&at("directory")).contains("uid 12345"));
        }
    }
}
