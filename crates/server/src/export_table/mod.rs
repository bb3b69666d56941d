//! The export table: each export with its number and its open store.
//!
//! A table is immutable. A reload builds a new one and takes over the stores of the same directories, so that
//! handles, open files and clients stay valid.

pub(crate) mod crossed;
pub(crate) mod io_modes;
pub(crate) mod mounts;
pub(crate) mod resolved;
pub(crate) mod sources;

use std::ffi::CStr;
use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ahash::HashMap;

use crate::export_table::crossed::CrossedFilesystem;
use crate::export_table::io_modes::IoModeSettings;
use crate::export_table::resolved::{PathObstacle, ResolvedPath, changeable_link, location, same_directory};
use crate::status::counters::{ExportSlot, ExportSlots};
use exports::{Export, Exports, Fsid};
use store::{DirectoryId, HandleKey, Mounts, NestedExport, Store, StoreOptions, WriteVerifier};

/// Numbers from here on are hashes of a path or UUID; smaller ones are `fsid=` numbers.
const HASHED: u32 = 1 << 31;

/// How many files one store keeps open.
const MAX_STORE_NODES: usize = 4096;

/// The settings that all stores have in common.
#[derive(Debug, Clone)]
pub(crate) struct StoreSettings {
    pub key: HandleKey,
    pub verifier: Arc<WriteVerifier>,
    /// Limits for all stores together.
    pub limits: store::DescriptorLimits,
    /// The exports' places in the counters.
    pub slots: Arc<ExportSlots>,
    /// A name of the server's own in exported directories.
    pub reserved_name: Option<&'static CStr>,
}

/// One export and its store.
#[derive(Debug)]
pub(crate) struct ExportEntry {
    pub export: Export,
    /// The export's number in every handle: stable across restarts as long as the path (or `fsid=`) is.
    pub id: u32,
    /// The store, or why there is none, in words. None of a crossed filesystem, which opens on demand.
    pub store: Result<Arc<Store>, String>,
    /// Its counters.
    pub slot: ExportSlot,
    /// The I/O modes that were set for it at run time.
    pub io: Arc<IoModeSettings>,
    /// The directory that its path leads to. None of a crossed filesystem.
    resolved: Option<ResolvedPath>,
    /// The directory that it served before its filesystem was unmounted or covered.
    pub lost: Option<DirectoryId>,
    /// The filesystem below an export that this entry stands for.
    pub crossed: Option<Arc<CrossedFilesystem>>,
}

/// An export whose directory lies in another export's.
#[derive(Debug, Clone)]
pub(crate) struct ExportNesting {
    pub inner: Arc<ExportEntry>,
    pub outer: Arc<ExportEntry>,
    /// The path from the outer export's directory to the parent of the inner one's.
    pub way: Vec<Vec<u8>>,
    pub name: Vec<u8>,
}

/// All exports.
#[derive(Debug, Default)]
pub(crate) struct ExportTable {
    entries: Vec<Arc<ExportEntry>>,
    by_id: HashMap<u32, Arc<ExportEntry>>,
    nested: Vec<ExportNesting>,
    /// By export number, the exports that lie in it with no other export between.
    inner: HashMap<u32, Vec<NestedExport>>,
    /// How many filesystems below exports aren't served because there are too many.
    more_crossed: usize,
}

impl ExportTable {
    /// Opens a store for every export, or takes it over from `previous`. An export that can't be opened stays
    /// in the table with the reason, and doesn't affect the others.
    pub(crate) fn open(exports: &Exports, opening: &StoreSettings, previous: &Self) -> Self {
        let mut table = Self::default();
        let limits = opening.for_each_of(exports.list().len());
        let mounts = mounts::read().unwrap_or_default();
        let all: Vec<_> =
            exports.list().iter().map(|export| (export, ResolvedPath::of(export.path()))).collect();
        let exported = all.iter().map(|(export, resolved)| (*export, location(export, resolved.as_ref())));
        let exported: Vec<_> = exported.collect();
        for (export, resolved) in &all {
            let id = number(export);
            let old = previous.get(id).filter(|old| old.can_serve(export, resolved.as_ref()));
            let obstacle = || {
                changeable_link(export, resolved.as_ref(), &exported)
                    .or_else(|| table.same_directory(id, resolved.as_ref()))
            };
            let store = match (table.get(id), obstacle(), old) {
                (Some(other), ..) => Err(format!(
                    "its number {id:#x} is that of {} already: give one of them another fsid=",
                    other.export.path().display()
                )),
                (None, Some(obstacle), _) => Err(obstacle.to_string()),
                (None, None, Some(old)) if missing_mount(export, &mounts).is_none() => old.store.clone(),
                (None, None, _) => open_resolved(export, id, resolved.as_ref(), opening, limits, &mounts),
            };
            if let Ok(store) = &store {
                store.set_read_only(export.read_only());
                store.set_max_nodes(limits.nodes);
            }
            let io = previous.get(id).map(|old| Arc::clone(&old.io)).unwrap_or_default();
            let slot = opening.slots.of(export.path());
            let (export, resolved) = ((*export).clone(), resolved.clone());
            let crossed = None;
            table.add(Arc::new(ExportEntry { export, id, store, slot, io, resolved, lost: None, crossed }));
        }
        table.add_crossed(&mounts, opening, previous);
        table.relate();
        table
    }

