//! Where a call's payload comes to lie in memory, so that a program can hand it to a device without copying
//! it.
//!
//! Direct I/O wants whole blocks of a file at aligned addresses, and a payload begins behind headers of any
//! length. So while a program wants payloads placed ([`Program::places`]), a connection receives no more than
//! [`REACH`] bytes of a call before it has asked the program where the payload should lie, and receives the
//! rest straight to its place. What came with the head is moved there.

use std::sync::Arc;

use super::{Placement, Program};
use crate::message::CallHeader;

/// Placed payloads lie at addresses that leave the same remainder as their offset when divided by this, in
/// bytes: a page suits every device.
pub const PLACED: usize = 4096;

/// How far a receive reaches while payloads are placed: an RPC header and an NFS WRITE's arguments, mostly.
pub const REACH: usize = 512;

/// More of a call isn't waited for before it is received anywhere.
const LONGEST_HEAD: usize = 1024;

/// Where the program of the call that begins with `head` wants its payload, `at` counted from the beginning
/// of the record.
pub fn place(programs: &[Arc<dyn Program>], head: &[u8]) -> Placement {
    let placement = ask(programs, head);
    if placement == Placement::NotYet && head.len() >= LONGEST_HEAD { Placement::Anywhere } else { placement }
}

fn ask(programs: &[Arc<dyn Program>], head: &[u8]) -> Placement {
    let mut from = xdr::Decoder::new(head);
    // A head that can't be decoded may be one that isn't there yet.
    let Ok(header) = CallHeader::decode(&mut from) else { return Placement::NotYet };
    let program = programs
        .iter()
        .find(|program| program.number() == header.program && program.versions().contains(&header.version));
    let Some(program) = program.filter(|program| program.places()) else { return Placement::Anywhere };
    let args = from.rest();
    match program.place(header.version, header.procedure, args) {
        Placement::At { at, offset } => Placement::At { at: head.len() - args.len() + at, offset },
        other => other,
    }
}

/// How many bytes to leave free at the front of memory at `address`, so that what is `at` bytes behind them
/// lies as `offset` does.
pub const fn gap(address: usize, at: usize, offset: u64) -> usize {
    let remainder = (offset % PLACED as u64) as usize;
    remainder.wrapping_sub(address.wrapping_add(at)) % PLACED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_puts_the_payload_where_its_offset_says() {
        for (address, at, offset) in [(0, 0, 0), (16, 200, 0), (4095, 1, 47_008), (usize::MAX, 77, u64::MAX)]
        {
            let gap = gap(address, at, offset);
            assert!(gap < PLACED);
            let lies = address.wrapping_add(gap).wrapping_add(at) % PLACED;
            assert_eq!(lies as u64, offset % PLACED as u64);
        }
    }
}
