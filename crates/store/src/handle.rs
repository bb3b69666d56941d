//! File handles: persistent names for files that clients can't forge.
//!
//! A handle contains its export's id and what it takes to find the file again, sealed with a keyed MAC
//! (SipHash-2-4, 128 bits) over everything before it. Without the seal a client of an export could guess
//! handles of files outside the exported directory, or below directories that it may not search.
//!
//! The MAC's key depends on the exported directory, too. Where another directory takes its path, the handles
//! of the former one are invalid: they would open its files by the rules of the new one, if both are on the
//! same filesystem.
//!
//! ```text
//!  byte  0..3     version 2, 'S', 'H'
//!        3        scheme: 1 kernel, 2 located
//!        4..8     export id, big-endian
//!  kernel scheme: the filesystem's own handle
//!        8        handle type
//!        9..n     handle
//!  located scheme: an identity that is looked for in the tree
//!        8..16    fileid, big-endian
//!        16..24   generation (from the birth time), big-endian
//!        24       number of hints, at most 11
//!        25..n    hints: 16 bits of a keyed hash for each component of the path, from the root,
//!                 when the handle was made
//!  both: n..n+16  MAC
//! ```
//!
//! Clients with a tree (docs/lane.md) recognise the first three bytes. They can make everything before the
//! MAC themselves, and compare handles by it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::os::fd::AsFd;

use siphasher::sip128::{Hasher128, SipHasher24};
use sys::KernelHandle;

use crate::attributes::FileStatus;
use crate::error::{Error, Result};

/// Version and name of the format. Handles of other servers don't begin like this.
const MAGIC: [u8; 3] = [2, b'S', b'H'];
const SCHEME_KERNEL: u8 = 1;
const SCHEME_LOCATED: u8 = 2;
/// Bytes before the scheme-specific part.
const HEAD: usize = 8;
const MAC: usize = 16;
/// Maximum length of a kernel handle.
const MAX_KERNEL: usize = FileHandle::MAX - HEAD - 1 - MAC;
/// How many path components have a hint in a located handle.
pub(crate) const MAX_HINTS: usize = 11;

/// The secret that seals the handles: 16 random bytes that survive restarts.
#[derive(Clone)]
pub struct HandleKey([u8; 16]);

impl HandleKey {
    /// From the 16 bytes in the server's state directory.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> HandleKey {
        HandleKey(bytes)
    }

    /// A keyed 128-bit hash of `parts`; `purpose` separates the hashes of different uses.
    pub(crate) fn hash(&self, purpose: u8, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&[purpose]);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

/// A file handle: at most [`FileHandle::MAX`] bytes, opaque except to the store that made them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; FileHandle::MAX],
}

impl FileHandle {
    /// Maximum length of a handle in bytes (RFC 1813 section 2.4, `NFS3_FHSIZE`).
    pub const MAX: usize = 64;

    /// The handle as sent over the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The export id in a handle, unchecked: only good for choosing the store that checks the handle.
    #[must_use]
    pub fn export_of(bytes: &[u8]) -> Option<u32> {
        let id = bytes.get(MAGIC.len() + 1..)?.first_chunk()?;
        bytes.starts_with(&MAGIC).then(|| u32::from_be_bytes(*id))
    }

    /// Bytes from a client that may or may not be a valid handle. `None` if they are too long.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<FileHandle> {
        FileHandle::unchecked(bytes)
    }

    /// Bytes from a client, checked for their length only.
    pub(crate) fn unchecked(bytes: &[u8]) -> Option<FileHandle> {
        let mut handle = FileHandle { length: u8::try_from(bytes.len()).ok()?, bytes: [0; FileHandle::MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }
}

impl Hash for FileHandle {
    /// The last bytes of a genuine handle are part of the MAC, and as random as any hash.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bytes = self.as_bytes();
        state.write(&bytes[bytes.len().saturating_sub(8)..]);
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Identifies a file of a filesystem as far as an unprivileged process can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub fileid: u64,
    /// Distinguishes files that had the same inode number at different times; 0 when the filesystem stores no
    /// birth time.
    pub generation: u64,
}

impl FileId {
    /// From the inode number and birth time. Without a birth time, from a hash of the kernel's handle, where
    /// there is one.
    pub fn of(file: impl AsFd, status: &FileStatus) -> FileId {
        let generation = match status.birth {
            Some(birth) => {
                (birth.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(birth.nanoseconds))
            }
            None => KernelHandle::of(file, c"").map_or(0, |handle| {
                // FNV-1a: needn't be secret, only stable over restarts.
                handle.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
                })
            }),
        };
        FileId { fileid: status.attributes.fileid, generation }
    }
}

