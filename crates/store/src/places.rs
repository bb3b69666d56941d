//! Where the files of a store were seen last: a bounded memory for finding them again (see `locate`).

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache;

use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId};
use crate::open::Inner;
use crate::survey::Survey;

/// How many files' places are remembered.
const MAX_PLACES: usize = 65_536;
/// Directories deep that a remembered path may be.
const MAX_PATH: usize = 2048;
/// Files that were searched for in vain.
const MAX_MISSING: usize = 4096;
/// For how long they aren't searched for again, and a survey answers.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Where a file was seen last.
#[derive(Debug)]
struct Place {
    handle: FileHandle,
    parent: FileId,
    name: CString,
    /// How many surveys had been begun then.
    surveys: u64,
}

/// The places of the files of one store.
#[derive(Debug)]
pub(crate) struct Places {
    known: Cache<FileId, Arc<Place>>,
    missing: Mutex<HashMap<FileId, Instant>>,
    surveys: AtomicU64,
    last: Mutex<Option<(Instant, Arc<Survey>)>>,
    searching: Mutex<()>,
}

impl Places {
    pub fn new() -> Places {
        Places {
            known: Cache::new(MAX_PLACES),
            missing: Mutex::default(),
            surveys: AtomicU64::new(0),
            last: Mutex::default(),
            searching: Mutex::default(),
        }
    }

    /// The handle that a file goes by.
    pub fn handle(&self, id: FileId) -> Option<FileHandle> {
        self.known.get(&id).map(|place| place.handle)
    }

    /// The file was seen as `name` in `parent`: the handle that it goes by, the old one if it has one.
    pub fn note(&self, store: &Inner, parent: FileId, name: &CStr, id: FileId) -> FileHandle {
        if let Some(place) = self.known.get(&id) {
            if place.parent != parent || place.name.as_c_str() != name {
                self.put(id, place.handle, parent, name);
            }
            return place.handle;
        }
        let mut hints: Vec<u16> = self
            .path(store, parent)
            .map(|path| path.iter().map(|name| store.sealer.hint(name.to_bytes())).collect())
            .unwrap_or_default();
        hints.push(store.sealer.hint(name.to_bytes()));
        let handle = store.sealer.located(id, &hints);
        self.put(id, handle, parent, name);
        handle
    }

    pub fn put(&self, id: FileId, handle: FileHandle, parent: FileId, name: &CStr) {
        self.missing.lock().remove(&id);
        let place = Place { handle, parent, name: name.to_owned(), surveys: self.surveys() };
        self.known.insert(id, Arc::new(place));
    }

    /// The remembered path from the root.
    pub fn path(&self, store: &Inner, id: FileId) -> Option<Vec<CString>> {
        let mut path = Vec::new();
        let mut at = id;
        while at != store.root.id() {
            if path.len() >= MAX_PATH {
                return None;
            }
            let place = self.known.get(&at)?;
            path.push(place.name.clone());
            at = place.parent;
        }
        path.reverse();
        Some(path)
    }

    /// Whether the remembered path leads through the directory of another export.
    pub fn is_in_another_export(&self, store: &Inner, id: FileId) -> bool {
        let mut at = id;
        if store.others.round() == 0 {
            return false;
        }
        for _ in 0..MAX_PATH {
            if store.others.has(at) {
                return true;
            }
            match self.known.get(&at) {
                Some(place) if at != store.root.id() => at = place.parent,
                _ => return false,
            }
        }
        false
    }

    /// Whether the file is known to be nowhere.
    pub fn is_missing(&self, id: FileId) -> bool {
        self.missing.lock().get(&id).is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    /// The file is nowhere.
    pub fn miss(&self, id: FileId) {
        let mut missing = self.missing.lock();
        if missing.len() >= MAX_MISSING {
            missing.retain(|_, since| since.elapsed() < REMEMBERED);
            if missing.len() >= MAX_MISSING {
                return;
            }
        }
        missing.insert(id, Instant::now());
    }

    /// What was surveyed says nothing any more.
    pub fn forget_survey(&self) {
        *self.last.lock() = None;
    }

    /// The last survey of the tree, unless it is too old to say anything.
    pub fn survey(&self) -> Option<Arc<Survey>> {
        let last = self.last.lock();
        last.as_ref().filter(|(since, _)| since.elapsed() < REMEMBERED).map(|(_, survey)| Arc::clone(survey))
    }

    /// Whether the file was seen after `survey` began, so that its not being there proves nothing.
    pub fn is_newer(&self, id: FileId, survey: &Survey) -> bool {
        self.known.get(&id).is_some_and(|place| place.surveys >= survey.number())
    }

    /// The right to survey the tree. Whoever doesn't get it shall come again: waiting would take a worker.
    ///
    /// # Errors
    /// `TryLater`.
    pub fn only_searcher(&self) -> Result<MutexGuard<'_, ()>> {
        self.searching.try_lock().ok_or(Error::TryLater)
    }

    /// Counts a survey that begins; the count is its number.
    pub fn begin_survey(&self) -> u64 {
        self.surveys.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn keep_survey(&self, survey: Survey) -> Arc<Survey> {
        let survey = Arc::new(survey);
        *self.last.lock() = Some((Instant::now(), Arc::clone(&survey)));
        survey
    }

    /// How many surveys were begun.
    pub fn surveys(&self) -> u64 {
        self.surveys.load(Ordering::Relaxed)
    }

    /// Forgets what is too old to be asked.
    pub fn tidy(&self) {
        let old = self.last.lock().take_if(|(since, _)| since.elapsed() >= REMEMBERED);
        drop(old);
        self.missing.lock().retain(|_, since| since.elapsed() < REMEMBERED);
    }
}
