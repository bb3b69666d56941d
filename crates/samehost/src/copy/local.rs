//! The local end of a copy.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use client::{Follow, Timestamp};
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps};

use super::location::{CopyEntry, CopyItem, EntryKind, Facts, Location};
use crate::ancestors::FileId;
use crate::exit::Failure;
use crate::human;

/// A path as text.
pub fn show(path: &Path) -> String {
    human::name(path.as_os_str().as_bytes())
}

fn to_failure(path: &Path, error: io::Error) -> Failure {
    let reason = match error.raw_os_error() {
        Some(_) => error.to_string().to_lowercase(),
        None => error.to_string(),
    };
    Failure::new(show(path), reason)
}

/// Whether a path can only be that of a directory (path_resolution(7)).
pub fn names_directory(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// The directory and the name in it.
pub fn split(path: &Path) -> Result<(PathBuf, Vec<u8>), Failure> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent.to_path_buf(), name.as_bytes().to_vec())),
        _ => Err(Failure::usage(show(path), "names no entry of a directory")),
    }
}

pub fn facts(path: &Path, follow: Follow) -> Result<Facts, Failure> {
    metadata(path, follow).map(|metadata| of(&metadata)).map_err(|error| to_failure(path, error))
}

/// As [`facts`] of a file's target. A mount of a server may show older attributes until the file is opened
/// (close-to-open consistency, nfs(5)).
pub fn current_facts(path: &Path) -> Result<Facts, Failure> {
    let opened = OpenOptions::new().read(true).custom_flags(careful(true)).open(path);
    let metadata = match opened {
        Ok(file) => file.metadata(),
        // Without permission to read.
        Err(_) => fs::metadata(path),
    };
    metadata.map(|metadata| of(&metadata)).map_err(|error| to_failure(path, error))
}

/// As [`facts`]; `None` if there is no such file.
pub fn find(path: &Path, follow: Follow) -> Result<Option<Facts>, Failure> {
    match metadata(path, follow) {
        Ok(metadata) => Ok(Some(of(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(to_failure(path, error)),
    }
}

fn metadata(path: &Path, follow: Follow) -> io::Result<Metadata> {
    match follow {
        Follow::Yes => fs::metadata(path),
        Follow::No => fs::symlink_metadata(path),
    }
}

fn of(metadata: &Metadata) -> Facts {
    let file_type = metadata.file_type();
    let kind = if file_type.is_file() {
        EntryKind::File
    } else if file_type.is_dir() {
        EntryKind::Directory
    } else if file_type.is_symlink() {
        EntryKind::Link
    } else {
        EntryKind::Other
    };
    let stamp = |seconds, nanoseconds: i64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
    Facts {
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.size(),
        fsid: metadata.dev(),
        fileid: metadata.ino(),
        atime: stamp(metadata.atime(), metadata.atime_nsec()),
        mtime: stamp(metadata.mtime(), metadata.mtime_nsec()),
        ctime: stamp(metadata.ctime(), metadata.ctime_nsec()),
    }
}

pub fn list(path: &Path) -> Result<Vec<CopyEntry>, Failure> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| to_failure(path, error))? {
        let entry = entry.map_err(|error| to_failure(path, error))?;
        let here = entry.path();
        let item = facts(&here, Follow::No).map(|facts| CopyItem { at: Location::Local(here), facts });
        entries.push((entry.file_name().into_vec(), item));
    }
    Ok(entries)
}

pub fn read_link(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read_link(path)
        .map(|target| target.into_os_string().into_vec())
        .map_err(|error| to_failure(path, error))
}

/// Flags of an open: it doesn't follow a link that has replaced the file, and doesn't wait for a pipe's other
/// end.
fn careful(follow: bool) -> i32 {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    // The flags are a C int without the sign bit.
    flags.bits() as i32
}

pub fn open(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(careful(true))
        .open(path)
        .map_err(|error| to_failure(path, error))?;
    regular(path, file)
}

/// Creates or truncates a file. A link is followed only if the user `named` it.
pub fn create(path: &Path, mode: u32, named: bool) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode | 0o200).custom_flags(careful(named));
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            // The umask or a default access control list may have cleared bits. Setting them fails only on
            // filesystems without modes.
            if file.metadata().is_ok_and(|made| made.mode() & 0o7777 != mode | 0o200) {
                let _ = file.set_permissions(Permissions::from_mode(mode | 0o200));
            }
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file =
                options.create(true).truncate(true).open(path).map_err(|error| to_failure(path, error))?;
            regular(path, file)
        }
        Err(error) => Err(to_failure(path, error)),
    }
}

/// The number of an open file with that of its filesystem.
pub fn file_id(file: &File) -> client::Result<FileId> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).map_err(local_error)
}

/// Removes the contents of an open file.
pub fn truncate(file: &File) -> client::Result<()> {
    file.set_len(0).map_err(local_error)
}

fn local_error(source: io::Error) -> client::Error {
    client::Error::Local { object: "the local file".to_owned(), source }
}

fn regular(path: &Path, file: File) -> Result<File, Failure> {
    let metadata = file.metadata().map_err(|error| to_failure(path, error))?;
    if metadata.is_file() { Ok(file) } else { Err(Failure::new(show(path), "is no regular file any more")) }
}

/// Makes a directory, or uses an existing one; a link to one is refused.
pub fn make_dir(path: &Path, mode: u32) -> Result<(), Failure> {
    match fs::DirBuilder::new().mode(mode | 0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            _ => Err(Failure::new(show(path), "exists and is not a directory")),
        },
        Err(error) => Err(to_failure(path, error)),
    }
}

pub fn make_link(path: &Path, target: &[u8]) -> Result<(), Failure> {
    std::os::unix::fs::symlink(OsStr::from_bytes(target), path).map_err(|error| to_failure(path, error))
}

pub fn remove(path: &Path) -> Result<(), Failure> {
    fs::remove_file(path).map_err(|error| to_failure(path, error))
}

pub fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| to_failure(path, error))
}

pub fn preserve(path: &Path, facts: &Facts) -> Result<(), Failure> {
    let given = match std::os::unix::fs::lchown(path, Some(facts.uid), Some(facts.gid)) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
        Err(error) => return Err(to_failure(path, error)),
    };
    if facts.kind != EntryKind::Link {
        // A set-id bit would give another owner's rights than the original's.
        let mode = if given { facts.mode } else { facts.mode & 0o1777 };
        set_mode(path, mode)?;
    }
    let stamp = |stamp: Timestamp| Timespec { tv_sec: stamp.seconds, tv_nsec: stamp.nanoseconds.into() };
    let times = Timestamps { last_access: stamp(facts.atime), last_modification: stamp(facts.mtime) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| to_failure(path, error.into()))
}
