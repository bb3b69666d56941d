//! Kernel leases (fcntl(2), `F_SETLEASE`). A process that opens a leased file in a conflicting way waits
//! while the holder is notified by a signal and releases the lease.
//!
//! The signals are directed at one thread, which reads them from a signalfd ([`LeaseBreaks`]). After
//! `/proc/sys/fs/lease-break-time` seconds the kernel removes the lease.

use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// Which opens conflict with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseType {
    /// Opens for writing. The holder's own descriptor is open for reading only.
    Read,
    /// All opens.
    Write,
}

// Missing in the crate libc (fcntl.h); the same on every architecture.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    pid: libc::pid_t,
}

/// The id of the thread that is notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalTarget(libc::pid_t);

/// The signal; no other code in the process uses it.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

/// Takes a lease on an open file; `watcher` is notified when it is broken.
///
/// # Errors
/// `AGAIN` when the file is open in a conflicting way, `INVAL` where the filesystem has no leases, `ACCESS`
/// for a file of another user than the thread acts as, without CAP_LEASE.
pub fn take(file: impl AsFd, lease: LeaseType, watcher: SignalTarget) -> rustix::io::Result<()> {
    let kind = match lease {
        LeaseType::Read => libc::F_RDLCK,
        LeaseType::Write => libc::F_WRLCK,
    };
    let descriptor = file.as_fd().as_raw_fd();
    let owner = Owner { kind: F_OWNER_TID, pid: watcher.0 };
    // The owner must be set first, because taking a lease makes the process the owner if there is none.
    // SAFETY: the descriptor is open, and `owner` outlives the call.
    crate::check(unsafe { libc::fcntl(descriptor, F_SETOWN_EX, &raw const owner) }.into())?;
    control(descriptor, F_SETSIG, signal())?;
    control(descriptor, libc::F_SETLEASE, kind).map(drop)
}

/// Releases a lease.
///
/// # Errors
/// The kernel's.
pub fn release(file: impl AsFd) -> rustix::io::Result<()> {
    control(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// The lease that will remain after the pending break: none if the breaking open is for writing.
///
/// # Errors
/// The kernel's.
pub fn after_break(file: impl AsFd) -> rustix::io::Result<Option<LeaseType>> {
    Ok(match control(file.as_fd().as_raw_fd(), libc::F_GETLEASE, 0)? {
        libc::F_RDLCK => Some(LeaseType::Read),
        libc::F_WRLCK => Some(LeaseType::Write),
        _ => None,
    })
}

fn control(
    descriptor: RawFd,
    command: libc::c_int,
    argument: libc::c_int,
) -> rustix::io::Result<libc::c_int> {
    // SAFETY: these commands take and return numbers.
    let done = unsafe { libc::fcntl(descriptor, command, argument) };
    crate::check(done.into()).map(|_| done)
}

/// Which lease is being broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseBreak {
    /// The lease on this descriptor, if it is still the same file.
    Of(RawFd),
    /// Signals were lost: any lease may be.
    Any,
    /// None, but one of the other descriptors is readable.
    Other,
}

/// The notifications of the thread that created this.
#[derive(Debug)]
pub struct LeaseBreaks {
    signals: OwnedFd,
    end: OwnedFd,
    others: Vec<Arc<OwnedFd>>,
}

impl LeaseBreaks {
    /// Directs notifications at the calling thread, which must be the one that calls [`LeaseBreaks::wait`].
    /// That returns `None` when `end` ([`stop_eventfds`]) is written to, and also waits for any of `others`
    /// to become readable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(end: OwnedFd, others: Vec<Arc<OwnedFd>>) -> rustix::io::Result<(Self, SignalTarget)> {
        // SAFETY: `sigset_t` consists of integers, for which zeros are valid, and `sigemptyset` initialises
        // it.
        let set = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            // The kernel sends SIGIO when the signal queue is full.
            libc::sigaddset(&raw mut set, signal());
            libc::sigaddset(&raw mut set, libc::SIGIO);
            set
        };
        // SAFETY: `set` outlives the call, and a null pointer is allowed for the old set.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(Errno::from_raw_os_error(blocked));
        }
        // SAFETY: `set` outlives the call. If it succeeds it returns a new descriptor, which nothing else
        // owns.
        let signals = unsafe {
            let made = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            crate::check(made.into())?;
            OwnedFd::from_raw_fd(made)
        };
        // SAFETY: the call has no arguments and can't fail.
        let watcher = SignalTarget(unsafe { libc::gettid() });
        Ok((Self { signals, end, others }, watcher))
    }

    /// Waits for the next notification.
    #[must_use]
    pub fn wait(&mut self) -> Option<LeaseBreak> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        loop {
            let wanted = [self.signals.as_fd(), self.end.as_fd()].into_iter();
            let wanted = wanted.chain(self.others.iter().map(|other| other.as_fd()));
            let mut ready: Vec<_> =
                wanted.map(|wanted| PollFd::from_borrowed_fd(wanted, PollFlags::IN)).collect();
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
            if !ready[1].revents().is_empty() {
                return None;
            }
            if ready[2..].iter().any(|other| !other.revents().is_empty()) {
                return Some(LeaseBreak::Other);
            }
            let mut bytes = [0; SIZE];
            match rustix::io::read(&self.signals, &mut bytes[..]) {
                Ok(SIZE) => {
                    // SAFETY: the kernel has filled all bytes, and the struct consists of integers.
                    let told: libc::signalfd_siginfo = unsafe { std::mem::transmute(bytes) };
                    let of_lease = told.ssi_signo == signal() as u32;
                    return Some(if of_lease { LeaseBreak::Of(told.ssi_fd) } else { LeaseBreak::Any });
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                _ => return None,
            }
        }
    }
}

/// An eventfd that ends [`LeaseBreaks::wait`] when written to: one descriptor for the waiting thread, one for
/// the thread that stops it.
///
/// # Errors
/// The kernel's.
pub fn stop_eventfds() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let end = eventfd(0, EventfdFlags::CLOEXEC)?;
    Ok((end.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?, end))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn conflicting_opens_are_reported() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let ((theirs, ours), (other, _)) = (stop_eventfds().unwrap(), stop_eventfds().unwrap());
        let (mut breaks, watcher) = LeaseBreaks::new(theirs, vec![Arc::new(other)]).unwrap();
        let open =
            |write: bool| File::options().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(&path);
        let reader = open(false).unwrap();
        let writer = open(true).unwrap();
        assert_eq!(take(&reader, LeaseType::Read, watcher), Err(Errno::AGAIN), "open for writing");
        drop(writer);
        take(&reader, LeaseType::Read, watcher).unwrap();
        drop(open(false).unwrap());
        assert_eq!(after_break(&reader), Ok(Some(LeaseType::Read)));
        assert_eq!(open(true).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(breaks.wait(), Some(LeaseBreak::Of(reader.as_raw_fd())));
        assert_eq!(after_break(&reader), Ok(None));
        release(&reader).unwrap();
        let writer = open(true).unwrap();
        drop(reader);
        take(&writer, LeaseType::Write, watcher).unwrap();
        assert_eq!(open(false).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(breaks.wait(), Some(LeaseBreak::Of(writer.as_raw_fd())));
        assert_eq!(after_break(&writer), Ok(Some(LeaseType::Read)), "a reader leaves that much");
        rustix::io::write(&ours, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(breaks.wait(), None);
    }
}
