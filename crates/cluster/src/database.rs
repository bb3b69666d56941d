//! The grace database: what all nodes share, and its bytes in the object.
//!
//! The epochs and flags are laid out as in nfs-ganesha's `rados_cluster` recovery backend, so that its nodes
//! and its tool work on the same object. What only Samehost needs is in extended attributes of the object,
//! which ganesha neither reads nor removes. One write changes all of it, or nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The prefix of the extended attributes with [`Notes`]. The node's name follows.
const NOTES_PREFIX: &str = "samehost.";

/// The content of the grace database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// The epoch in which client records are written.
    pub current: u64,
    /// The epoch whose records permit to reclaim, or 0 without a grace period.
    pub recovery: u64,
    /// The members and their flags.
    pub nodes: BTreeMap<String, Flags>,
    /// What Samehost records about nodes, also about drained ones that aren't members any more.
    pub notes: BTreeMap<String, Notes>,
}

/// The content with the version that the object had when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The object's version.
    pub version: u64,
    /// What it contained.
    pub database: Database,
}

/// A member's flags, one byte. Unknown bits are preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// N: the node has clients that may reclaim.
    pub const NEEDS_GRACE: Self = Self(1);
    /// E: the node gives no new state.
    pub const ENFORCES: Self = Self(2);

    /// N.
    #[must_use]
    pub const fn needs_grace(self) -> bool {
        self.0 & Self::NEEDS_GRACE.0 != 0
    }

    /// E.
    #[must_use]
    pub const fn enforces(self) -> bool {
        self.0 & Self::ENFORCES.0 != 0
    }

    /// With these flags, too.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Without these flags.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

/// What Samehost records about a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// The sessions with the filesystem's metadata server that may hold state of the node's clients: names
    /// without commas and line breaks.
    pub sessions: Vec<String>,
    /// The current epoch when the state of the node's former run was released, all nodes enforcing. While
    /// that is the current epoch, and the grace period stands, the loss of sessions does no harm.
    pub released: u64,
    /// The node that takes over this one's clients.
    pub successor: Option<String>,
    /// The recovery epoch in which the successor has taken over, or 0.
    pub taken: u64,
}

/// An object that isn't a grace database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The data has another length.
    #[error("the epochs are {0} bytes, not 16")]
    Length(usize),
    /// The current epoch is 0, or isn't above the recovery epoch.
    #[error("the current epoch {current} doesn't follow the recovery epoch {recovery}")]
    Epochs {
        /// The current epoch.
        current: u64,
        /// The recovery epoch.
        recovery: u64,
    },
    /// A node's flags aren't one byte.
    #[error("the flags of node {0} aren't one byte")]
    Flags(String),
    /// An extended attribute of Samehost's can't be read.
    #[error("the extended attribute {NOTES_PREFIX}{0} can't be parsed")]
    Notes(String),
}

/// What one write changes of the object, under the condition that its version is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// The object's data.
    pub data: Option<[u8; 16]>,
    /// Keys of the omap to be set.
    pub set_keys: Vec<(String, Vec<u8>)>,
    /// Keys of the omap to be removed.
    pub removed_keys: Vec<String>,
    /// Extended attributes to be set.
    pub set_attributes: Vec<(String, Vec<u8>)>,
    /// Extended attributes to be removed.
    pub removed_attributes: Vec<String>,
}

impl Default for Database {
    /// A database without members, as ganesha's tool creates it: epoch 1, no grace period.
    fn default() -> Self {
        Self { current: 1, recovery: 0, nodes: BTreeMap::new(), notes: BTreeMap::new() }
    }
}

