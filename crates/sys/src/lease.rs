//! Leases on files (fcntl(2), `F_SETLEASE`): whoever opens the file in a way that the lease is against waits,
//! the lease's holder is told by a signal, and gives it back.
//!
//! The signals go to one thread, which takes them from a descriptor ([`LeaseBreaks`]) and never as signals. The
//! kernel waits `/proc/sys/fs/lease-break-time` seconds, and then takes the lease away.

use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// What a lease is against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseType {
    /// Opening for writing. The holder's own descriptor is open for reading only.
    Read,
    /// Opening at all.
    Write,
}

// What the crate libc doesn't have (fcntl.h); the same on every architecture.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    pid: libc::pid_t,
}

/// The thread that is told, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalTarget(libc::pid_t);

/// The signal: no other part of a process uses it.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

/// Takes a lease on an open file; who breaks it is told to `watcher`.
///
/// # Errors
/// `AGAIN` when somebody has the file open against it, `INVAL` where the filesystem has no leases, `ACCESS`
/// for a file that belongs to another user than the thread acts as, without CAP_LEASE.
pub fn take(file: impl AsFd, lease: LeaseType, watcher: SignalTarget) -> rustix::io::Result<()> {
    let kind = match lease {
        LeaseType::Read => libc::F_RDLCK,
        LeaseType::Write => libc::F_WRLCK,
    };
    let descriptor = file.as_fd().as_raw_fd();
    let owner = Owner { kind: F_OWNER_TID, pid: watcher.0 };
    // Who is told must be said first: taking a lease makes the process the owner, if there is none.
    // SAFETY: the descriptor is open, and `owner` lives for as long as the call.
    crate::check(unsafe { libc::fcntl(descriptor, F_SETOWN_EX, &raw const owner) }.into())?;
    control(descriptor, F_SETSIG, signal())?;
    control(descriptor, libc::F_SETLEASE, kind).map(drop)
}

/// Gives a lease back.
///
/// # Errors
/// The kernel's.
pub fn release(file: impl AsFd) -> rustix::io::Result<()> {
    control(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// What is left of a lease once those who wait for it have it their way: none of it for somebody who opens
/// for writing.
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
    /// That of this descriptor, if it is still the same.
    Of(RawFd),
    /// Too many at once: any may be.
    Any,
    /// None, but another descriptor that is waited for has something to read.
    Other,
}

/// The breaking of leases, as told to the thread that made this.
#[derive(Debug)]
pub struct LeaseBreaks {
    signals: OwnedFd,
    end: OwnedFd,
    others: Vec<Arc<OwnedFd>>,
}

impl LeaseBreaks {
    /// The calling thread is told from now on; it must be the one that calls [`LeaseBreaks::wait`]. It returns
    /// `None` when `end`, an [`end`] descriptor, is written to, and waits for something to read from any of
    /// `others`, too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(end: OwnedFd, others: Vec<Arc<OwnedFd>>) -> rustix::io::Result<(Self, SignalTarget)> {
        // SAFETY: `set` is a plain set of bits that `sigemptyset` fills in.
        let set = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            // Too many to queue become a SIGIO.
            libc::sigaddset(&raw mut set, signal());
            libc::sigaddset(&raw mut set, libc::SIGIO);
            set
        };
        // SAFETY: `set` lives for as long as the call, and nobody asks for the old one.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(Errno::from_raw_os_error(blocked));
        }
        // SAFETY: `set` lives for as long as the call; what it returns is a new descriptor, or -1.
        let signals = unsafe {
            let made = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            crate::check(made.into())?;
            OwnedFd::from_raw_fd(made)
        };
        // SAFETY: takes nothing, and can't fail.
        let watcher = SignalTarget(unsafe { libc::gettid() });
        Ok((Self { signals, end, others }, watcher))
    }

    /// Waits for the next one.
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
                    // SAFETY: the kernel has filled all of it in, and it is numbers only.
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

/// What ends a [`LeaseBreaks`] when it is written to: one end for its thread, one for whoever ends it.
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
    fn who_opens_a_leased_file_is_told_of() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let ((theirs, ours), (other, _)) = (stop_eventfds().unwrap(), stop_eventfds().unwrap());
        let (mut breaks, watcher) = LeaseBreaks::new(theirs, vec![Arc::new(other)]).unwrap();
        let open =
            |write: bool| File::options().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(&path);
        let reader = open(false).unwrap();
        let writer = open(true).unwrap();
        assert_eq!(take(&reader, LeaseType::Read, watcher), Err(Errno::AGAIN), "somebody writes");
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
