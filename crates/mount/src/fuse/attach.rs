//! Mounting and unmounting a FUSE device: by mount(2) where that is permitted, otherwise by the set-uid
//! program fusermount3.

use std::ffi::CString;
use std::io::{IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::error::Error;

/// The filesystem's type, as /proc/mounts shows it.
pub const FSTYPE: &str = "fuse.samehost";

/// The attributes of the new mount.
#[derive(Debug, Clone)]
pub(crate) struct AttachOptions {
    /// The first column of /proc/mounts.
    pub(crate) source: String,
    pub(crate) flags: MountFlags,
    /// Whether users other than the one who mounts may use it.
    pub(crate) allow_other: bool,
}

/// Mounts a new FUSE device on `at`, which must be a directory.
pub(crate) fn attach(at: &Path, options: &AttachOptions) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::Mount { at: at.to_owned(), source: errno.into() };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = match rustix::fs::open("/dev/fuse", flags, Mode::empty()) {
        Ok(device) => device,
        // fusermount3 opens the device with the caller's rights, too; a wrapper of that name may not.
        Err(source @ (Errno::ACCESS | Errno::PERM)) => {
            return by_helper(at, options).map_err(|_| Error::NoDevice { source: source.into() });
        }
        Err(source) => return Err(Error::NoDevice { source: source.into() }),
    };
    let other = if options.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{other}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    match rustix::mount::mount(&options.source, at, FSTYPE, options.flags, Some(data.as_c_str())) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => by_helper(at, options),
        Err(errno) => Err(failed(errno)),
    }
}

/// Mounts through fusermount3, which opens the device and sends it over a socket.
fn by_helper(at: &Path, options: &AttachOptions) -> Result<OwnedFd, Error> {
    let failed = |reason: String| Error::Helper { at: at.to_owned(), reason };
    let io_failed = |error: std::io::Error| Error::Helper { at: at.to_owned(), reason: error.to_string() };
    let (ours, theirs) = UnixStream::pair().map_err(io_failed)?;
    // fusermount3 inherits this end.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| io_failed(errno.into()))?;
    let mut list =
        vec![format!("fsname={}", options.source.replace(',', "\\,")), "subtype=samehost".to_owned()];
    list.extend(options.allow_other.then(|| "allow_other".to_owned()));
    for (flag, name) in [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::NOSUID, "nosuid"),
        (MountFlags::NODEV, "nodev"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::NOSYMFOLLOW, "nosymfollow"),
        (MountFlags::NOATIME, "noatime"),
        (MountFlags::SYNCHRONOUS, "sync"),
    ] {
        list.extend(options.flags.contains(flag).then(|| name.to_owned()));
    }
    let mut child = Command::new("fusermount3")
        .arg("-o")
        .arg(list.join(","))
        .arg("--")
        .arg(at)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("fusermount3 can't be started ({error}); install fuse3")))?;
    drop(theirs);
    let device = receive(&ours);
    let mut complaint = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // If its message can't be read, the failure is reported without it.
        let _ = stderr.read_to_string(&mut complaint);
    }
    let _ = child.wait().map_err(io_failed)?;
    device.ok_or_else(|| failed(complaint.trim().trim_start_matches("fusermount3: ").to_owned()))
}

/// The descriptor that fusermount3 sends; `None` if it closes the socket instead.
fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let flags = RecvFlags::CMSG_CLOEXEC;
    loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
            Err(Errno::INTR) => continue,
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Unmounts; with `lazy` also while files are in use (`MNT_DETACH`).
///
/// # Errors
/// umount2(2)'s. `EBUSY`: a process has a file open or its working directory there. `EINVAL`: nothing is
/// mounted there.
pub fn detach(at: &Path, lazy: bool) -> std::io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match rustix::mount::unmount(at, flags) {
        Err(Errno::PERM) => {}
        other => return other.map_err(Into::into),
    }
    let mut command = Command::new("fusermount3");
    command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(at);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
