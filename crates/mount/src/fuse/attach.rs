//! Getting a FUSE device mounted and unmounted: mount(2) where that is allowed, else the set-uid program
//! fusermount3.

use std::ffi::CString;
use std::io::{IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::error::Error;

/// The filesystem's type, as /proc/mounts shows it.
pub const FSTYPE: &str = "fuse.samehost";

/// How a filesystem is to appear in the tree.
#[derive(Debug, Clone)]
pub(crate) struct Appearance {
    /// The first column of /proc/mounts.
    pub(crate) source: String,
    pub(crate) flags: MountFlags,
    /// Whether users other than the one who mounts may use it.
    pub(crate) allow_other: bool,
}

/// Mounts a new FUSE device on `at`, which must be a directory.
pub(crate) fn attach(at: &Path, how: &Appearance) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::Mount { at: at.to_owned(), source: errno.into() };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = match rustix::fs::open("/dev/fuse", flags, Mode::empty()) {
        Ok(device) => device,
        Err(Errno::ACCESS | Errno::PERM) => return by_helper(at, how),
        Err(source) => return Err(Error::NoDevice { source: source.into() }),
    };
    let other = if how.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{other}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    match rustix::mount::mount(&how.source, at, FSTYPE, how.flags, Some(data.as_c_str())) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => by_helper(at, how),
        Err(errno) => Err(failed(errno)),
    }
}

/// Has fusermount3 mount: it opens the device and sends it over a socket.
fn by_helper(at: &Path, how: &Appearance) -> Result<OwnedFd, Error> {
    let failed = |reason: String| Error::Helper { at: at.to_owned(), reason };
    let io_failed = |error: std::io::Error| Error::Helper { at: at.to_owned(), reason: error.to_string() };
    let (ours, theirs) = UnixStream::pair().map_err(io_failed)?;
    // The helper inherits this one.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| io_failed(errno.into()))?;
    let mut options =
        vec![format!("fsname={}", how.source.replace(',', "\\,")), "subtype=samehost".to_owned()];
    options.extend(how.allow_other.then(|| "allow_other".to_owned()));
    for (flag, name) in [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::NOSUID, "nosuid"),
        (MountFlags::NODEV, "nodev"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::NOSYMFOLLOW, "nosymfollow"),
        (MountFlags::NOATIME, "noatime"),
        (MountFlags::SYNCHRONOUS, "sync"),
    ] {
        options.extend(how.flags.contains(flag).then(|| name.to_owned()));
    }
    let mut child = Command::new("fusermount3")
        .arg("-o")
        .arg(options.join(","))
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
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What it says is for the user; that it can't be read is not the failure to report.
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait().map_err(io_failed)?;
    device.ok_or_else(|| failed(said.trim().trim_start_matches("fusermount3: ").to_owned()))
}

/// The descriptor that the helper sends; `None` if it hung up instead.
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

/// Unmounts; with `lazy` also what is in use.
///
/// # Errors
/// umount2(2)'s: `EBUSY`: a process has a file open or its working directory there; `EINVAL`: nothing is
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

/// Whether a FUSE filesystem of ours is mounted on `at`, by this mount namespace's table.
pub fn is_attached(at: &Path) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return false };
    table.split(|byte| *byte == b'\n').any(|line| {
        let mut halves = line.splitn(2, |byte| *byte == b' ');
        halves.next();
        let text = String::from_utf8_lossy(line);
        let Some((left, right)) = text.split_once(" - ") else { return false };
        let point = left.split(' ').nth(4).map(unescape);
        right.starts_with(FSTYPE) && point.as_deref() == Some(at)
    })
}

/// A path in the mount table: blanks and the like are octal there.
fn unescape(path: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, code.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_the_mount_table_are_octal() {
        assert_eq!(unescape(r"/mnt/a\040b\134"), Path::new(r"/mnt/a b\"));
        assert_eq!(unescape(r"/plain"), Path::new("/plain"));
    }
}
