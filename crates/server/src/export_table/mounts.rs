//! Exports whose mounts change while they are served.
//!
//! umount(8) of an exported filesystem says that it is busy, because the store holds it (`store::Mounts`).
//! What remains is a lazy unmount, a mount over the exported directory, and other mount options. The kernel
//! says that something has changed (poll(2) on /proc/self/mountinfo), and within moments:
//!
//! 1. an export whose directory isn't where it was any more is served no more, and nothing of it stays open:
//!    what NFSv4 clients had there ends, and what was granted is recalled. The status says why;
//! 2. when the same filesystem is back it is served again. Another one is served when the exports are read
//!    again (SIGHUP): then an admin has said so. The empty directory below an unmounted disk is no place for
//!    clients' files;
//! 3. `ro` and `noexec` hold from then on, or don't any more, and grants are recalled.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use store::{DirectoryId, MountChange, Mounts};

use crate::export_table::{Entry, Opening, Table};
use crate::lifecycle::running::Running;

const MOUNTINFO: &str = "/proc/self/mountinfo";
/// Between two looks: where containers come and go mounts change all the time.
const REST: Duration = Duration::from_millis(20);

/// The mounts as they are now.
pub(crate) fn read() -> io::Result<Mounts> {
    std::fs::read_to_string(MOUNTINFO).map(|text| Mounts::parse(&text))
}

/// What changed mounts mean for a table.
#[derive(Debug)]
pub(crate) struct Followup {
    /// The next table, if any export's store isn't what it was.
    pub table: Option<Table>,
    /// Sentences for the log.
    pub news: Vec<String>,
}

impl Table {
    /// Finds out what has become of the exports' mounts; `None` when nothing has. May wait for a filesystem
    /// that hangs.
    pub(crate) fn follow(&self, mounts: &Mounts, opening: &Opening) -> Option<Followup> {
        let (mut news, mut changed) = (Vec::new(), false);
        let follow = |entry: &Arc<Entry>| {
            let path = entry.export.path().display();
            let gone = match &entry.store {
                Ok(store) => match store.follow_mount(mounts) {
                    MountChange::Unchanged => return Arc::clone(entry),
                    MountChange::OptionsChanged => {
                        let what =
                            if store.is_mounted_read_only() { "read-only now" } else { "mounted otherwise" };
                        news.push(format!("{path} is {what}: grants are recalled"));
                        return Arc::clone(entry);
                    }
                    MountChange::Unmounted => Some(
                        "its filesystem has been unmounted; mount it again, or have the exports read again \
                         (SIGHUP) to serve what is there now",
                    ),
                    MountChange::Covered => Some(
                        "something else is mounted there now; unmount that, or have the exports read again \
                         (SIGHUP) to serve it",
                    ),
                },
                Err(_) => None,
            };
            let lost = entry.store.as_ref().map_or(entry.lost, |store| Some(store.directory_id()));
            let back =
                lost.is_some_and(|lost| DirectoryId::of(entry.export.path()).is_ok_and(|now| now == lost));
            if back {
                news.push(format!("{path} is mounted anew, and served"));
            } else if let Some(why) = gone {
                news.push(format!("{path} is not served: {why}"));
            } else {
                return Arc::clone(entry);
            }
            changed = true;
            Arc::new(if back {
                entry.reopened(opening, self, mounts)
            } else {
                entry.without_store(lost, gone)
            })
        };
        let entries: Vec<_> = self.entries().iter().map(follow).collect();
        let table = changed.then(|| Self::of(entries));
        (!news.is_empty()).then_some(Followup { table, news })
    }
}

/// The thread that hears of changed mounts. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    end: OwnedFd,
}

impl Watch {
    /// Starts it; it looks at once, for something may have changed while the server started.
    ///
    /// # Errors
    /// Without /proc, or when there is no thread or descriptor to be had.
    pub(crate) fn start(running: Weak<Running>) -> io::Result<Self> {
        let mountinfo = File::open(MOUNTINFO)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let ended = end.try_clone()?;
        std::thread::Builder::new().name("mounts".into()).spawn(move || {
            while let Some(running) = running.upgrade() {
                running.follow_mounts();
                drop(running);
                std::thread::sleep(REST);
                let changes = PollFlags::PRI | PollFlags::ERR;
                let mut files = [PollFd::new(&mountinfo, changes), PollFd::new(&ended, PollFlags::IN)];
                if let Err(error) = poll(&mut files, None)
                    && error != rustix::io::Errno::INTR
                {
                    tracing::error!(%error, "changed mounts are noticed at the next reload only");
                    return;
                }
                if !files[1].revents().is_empty() {
                    return;
                }
            }
        })?;
        Ok(Self { end })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Fails only for a counter that is full: then the thread has been told.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}