    /// A table of these configured exports, with the filesystems below them.
    fn of(entries: Vec<Arc<ExportEntry>>, mounts: &Mounts, opening: &StoreSettings, previous: &Self) -> Self {
        let mut table = Self::default();
        entries.into_iter().for_each(|entry| table.add(entry));
        table.add_crossed(mounts, opening, previous);
        table.relate();
        table
    }

    fn add(&mut self, entry: Arc<ExportEntry>) {
        self.by_id.entry(entry.id).or_insert_with(|| Arc::clone(&entry));
        self.entries.push(entry);
    }

    /// The numbers of the exports whose store is gone or replaced in `after`.
    pub(crate) fn withdrawn(&self, after: &Self) -> Vec<u32> {
        let had = self.entries.iter().filter(|entry| entry.has_store());
        let is_kept = |old: &ExportEntry| after.get(old.id).is_some_and(|new| old.is_served_like(new));
        had.filter(|old| !is_kept(old)).map(|old| old.id).collect()
    }

    /// The exports that refer clients to other servers (`refer=`), as far as they have changed since
    /// `before`.
    pub(crate) fn referring(&self, before: &Self) -> impl Iterator<Item = &ExportEntry> {
        let refers = |entry: &&Arc<ExportEntry>| {
            let clients = entry.export.clients().iter();
            clients.filter_map(|client| client.options.locations.as_ref()).any(|locations| locations.refers)
        };
        let has_changed =
            |entry: &&Arc<ExportEntry>| before.get(entry.id).is_some_and(|old| old.export != entry.export);
        self.entries.iter().filter(refers).filter(has_changed).map(|entry| &**entry)
    }

    /// Whether anything about the export `old` is different in `after`: its directory, its clients, their
    /// options, or the exports that lie in it.
    pub(crate) fn tree_differs(&self, after: &Self, old: &ExportEntry) -> bool {
        let Some(new) = after.get(old.id) else { return true };
        !old.is_served_like(new)
            || old.export != new.export
            || self.inner_of(old.id) != after.inner_of(old.id)
    }

    /// Determines which exports lie in which.
    fn relate(&mut self) {
        self.nested = self.entries.iter().filter_map(|entry| self.nest(entry)).collect();
        for entry in &self.entries {
            // A store of its own mount only has nothing of crossed filesystems.
            if entry.crossed.is_some() {
                continue;
            }
            let Some(outer) = self.enclosing(entry).map(|outer| outer.id) else { continue };
            // One without a store is inaccessible, too: the outer export's rules don't apply to it. Unless
            // another export of the same directory is served.
            let id = entry.store.is_ok().then_some(entry.id);
            if id.is_none() && self.same_directory(entry.id, entry.resolved.as_ref()).is_some() {
                continue;
            }
            let inner = NestedExport { path: entry.location().to_owned(), id };
            self.inner.entry(outer).or_default().push(inner);
        }
        self.part();
    }

