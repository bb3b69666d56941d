//! The parts of a running server, and what any thread may request from it: reload, status, notices.

use std::fmt;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use control::{ControlAnswer, ProcessKind, Reply, Socket};
use exports::Export;
use lane::{Instance, LaneInfo, LaneServer};
use parking_lot::Mutex;
use store::{Cell, Privilege, Store};

use crate::export_table::io_modes::Direction;
use crate::export_table::mounts::{self, MountChanges};
use crate::export_table::sources::ExportSources;
use crate::export_table::{ExportEntry, ExportTable, StoreSettings};
use crate::lifecycle::config::{Config, LaneOffer};
use crate::lifecycle::errors::ReloadError;
use crate::service::Service;
use crate::status::{self, Status};

/// The time between two looks at stores that may be out of use.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The result of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// New exports.
    pub added: Vec<PathBuf>,
    /// Exports that were removed.
    pub removed: Vec<PathBuf>,
    /// Exports with other clients or options, or with another directory at their path.
    pub changed: Vec<PathBuf>,
    /// Exports that are as before.
    pub unchanged: Vec<PathBuf>,
    /// Changed settings that were applied, in words.
    pub settings: Vec<String>,
    /// Changed settings that need a restart.
    pub needs_restart: Vec<String>,
    /// What can't be served, in words.
    pub notices: Vec<String>,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = |paths: &[PathBuf]| {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            paths.join(" ")
        };
        write!(f, "exports unchanged: {}", self.unchanged.len())?;
        let others = [("changed", &self.changed), ("added", &self.added), ("removed", &self.removed)];
        for (what, list) in others.into_iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, ", {what}: {}", paths(list))?;
        }
        if !self.settings.is_empty() {
            write!(f, "; settings changed: {}", self.settings.join(", "))?;
        }
        if !self.needs_restart.is_empty() {
            write!(f, "; settings that need a restart: {}", self.needs_restart.join(", "))?;
        }
        Ok(())
    }
}

/// Whether an export has the same directory in both tables, or can't be served in both.
fn is_served_as_before(old: &ExportEntry, new: &ExportEntry) -> bool {
    old.is_served_like(new) || (old.store.is_err() && new.store.is_err())
}

/// State shared by [`crate::Server`] and the control socket's thread.
pub(crate) struct RunningServer {
    /// The configuration. A reload changes what can change while the server runs.
    pub config: Mutex<Config>,
    pub instance: Instance,
    pub since: Instant,
    pub opening: StoreSettings,
    pub service: Arc<Service>,
    pub lane: Option<Arc<LaneServer>>,
    pub wire: rpc::server::Server,
    /// What failed at start, one sentence each.
    pub problems: Mutex<Vec<String>>,
    /// Held during a reload.
    pub reloading: Mutex<()>,
    /// Whether a change of the exports was requested at the control socket and isn't made yet.
    pub is_changing: AtomicBool,
}

