//! File handles: what a session calls a file.
//!
//! A server's handle is opaque, with one exception. A handle of a Samehost server begins with
//! [`MAGIC`] and ends with a seal, a keyed hash that clients can't make. The bytes before the seal, the
//! *identity*, name the file. The holder of a tree (docs/lane.md) makes identities itself, from the kernel's
//! file handles. Such a handle is *unsealed*: it is good for the tree only.
//!
//! Handles know the directory and the name by which the file was found, those of other servers too, for the
//! log. By these the seal can be had from the server when the wire needs it, and a tree finds files that it
//! hasn't opened yet.
//!
//! They also know when their file was made, once a reply has told it: that doesn't change.
//!
//! Invariants:
//! - Two handles are equal if their identities are, whether they are sealed or not. So a file has one handle,
//!   however it was found.
//! - No directory above a file, by the places of the handles, is the file itself. Somebody else may move
//!   directories, so that a new place contradicts an old one.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sys::Timestamp;

/// The longest file handle of NFSv3 (RFC 1813 section 2.3.3, NFS3_FHSIZE), and of our server. A longer one is
/// kept behind the pointer to what its clones share.
pub const HANDLE_MAX: usize = 64;

/// The longest file handle of NFSv4 (RFC 8881 section 3.1, NFS4_FHSIZE).
const LONG_HANDLE_MAX: usize = 128;

/// The first bytes of a Samehost server's handles: version 2 of the format, and its name.
const MAGIC: [u8; 3] = [2, b'S', b'H'];

/// The bytes of an identity before the filesystem's own handle: the magic, the scheme, the export's number.
pub(crate) const HEAD: usize = 8;

/// The length of the seal in bytes.
const SEAL: usize = 16;

/// The longest identity of a handle that has a seal, in bytes.
pub(crate) const IDENTITY_MAX: usize = HANDLE_MAX - SEAL;

/// The scheme of handles that contain the filesystem's own handle. Only these can be made by a client.
const KERNEL_SCHEME: u8 = 1;

/// How many directories above a file are looked at. A path has at most 2,047 (`PATH_MAX`).
const MAX_ABOVE: usize = 4096;

/// Locked while a place is replaced, so that two at once can't make a cycle.
static REPLACING: Mutex<()> = Mutex::new(());

/// A server's persistent name for a file: at most 64 bytes over NFSv3 and 128 over NFSv4, valid across
/// restarts of either side. Clones share it.
///
/// A session that has been given a directory tree by a Samehost server on the same host also makes handles
/// itself. These are valid in the session that made them, for the time that the file keeps its name.
#[derive(Clone)]
pub struct Handle(Arc<HandleState>);

/// The directory and the name by which a file was found.
type Place = (Handle, Box<[u8]>);

/// What the clones of a handle share.
struct HandleState {
    len: u8,
    /// The bytes as the server gave them, or an identity with room for the seal.
    bytes: [u8; HANDLE_MAX],
    origin: Origin,
    /// The whole handle, once the server has said it, of one that was made in a tree.
    sealed: OnceLock<Box<[u8; HANDLE_MAX]>>,
    /// The directory and the name of the file when it was last found.
    place: Mutex<Option<Place>>,
    /// When the file was made, or that its filesystem doesn't tell, once a reply says so.
    birth: OnceLock<Option<Timestamp>>,
    /// All bytes of a handle of more than [`HANDLE_MAX`]. It has no seal and no place.
    long: Box<[u8]>,
}

/// Where a handle is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From the server. Where the file was found isn't known.
    Server,
    /// From the server, for a name in a directory.
    Found,
    /// Made in a tree.
    Tree,
}

impl Drop for HandleState {
    /// Drops the directories above without recursion, because a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut above = self.place.get_mut().take();
        while let Some((directory, _)) = above {
            above = Arc::into_inner(directory.0).and_then(|mut next| next.place.get_mut().take());
        }
    }
}

