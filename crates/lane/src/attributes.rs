//! The attributes sent with a granted file and with the directory that it was created in, and their encoding.

use io::{IoMode, IoModes};
use sys::{Attributes, FileKind, Timestamp};
use xdr::{Decode, Decoder, Encode, Encoder, Error};

/// The attributes of a granted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantAttributes {
    /// Its attributes at the moment of the grant.
    pub file: Attributes,
    /// How the server reads and writes it. The client does the same.
    pub modes: IoModes,
}

/// The attributes of a directory before and after a name was created in it (RFC 1813 section 2.6,
/// `wcc_data`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Before the change, atomically; `None` where another change may have come between.
    pub before: Option<PreOpAttributes>,
    /// After the change, if available.
    pub after: Option<Attributes>,
}

/// The attributes that validate a cache of the directory from before a change (`wcc_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PreOpAttributes {
    /// Bytes.
    pub size: u64,
    /// Last change of the names.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
}

/// The kinds of files in the order of their numbers, which are NFSv3's ftype3 (RFC 1813 section 2.5) and
/// start at 1.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Block,
    FileKind::Character,
    FileKind::Symlink,
    FileKind::Socket,
    FileKind::Fifo,
];

/// The I/O modes in the order of their numbers, which start at 0.
const MODES: [IoMode; 3] = [IoMode::Buffered, IoMode::DontCache, IoMode::Direct];

/// The index of `one` in a table.
fn number<T: PartialEq>(all: &[T], one: T) -> u32 {
    all.iter().position(|other| *other == one).unwrap_or(0) as u32
}

impl Encode for GrantAttributes {
    fn encode(&self, to: &mut Encoder) {
        put_attributes(to, &self.file);
        to.u32(number(&MODES, self.modes.read) | number(&MODES, self.modes.write) << 8);
    }
}

impl<'a> Decode<'a> for GrantAttributes {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self { file: get_attributes(from)?, modes: modes(from.u32()?)? })
    }
}

impl Encode for DirectoryChange {
    fn encode(&self, to: &mut Encoder) {
        to.put(&self.before);
        to.put(&self.after.is_some());
        self.after.iter().for_each(|after| put_attributes(to, after));
    }
}

impl<'a> Decode<'a> for DirectoryChange {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let before = from.get()?;
        let after = if from.get()? { Some(get_attributes(from)?) } else { None };
        Ok(Self { before, after })
    }
}

impl Encode for PreOpAttributes {
    fn encode(&self, to: &mut Encoder) {
        to.u64(self.size);
        put_time(to, self.mtime);
        put_time(to, self.ctime);
    }
}

impl<'a> Decode<'a> for PreOpAttributes {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self { size: from.u64()?, mtime: time(from)?, ctime: time(from)? })
    }
}

fn put_attributes(to: &mut Encoder, attributes: &Attributes) {
    let Attributes { kind, mode, nlink, uid, gid, rdev, .. } = *attributes;
    for word in [1 + number(&KINDS, kind), mode, nlink, uid, gid, rdev.0, rdev.1] {
        to.u32(word);
    }
    let Attributes { size, used, fsid, fileid, change, .. } = *attributes;
    for hyper in [size, used, fsid, fileid, change] {
        to.u64(hyper);
    }
    for time in [attributes.atime, attributes.mtime, attributes.ctime] {
        put_time(to, time);
    }
}

fn get_attributes(from: &mut Decoder<'_>) -> Result<Attributes, Error> {
    Ok(Attributes {
        kind: kind(from.u32()?)?,
        mode: from.u32()? & 0o7777,
        nlink: from.u32()?,
        uid: from.u32()?,
        gid: from.u32()?,
        rdev: (from.u32()?, from.u32()?),
        size: from.u64()?,
        used: from.u64()?,
        fsid: from.u64()?,
        fileid: from.u64()?,
        change: from.u64()?,
        atime: time(from)?,
        mtime: time(from)?,
        ctime: time(from)?,
    })
}

fn put_time(to: &mut Encoder, time: Timestamp) {
    to.put(&time.seconds);
    to.u32(time.nanoseconds);
}

fn kind(value: u32) -> Result<FileKind, Error> {
    let kind = value.checked_sub(1).and_then(|place| KINDS.get(place as usize));
    kind.copied().ok_or(Error::Discriminant { of: "file kind", value })
}

fn time(from: &mut Decoder<'_>) -> Result<Timestamp, Error> {
    let (seconds, nanoseconds) = (from.get()?, from.u32()?);
    if nanoseconds > 999_999_999 {
        return Err(Error::Discriminant { of: "nanosecond", value: nanoseconds });
    }
    Ok(Timestamp { seconds, nanoseconds })
}

/// Decodes the modes for reads and for writes from one word.
fn modes(word: u32) -> Result<IoModes, Error> {
    let mode = |place: u32| MODES.get(place as usize).copied();
    let both = mode(word & 0xff).zip(mode(word >> 8));
    let (read, write) = both.ok_or(Error::Discriminant { of: "I/O modes", value: word })?;
    Ok(IoModes { read, write })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_mode_has_the_number_that_the_protocol_gives_it() {
        let numbers = |attributes: &GrantAttributes| {
            let mut to = Encoder::new();
            to.put(attributes);
            let word = |at: usize| u32::from_be_bytes(to.as_slice()[at..at + 4].try_into().unwrap());
            (word(0), word(to.as_slice().len() - 4))
        };
        for (number, kind) in (1..).zip(KINDS) {
            let attributes = Attributes { kind, ..Attributes::default() };
            assert_eq!(
                numbers(&GrantAttributes { file: attributes, modes: IoModes::default() }),
                (number, 0)
            );
            assert_eq!(super::kind(number), Ok(kind));
        }
        assert!(kind(0).is_err() && kind(8).is_err());
        let modes = IoModes { read: IoMode::DontCache, write: IoMode::Direct };
        assert_eq!(numbers(&GrantAttributes { file: Attributes::default(), modes }), (1, 0x201));
        assert!(super::modes(0x300).is_err() && super::modes(3).is_err() && super::modes(0x1_0000).is_err());
    }
}
