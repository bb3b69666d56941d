//! The parts of the outgoing stream and how they are sent: bytes in memory with one sendmsg for many parts,
//! bytes of files with sendfile.

use std::{collections::VecDeque, io::IoSlice, os::fd::OwnedFd, sync::Arc};

use rustix::io::Errno;

use super::reply::{Payload, PayloadFile};
use crate::transport::Transport;

/// Replies are appended to one another up to this many bytes.
pub const REPLY_BUFFER: usize = 64 << 10;

/// The most pieces in one sendmsg.
const PIECES: usize = 16;

/// The most empty buffers that a worker keeps.
const SPARES: usize = 4;

const ZEROES: [u8; 4096] = [0; 4096];

/// A part of the outgoing stream.
#[derive(Debug)]
pub enum Piece {
    Bytes { bytes: Vec<u8>, sent: usize },
    Payload { bytes: Box<dyn Payload>, sent: usize },
    File { file: Arc<dyn PayloadFile>, offset: u64, left: u64 },
    Zeroes { left: u64 },
}

/// The number of bytes that were sent.
#[derive(Debug, Default)]
pub struct Sent {
    /// Bytes.
    pub total: u64,
    /// Bytes from memory among them.
    pub memory: usize,
    /// Bytes of files that were read into memory, sent or not.
    pub copied: usize,
}

/// Why a reply can't be sent.
#[derive(Debug)]
pub enum SendError {
    /// The connection is lost, or `AGAIN`, `INTR`.
    Socket(Errno),
    /// A file can't be read.
    File(Errno),
}

/// Sends from the front until everything is sent or the socket is full.
pub fn send_pieces(
    transport: &Transport<OwnedFd>,
    pieces: &mut VecDeque<Piece>,
    sent: &mut Sent,
    spares: &mut Vec<Vec<u8>>,
) -> Result<(), SendError> {
    loop {
        let outcome = match pieces.front_mut() {
            None => return Ok(()),
            Some(Piece::File { file, offset, left }) => send_file(transport, &**file, offset, left, sent),
            Some(_) => send_bytes(transport, pieces, sent).map_err(SendError::Socket),
        };
        match outcome {
            Err(SendError::Socket(Errno::AGAIN)) => return Ok(()),
            Err(SendError::Socket(Errno::INTR)) => {}
            Err(error) => return Err(error),
            Ok(replacement) => {
                while pieces.front().is_some_and(Piece::is_done) {
                    if let Some(Piece::Bytes { mut bytes, .. }) = pieces.pop_front()
                        && spares.len() < SPARES
                        && bytes.capacity() == REPLY_BUFFER
                    {
                        bytes.clear();
                        spares.push(bytes);
                    }
                }
                if let Some(piece) = replacement {
                    pieces.push_front(piece);
                }
            }
        }
    }
}

/// Sends pieces that are in memory, up to the next file or [`PIECES`].
fn send_bytes(
    transport: &Transport<OwnedFd>,
    pieces: &mut VecDeque<Piece>,
    sent: &mut Sent,
) -> Result<Option<Piece>, Errno> {
    let mut slices = [IoSlice::new(&[]); PIECES];
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(pieces.iter()) {
        *slice = IoSlice::new(match piece {
            Piece::Bytes { bytes, sent } => &bytes[*sent..],
            Piece::Payload { bytes, sent } => &(**bytes).as_ref()[*sent..],
            #[allow(clippy::cast_possible_truncation, reason = "at most 4096")]
            Piece::Zeroes { left } => &ZEROES[..(*left).min(ZEROES.len() as u64) as usize],
            Piece::File { .. } => break,
        });
        count += 1;
        if matches!(piece, Piece::Zeroes { left } if *left > ZEROES.len() as u64) {
            break;
        }
    }
    let mut gone = transport.send(&slices[..count], count < pieces.len())?;
    sent.total += gone as u64;
    for piece in pieces.iter_mut().take(count) {
        match piece {
            Piece::Bytes { bytes, sent: before } => {
                let some = gone.min(bytes.len() - *before);
                *before += some;
                sent.memory += some;
                gone -= some;
            }
            Piece::Payload { bytes, sent: before } => {
                let some = gone.min((**bytes).as_ref().len() - *before);
                *before += some;
                sent.memory += some;
                gone -= some;
            }
            Piece::Zeroes { left } => {
                let some = (*left).min(gone as u64);
                *left -= some;
                #[allow(clippy::cast_possible_truncation, reason = "at most `gone`")]
                {
                    gone -= some as usize;
                }
            }
            Piece::File { .. } => break,
        }
    }
    Ok(None)
}

/// Sends from a file. Zeroes follow where the file has ended, because the record's length was announced.
fn send_file(
    transport: &Transport<OwnedFd>,
    file: &dyn PayloadFile,
    offset: &mut u64,
    left: &mut u64,
    sent: &mut Sent,
) -> Result<Option<Piece>, SendError> {
    let count = usize::try_from(*left).unwrap_or(usize::MAX);
    match transport.send_file(file, offset, count) {
        Ok(0) => Ok(Some(Piece::Zeroes { left: std::mem::take(left) })),
        Ok(gone) => {
            sent.total += gone as u64;
            *left = left.saturating_sub(gone as u64);
            Ok(None)
        }
        Err(error @ (Errno::AGAIN | Errno::INTR)) => Err(SendError::Socket(error)),
        // The filesystem doesn't support sendfile, or the error is the file's or the socket's. Copying
        // through memory, a part at a time, works for the first and tells the others apart: the file can't be
        // read, or sending the part fails.
        Err(_) => {
            let mut bytes = vec![0; count.min(REPLY_BUFFER)];
            let read = match rustix::io::pread(file, &mut bytes[..], *offset) {
                Ok(0) => return Ok(Some(Piece::Zeroes { left: std::mem::take(left) })),
                Ok(read) => read,
                Err(Errno::INTR) => return Ok(None),
                Err(error) => {
                    file.failed();
                    return Err(SendError::File(error));
                }
            };
            bytes.truncate(read);
            *offset += read as u64;
            *left -= read as u64;
            sent.copied += read;
            Ok(Some(Piece::Bytes { bytes, sent: 0 }))
        }
    }
}

impl Piece {
    fn is_done(&self) -> bool {
        match self {
            Self::Bytes { bytes, sent } => *sent == bytes.len(),
            Self::Payload { bytes, sent } => *sent == (**bytes).as_ref().len(),
            Self::File { left, .. } | Self::Zeroes { left } => *left == 0,
        }
    }
}
