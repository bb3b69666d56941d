//! `mount -o remount`: changes flags of a mounted filesystem. The kernel does that without the mount's
//! process.

use mount::options::Remount;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::cli::MountArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::human;
use mount::mountinfo::{self, MountEntry};

/// Changes the flags.
pub fn remount(args: &MountArgs, change: &Remount) -> CommandResult {
    use std::os::unix::ffi::OsStrExt;
    let shown = human::name(args.mountpoint.as_os_str().as_bytes());
    let resolved = mountinfo::resolve(&args.mountpoint).map_err(|error| Failure::new(&shown, error))?;
    let mounted =
        mountinfo::find_samehost(&resolved).map_err(|error| Failure::new("/proc/self/mountinfo", error))?;
    let mounted = match mounted {
        Some((mounted, None)) => mounted,
        // A remount of the export's own mount would change the filesystem for the server, too.
        Some((_, Some(_))) => {
            return Err(Failure::new(&shown, "the export's own mount is attached here")
                .next(format!(
                    "remount between `samehost ctl lane off --mount {shown}` and `samehost ctl lane auto \
                     --mount {shown}`; the export's mount then gets the same options"
                ))
                .into());
        }
        None => {
            return Err(Failure::new(&shown, "no filesystem of Samehost is mounted here")
                .next("`samehost status` and `findmnt -t fuse.samehost` list what is")
                .into());
        }
    };
    match rustix::mount::mount_remount(&mounted.at, flags(&mounted, change), "") {
        Ok(()) => Ok(Exit::Done),
        Err(Errno::PERM) => Err(Failure::new(&shown, "only root may remount").into()),
        Err(Errno::BUSY) => Err(Failure::new(&shown, "files are open for writing")
            .next(format!("see who has them open: fuser -vm {shown}"))
            .into()),
        Err(errno) => Err(Failure::new(&shown, std::io::Error::from(errno)).into()),
    }
}

/// The mount's present flags with the change. mount(2) clears flags that aren't given, except those for
/// access times.
fn flags(mounted: &MountEntry, change: &Remount) -> MountFlags {
    let has = |option: &str| mounted.options.iter().any(|one| one == option);
    let mut flags = MountFlags::empty();
    for (option, flag, change) in [
        ("ro", MountFlags::RDONLY, change.read_only),
        ("nosuid", MountFlags::NOSUID, change.suid.map(|suid| !suid)),
        ("nodev", MountFlags::NODEV, change.dev.map(|dev| !dev)),
        ("noexec", MountFlags::NOEXEC, change.exec.map(|exec| !exec)),
        ("nosymfollow", MountFlags::NOSYMFOLLOW, change.symfollow.map(|follow| !follow)),
        ("noatime", MountFlags::NOATIME, None),
        ("nodiratime", MountFlags::NODIRATIME, None),
        ("relatime", MountFlags::RELATIME, None),
    ] {
        flags.set(flag, change.unwrap_or_else(|| has(option)));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_without_a_change_stay() {
        let mounted = MountEntry {
            id: 2,
            parent: 1,
            at: "/mnt".into(),
            kind: mount::FSTYPE.to_owned(),
            source: "h:/s".into(),
            minor: 1,
            options: ["rw", "nosuid", "relatime"].map(str::to_owned).to_vec(),
        };
        let change = Remount { read_only: Some(true), exec: Some(false), ..Remount::default() };
        let changed = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::RELATIME;
        assert_eq!(flags(&mounted, &change), changed);
        let change = Remount { suid: Some(true), ..Remount::default() };
        assert_eq!(flags(&mounted, &change), MountFlags::RELATIME);
    }
}
