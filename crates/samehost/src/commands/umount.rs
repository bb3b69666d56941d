//! `umount`: unmounts a filesystem. It doesn't access the filesystem, so it works while the server is down.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::cli::UmountArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::human;
use crate::output::print_error;
use mount::mountinfo::{self, MountEntry};
use sys::attached_mount::detach;

/// How long the mount's process may take to unmount its filesystem below the export's own mount, which it
/// does as soon as that is unmounted.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(10);

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
    let table_error = |error| Failure::new("/proc/self/mountinfo", error);
    if let Some((fuse, Some(clone))) = mountinfo::find_samehost(&resolved).map_err(table_error)? {
        return both(&shown, &fuse, &clone, args);
    }
    let mounted = match mountinfo::find(&resolved).map_err(table_error)? {
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

/// Unmounts the export's own mount and the filesystem beneath, which the mount's process unmounts, too. The
/// process may be dead.
fn both(shown: &str, fuse: &MountEntry, clone: &MountEntry, args: &UmountArgs) -> Result<(), Failure> {
    let failed = |errno: Errno| explain(shown, errno.into());
    detach(&clone.at, clone.id, args.lazy).map_err(failed)?;
    let start = Instant::now();
    loop {
        // While the process has it open to unmount it, it is busy.
        let busy = match detach(&fuse.at, fuse.id, args.lazy) {
            Ok(_) | Err(Errno::INVAL) => None,
            Err(Errno::BUSY) => Some(failed(Errno::BUSY)),
            Err(errno) => return Err(failed(errno)),
        };
        let table = mountinfo::list().map_err(|error| Failure::new("/proc/self/mountinfo", error))?;
        if table.iter().all(|mounted| mounted.id != fuse.id) {
            return Ok(());
        }
        if start.elapsed() >= PROCESS_TIMEOUT {
            return Err(busy.unwrap_or_else(|| Failure::new(shown, "something else is mounted on it")));
        }
        std::thread::sleep(Duration::from_millis(5));
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
