//! Changes of files' names and attributes, by fanotify(7): which file, and whether this process made them.
//!
//! inotify(7) doesn't report the origin of a change, and merges equal events whatever their origin. fanotify
//! merges the events of one process only. Without `CAP_SYS_ADMIN` (Linux 5.13) it hides the ids of other
//! processes, but not one's own.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::handle::KernelHandle;

/// The watched events. New and removed links change the attributes (`st_nlink`); a rename is a move.
const MASK: u64 = libc::FAN_ATTRIB | libc::FAN_MOVE_SELF;
/// Size of `struct fanotify_event_metadata`.
const HEADER: usize = size_of::<libc::fanotify_event_metadata>();
/// Size of `struct fanotify_event_info_header`.
const INFO_HEADER: usize = size_of::<libc::fanotify_event_info_header>();
/// Size of the filesystem id, and the handle's length and type.
const FILE_ID_HEADER: usize = 16;

/// Identifies a watched file in events: the filesystem id and the file handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchedFile(Box<[u8]>);

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FanotifyEvent {
    /// A file's names or attributes have changed.
    Changed {
        /// Which file.
        file_id: WatchedFile,
        /// It was renamed, whatever else changed.
        renamed: bool,
        /// This process made the change.
        own: bool,
    },
    /// Events were lost: any file may have changed.
    Overflow,
}

/// Events of watched files.
#[derive(Debug)]
pub struct Fanotify {
    events: Arc<OwnedFd>,
    process: i32,
}

