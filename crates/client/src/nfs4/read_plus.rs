//! READ_PLUS (RFC 7862 section 15.10): a READ that is answered with the lengths of holes instead of their
//! zeros.

use std::sync::atomic::Ordering::Relaxed;

use proto::nfs4::{Nfsstat4, Operation as Op, Read4Args, ReadPlus4ResOk, ReadPlusContent4};

use super::Nfs4;
use super::compound::{Compound, check};
use super::data::{IoAttempts, io_stateid};
use super::state::READ_ACCESS;
use crate::error::{Error, Result};
use crate::operations::ReadReply;
use crate::types::{Handle, Operation};
use crate::user::User;

/// How a READ_PLUS was answered.
pub(super) enum ReadPlusAnswer {
    /// With data.
    Data(ReadReply),
    /// The server doesn't have it. This is the buffer.
    NotSupported(Vec<u8>),
}

impl Nfs4 {
    /// Reads a range by READ_PLUS.
    pub(super) async fn read_plus(
        &self,
        user: &User,
        file: &Handle,
        (offset, len): (u64, usize),
        buffer: Vec<u8>,
    ) -> Result<ReadPlusAnswer> {
        let mut attempts = IoAttempts::new(self, user, file);
        loop {
            let id = attempts.state_id(READ_ACCESS).await?;
            let args = Read4Args { stateid: io_stateid(id), offset, count: len as u32 };
            let compound = Compound::new().put_fh(file).then(Op::ReadPlus, &args);
            let reply = self.call(user, Operation::Read, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            match results.status(Op::ReadPlus)? {
                Nfsstat4::Notsupp | Nfsstat4::OpIllegal => {
                    self.has_read_plus.store(false, Relaxed);
                    return Ok(ReadPlusAnswer::NotSupported(buffer));
                }
                status if attempts.must_repeat(id, status) => {}
                status => {
                    check(Op::ReadPlus, status)?;
                    let contents: ReadPlus4ResOk<'_> = results.value(Op::ReadPlus)?;
                    return assemble(&contents, (offset, len), buffer).map(ReadPlusAnswer::Data);
                }
            }
        }
    }
}

/// Puts the data in `buffer`, with zeros for the holes.
fn assemble(
    contents: &ReadPlus4ResOk<'_>,
    (offset, len): (u64, usize),
    mut buffer: Vec<u8>,
) -> Result<ReadReply> {
    let senseless = |what| Err(Error::Protocol { object: Op::ReadPlus.name().to_owned(), what });
    buffer.clear();
    let mut eof = contents.eof;
    for segment in &contents.contents.0 {
        let (start, length) = match segment {
            ReadPlusContent4::Data(data) => (data.offset, data.data.0.len() as u64),
            ReadPlusContent4::Hole(hole) => (hole.offset, hole.length),
        };
        let at = offset + buffer.len() as u64;
        // A hole may begin before the range, and end behind it.
        let (Some(skipped), Some(end)) = (at.checked_sub(start), start.checked_add(length)) else {
            return senseless("its segments aren't consecutive");
        };
        let wanted = end.saturating_sub(at);
        let room = len - buffer.len();
        let taken = usize::try_from(wanted).map_or(room, |wanted| wanted.min(room));
        eof &= taken as u64 == wanted;
        match segment {
            ReadPlusContent4::Data(_) if wanted > room as u64 => {
                return senseless("it sends more than was requested");
            }
            ReadPlusContent4::Data(data) if taken > 0 => {
                buffer.extend_from_slice(&data.data.0[skipped as usize..]);
            }
            ReadPlusContent4::Data(_) => {}
            ReadPlusContent4::Hole(_) => buffer.resize(buffer.len() + taken, 0),
        }
    }
    Ok(ReadReply { data: buffer, eof })
}

#[cfg(test)]
mod tests {
    use proto::nfs4::{Data4, DataInfo4};
    use xdr::{Array, Opaque};

    use super::*;

    fn data(offset: u64, data: &[u8]) -> ReadPlusContent4<'_> {
        ReadPlusContent4::Data(Data4 { offset, data: Opaque(data) })
    }

    const fn hole(offset: u64, length: u64) -> ReadPlusContent4<'static> {
        ReadPlusContent4::Hole(DataInfo4 { offset, length })
    }

    fn assembled(segments: &[ReadPlusContent4<'_>], eof: bool, range: (u64, usize)) -> Result<ReadReply> {
        let contents = ReadPlus4ResOk { eof, contents: Array(segments.to_vec()) };
        assemble(&contents, range, vec![7; 3])
    }

    #[test]
    fn holes_become_zeros() {
        let reply = assembled(&[hole(10, 3), data(13, b"ab"), hole(15, 1)], true, (10, 6)).unwrap();
        assert_eq!((&reply.data[..], reply.eof), (&b"\0\0\0ab\0"[..], true));
        let reply = assembled(&[], true, (10, 6)).unwrap();
        assert_eq!((&reply.data[..], reply.eof), (&b""[..], true));
    }

    #[test]
    fn holes_may_extend_beyond_the_range() {
        let reply =
            assembled(&[hole(0, 12), data(12, b"x"), hole(13, u64::MAX - 13)], true, (10, 6)).unwrap();
        assert_eq!((&reply.data[..], reply.eof), (&b"\0\0x\0\0\0"[..], false));
    }

    #[test]
    fn gaps_and_too_much_data_are_errors() {
        assert!(assembled(&[hole(10, 1), data(12, b"x")], true, (10, 6)).is_err());
        assert!(assembled(&[data(11, b"x")], true, (10, 6)).is_err());
        assert!(assembled(&[hole(9, u64::MAX)], true, (10, 6)).is_err());
        assert!(assembled(&[data(10, b"1234567")], true, (10, 6)).is_err());
    }
}
