//! `umount`: unmounts a filesystem. It doesn't access the filesystem, so it works while the server is down.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::cli::UmountArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::human;
use crate::output::print_error;
use mount::mountinfo::{self, MountEntry};

/// Unmounts all mountpoints.
pub fn umount(args: &UmountArgs) -> CommandResult {
    let mut exit = Exit::Done;
    for mountpoint in &args.mountpoints {
        if let Err(failure) = one(mountpoint, args) {
            print_error(&failure.to_string());
            exit = exit.max(failure.exit);
        }
    }
    Ok(exit)
}

fn one(mountpoint: &Path, args: &UmountArgs) -> Result<(), Failure> {
    let shown = human::name(mountpoint.as_os_str().as_bytes());
    let resolved = mountinfo::resolve(mountpoint).map_err(|error| Failure::new(&shown, error))?;
    let mounted = mountinfo::find(&resolved).map_err(|error| Failure::new("/proc/self/mountinfo", error))?;
    let mounted = match mounted {
        None => {
            return Err(Failure::new(&shown, "nothing is mounted here")
                .next("`samehost status` and `findmnt -t fuse.samehost` list what is"));
        }
        Some(mounted) if !mounted.is_samehost() => {
            return Err(Failure::new(
                &shown,
                format!("a filesystem of type {} is mounted here", mounted.kind),
            )
            .next("use umount(8)"));
        }
        Some(mounted) => mounted,
    };
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::FORCE, args.force);
    flags.set(UnmountFlags::DETACH, args.lazy);
    match rustix::mount::unmount(&mounted.at, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => by_helper(&shown, &mounted, args),
        Err(errno) => Err(explain(&shown, errno.into())),
    }
}

/// Unmounts through fusermount3, which unmounts for ordinary users what they have mounted.
fn by_helper(shown: &str, mounted: &MountEntry, args: &UmountArgs) -> Result<(), Failure> {
    if args.force {
        // The equivalent of root's MNT_FORCE. The file belongs to the user who mounted, and exists if fusectl
        // is mounted.
        let abort = format!("/sys/fs/fuse/connections/{}/abort", mounted.minor);
        if let Err(error) = std::fs::write(&abort, "1") {
            return Err(Failure::new(&abort, error).next("unmount without --force, or as root"));
        }
    }
    let output = Command::new("fusermount3")
        .arg(if args.lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(&mounted.at)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new("fusermount3", error).next("install fuse3, or unmount as root"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.trim().trim_start_matches("fusermount3: ");
    if message.contains("busy") {
        return Err(busy(shown));
    }
    Err(Failure::new(shown, message).next("unmount as the user who mounted it, or as root"))
}

fn explain(shown: &str, error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::ResourceBusy { busy(shown) } else { Failure::new(shown, error) }
}

fn busy(shown: &str) -> Failure {
    Failure::new(shown, "it is in use")
        .next(format!("see who uses it (fuser -vm {shown}), or detach it at once with --lazy"))
}