impl Database {
    /// The database in an object with this data, omap and extended attributes. Attributes of others are
    /// ignored.
    ///
    /// # Errors
    /// If the object isn't a grace database.
    pub fn decode(
        data: &[u8],
        omap: impl IntoIterator<Item = (String, Vec<u8>)>,
        attributes: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, Damage> {
        let (numbers, []) = data.as_chunks() else { return Err(Damage::Length(data.len())) };
        let [current, recovery] = numbers else { return Err(Damage::Length(data.len())) };
        let (current, recovery) = (u64::from_le_bytes(*current), u64::from_le_bytes(*recovery));
        if current <= recovery {
            return Err(Damage::Epochs { current, recovery });
        }
        let mut database = Self { current, recovery, ..Self::default() };
        for (node, flags) in omap {
            let &[byte] = flags.as_slice() else { return Err(Damage::Flags(node)) };
            database.nodes.insert(node, Flags(byte));
        }
        for (name, value) in attributes {
            let Some(node) = name.strip_prefix(NOTES_PREFIX) else { continue };
            let notes = Notes::decode(&value).ok_or_else(|| Damage::Notes(node.to_owned()))?;
            database.notes.insert(node.to_owned(), notes);
        }
        Ok(database)
    }

    /// The object's data.
    #[must_use]
    pub fn data(&self) -> [u8; 16] {
        let mut data = [0; 16];
        data[..8].copy_from_slice(&self.current.to_le_bytes());
        data[8..].copy_from_slice(&self.recovery.to_le_bytes());
        data
    }

    /// What a write must change so that an object with this content has that of `new`. It is never empty: a
    /// write changes the object's version also if the contents are the same.
    #[must_use]
    pub fn difference(&self, new: &Self) -> Difference {
        let set_keys = changed(&self.nodes, &new.nodes).map(|(node, flags)| (node.clone(), vec![flags.0]));
        let attribute = |node: &String| format!("{NOTES_PREFIX}{node}");
        let set_attributes =
            changed(&self.notes, &new.notes).map(|(node, notes)| (attribute(node), notes.encode()));
        Difference {
            data: (self == new || self.data() != new.data()).then(|| new.data()),
            set_keys: set_keys.collect(),
            removed_keys: removed(&self.nodes, &new.nodes).cloned().collect(),
            set_attributes: set_attributes.collect(),
            removed_attributes: removed(&self.notes, &new.notes).map(attribute).collect(),
        }
    }

    /// A member's flags.
    #[must_use]
    pub fn flags(&self, node: &str) -> Option<Flags> {
        self.nodes.get(node).copied()
    }

    /// Whether a grace period stands.
    #[must_use]
    pub const fn in_grace(&self) -> bool {
        self.recovery != 0
    }

    /// Whether all members enforce the grace period.
    #[must_use]
    pub fn all_enforce(&self) -> bool {
        self.nodes.values().all(|flags| flags.enforces())
    }

    /// The nodes whose clients `node` has taken over in this grace period.
    pub fn predecessors<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        let is_taken = |notes: &Notes| {
            self.in_grace() && notes.taken == self.recovery && notes.successor.as_deref() == Some(node)
        };
        self.notes.iter().filter(move |(_, notes)| is_taken(notes)).map(|(name, _)| name.as_str())
    }

    /// Whether `node` is drained, and its successor has taken over.
    #[must_use]
    pub fn is_taken_over(&self, node: &str) -> bool {
        let taken = self.notes.get(node).filter(|notes| notes.successor.is_some()).map(|notes| notes.taken);
        self.in_grace() && taken == Some(self.recovery)
    }
}

/// The entries of `new` that `old` has not, or with another value.
fn changed<'a, V: PartialEq>(
    old: &'a BTreeMap<String, V>,
    new: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = (&'a String, &'a V)> {
    new.iter().filter(|(key, value)| old.get(*key) != Some(value))
}

/// The keys of `old` that `new` has not.
fn removed<'a, V>(
    old: &'a BTreeMap<String, V>,
    new: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = &'a String> {
    old.keys().filter(|key| !new.contains_key(*key))
}

impl Notes {
    /// The value of the extended attribute: lines of `key=value`.
    fn encode(&self) -> Vec<u8> {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = writeln!(text, "sessions={}", self.sessions.join(","));
        let _ = writeln!(text, "released={}\ntaken={}", self.released, self.taken);
        if let Some(successor) = &self.successor {
            let _ = writeln!(text, "successor={successor}");
        }
        text.into_bytes()
    }