impl Handle {
    /// The handle with these bytes; `None` if they are more than 128.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let (mut whole, mut long) = ([0; HANDLE_MAX], Box::default());
        match whole.get_mut(..bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None if bytes.len() <= LONG_HANDLE_MAX => long = bytes.into(),
            None => return None,
        }
        Some(Self::with(len, whole, Origin::Server, None, long))
    }

    fn with(len: u8, bytes: [u8; HANDLE_MAX], origin: Origin, place: Option<Place>, long: Box<[u8]>) -> Self {
        let (sealed, place, birth) = (OnceLock::new(), Mutex::new(place), OnceLock::new());
        Self(Arc::new(HandleState { len, bytes, origin, sealed, place, birth, long }))
    }

    fn is_long(&self) -> bool {
        usize::from(self.0.len) > HANDLE_MAX
    }

    /// Whether the handle says where its file was found.
    fn has_place(&self) -> bool {
        self.0.origin != Origin::Server && !self.is_long()
    }

    /// The handle of a file that was found as `name` in a directory: `head` is the first bytes of every
    /// handle of the same export ([`Handle::head`]), and `kind` and `kernel_handle` are the file's handle as
    /// name_to_handle_at(2) reports it. `None` if they don't fit into a handle.
    pub(crate) fn in_tree(
        head: [u8; HEAD],
        kind: i32,
        kernel_handle: &[u8],
        place: (&Self, &[u8]),
    ) -> Option<Self> {
        let kind = u8::try_from(kind).ok()?;
        let identity = HEAD + 1 + kernel_handle.len();
        let mut bytes = [0; HANDLE_MAX];
        if identity > IDENTITY_MAX {
            return None;
        }
        bytes[..HEAD].copy_from_slice(&head);
        bytes[HEAD] = kind;
        bytes[HEAD + 1..identity].copy_from_slice(kernel_handle);
        let place = Some((place.0.clone(), place.1.into()));
        Some(Self::with((identity + SEAL) as u8, bytes, Origin::Tree, place, Box::default()))
    }

    /// The server's handle of a file that was found as `name` in a directory. A tree finds the file by that,
    /// and the log names it.
    pub(crate) fn found_at(self, directory: &Self, name: &[u8]) -> Self {
        if self.0.origin != Origin::Server || self.is_long() || matches!(name, b"." | b"..") {
            return self;
        }
        let place = Some((directory.clone(), name.into()));
        let found = Self::with(self.0.len, self.0.bytes, Origin::Found, place, Box::default());
        if let Some(birth) = self.birth() {
            found.note_birth(birth);
        }
        found
    }

    /// When the file was made, or that its filesystem doesn't tell, if a reply has said so.
    pub(crate) fn birth(&self) -> Option<Option<Timestamp>> {
        self.0.birth.get().copied()
    }

    /// A reply says when the file was made, or that its filesystem doesn't tell.
    pub(crate) fn note_birth(&self, birth: Option<Timestamp>) {
        self.0.birth.get_or_init(|| birth);
    }

    /// The first bytes of all handles of this handle's export, if clients can make such handles.
    pub(crate) fn head(&self) -> Option<[u8; HEAD]> {
        let head = *self.whole().first_chunk()?;
        (self.is_sealable() && head[MAGIC.len()] == KERNEL_SCHEME).then_some(head)
    }

    /// The bytes as the server gave them. Those of an unsealed handle are of no use to the server: see
    /// [`Handle::is_sealed`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self.0.sealed.get() {
            Some(sealed) => &sealed[..usize::from(self.0.len)],
            None => self.whole(),
        }
    }

    /// Whether the server accepts this handle's bytes. Every handle from a server is sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.0.origin != Origin::Tree || self.0.sealed.get().is_some()
    }

    /// Takes the seal of another handle of the same file. False if that one has none, or is another file's.
    #[doc(hidden)]
    pub fn seal(&self, sealed: &Self) -> bool {
        if self != sealed || !sealed.is_sealed() {
            return false;
        }
        if !self.is_sealed() {
            self.0.sealed.get_or_init(|| {
                let mut whole = Box::new([0; HANDLE_MAX]);
                whole[..sealed.as_bytes().len()].copy_from_slice(sealed.as_bytes());
                whole
            });
        }
        true
    }

    /// The directory and the name by which the file was found.
    pub(crate) fn place(&self) -> Option<Place> {
        self.0.place.lock().clone()
    }

    /// Says by which name the file was found. A directory that is below the file as far as is known isn't
    /// accepted: the place of one of the directories between them is out of date, and nobody knows which.
    #[doc(hidden)]
    pub fn moved(&self, directory: &Self, name: &[u8]) {
        let is_known = |place: &Place| place.0 == *directory && *place.1 == *name;
        if !self.has_place() || self.0.place.lock().as_ref().is_some_and(is_known) {
            return;
        }
        let new = (directory.clone(), name.into());
        let replacing = REPLACING.lock();
        if self.may_be_in(directory) {
            let former = self.0.place.lock().replace(new);
            drop(replacing);
            drop(former);
        }
    }

    /// Whether the file can be in a directory, by the places of that and those above it. The caller holds
    /// [`REPLACING`].
    fn may_be_in(&self, directory: &Self) -> bool {
        let mut at = directory.clone();
        for _ in 0..MAX_ABOVE {
            if at == *self {
                return false;
            }
            match at.place() {
                Some((above, _)) => at = above,
                None => return true,
            }
        }
        false
    }

    /// The handle and those of the directories above it up to one that is sealed, each with its place. `None`
    /// if one has none, or they are too many.
    pub(crate) fn unsealed(&self) -> Option<Vec<(Self, Place)>> {
        let mut unsealed = Vec::new();
        let mut next = self.clone();
        while !next.is_sealed() {
            let place = next.place().filter(|_| unsealed.len() < MAX_ABOVE)?;
            let directory = place.0.clone();
            unsealed.push((next, place));
            next = directory;
        }
        Some(unsealed)
    }

    /// The handle, without keeping it in use. `None` if it doesn't know where its file was found.
    pub(crate) fn downgrade(&self) -> Option<WeakHandle> {
        self.has_place().then(|| WeakHandle(Arc::downgrade(&self.0)))
    }

    /// What names the file: all bytes, or those before the seal.
    pub(crate) fn identity(&self) -> &[u8] {
        let whole = self.whole();
        if self.is_sealable() { &whole[..whole.len() - SEAL] } else { whole }
    }

    /// Whether the last bytes are a seal.
    fn is_sealable(&self) -> bool {
        let whole = self.whole();
        !self.is_long() && whole.len() > HEAD + SEAL && whole.starts_with(&MAGIC)
    }

    fn whole(&self) -> &[u8] {
        self.0.bytes.get(..usize::from(self.0.len)).unwrap_or(&self.0.long)
    }
}