impl RunningServer {
    pub(crate) fn status_socket(self: &Arc<Self>) -> Option<Socket> {
        let running = Arc::downgrade(self);
        let directory = &self.config.lock().run_dir.clone();
        let instance = lane::nonce::hex(&self.instance);
        // The umask is 0 by now.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        let started = made.and_then(|()| {
            // While the server is being dropped, a request gets no answer.
            Socket::start(directory, &instance, ProcessKind::Server, move |request| {
                running.upgrade().map_or(ControlAnswer::Ending, |running| running.answer(request))
            })
        });
        match started {
            Ok(socket) => Some(socket),
            Err(error) => {
                let problem = format!(
                    "no status socket in {}: {error}; choose another with --run-dir or SAMEHOST_RUN_DIR",
                    directory.display()
                );
                self.problems.lock().push(problem);
                None
            }
        }
    }

    /// The answer to a request at the socket.
    fn answer(self: &Arc<Self>, request: &[u8]) -> ControlAnswer {
        if request.is_empty() {
            return ControlAnswer::now(&self.status());
        }
        match serde_json::from_slice(request) {
            Ok(change) => self.change(change),
            Err(error) => ControlAnswer::now(&Reply::Error {
                reason: format!("this server knows no such change: {error}"),
                next: Some("use the `samehost` of the server's own version".to_owned()),
            }),
        }
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        let mut notices = notices_of(&self.service.access.table());
        notices.extend(self.lane.iter().flat_map(|lane| lane.problems().iter().cloned()));
        notices.extend(self.kept_cells());
        notices.extend(self.problems.lock().iter().cloned());
        notices.iter().map(|notice| sys::without_error_numbers(notice)).collect()
    }

    /// The exports whose cells a mount below doesn't take away at present, one sentence each.
    fn kept_cells(&self) -> Vec<String> {
        let (table, trees) = (self.service.access.table(), &self.service.trees);
        let kept = table.entries().iter().filter(|entry| trees.has_busy_cells(entry.id));
        kept.map(|entry| {
            format!(
                "{}: clients keep files open for writing in many directories that were recalled, so a mount \
                 below it makes no others read-only until some of these are closed",
                entry.export.path().display()
            )
        })
        .collect()
    }

    pub(crate) fn reload(&self) -> Result<Reloaded, ReloadError> {
        let _one = self.reloading.lock();
        let source = self.config.lock().source.clone();
        let new = source.map(|source| source.read()).transpose().map_err(ReloadError::Config)?;
        let sources = ExportSources::of(new.as_ref().map_or(&*self.config.lock(), |new| &new.config));
        let exports = sources.read()?;
        let before = self.service.access.table();
        let after = self.put_in_place(&before, ExportTable::open(&exports, &self.opening, &before));
        let mut reloaded = Reloaded { notices: notices_of(&after), ..Reloaded::default() };
        if let Some(new) = new {
            reloaded.settings = self.apply(new.config);
            reloaded.needs_restart = new.needs_restart;
        }
        for entry in after.configured() {
            let path = entry.export.path();
            let list = match before.configured().find(|old| old.export.path() == path) {
                None => &mut reloaded.added,
                Some(old) if old.export == entry.export && is_served_as_before(old, entry) => {
                    &mut reloaded.unchanged
                }
                Some(_) => &mut reloaded.changed,
            };
            list.push(path.to_owned());
        }
        let paths: Vec<_> = after.configured().map(|entry| entry.export.path()).collect();
        reloaded.removed = before
            .configured()
            .map(|entry| entry.export.path().to_owned())
            .filter(|path| !paths.contains(&path.as_path()))
            .collect();
        Ok(reloaded)
    }

    /// Applies the settings that can change while the server runs; returns those that have changed, in words.
    /// An I/O mode of `samehost ctl` ends when the configured one changes.
    fn apply(&self, new: Config) -> Vec<String> {
        let mut settings = Vec::new();
        let config = &mut *self.config.lock();
        let io = &self.service.access.io;
        for (direction, now, new) in [
            (Direction::Read, &mut config.read_io, new.read_io),
            (Direction::Write, &mut config.write_io, new.write_io),
        ] {
            if std::mem::replace(now, new) != new {
                io.set(direction, Some(new));
                settings.push(format!("{direction} mode {new}"));
            }
        }
        if !settings.is_empty() {
            self.modes_changed();
        }
        if std::mem::replace(&mut config.grace, new.grace) != new.grace {
            settings.push(format!("grace {} s", new.grace.as_secs()));
        }
        (config.exports, config.export_files) = (new.exports, new.export_files);
        config.system_exports = new.system_exports;
        settings
    }

    /// Replaces the export table. Grants and NFSv4 state in exports that are gone, or that have another
    /// directory now, end; so does the NFSv4 state of clients that an export now refers to other servers.
    /// Trees end wherever anything about the export has changed.
    pub(crate) fn put_in_place(&self, before: &ExportTable, after: ExportTable) -> Arc<ExportTable> {
        let withdrawn = before.withdrawn(&after);
        self.service.access.replace(after);
        let after = self.service.access.table();
        let trees = &self.service.trees;
        // The cells first: a client that notices the recall must find new ones.
        let (changed, cells) = Self::take_cells(before, |old| before.tree_differs(&after, old));
        if let Some(lane) = &self.lane {
            let differs = |lane: &LaneInfo| self.service.access.differs(before, &after, lane.bound.nfs_peer);
            let has_tree = |lane: &LaneInfo| trees.has(lane.bound.lane, |export| changed.contains(&export));
            lane.recall(|lane| !withdrawn.is_empty() || differs(lane) || has_tree(lane));
        }
        trees.retire(cells);
        if !withdrawn.is_empty() {
            self.service.state.withdraw(&withdrawn);
        }
        for entry in after.referring(before) {
            let access = &self.service.access;
            self.service.state.withdraw_referred(entry.id, |peer| access.refers(entry, peer));
        }
        after
    }

    /// Takes the cells of the exports of a table that `which` selects away. The caller recalls the trees in
    /// these exports, and then retires the cells.
    fn take_cells(
        table: &ExportTable,
        which: impl Fn(&ExportEntry) -> bool,
    ) -> (Vec<u32>, Vec<(u32, Arc<Cell>)>) {
        let (mut exports, mut cells) = (Vec::new(), Vec::new());
        for entry in table.entries().iter().filter(|entry| which(entry)) {
            let Some(store) = entry.open_store() else { continue };
            exports.push(entry.id);
            cells.extend(store.take_cells().into_iter().flatten().map(|cell| (entry.id, cell)));
        }
        (exports, cells)
    }

    /// Must be called after the mounts of this process's namespace have changed. May block on a filesystem
    /// that hangs.
    pub(crate) fn follow_mounts(&self) {
        let _one = self.reloading.lock();
        let mounts = match mounts::read() {
            Ok(mounts) => mounts,
            Err(error) => {
                tracing::error!(%error, "the mounts can't be read: what has become of exported ones isn't \
                                         known");
                return;
            }
        };
        let before = self.service.access.table();
        // A directory is given as a tree only while nothing is mounted in it.
        let trees = &self.service.trees;
        let has_mounts =
            |entry: &ExportEntry| entry.open_store().is_some_and(|store| store.has_mounts_below(&mounts));
        let covered: Vec<_> =
            before.entries().iter().filter(|entry| has_mounts(entry)).map(|entry| entry.id).collect();
        // Unlike a change of the export, a user can cause this without end. With so many busy cells the
        // export keeps those that it has, and gives them again when nothing is mounted below any more.
        let (_, cells) =
            Self::take_cells(&before, |entry| covered.contains(&entry.id) && !trees.has_busy_cells(entry.id));
        trees.recall(|export| covered.contains(&export));
        trees.retire(cells);
        let Some(MountChanges { table, news, recalls }) = before.follow(&mounts, &self.opening) else {
            return;
        };
        // They have the options of the mounts that they were made from.
        let (_, cells) = Self::take_cells(&before, |_| recalls);
        news.iter().for_each(|news| tracing::warn!("{news}"));
        if let Some(table) = table {
            self.put_in_place(&before, table);
        }
        if !recalls {
            return;
        }
        if let Some(lane) = &self.lane {
            // Grants depend on the options of the mounts.
            lane.recall(|_| true);
        }
        trees.retire(cells);
    }

    /// Closes the stores of crossed filesystems that are out of use. Returns when to do so again; `None`
    /// while there are no such filesystems.
    pub(crate) fn close_idle_stores(&self) -> Option<Duration> {
        let _one = self.reloading.lock();
        let has_grants =
            || self.lane.as_ref().is_some_and(|lane| lane.status().iter().any(|lane| lane.grants > 0));
        let table = self.service.access.table();
        table.crossed().for_each(|crossed| crossed.close_if_idle(has_grants));
        table.crossed().next().map(|_| IDLE_CHECK_INTERVAL)
    }

    pub(crate) fn status(&self) -> Status {
        status::gather::gather(&status::gather::StatusSources {
            instance: &self.instance,
            since: self.since,
            notices: self.notices(),
            service: &self.service,
            lane: self.lane.as_deref(),
            lane_wanted: self.config.lock().lane != LaneOffer::Off,
            wire: &self.wire,
            slots: &self.opening.slots,
        })
    }
}