    /// The notes in the value of an extended attribute. Unknown keys are ignored.
    fn decode(value: &[u8]) -> Option<Self> {
        let mut notes = Self::default();
        for line in std::str::from_utf8(value).ok()?.lines() {
            let (key, value) = line.split_once('=')?;
            match key {
                "sessions" => {
                    let sessions = value.split(',').filter(|session| !session.is_empty());
                    notes.sessions = sessions.map(str::to_owned).collect();
                }
                "released" => notes.released = value.parse().ok()?,
                "taken" => notes.taken = value.parse().ok()?,
                "successor" => notes.successor = Some(value.to_owned()),
                _ => {}
            }
        }
        Some(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Database {
        let notes = Notes {
            sessions: vec!["client.4123".to_owned(), "client.99".to_owned()],
            released: 7,
            successor: Some("b".to_owned()),
            taken: 6,
        };
        Database {
            current: 0x0102_0304_0506_0708,
            recovery: 6,
            nodes: [("a".to_owned(), Flags(3)), ("b".to_owned(), Flags(0x82))].into(),
            notes: [("a".to_owned(), notes), ("b".to_owned(), Notes::default())].into(),
        }
    }

    /// What a write leaves of an object with the content of `old`.
    fn written(old: &Database, new: &Database) -> Result<Database, Damage> {
        let everything = Database { current: 0, ..Database::default() }.difference(old);
        let change = old.difference(new);
        let apply = |all: Vec<(String, Vec<u8>)>, set: Vec<(String, Vec<u8>)>, removed: &[String]| {
            let mut map: BTreeMap<_, _> = all.into_iter().collect();
            map.extend(set);
            map.retain(|key, _| !removed.contains(key));
            map
        };
        let data = change.data.or(everything.data).unwrap();
        let omap = apply(everything.set_keys, change.set_keys, &change.removed_keys);
        let attributes = apply(everything.set_attributes, change.set_attributes, &change.removed_attributes);
        Database::decode(&data, omap, attributes)
    }

    #[test]
    fn the_layout_is_that_of_ganesha() {
        let data = sample().data();
        assert_eq!(data, [8, 7, 6, 5, 4, 3, 2, 1, 6, 0, 0, 0, 0, 0, 0, 0]);
        let omap = [("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])];
        let attributes = [("_lock".to_owned(), vec![0xff])];
        let database = Database::decode(&data, omap, attributes).unwrap();
        assert_eq!((database.current, database.recovery), (0x0102_0304_0506_0708, 6));
        assert!(database.flags("a").unwrap().needs_grace() && !database.flags("a").unwrap().enforces());
        assert!(database.flags("b").unwrap().enforces() && !database.flags("b").unwrap().needs_grace());
        assert!(database.notes.is_empty() && !database.all_enforce());
        assert_eq!(Database::default().data()[..9], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_write_changes_what_differs() {
        let (old, mut new) = (Database::default(), sample());
        let same = Difference { data: Some(old.data()), ..Difference::default() };
        assert_eq!(old.difference(&old), same, "the version changes");
        assert_eq!(written(&old, &new).unwrap(), new);
        new.nodes.remove("a");
        new.notes.remove("b");
        new.nodes.insert("b".to_owned(), Flags(0));
        let difference = sample().difference(&new);
        assert_eq!((difference.data, difference.removed_keys.as_slice()), (None, &["a".to_owned()][..]));
        assert_eq!(difference.set_keys, [("b".to_owned(), vec![0])]);
        assert_eq!(difference.removed_attributes, ["samehost.b"]);
        assert!(difference.set_attributes.is_empty());
        assert_eq!(written(&sample(), &new).unwrap(), new);
    }

    #[test]
    fn other_objects_are_refused() {
        let decode = |data: &[u8]| Database::decode(data, [], []);
        assert_eq!(decode(&[0; 17]), Err(Damage::Length(17)));
        assert_eq!(decode(&[0; 24]), Err(Damage::Length(24)));
        assert_eq!(decode(&[0; 16]), Err(Damage::Epochs { current: 0, recovery: 0 }));
        let data = Database::default().data();
        let flags = Database::decode(&data, [("a".to_owned(), vec![1, 1])], []);
        assert_eq!(flags, Err(Damage::Flags("a".to_owned())));
        for value in [&b"sessions"[..], b"taken=x", &[0xff]] {
            let notes = Database::decode(&data, [], [("samehost.a".to_owned(), value.to_vec())]);
            assert_eq!(notes, Err(Damage::Notes("a".to_owned())));
        }
    }
}