/// The contents of a genuine handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandleContents {
    Kernel(KernelHandle),
    Located { id: FileId, hints: Vec<u16> },
}

/// Makes and opens the handles of one export.
#[derive(Clone, Debug)]
pub(crate) struct HandleSealer {
    key: HandleKey,
    export_id: u32,
}

const PURPOSE_HANDLE: u8 = 1;
const PURPOSE_HINT: u8 = 2;
const PURPOSE_EXPORT: u8 = 5;

impl HandleSealer {
    /// For the export `export_id` of the directory that `root` identifies over restarts.
    pub fn new(key: &HandleKey, export_id: u32, root: &HandleContents) -> HandleSealer {
        let root = match root {
            HandleContents::Kernel(handle) => [&handle.kind().to_be_bytes(), handle.as_bytes()].concat(),
            HandleContents::Located { id, .. } => {
                [id.fileid.to_be_bytes(), id.generation.to_be_bytes()].concat()
            }
        };
        HandleSealer { key: HandleKey(key.hash(PURPOSE_EXPORT, &[&root])), export_id }
    }

    /// Whether a kernel's handle fits into ours.
    pub fn fits(handle: &KernelHandle) -> bool {
        u8::try_from(handle.kind()).is_ok() && handle.as_bytes().len() <= MAX_KERNEL
    }

    /// The handle with these contents. `None` when the kernel's handle doesn't fit.
    pub fn seal(&self, contents: &HandleContents) -> Option<FileHandle> {
        match contents {
            HandleContents::Kernel(handle) => self.kernel(handle),
            HandleContents::Located { id, hints } => Some(self.located(*id, hints)),
        }
    }

    /// `None` when the kernel's handle doesn't fit.
    pub fn kernel(&self, handle: &KernelHandle) -> Option<FileHandle> {
        if !HandleSealer::fits(handle) {
            return None;
        }
        let (kind, bytes) = (handle.kind() as u8, handle.as_bytes());
        let mut sealed = self.start(SCHEME_KERNEL);
        sealed.push(&[kind]);
        sealed.push(bytes);
        Some(self.finish(sealed))
    }

    /// Hints beyond [`MAX_HINTS`] are dropped.
    pub fn located(&self, id: FileId, hints: &[u16]) -> FileHandle {
        let hints = &hints[..hints.len().min(MAX_HINTS)];
        let mut sealed = self.start(SCHEME_LOCATED);
        sealed.push(&id.fileid.to_be_bytes());
        sealed.push(&id.generation.to_be_bytes());
        sealed.push(&[hints.len() as u8]);
        for hint in hints {
            sealed.push(&hint.to_be_bytes());
        }
        self.finish(sealed)
    }

    /// The hint for a name.
    pub fn hint(&self, name: &[u8]) -> u16 {
        let hash = self.key.hash(PURPOSE_HINT, &[name]);
        u16::from_be_bytes([hash[0], hash[1]])
    }

    /// The contents of a handle from a client.
    ///
    /// # Errors
    /// `BadHandle` for bytes that aren't a handle of this export. `Stale` for what looks like one and has
    /// another seal: usually it was made with a former key, or for a directory that was at the export's path
    /// before.
    pub fn open(&self, handle: &FileHandle) -> Result<HandleContents> {
        let bytes = handle.as_bytes();
        let body_length =
            bytes.len().checked_sub(MAC).filter(|length| *length > HEAD).ok_or(Error::BadHandle)?;
        let (body, mac) = bytes.split_at(body_length);
        if FileHandle::export_of(bytes) != Some(self.export_id) {
            return Err(Error::BadHandle);
        }
        let expected = self.mac(body);
        // Compares all bytes, so that the duration doesn't reveal how many of them match.
        let difference = expected.iter().zip(mac).fold(0, |all, (a, b)| all | (a ^ b));
        if difference != 0 {
            return Err(Error::Stale);
        }
        let rest = &body[HEAD..];
        match body[MAGIC.len()] {
            SCHEME_KERNEL => KernelHandle::new(i32::from(rest[0]), &rest[1..]).map(HandleContents::Kernel),
            SCHEME_LOCATED => located_meaning(rest),
            _ => None,
        }
        .ok_or(Error::BadHandle)
    }