/// Exports that aren't served, and limitations of those that are: each sentence once, with the exports that
/// it applies to.
fn notices_of(table: &ExportTable) -> Vec<String> {
    let (mut notices, mut served) = (table.unserved(), 0);
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for entry in table.entries() {
        let Ok(store) = &entry.store else { continue };
        let path = entry.export.path().display().to_string();
        served += 1;
        for sentence in limits_of(store, &entry.export) {
            match said.iter_mut().find(|(other, _)| *other == sentence) {
                Some((_, paths)) => paths.push(path.clone()),
                None => said.push((sentence, vec![path.clone()])),
            }
        }
    }
    notices.extend(said.into_iter().map(|(sentence, paths)| {
        // A sentence that applies to all exports needs no paths.
        if paths.len() == served { sentence } else { format!("{}: {sentence}", paths.join(", ")) }
    }));
    notices
}

/// The limitations of an export that is served, one sentence each.
fn limits_of(store: &Store, export: &Export) -> Vec<String> {
    let mut limits = Vec::new();
    let all = export.clients().iter().filter(|client| client.options.all_act_as_server_user);
    let all: Vec<_> = all.map(|client| client.spec.to_string()).collect();
    match (store.privilege(), store.only_user()) {
        (Privilege::Unprivileged { reason }, Some(user)) => {
            limits.push(format!(
                "only the server's own user ({user}) and root are served, and act as that user ({reason})"
            ));
            if !all.is_empty() {
                limits.push(format!(
                    "all users at {} act as user {user} (all_act_as_server_user)",
                    all.join(" ")
                ));
            }
        }
        _ if !all.is_empty() => limits
            .push("all_act_as_server_user has no effect: this server acts as each request's user".to_owned()),
        _ => {}
    }
    limits.extend(export.ineffective_options().iter().map(ToString::to_string));
    if !store.has_kernel_handles() && !export.subtree_check() {
        limits.push(
            "a restart may lose files that are moved meanwhile (needs CAP_DAC_READ_SEARCH and file handles)"
                .into(),
        );
    }
    if store.is_mounted_read_only() {
        limits.push("nothing can be changed: its mount is read-only".into());
    }
    if !store.is_cloned() {
        limits.push(
            "read-only clients, and processes that are squashed, get no files for reading over the lane \
             (without CAP_SYS_ADMIN)"
                .into(),
        );
    }
    limits
}

#[cfg(test)]
mod tests {
    use exports::Exports;

    use super::*;

    #[test]
    fn a_sentence_appears_once_for_all_its_exports() {
        let [there, missing] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let gone = missing.path().display().to_string();
        drop(missing);
        let text = format!("{} *\n{gone}/a *\n{gone}/b *\n", there.path().display());
        let opening = StoreSettings {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let table =
            ExportTable::open(&Exports::parse(&text, "t").unwrap(), &opening, &ExportTable::default());
        let notices = notices_of(&table);
        for path in ["/a is not served: ", "/b is not served: "] {
            assert_eq!(notices.iter().filter(|notice| notice.contains(path)).count(), 1, "{notices:?}");
        }
        // Limitations of the only served export, if there are any, need no path.
        assert!(!notices.iter().any(|notice| notice.contains(&there.path().display().to_string())));
    }
}