impl Fanotify {
    /// Watches no files yet.
    ///
    /// # Errors
    /// The kernel's: `PERM` without privileges before Linux 5.13, and in containers whose rules forbid it.
    pub fn new() -> rustix::io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: the call takes numbers. If it succeeds it returns a new descriptor, which nothing else
        // owns.
        let events = unsafe {
            let made = libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint);
            crate::check(made.into())?;
            OwnedFd::from_raw_fd(made)
        };
        // SAFETY: the call has no arguments and can't fail.
        let process = unsafe { libc::getpid() };
        Ok(Self { events: Arc::new(events), process })
    }

    /// A descriptor that is readable when there are events.
    #[must_use]
    pub fn events(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.events)
    }

    /// Watches a file, given any descriptor of it. Has no effect on a file that is watched already.
    ///
    /// # Errors
    /// The kernel's: `OPNOTSUPP`, `NODEV` or `XDEV` on filesystems without handles or without an id, `NOSPC`
    /// for too many files.
    pub fn watch(&self, file: BorrowedFd<'_>) -> rustix::io::Result<WatchedFile> {
        let file_id = file_id(file)?;
        self.mark(libc::FAN_MARK_ADD, file)?;
        Ok(file_id)
    }

    /// Ends watching a file.
    ///
    /// # Errors
    /// The kernel's: `NOENT` if it wasn't watched.
    pub fn unwatch(&self, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
        self.mark(libc::FAN_MARK_REMOVE, file)
    }

    fn mark(&self, flags: libc::c_uint, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
        // fanotify_mark(2) takes no `O_PATH` descriptor.
        let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        // SAFETY: `path` is NUL-terminated and outlives the call.
        let done = unsafe {
            libc::fanotify_mark(self.events.as_raw_fd(), flags, MASK, libc::AT_FDCWD, path.as_ptr().cast())
        };
        crate::check(done.into()).map(drop)
    }

    /// Passes the pending events to `each`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, mut each: impl FnMut(FanotifyEvent)) -> rustix::io::Result<()> {
        let mut buffer = [0; 8192];
        loop {
            match rustix::io::read(&self.events, &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(length) => parse(&buffer[..length], self.process, &mut each),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Parses the events in a buffer.
fn parse(mut bytes: &[u8], process: i32, each: &mut impl FnMut(FanotifyEvent)) {
    while let Some(header) = bytes.get(..HEADER) {
        let length = u32_at(header, 0) as usize;
        let Some(event) = bytes.get(..length.max(HEADER)) else { return };
        bytes = &bytes[event.len()..];
        let mask = u64::from(u32_at(event, 8)) | u64::from(u32_at(event, 12)) << 32;
        // The halves of the mask are in the machine's order.
        let mask = if cfg!(target_endian = "big") { mask.rotate_left(32) } else { mask };
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            each(FanotifyEvent::Overflow);
            continue;
        }
        let own = u32_at(event, 20) as i32 == process;
        let file_id = event.get(HEADER + INFO_HEADER..).and_then(|info| {
            let handle = info.get(8..12).map(|length| u32_at(length, 0) as usize)?;
            info.get(..FILE_ID_HEADER + handle)
        });
        each(match file_id {
            Some(file_id) => FanotifyEvent::Changed {
                file_id: WatchedFile(file_id.into()),
                renamed: mask & libc::FAN_MOVE_SELF != 0,
                own,
            },
            // The kernel couldn't identify the file.
            None => FanotifyEvent::Overflow,
        });
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// The identity in fanotify(7)'s form: `f_fsid` of statfs(2), and the handle of name_to_handle_at(2).
fn file_id(file: BorrowedFd<'_>) -> rustix::io::Result<WatchedFile> {
    // SAFETY: `statfs` consists of integers, for which zeros are valid, and outlives the call that fills it.
    let (filesystem, done) = unsafe {
        let mut filesystem: libc::statfs = std::mem::zeroed();
        let done = libc::fstatfs(file.as_raw_fd(), &raw mut filesystem);
        (filesystem, done)
    };
    crate::check(done.into())?;
    // SAFETY: `fsid_t` is two 32-bit integers, the same size as the array.
    let number: [u8; 8] = unsafe { std::mem::transmute(filesystem.f_fsid) };
    let handle = KernelHandle::of(file.as_fd(), c"")?;
    let mut bytes = Vec::with_capacity(FILE_ID_HEADER + handle.as_bytes().len());
    bytes.extend(number);
    bytes.extend((handle.as_bytes().len() as u32).to_ne_bytes());
    bytes.extend(handle.kind().to_ne_bytes());
    bytes.extend(handle.as_bytes());
    Ok(WatchedFile(bytes.into()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn own_changes_are_marked() {
        let scratch = tempfile::tempdir().unwrap();
        let (f, g) = (scratch.path().join("f"), scratch.path().join("g"));
        std::fs::write(&f, "").unwrap();
        let flags = rustix::fs::OFlags::PATH;
        let file = rustix::fs::open(&f, flags, rustix::fs::Mode::empty()).unwrap();
        let changes = match Fanotify::new() {
            // An old kernel, or forbidden by a container's rules.
            Err(Errno::PERM) => return,
            made => made.unwrap(),
        };
        let watched = changes.watch(file.as_fd()).unwrap();
        let happened = || {
            let mut all = Vec::new();
            changes.read(|change| all.push(change)).unwrap();
            all
        };
        let event = |renamed, own| FanotifyEvent::Changed { file_id: watched.clone(), renamed, own };
        let run = |program, arguments: [&std::path::Path; 2]| {
            assert!(Command::new(program).args(arguments).status().unwrap().success());
        };
        assert_eq!(happened(), []);
        // Equal events by different processes.
        std::fs::rename(&f, &g).unwrap();
        run("mv", [&g, &f]);
        std::fs::rename(&f, &g).unwrap();
        assert_eq!(happened().iter().filter(|change| **change == event(true, false)).count(), 1);
        std::fs::rename(&g, &f).unwrap();
        std::fs::set_permissions(&f, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(happened(), [event(true, true)]);
        run("chmod", ["644".as_ref(), &f]);
        run("ln", [&f, &g]);
        assert_eq!(happened(), [event(false, false), event(false, false)]);
        changes.unwatch(file.as_fd()).unwrap();
        std::fs::remove_file(&g).unwrap();
        assert_eq!(happened(), []);
    }
}
