//! The mountpoint, checked before the server is asked.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::human;
use mount::mountinfo;

/// The absolute path of a mountpoint.
pub fn check(mountpoint: &Path) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let shown = human::name(mountpoint.as_os_str().as_bytes());
    let metadata = std::fs::metadata(mountpoint).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Failure::new(&shown, "there is no such directory").next(format!("make it: mkdir -p {shown}"))
        }
        // The second error is that of calls that are under way at its death.
        ErrorKind::NotConnected | ErrorKind::ConnectionAborted => {
            Failure::new(&shown, "the process of a mount that is here has died")
                .next(format!("take the mount away: samehost umount {shown}"))
        }
        ErrorKind::PermissionDenied => {
            Failure::new(&shown, error).next("name a directory that you may enter, or mount as root")
        }
        _ => Failure::new(&shown, error),
    })?;
    if !metadata.is_dir() {
        return Err(Failure::new(&shown, "it isn't a directory").next("name a directory to mount on"));
    }
    let resolved = mountpoint.canonicalize().map_err(|error| Failure::new(&shown, error))?;
    let mounted =
        mountinfo::find_samehost(&resolved).map_err(|error| Failure::new("/proc/self/mountinfo", error))?;
    if let Some((mounted, _)) = mounted {
        let source = human::name(mounted.source.as_bytes());
        return Err(Failure::new(&shown, format!("{source} is mounted here already"))
            .next(format!("unmount it first (samehost umount {shown}), or mount elsewhere")));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountpoint_is_an_existing_directory() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(check(scratch.path()).unwrap(), scratch.path().canonicalize().unwrap());
        let file = scratch.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(check(&file).unwrap_err().to_string().contains("isn't a directory"));
        let missing = check(&scratch.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("no such directory") && missing.contains("mkdir"), "{missing}");
    }
}
