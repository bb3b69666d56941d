//! The mount table of this process's mount namespace, /proc/self/mountinfo (proc_pid_mountinfo(5)).
//!
//! Reading it doesn't access the mounted filesystems, so it works when they hang.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::fuse::attach::FSTYPE;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Its number, which no other mount has as long as it exists.
    pub id: u64,
    /// The number of the mount that it is mounted on.
    pub parent: u64,
    /// The mountpoint.
    pub at: PathBuf,
    /// The filesystem's type.
    pub kind: String,
    /// What is mounted, such as a device or `nfs://host/export`.
    pub source: OsString,
    /// The minor device number; for FUSE it is the connection's number in fusectl.
    pub minor: u32,
    /// The options of the mount and of the filesystem.
    pub options: Vec<String>,
}

impl MountEntry {
    /// Whether it is a filesystem of [`crate::Mount`].
    #[must_use]
    pub fn is_samehost(&self) -> bool {
        self.kind == FSTYPE
    }
}

/// All mounts; a later one covers an earlier one on the same mountpoint.
///
/// # Errors
/// open(2)'s and read(2)'s.
pub fn list() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(sys::proc_error)?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount whose root is visible at `path`; `None` if `path` is no mountpoint.
///
/// # Errors
/// As [`list`].
pub fn find(path: &Path) -> io::Result<Option<MountEntry>> {
    Ok(list()?.into_iter().rfind(|mounted| mounted.at == path))
}

/// The filesystem of [`crate::Mount`] whose root is visible at `path`, and the export's own mount if that is
/// attached on top of it.
///
/// # Errors
/// As [`list`].
pub fn find_samehost(path: &Path) -> io::Result<Option<(MountEntry, Option<MountEntry>)>> {
    let here: Vec<MountEntry> = list()?.into_iter().filter(|mounted| mounted.at == path).collect();
    let on = |id| here.iter().find(|mounted| mounted.parent == id);
    let Some(top) = here.iter().rfind(|mounted| on(mounted.id).is_none()) else { return Ok(None) };
    let below = here.iter().find(|mounted| mounted.id == top.parent && mounted.is_samehost());
    Ok(match below {
        _ if top.is_samehost() => Some((top.clone(), None)),
        Some(below) => Some((below.clone(), Some(top.clone()))),
        None => None,
    })
}

/// The absolute path of a mountpoint, without access to the filesystem that is mounted on it: only its parent
/// is resolved.
///
/// # Errors
/// realpath(3)'s, for the parent.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        // "/", or a path that ends in "..".
        _ => path.canonicalize(),
    }
}

/// Parses a line: `36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/root rw`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = std::str::from_utf8(words.next()?).ok()?;
    let at = unescape(words.nth(1)?);
    let list = |word: &[u8]| -> Vec<String> {
        word.split(|byte| *byte == b',').map(|one| String::from_utf8_lossy(one).into_owned()).collect()
    };
    let mut options = list(words.next()?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8_lossy(&unescape(words.next()?)).into_owned();
    let source = OsString::from_vec(unescape(words.next()?));
    let minor = device.split_once(':')?.1.parse().ok()?;
    options.extend(words.next().map(list).unwrap_or_default());
    Some(MountEntry { id, parent, at: OsString::from_vec(at).into(), kind, source, minor, options })
}

/// Decodes `\ooo`, which stands for a blank, a tab, a newline or a backslash.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed() {
        let line = b"61 28 0:52 / /mnt/a\\040b rw,nosuid shared:5 master:1 - fuse.samehost host:/srv\\134 \
                     rw,user_id=0";
        let expected = MountEntry {
            id: 61,
            parent: 28,
            at: "/mnt/a b".into(),
            kind: FSTYPE.to_owned(),
            source: r"host:/srv\".into(),
            minor: 52,
            options: ["rw", "nosuid", "rw", "user_id=0"].map(str::to_owned).to_vec(),
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 x"), None);
    }

    #[test]
    fn a_mountpoint_is_resolved_without_its_last_component() {
        assert!(find(Path::new("/")).unwrap().is_some());
        assert_eq!(resolve(Path::new("/nothing-is-here")).unwrap(), Path::new("/nothing-is-here"));
        assert_eq!(resolve(Path::new("x")).unwrap(), std::env::current_dir().unwrap().join("x"));
        assert!(resolve(Path::new("/nothing-is-here/x")).is_err());
    }
}
