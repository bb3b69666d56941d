//! What is mounted where: /proc/self/mountinfo (proc_pid_mountinfo(5)).
//!
//! Reading it never touches the filesystems that it names, so it works when they hang.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type of our filesystems.
pub const OURS: &str = "fuse.samehost";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub at: PathBuf,
    /// The filesystem's type.
    pub kind: String,
    /// What is mounted.
    pub source: OsString,
    /// The minor number of its device, which for FUSE is the connection's number.
    pub minor: u32,
    /// The mount's own options and the filesystem's.
    pub options: Vec<String>,
}

/// All mounts of this process's namespace, in the order in which they cover each other.
pub fn all() -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(sys::proc_error)?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// What can be seen at `path`, if something is mounted exactly there: the last mount.
pub fn at(path: &Path) -> io::Result<Option<Mounted>> {
    Ok(all()?.into_iter().rfind(|mounted| mounted.at == path))
}

/// The absolute path of a mountpoint, without touching what is mounted on it: the directory above it is
/// resolved.
pub fn whole(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        // "/", or something that ends in "..".
        _ => path.canonicalize(),
    }
}

/// One line: `36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/root rw`.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
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
    Some(Mounted { at: OsString::from_vec(at).into(), kind, source, minor, options })
}

/// Blanks, tabs, line breaks and backslashes are `\ooo` there.
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
    fn a_line_is_taken_apart() {
        let line = b"61 28 0:52 / /mnt/a\\040b rw,nosuid shared:5 master:1 - fuse.samehost host:/srv\\134 \
                     rw,user_id=0";
        let expected = Mounted {
            at: "/mnt/a b".into(),
            kind: OURS.to_owned(),
            source: r"host:/srv\".into(),
            minor: 52,
            options: ["rw", "nosuid", "rw", "user_id=0"].map(str::to_owned).to_vec(),
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 x"), None);
    }

    #[test]
    fn the_root_is_mounted_and_a_path_is_made_whole_without_its_last_part() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(whole(Path::new("/nothing-is-here")).unwrap(), Path::new("/nothing-is-here"));
        assert_eq!(whole(Path::new("x")).unwrap(), std::env::current_dir().unwrap().join("x"));
        assert!(whole(Path::new("/nothing-is-here/x")).is_err());
    }
}
