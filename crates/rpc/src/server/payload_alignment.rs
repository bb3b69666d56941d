//! The alignment of a call's payload in memory, so that a program can pass it to a device without a copy.
//!
//! Direct I/O needs whole blocks of a file at aligned addresses, and a payload follows headers of any length.
//! So while a program wants aligned payloads ([`Program::aligns_payloads`]), a connection receives at most
//! [`HEAD_REACH`] bytes of a call before it asks the program for the payload's alignment, and receives the
//! rest straight to an address that has it. Payload bytes that came with the head are moved there.

use std::sync::Arc;

use super::{PayloadAlignment, Program};
use crate::message::CallHeader;

/// Aligned payloads begin at addresses with the same remainder as their file offset modulo this, in bytes. A
/// page suits every device.
pub const ALIGNMENT: usize = 4096;

/// The length of a receive while payloads are aligned: an RPC header and an NFS WRITE's arguments, mostly.
pub const HEAD_REACH: usize = 512;

/// The most bytes of a call that are received before its payload's alignment must be known.
const MAX_HEAD: usize = 1024;

/// The alignment that its program wants for the payload of the call that begins with `head`; `at` counts from
/// the beginning of the record.
pub fn of_call(programs: &[Arc<dyn Program>], head: &[u8]) -> PayloadAlignment {
    let placement = ask(programs, head);
    if placement == PayloadAlignment::NotYet && head.len() >= MAX_HEAD {
        PayloadAlignment::Anywhere
    } else {
        placement
    }
}

fn ask(programs: &[Arc<dyn Program>], head: &[u8]) -> PayloadAlignment {
    let mut from = xdr::Decoder::new(head);
    // A head that can't be decoded may be incomplete.
    let Ok(header) = CallHeader::decode(&mut from) else { return PayloadAlignment::NotYet };
    let program = programs
        .iter()
        .find(|program| program.number() == header.program && program.versions().contains(&header.version));
    let Some(program) = program.filter(|program| program.aligns_payloads()) else {
        return PayloadAlignment::Anywhere;
    };
    let args = from.rest();
    match program.payload_alignment(header.version, header.procedure, args) {
        PayloadAlignment::At { at, offset } => {
            PayloadAlignment::At { at: head.len() - args.len() + at, offset }
        }
        other => other,
    }
}

/// The number of bytes to leave free at the front of memory at `address`, so that the byte `at` bytes behind
/// them has the alignment of `offset`.
pub const fn gap(address: usize, at: usize, offset: u64) -> usize {
    let remainder = (offset % ALIGNMENT as u64) as usize;
    remainder.wrapping_sub(address.wrapping_add(at)) % ALIGNMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_puts_the_payload_where_its_offset_says() {
        for (address, at, offset) in [(0, 0, 0), (16, 200, 0), (4095, 1, 47_008), (usize::MAX, 77, u64::MAX)]
        {
            let gap = gap(address, at, offset);
            assert!(gap < ALIGNMENT);
            let lies = address.wrapping_add(gap).wrapping_add(at) % ALIGNMENT;
            assert_eq!(lies as u64, offset % ALIGNMENT as u64);
        }
    }
}
