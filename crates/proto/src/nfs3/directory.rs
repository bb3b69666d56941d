//! Procedures that list a directory: READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! A client decodes a result as a whole. A server, which stops where the client's buffer is full, encodes
//! [`ReaddirResHead`], then `Some(entry)` for each entry, then [`DirlistTail`].

use super::{Cookieverf3, Filename3, MAX_DIR_ENTRIES, NfsFh3, Outcome, PostOpAttr, PostOpFh3};
use xdr::{Decode, Decoder, Encode, Encoder, Error, List, UNIT, padding};

/// Arguments of READDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Readdir3Args<'a> {
    /// The directory.
    pub dir: NfsFh3<'a>,
    /// The position to continue from; 0 at the start.
    pub cookie: u64,
    /// The verifier that came with the cookie.
    pub cookieverf: Cookieverf3,
    /// Bytes in [`Readdir3ResOk`], at most.
    pub count: u32,
}

/// Arguments of READDIRPLUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Readdirplus3Args<'a> {
    /// The directory.
    pub dir: NfsFh3<'a>,
    /// The position to continue from; 0 at the start.
    pub cookie: u64,
    /// The verifier that came with the cookie.
    pub cookieverf: Cookieverf3,
    /// Bytes of file ids, names and cookies, at most: [`Entry3::size`] summed up.
    pub dircount: u32,
    /// Bytes in [`Readdirplus3ResOk`], at most.
    pub maxcount: u32,
}

/// `entry3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Entry3<'a> {
    /// The object's number in the file system.
    pub fileid: u64,
    /// Its name.
    pub name: Filename3<'a>,
    /// Where the next entry begins.
    pub cookie: u64,
}

impl Entry3<'_> {
    /// Bytes of an encoded entry whose name has `name` bytes, without the list's marker in front.
    #[must_use]
    pub const fn size(name: usize) -> usize {
        8 + UNIT + name + padding(name) + 8
    }
}

/// `entryplus3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Entryplus3<'a> {
    /// The object's number in the file system.
    pub fileid: u64,
    /// Its name.
    pub name: Filename3<'a>,
    /// Where the next entry begins.
    pub cookie: u64,
    /// Its attributes.
    pub name_attributes: PostOpAttr,
    /// Its handle.
    pub name_handle: PostOpFh3<'a>,
}

/// `dirlist3` and `dirlistplus3`: entries and whether they are the last.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Dirlist3<T> {
    /// The entries.
    pub entries: List<T, MAX_DIR_ENTRIES>,
    /// Whether the directory ends here.
    pub eof: bool,
}

/// `READDIR3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Readdir3ResOk<'a> {
    /// The part before the entries.
    pub head: ReaddirHead,
    /// The entries.
    pub reply: Dirlist3<Entry3<'a>>,
}

/// Result of READDIR: on failure `dir_attributes`.
pub type Readdir3Res<'a> = Outcome<Readdir3ResOk<'a>, PostOpAttr>;

/// `READDIRPLUS3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Readdirplus3ResOk<'a> {
    /// The part before the entries.
    pub head: ReaddirHead,
    /// The entries.
    pub reply: Dirlist3<Entryplus3<'a>>,
}

/// Result of READDIRPLUS: on failure `dir_attributes`.
pub type Readdirplus3Res<'a> = Outcome<Readdirplus3ResOk<'a>, PostOpAttr>;

/// [`Readdir3ResOk`] and [`Readdirplus3ResOk`] up to the first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirHead {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// The verifier of the entries' cookies.
    pub cookieverf: Cookieverf3,
}

/// Result of READDIR and READDIRPLUS up to the first entry.
pub type ReaddirResHead = Outcome<ReaddirHead, PostOpAttr>;

/// The part behind the last entry: the list's end, and `eof`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirlistTail {
    /// Whether the directory ends here.
    pub eof: bool,
}

impl DirlistTail {
    /// Bytes of an encoded tail.
    pub const SIZE: usize = 2 * UNIT;
}

impl Encode for DirlistTail {
    fn encode(&self, to: &mut Encoder) {
        to.bool(false);
        to.bool(self.eof);
    }
}

impl<'a> Decode<'a> for DirlistTail {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        match from.u32()? {
            0 => Ok(Self { eof: from.bool()? }),
            value => Err(Error::Discriminant { of: "DirlistTail", value }),
        }
    }
}
