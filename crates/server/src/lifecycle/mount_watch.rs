//! The thread that waits for changed mounts: poll(2) on /proc/self/mountinfo reports them. It also closes the
//! stores of crossed filesystems that are out of use.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::export_table::mounts::MOUNTINFO;
use crate::lifecycle::running::RunningServer;

/// The pause between two checks: mounts change all the time where containers come and go.
const REST: Duration = Duration::from_millis(20);

/// The thread that waits for changed mounts. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct MountWatch {
    end: OwnedFd,
}

impl MountWatch {
    /// Starts the thread. It checks at once, since mounts may have changed while the server started.
    ///
    /// # Errors
    /// Without /proc, or without a thread or descriptor.
    pub(crate) fn start(running: Weak<RunningServer>) -> io::Result<Self> {
        let mountinfo = File::open(MOUNTINFO)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let ended = end.try_clone()?;
        std::thread::Builder::new().name("mounts".into()).spawn(move || {
            let mut have_changed = true;
            while let Some(running) = running.upgrade() {
                if have_changed {
                    running.follow_mounts();
                }
                let timeout = running.close_idle_stores().and_then(|period| period.try_into().ok());
                drop(running);
                std::thread::sleep(REST);
                let changes = PollFlags::PRI | PollFlags::ERR;
                let mut files = [PollFd::new(&mountinfo, changes), PollFd::new(&ended, PollFlags::IN)];
                if let Err(error) = poll(&mut files, timeout.as_ref())
                    && error != rustix::io::Errno::INTR
                {
                    tracing::error!(%error, "changed mounts are noticed at the next reload only");
                    return;
                }
                if !files[1].revents().is_empty() {
                    return;
                }
                have_changed = !files[0].revents().is_empty();
            }
        })?;
        Ok(Self { end })
    }
}

impl Drop for MountWatch {
    fn drop(&mut self) {
        // Fails only if the eventfd's counter is full, and then the thread has been woken.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}