    /// Tells each store which exports lie in it. A store for which this fails isn't served: it would expose
    /// files of other exports.
    fn part(&mut self) {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if let Some(crossed) = &entry.crossed {
                crossed.set_nested_exports(self.inner_of(entry.id));
            }
            let Ok(store) = &entry.store else { continue };
            let Err(error) = store.set_nested_exports(self.inner_of(entry.id)) else { continue };
            let problem = format!("the exports in it can't be looked at: {error}");
            let closed = Arc::new(ExportEntry {
                export: entry.export.clone(),
                id: entry.id,
                store: Err(problem),
                slot: entry.slot,
                io: Arc::clone(&entry.io),
                resolved: entry.resolved.clone(),
                lost: None,
                crossed: None,
            });
            self.by_id.insert(closed.id, Arc::clone(&closed));
            self.nested.retain(|nested| nested.inner.id != closed.id && nested.outer.id != closed.id);
            self.entries[index] = closed;
        }
    }

    /// The nearest export around `inner`.
    fn enclosing(&self, inner: &ExportEntry) -> Option<&Arc<ExportEntry>> {
        let encloses = |outer: &&Arc<ExportEntry>| {
            outer.is_served()
                && outer.location() != inner.location()
                && inner.location().starts_with(outer.location())
        };
        let depth = |outer: &&Arc<ExportEntry>| outer.location().components().count();
        self.entries.iter().filter(encloses).max_by_key(depth)
    }

    /// Why an export isn't served: another one of the same directory is.
    fn same_directory(&self, id: u32, resolved: Option<&ResolvedPath>) -> Option<PathObstacle> {
        let path = &resolved?.path;
        let is_other = |other: &&Arc<ExportEntry>| {
            other.id != id && other.store.is_ok() && other.location().as_os_str() == path.as_os_str()
        };
        self.entries.iter().find(is_other).map(|other| same_directory(other.export.path()))
    }

    /// The position of `inner` in the nearest export around it, if there is one.
    fn nest(&self, inner: &Arc<ExportEntry>) -> Option<ExportNesting> {
        let outer = self.enclosing(inner)?;
        let below = inner.location().strip_prefix(outer.location()).ok()?;
        let mut way: Vec<_> = below.iter().map(|part| part.as_bytes().to_vec()).collect();
        let name = way.pop().filter(|_| inner.is_served())?;
        Some(ExportNesting { inner: Arc::clone(inner), outer: Arc::clone(outer), way, name })
    }

    /// The exports that lie in another one.
    pub(crate) fn nested(&self) -> &[ExportNesting] {
        &self.nested
    }

    /// The exports that lie in the export with the number `outer`, with none between.
    pub(crate) fn inner_of(&self, outer: u32) -> &[NestedExport] {
        self.inner.get(&outer).map_or(&[], Vec::as_slice)
    }

    /// The export with a number.
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<ExportEntry>> {
        self.by_id.get(&id)
    }

    /// All exports, in the order of the configuration.
    pub(crate) fn entries(&self) -> &[Arc<ExportEntry>] {
        &self.entries
    }

    /// One sentence for each export that isn't served, with the reason.
    pub(crate) fn unserved(&self) -> Vec<String> {
        let sentence = |entry: &Arc<ExportEntry>| {
            entry
                .problem()
                .map(|problem| format!("{} is not served: {problem}", entry.export.path().display()))
        };
        let mut sentences: Vec<String> = self.entries.iter().filter_map(sentence).collect();
        if self.more_crossed > 0 {
            sentences.push(format!(
                "{} filesystems below exports with crossmnt are not served: there are too many",
                self.more_crossed
            ));
        }
        sentences
    }
}

impl StoreSettings {
    /// The limits of each of `stores` stores. All get the same, since nothing says which of them will be
    /// busy.
    fn for_each_of(&self, stores: usize) -> store::DescriptorLimits {
        store::DescriptorLimits {
            nodes: (self.limits.nodes / stores.max(1)).min(MAX_STORE_NODES),
            ..self.limits
        }
    }
}

impl ExportEntry {
    /// The same entry with a newly opened store.
    pub(crate) fn reopened(&self, opening: &StoreSettings, table: &ExportTable, mounts: &Mounts) -> Self {
        let limits = opening.for_each_of(table.entries.len());
        let resolved = ResolvedPath::of(self.export.path());
        let others = table.configured().filter(|other| other.id != self.id);
        let mut exported: Vec<_> = others.map(|other| (&other.export, other.location())).collect();
        exported.push((&self.export, location(&self.export, resolved.as_ref())));
        let store = changeable_link(&self.export, resolved.as_ref(), &exported)
            .or_else(|| table.same_directory(self.id, resolved.as_ref()))
            .map_or_else(
                || open_resolved(&self.export, self.id, resolved.as_ref(), opening, limits, mounts),
                |obstacle| Err(obstacle.to_string()),
            );
        Self {
            export: self.export.clone(),
            id: self.id,
            store,
            slot: self.slot,
            io: Arc::clone(&self.io),
            resolved,
            lost: None,
            crossed: None,
        }
    }

    /// The same entry without a store, until the directory `lost` is back.
    pub(crate) fn without_store(&self, lost: Option<DirectoryId>, why: &str) -> Self {
        Self {
            export: self.export.clone(),
            id: self.id,
            store: Err(why.to_owned()),
            slot: self.slot,
            io: Arc::clone(&self.io),
            resolved: self.resolved.clone(),
            lost,
            crossed: None,
        }
    }

    /// Whether clients may use it. A crossed filesystem's store opens when they do.
    pub(crate) const fn is_served(&self) -> bool {
        self.store.is_ok() || self.crossed.is_some()
    }

    /// The store, if it is open.
    pub(crate) fn open_store(&self) -> Option<Arc<Store>> {
        match &self.crossed {
            Some(crossed) => crossed.opened(),
            None => self.store.as_ref().ok().cloned(),
        }
    }

    /// Whether a store is open.
    fn has_store(&self) -> bool {
        self.open_store().is_some()
    }