/// A handle that may be out of use.
pub(crate) struct WeakHandle(Weak<HandleState>);

impl WeakHandle {
    /// The handle, if it is still in use.
    pub(crate) fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle)
    }

    /// One that never is.
    #[cfg(test)]
    pub(crate) fn of_no_file() -> Self {
        Self(Weak::new())
    }
}

impl fmt::Debug for WeakHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakHandle({:?})", self.upgrade())
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.identity() == other.identity()
    }
}

impl Eq for Handle {}

impl PartialOrd for Handle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By the identities' bytes.
impl Ord for Handle {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(other.identity())
    }
}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_sealed() { "Handle(" } else { "Handle(unsealed " })?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: [u8; 12] = [9; 12];

    fn sealed(kernel: &[u8], seal: u8) -> Handle {
        Handle::new(&[&[2, b'S', b'H', 1, 0, 0, 0, 5, 0x81], kernel, &[seal; SEAL]].concat()).unwrap()
    }

    fn unsealed(kernel: &[u8], directory: &Handle) -> Handle {
        Handle::in_tree(directory.head().unwrap(), 0x81, kernel, (directory, b"name")).unwrap()
    }

    #[test]
    fn an_unsealed_handle_equals_the_sealed_one_and_takes_its_seal() {
        let root = sealed(&[1; 8], 7);
        let (made, given, other) = (unsealed(&KERNEL, &root), sealed(&KERNEL, 8), sealed(&[8; 12], 8));
        assert_eq!(made, given);
        assert_ne!(made, other);
        assert_eq!(made.place(), Some((root.clone(), b"name"[..].into())));
        assert!(!made.is_sealed() && given.is_sealed());
        let copy = made.clone();
        assert!(!made.seal(&other) && !made.seal(&unsealed(&KERNEL, &root)));
        assert!(made.seal(&given));
        assert!(copy.is_sealed(), "clones share the seal");
        assert_eq!(copy.as_bytes(), given.as_bytes());
    }

    #[test]
    fn other_servers_handles_are_compared_whole() {
        let one = Handle::new(&[1; 32]).unwrap();
        let mut bytes = [1; 32];
        bytes[31] = 2;
        assert_ne!(one, Handle::new(&bytes).unwrap());
        assert_eq!((one.head(), one.place()), (None, None));
        let found = one.clone().found_at(&sealed(&[1; 8], 7), b"name");
        assert_eq!((found.as_bytes(), &found), (one.as_bytes(), &one));
        assert_eq!(found.place(), Some((sealed(&[1; 8], 7), b"name"[..].into())));
        // The other scheme has a seal, too, but nothing that a client could make.
        let located =
            Handle::new(&[&[2, b'S', b'H', 2, 0, 0, 0, 5][..], &[3; 17], &[7; SEAL]].concat()).unwrap();
        assert_eq!((located.head(), located.identity().len()), (None, 25));
        // Nothing is cut from what is too short to have a seal.
        let short = Handle::new(&[&[2, b'S', b'H', 1][..], &[0; 20]].concat()).unwrap();
        assert_eq!(short.identity().len(), 24);
    }

    #[test]
    fn a_kernel_handle_that_is_too_long_has_none() {
        let root = sealed(&[1; 8], 7);
        let head = root.head().unwrap();
        assert!(Handle::in_tree(head, 1, &[0; 39], (&root, b"n")).is_some());
        assert!(Handle::in_tree(head, 1, &[0; 40], (&root, b"n")).is_none());
        assert!(Handle::in_tree(head, 256, &[0; 8], (&root, b"n")).is_none());
    }

    #[test]
    fn a_long_handle_is_kept_whole() {
        let bytes: Vec<u8> = [&[2, b'S', b'H', 1][..], &[7; 124]].concat();
        let long = Handle::new(&bytes).unwrap();
        assert_eq!((long.as_bytes(), long.identity()), (&bytes[..], &bytes[..]));
        assert!(long.is_sealed() && long == Handle::new(&bytes).unwrap());
        assert_ne!(long, Handle::new(&bytes[..100]).unwrap());
        long.moved(&sealed(&[1; 8], 7), b"name");
        let found = long.clone().found_at(&sealed(&[1; 8], 7), b"name");
        assert_eq!((found.head(), found.place(), found == long), (None, None, true));
        assert!(Handle::new(&[0; 129]).is_none());
    }

    #[test]
    fn a_file_that_moves_has_another_place() {
        let root = sealed(&[1; 8], 7);
        let made = unsealed(&KERNEL, &root);
        let directory = unsealed(&[4; 12], &root);
        made.moved(&directory, b"new");
        assert_eq!(made.place(), Some((directory, b"new"[..].into())));
    }

    /// As after `mv a/b b; mv b/../a b/a` by somebody else: `b` was found in `a` before, and `a` in `b` now.
    #[test]
    fn no_file_is_above_itself() {
        let root = sealed(&[1; 8], 7);
        let a = unsealed(&[2; 12], &root);
        let b = unsealed(&[3; 12], &a);
        let c = unsealed(&[4; 12], &b);
        for below in [&a, &b, &c] {
            a.moved(below, b"a");
            assert_eq!(a.place(), Some((root.clone(), b"name"[..].into())));
        }
        assert_eq!(c.unsealed().expect("places").len(), 3);
        // Once it is known where the other one is.
        b.moved(&root, b"b");
        a.moved(&c, b"a");
        assert_eq!(a.unsealed().expect("places").len(), 3);
        // Another server's handles, which are sealed.
        let other = |byte| Handle::new(&[byte; 32]).expect("fits").found_at(&root, b"name");
        let (above, below) = (other(1), other(2));
        below.moved(&above, b"below");
        above.moved(&below, b"above");
        assert_eq!(above.place(), Some((root, b"name"[..].into())));
    }

    #[test]
    fn two_directories_are_not_moved_into_each_other_at_once() {
        let root = sealed(&[1; 8], 7);
        for _ in 0..2000 {
            let (a, b) = (unsealed(&[2; 12], &root), unsealed(&[3; 12], &root));
            let weak = [&a, &b].map(|handle| handle.downgrade().expect("it has a place"));
            let both = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for (moved, to) in [(&a, &b), (&b, &a)] {
                    let both = &both;
                    scope.spawn(move || {
                        both.wait();
                        moved.moved(to, b"moved");
                    });
                }
            });
            drop((a, b));
            assert!(weak.iter().all(|handle| handle.upgrade().is_none()), "a cycle is never dropped");
        }
    }

    #[test]
    fn directories_above_are_bounded() {
        let root = sealed(&[1; 8], 7);
        let mut deepest = root.clone();
        for depth in 0..MAX_ABOVE as u32 {
            deepest = unsealed(&depth.to_be_bytes(), &deepest);
        }
        assert_eq!(deepest.unsealed().map(|handles| handles.len()), Some(MAX_ABOVE));
        let deeper = unsealed(&[0xff; 12], &deepest);
        assert!(deeper.unsealed().is_none());
        let file = unsealed(&[0xfe; 12], &root);
        file.moved(&deeper, b"file");
        assert_eq!(file.place(), Some((root, b"name"[..].into())));
    }

    #[test]
    fn a_chain_deeper_than_the_stack_is_dropped() {
        let mut deepest = sealed(&[1; 8], 7);
        for depth in 0..200_000u32 {
            deepest = unsealed(&depth.to_be_bytes(), &deepest);
        }
        drop(deepest);
    }
}
