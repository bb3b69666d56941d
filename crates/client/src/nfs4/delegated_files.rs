//! The files whose delegations may be relied on, by their handles and by the names that they were found by.

use std::collections::BTreeMap;

use super::delegation::DelegatedFile;
use crate::types::Handle;

/// A directory, and a name in it.
type Place = (Handle, Box<[u8]>);

/// Delegated files.
#[derive(Debug, Default)]
pub(super) struct DelegatedFiles {
    files: BTreeMap<Handle, (DelegatedFile, Option<Place>)>,
    /// The files by the places that `files` has. The client returns a delegation before it renames the file,
    /// so the names stay true but for changes by others, for which the server recalls it.
    places: BTreeMap<Place, Handle>,
}

impl DelegatedFiles {
    pub(super) fn get(&self, file: &Handle) -> Option<&DelegatedFile> {
        self.files.get(file).map(|(known, _)| known)
    }

    pub(super) fn get_mut(&mut self, file: &Handle) -> Option<&mut DelegatedFile> {
        self.files.get_mut(file).map(|(known, _)| known)
    }

    /// Whether the file has a write delegation.
    pub(super) fn is_for_writing(&self, file: &Handle) -> bool {
        self.get(file).is_some_and(DelegatedFile::is_for_writing)
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn insert(&mut self, file: Handle, known: DelegatedFile) {
        self.remove(&file);
        let place = file.place();
        if let Some(place) = &place {
            self.places.insert(place.clone(), file.clone());
        }
        self.files.insert(file, (known, place));
    }

    pub(super) fn remove(&mut self, file: &Handle) -> Option<DelegatedFile> {
        let (known, place) = self.files.remove(file)?;
        if let Some(place) = place
            && self.places.get(&place) == Some(file)
        {
            self.places.remove(&place);
        }
        Some(known)
    }

    /// Keeps those for which `keep` is true.
    pub(super) fn retain(&mut self, keep: impl Fn(&Handle) -> bool) {
        self.files.retain(|file, _| keep(file));
        self.places.retain(|_, file| keep(file));
    }

    pub(super) fn clear(&mut self) {
        self.files.clear();
        self.places.clear();
    }

    /// The file that was found by a name in a directory.
    pub(super) fn found_at(&self, directory: &Handle, name: &[u8]) -> Option<&Handle> {
        if self.places.is_empty() {
            return None;
        }
        self.places.get(&(directory.clone(), name.into()))
    }
}
