//! The pseudo-filesystem (RFC 8881 section 7.3): read-only directories that join all exports under one root.
//!
//! An export below another one is entered from the outer one (see `nested`); an export of `/` is the root
//! itself. So is one with `fsid=0` (exports(5)): then there is no pseudo-filesystem, and the client sees that
//! export with those in it, at paths that begin there. A namespace is built for a client from the exports
//! that it may use: the client sees the directories that lead there, and nothing else.
//!
//! An export whose path leads through symbolic links is at its directory's own path, and at the path as
//! written, unless that leads into another export, where the client finds the link.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use exports::Fsid;

use crate::export_table::{ExportEntry, ExportTable};

/// The first byte of the handles of the pseudo-filesystem: no store's handles begin with it.
const PSEUDO: u8 = 0xf4;

/// A directory of the pseudo-filesystem: a hash of its path, the same in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PseudoId(u64);

/// The object that a name in a pseudo directory stands for.
#[derive(Debug, Clone)]
pub(super) enum Child {
    Pseudo(PseudoId),
    Export(Arc<ExportEntry>),
}

/// A directory of the pseudo-filesystem.
#[derive(Debug)]
pub(super) struct PseudoDirectory {
    pub parent: PseudoId,
    pub children: BTreeMap<Vec<u8>, Child>,
}

/// The pseudo-filesystem of an export table.
#[derive(Debug)]
pub(super) struct Namespace {
    directories: HashMap<PseudoId, PseudoDirectory>,
    /// The directories above exports, by the exports' numbers.
    above: HashMap<u32, PseudoId>,
    root: Option<Arc<ExportEntry>>,
    change: u64,
}

impl PseudoId {
    /// The length of a handle, in bytes.
    pub const HANDLE: usize = 9;

    /// The root.
    pub fn root() -> Self {
        Self::of(b"")
    }

    /// The id of the directory that an export's path names, whether it is in the pseudo-filesystem or not.
    pub fn of_path(path: &Path) -> Self {
        Self::of(path.as_os_str().as_bytes())
    }

    fn of(path: &[u8]) -> Self {
        // A fixed key, so that ids are the same in every run. They protect nothing.
        let mut hasher = siphasher::sip::SipHasher24::new();
        hasher.write(path);
        Self(hasher.finish())
    }

    /// The handle.
    pub fn handle(self) -> [u8; Self::HANDLE] {
        let mut bytes = [PSEUDO; Self::HANDLE];
        bytes[1..].copy_from_slice(&self.0.to_be_bytes());
        bytes
    }

    /// The id in a handle, if that is one of the pseudo-filesystem.
    pub fn from_handle(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::HANDLE] = bytes.try_into().ok()?;
        let number = bytes[1..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        (bytes[0] == PSEUDO).then_some(Self(number))
    }

    /// The `fileid` that clients see.
    pub const fn fileid(self) -> u64 {
        // Not 0, and below what a signed 64-bit inode number holds.
        self.0 >> 1 | 1
    }
}

impl Namespace {
    /// Joins those exports of `table` that are `visible` and have a store. `change` is the change attribute
    /// of all directories.
    pub fn of(table: &ExportTable, change: u64, visible: impl Fn(&Arc<ExportEntry>) -> bool) -> Self {
        let mut made = Self { directories: HashMap::new(), above: HashMap::new(), root: None, change };
        let root = PseudoId::root();
        made.directories.insert(root, PseudoDirectory { parent: root, children: BTreeMap::new() });
        let mut entries: Vec<_> =
            table.configured().filter(|entry| entry.store.is_ok() && visible(entry)).collect();
        let is_root = |entry: &&&Arc<ExportEntry>| entry.export.fsid() == Some(Fsid::Number(0));
        if let Some(root) = entries.iter().find(is_root) {
            made.root = Some(Arc::clone(root));
            return made;
        }
        // Outer exports first.
        entries.sort_by_key(|entry| entry.location().components().count());
        for entry in &entries {
            made.add(entry, entry.location());
        }
        for entry in entries.iter().filter(|entry| entry.export.path() != entry.location()) {
            made.add(entry, entry.export.path());
        }
        made
    }