    fn start(&self, scheme: u8) -> FileHandle {
        let mut handle = FileHandle { length: 0, bytes: [0; FileHandle::MAX] };
        handle.push(&MAGIC);
        handle.push(&[scheme]);
        handle.push(&self.export_id.to_be_bytes());
        handle
    }

    fn finish(&self, mut handle: FileHandle) -> FileHandle {
        let mac = self.mac(handle.as_bytes());
        handle.push(&mac);
        handle
    }

    fn mac(&self, body: &[u8]) -> [u8; MAC] {
        self.key.hash(PURPOSE_HANDLE, &[body])
    }
}

fn located_meaning(rest: &[u8]) -> Option<HandleContents> {
    let (fileid, rest) = rest.split_first_chunk()?;
    let (generation, rest) = rest.split_first_chunk()?;
    let (count, hints) = rest.split_first()?;
    if hints.len() != usize::from(*count) * 2 {
        return None;
    }
    let id = FileId { fileid: u64::from_be_bytes(*fileid), generation: u64::from_be_bytes(*generation) };
    let hints = hints.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    Some(HandleContents::Located { id, hints })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(fileid: u64) -> HandleContents {
        HandleContents::Located { id: FileId { fileid, generation: 1 }, hints: Vec::new() }
    }

    fn sealer(export_id: u32) -> HandleSealer {
        HandleSealer::new(&HandleKey::new([7; 16]), export_id, &root(2))
    }

    #[test]
    fn handles_round_trip() {
        let kernel = KernelHandle::new(0x81, &[5; MAX_KERNEL]).expect("fits");
        let handle = sealer(9).kernel(&kernel).expect("fits");
        assert_eq!(handle.as_bytes().len(), FileHandle::MAX);
        assert_eq!(FileHandle::export_of(handle.as_bytes()), Some(9));
        assert_eq!(sealer(9).open(&handle), Ok(HandleContents::Kernel(kernel)));

        let id = FileId { fileid: 12, generation: 34 };
        let handle = sealer(9).located(id, &[1, 2, 3]);
        assert_eq!(sealer(9).open(&handle), Ok(HandleContents::Located { id, hints: vec![1, 2, 3] }));
        let long = sealer(9).located(id, &[4; 40]);
        assert_eq!(sealer(9).open(&long), Ok(HandleContents::Located { id, hints: vec![4; MAX_HINTS] }));
    }

    #[test]
    fn unsuitable_kernel_handles_are_not_sealed() {
        assert!(sealer(9).kernel(&KernelHandle::new(1, &[5; MAX_KERNEL + 1]).expect("fits")).is_none());
        assert!(sealer(9).kernel(&KernelHandle::new(256, &[5; 8]).expect("fits")).is_none());
        assert!(sealer(9).kernel(&KernelHandle::new(-1, &[5; 8]).expect("fits")).is_none());
    }

    #[test]
    fn every_changed_bit_and_every_other_length_is_refused() {
        let handle = sealer(9).located(FileId { fileid: 12, generation: 34 }, &[1, 2, 3]);
        let bytes = handle.as_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            let forged = FileHandle::unchecked(&forged).expect("fits");
            let is_of_export = FileHandle::export_of(forged.as_bytes()) == Some(9);
            let expected = if is_of_export { Error::Stale } else { Error::BadHandle };
            assert_eq!(sealer(9).open(&forged), Err(expected), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let cut = FileHandle::unchecked(&bytes[..length]).expect("fits");
            let expected = if length > HEAD + MAC { Error::Stale } else { Error::BadHandle };
            assert_eq!(sealer(9).open(&cut), Err(expected), "length {length}");
        }
        assert!(FileHandle::unchecked(&[0; FileHandle::MAX + 1]).is_none());
        assert_eq!(FileHandle::export_of(&[]), None);
        assert_eq!(FileHandle::export_of(&[2, b'S', b'H', 1, 0, 0, 0]), None);
        assert_eq!(FileHandle::export_of(&[1, 1, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn another_export_key_or_directory_is_refused() {
        let handle = sealer(9).located(FileId { fileid: 1, generation: 2 }, &[]);
        assert_eq!(sealer(8).open(&handle), Err(Error::BadHandle));
        for (key, root) in [(8, root(2)), (7, root(3))] {
            let other = HandleSealer::new(&HandleKey::new([key; 16]), 9, &root);
            assert_eq!(other.open(&handle), Err(Error::Stale));
        }
    }
}