    /// Whether both entries have the same store, or would open the same.
    pub(crate) fn is_served_like(&self, other: &Self) -> bool {
        match (&self.crossed, &other.crossed) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => {
                matches!((&self.store, &other.store), (Ok(one), Ok(two)) if Arc::ptr_eq(one, two))
            }
            _ => false,
        }
    }

    /// The path of the exported directory without symbolic links; as written if it leads nowhere.
    pub(crate) fn location(&self) -> &Path {
        match &self.crossed {
            Some(crossed) => crossed.location(),
            None => location(&self.export, self.resolved.as_ref()),
        }
    }

    /// Whether this entry's store can serve `export`, whose path leads to the directory `resolved`.
    fn can_serve(&self, export: &Export, resolved: Option<&ResolvedPath>) -> bool {
        let is_same = |(one, other): (&ResolvedPath, &ResolvedPath)| one.is_same(other);
        self.store.is_ok()
            && self.resolved.as_ref().zip(resolved).is_some_and(is_same)
            && self.export.path() == export.path()
            && self.export.subtree_check() == export.subtree_check()
    }

    /// The user that everything is done as, if the store can't act as others.
    pub(crate) fn served_as(&self) -> Option<u32> {
        match &self.crossed {
            Some(crossed) => crossed.opened().and_then(|store| store.only_user()),
            None => self.store.as_ref().ok().and_then(|store| store.only_user()),
        }
    }

    /// Whether it is served as soon as something is mounted (`mountpoint=`).
    pub(crate) fn awaits_mount(&self) -> bool {
        self.store.is_err() && self.lost.is_none() && self.export.mount_points().next().is_some()
    }

    /// Why this export can't be served.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.crossed.is_some() { None } else { self.store.as_ref().err().cloned() }
    }
}

/// As [`open`], if the export's path still leads to the directory `resolved`.
fn open_resolved(
    export: &Export,
    id: u32,
    resolved: Option<&ResolvedPath>,
    opening: &StoreSettings,
    limits: store::DescriptorLimits,
    mounts: &Mounts,
) -> Result<Arc<Store>, String> {
    let store = open(export, id, opening, limits, mounts)?;
    match resolved {
        Some(resolved) if resolved.path == store.directory() => Ok(store),
        _ => Err("its path has just been changed: have the exports read again (SIGHUP)".to_owned()),
    }
}

fn open(
    export: &Export,
    id: u32,
    opening: &StoreSettings,
    limits: store::DescriptorLimits,
    mounts: &Mounts,
) -> Result<Arc<Store>, String> {
    if let Some(missing) = missing_mount(export, mounts) {
        return Err(missing);
    }
    let options = StoreOptions {
        path: export.path().to_owned(),
        export_id: id,
        key: opening.key.clone(),
        read_only: export.read_only(),
        subtree_check: export.subtree_check(),
        verifier: Arc::clone(&opening.verifier),
        limits,
        reserved_name: opening.reserved_name,
    };
    let store = Store::open(options).map_err(|error| sys::without_error_numbers(&error.to_string()))?;
    // For the mount's options. Later changes of the mount are noticed by `mounts`.
    let _ = store.follow_mount(mounts);
    Ok(Arc::new(store))
}

/// Why `export` must not be served now: nothing is mounted at a directory that must be a mount point.
fn missing_mount(export: &Export, mounts: &Mounts) -> Option<String> {
    let missing = export.mount_points().find(|point| !mounts.is_mount_point(point))?;
    Some(format!("nothing is mounted at {} (option mountpoint)", missing.display()))
}

fn number(export: &Export) -> u32 {
    // A hash with a fixed key, since it must be the same in the next run. It is no secret.
    let hashed = |bytes: &[u8]| {
        let mut hasher = siphasher::sip::SipHasher24::new();
        hasher.write(bytes);
        hasher.finish() as u32 | HASHED
    };
    match export.fsid() {
        Some(Fsid::Number(number)) if number < HASHED => number,
        Some(Fsid::Number(number)) => hashed(&number.to_be_bytes()),
        Some(Fsid::Uuid(uuid)) => hashed(&uuid),
        None => hashed(export.path().as_os_str().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<u32> {
        Exports::parse(text, "t").unwrap().list().iter().map(number).collect()
    }

    #[test]
    fn numbers_are_the_same_in_every_run() {
        assert_eq!(numbers("/a *(fsid=0)\n/b *(fsid=7)"), [0, 7]);
        let hashed =
            numbers("/a\n/b\n/c *(fsid=4294967295)\n/d *(fsid=00112233-4455-6677-8899-aabbccddeeff)");
        assert!(hashed.iter().all(|id| *id >= HASHED));
        assert_eq!(numbers("/a *(rw)")[0], hashed[0]);
        assert_eq!(numbers("/a")[0], 0xef11_c30d, "handles of earlier runs carry this number");
    }
}