    /// Adds an export at a path, where nothing else is. Its first path leads to the directory above it.
    fn add(&mut self, entry: &Arc<ExportEntry>, path: &Path) {
        let path = path.as_os_str().as_bytes();
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let Some((last, above)) = parts.split_last() else {
            self.root = Some(Arc::clone(entry));
            return;
        };
        if self.root.is_some() {
            return;
        }
        let (mut at, mut walked) = (PseudoId::root(), Vec::new());
        for part in above {
            walked.push(b'/');
            walked.extend_from_slice(part);
            let next = PseudoId::of(&walked);
            let Some(directory) = self.directories.get_mut(&at) else { return };
            match directory.children.entry(part.to_vec()).or_insert(Child::Pseudo(next)) {
                Child::Pseudo(_) => {}
                // It lies in another export, from which it is entered.
                Child::Export(_) => return,
            }
            self.directories.entry(next).or_insert(PseudoDirectory { parent: at, children: BTreeMap::new() });
            at = next;
        }
        if let Some(directory) = self.directories.get_mut(&at) {
            directory.children.entry(last.to_vec()).or_insert_with(|| Child::Export(Arc::clone(entry)));
            self.above.entry(entry.id).or_insert(at);
        }
    }

    /// The export that is the root: that of `/`, or the one with `fsid=0`.
    pub const fn root_export(&self) -> Option<&Arc<ExportEntry>> {
        self.root.as_ref()
    }

    /// The change attribute of all directories.
    pub const fn change(&self) -> u64 {
        self.change
    }

    pub fn directory(&self, id: PseudoId) -> Option<&PseudoDirectory> {
        self.directories.get(&id)
    }

    /// The pseudo directory that contains an export's root.
    pub fn above(&self, export: u32) -> Option<PseudoId> {
        self.above.get(&export).copied()
    }
}

#[cfg(test)]
mod tests {
    use exports::Exports;

    use super::*;
    use crate::export_table::StoreSettings;

    #[test]
    fn exports_are_joined_under_one_root() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().display().to_string();
        for name in ["a", "b/c", "b/c/inner"] {
            std::fs::create_dir_all(scratch.path().join(name)).unwrap();
        }
        let text = format!("{base}/a *(fsid=1)\n{base}/b/c *(fsid=2)\n{base}/b/c/inner *(fsid=3)\n");
        let opening = StoreSettings {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let table =
            ExportTable::open(&Exports::parse(&text, "t").unwrap(), &opening, &ExportTable::default());
        let names = Namespace::of(&table, 0, |_| true);
        let mut at = PseudoId::root();
        for part in base.split('/').filter(|part| !part.is_empty()) {
            let Some(Child::Pseudo(next)) = names.directory(at).unwrap().children.get(part.as_bytes()) else {
                panic!("no {part}")
            };
            assert_eq!(names.directory(*next).unwrap().parent, at);
            at = *next;
        }
        assert_eq!(names.above(1), Some(at));
        let children = &names.directory(at).unwrap().children;
        assert!(matches!(&children[&b"a"[..]], Child::Export(entry) if entry.id == 1));
        assert!(matches!(&children[&b"b"[..]], Child::Pseudo(_)));
        assert_eq!(names.above(3), None, "it is entered from the outer export");
        let inner = Namespace::of(&table, 0, |entry| entry.id == 3);
        assert_eq!(inner.directory(at).unwrap().children.len(), 1, "only exports of the client are visible");
        let c = PseudoId::of(format!("{base}/b/c").as_bytes());
        assert_eq!(
            inner.above(3),
            Some(c),
            "pseudo directories lead there if the outer export isn't visible"
        );
        assert_eq!(PseudoId::from_handle(&at.handle()), Some(at));
        assert_eq!(PseudoId::from_handle(&[1; 9]), None);
    }
}
