//! Changes of the mounts that exports are on.
//!
//! umount(8) of an exported filesystem fails with EBUSY, because the store holds it (`store::Mounts`). Lazy
//! unmounts, mounts over the exported directory and remounts with other options remain possible. The kernel
//! reports them (`lifecycle::mount_watch`), and the server reacts within moments:
//!
//! 1. An export whose directory is no longer at its path isn't served any more. Everything in it is closed:
//!    NFSv4 state ends and grants are recalled. The status shows the reason.
//! 2. When the same filesystem is back it is served again. Another filesystem is served only after a reload
//!    of the exports (SIGHUP), when an administrator has confirmed it: clients' files must not go to the
//!    empty directory below an unmounted disk.
//! 3. An export with `mountpoint=` is served while that directory is a mount point.
//! 4. Filesystems below an export with `crossmnt` appear and disappear (see `crossed`).
//! 5. Changed `ro` and `noexec` options take effect, and grants are recalled.

use std::io;
use std::sync::Arc;

use store::{DirectoryId, MountChange, Mounts};

use crate::export_table::{ExportEntry, ExportTable, StoreSettings, missing_mount};

/// The mounts of this process's namespace.
pub(crate) const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The current mounts.
pub(crate) fn read() -> io::Result<Mounts> {
    std::fs::read(MOUNTINFO).map(|text| Mounts::parse(&text))
}

/// The effect of changed mounts on a table.
#[derive(Debug)]
pub(crate) struct MountChanges {
    /// The next table, if an export has lost its store or got a new one.
    pub table: Option<ExportTable>,
    /// Sentences for the log.
    pub news: Vec<String>,
    /// Whether grants may depend on what has changed, wherever they are.
    pub recalls: bool,
}

impl ExportTable {
    /// Checks the exports' mounts; `None` if nothing has changed. May block on a filesystem that hangs.
    pub(crate) fn follow(&self, mounts: &Mounts, opening: &StoreSettings) -> Option<MountChanges> {
        let (mut news, mut changed) = (Vec::new(), false);
        let follow = |entry: &Arc<ExportEntry>| {
            let path = entry.export.path().display();
            let missing = missing_mount(&entry.export, mounts);
            let gone = match &entry.store {
                Ok(_) if missing.is_some() => missing.clone(),
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
                         (SIGHUP) to serve what is there now"
                            .to_owned(),
                    ),
                    MountChange::Covered => Some(
                        "something else is mounted there now; unmount that, or have the exports read again \
                         (SIGHUP) to serve it"
                            .to_owned(),
                    ),
                },
                Err(_) => None,
            };
            let lost = entry.store.as_ref().map_or(entry.lost, |store| Some(store.directory_id()));
            let is_back = match lost {
                Some(lost) => DirectoryId::of(entry.export.path()).is_ok_and(|now| now == lost),
                None => entry.awaits_mount(),
            };
            let next = match (gone, is_back && missing.is_none()) {
                (_, true) => {
                    let next = entry.reopened(opening, self, mounts);
                    match next.problem() {
                        None => news.push(format!("{path} is mounted anew, and served")),
                        // Known since an earlier change.
                        known if known == entry.problem() => return Arc::clone(entry),
                        Some(why) => news.push(format!("{path} is not served: {why}")),
                    }
                    next
                }
                (Some(why), false) => {
                    news.push(format!("{path} is not served: {why}"));
                    entry.without_store(lost, &why)
                }
                (None, false) => return Arc::clone(entry),
            };
            changed = true;
            Arc::new(next)
        };
        let entries: Vec<_> = self.configured().map(follow).collect();
        let recalls = !news.is_empty() | self.follow_crossed(mounts);
        if !changed && !self.crosses() {
            return recalls.then_some(MountChanges { table: None, news, recalls });
        }
        let table = Self::of(entries, mounts, opening, self);
        let (added, gone) = (table.crossed_beside(self), self.crossed_beside(&table));
        changed |= !added.is_empty() || !gone.is_empty();
        // No warnings: filesystems of containers come and go all the time.
        added.iter().for_each(|path| tracing::info!("{path} is mounted, and served (crossmnt)"));
        gone.iter().for_each(|path| tracing::info!("{path} is no longer mounted (crossmnt)"));
        (changed || recalls).then(|| MountChanges { table: changed.then_some(table), news, recalls })
    }
}
