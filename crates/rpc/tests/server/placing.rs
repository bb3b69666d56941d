//! Payloads that are received where their program wants them, and payloads that are sent from where they lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use samehost_rpc::server::{CallContext, CallError, Placement, Program, Reply, Server};
use xdr::Decoder;

use crate::rig::{PROGRAM, Wire, call, eventually, opaque};

const WRITE: u32 = 1;
const PAGE: usize = 4096;

/// Answers whether a payload lay as its offset does, and the payload itself.
struct Placing(AtomicBool);

impl Program for Placing {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        2..=3
    }

    fn places(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn place(&self, _version: u32, procedure: u32, args: &[u8]) -> Placement {
        match (procedure, args.first_chunk::<8>()) {
            (WRITE, Some(offset)) => Placement::At { at: 12, offset: u64::from_be_bytes(*offset) },
            (WRITE, None) => Placement::NotYet,
            _ => Placement::Anywhere,
        }
    }

    fn call(
        &self,
        _: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        if procedure != WRITE {
            return Err(CallError::ProcedureUnavailable);
        }
        let offset = args.u64()?;
        let data = args.opaque(8 << 20)?;
        let placed = data.as_ptr().addr() % PAGE == offset as usize % PAGE;
        reply.encoder().u32(placed.into());
        reply.encoder().u32(data.len() as u32);
        reply.attach_bytes(Box::new(data.to_vec()));
        Ok(())
    }
}

fn serve(places: bool) -> (Server, Wire, Arc<Placing>) {
    let program = Arc::new(Placing(AtomicBool::new(places)));
    let served = Arc::clone(&program);
    let server = Server::builder().program(served).bind("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let wire = Wire::to(server.local_addrs()[0]);
    (server, wire, program)
}

fn write(xid: u32, offset: u64, data: &[u8]) -> Vec<u8> {
    call(xid, WRITE, &[&offset.to_be_bytes()[..], &opaque(data)].concat())
}

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3) as u8).collect()
}

/// Whether the payload lay right; that it came back is asserted.
fn answer(wire: &mut Wire, sent: &[u8]) -> bool {
    let (_, results) = wire.results();
    assert!(results[4..] == opaque(sent), "{} bytes came back changed", sent.len());
    results[3] == 1
}

#[test]
fn payloads_of_any_size_lie_as_their_offsets_do() {
    let (_server, mut wire, _) = serve(true);
    for length in [512, 513, 4096, 32_767, 32_768, 47_008, 65_536, 1 << 20] {
        for offset in [0, 1, 512, 4095, 47_008, u64::MAX - 5] {
            let data = data(length);
            wire.send(&write(1, offset, &data));
            assert!(answer(&mut wire, &data), "{length} bytes at {offset}");
        }
    }
}

#[test]
fn in_a_row_too_and_in_pieces_of_any_size() {
    let (_server, mut wire, _) = serve(true);
    let all: Vec<Vec<u8>> = [1000, 65_536, 600, 4096, 100_000, 47_008].iter().map(|n| data(*n)).collect();
    let stream: Vec<u8> =
        all.iter().enumerate().flat_map(|(at, data)| write(1, at as u64 * 47_008, data)).collect();
    for piece in [1 << 20, 60_000, 97] {
        stream.chunks(piece).for_each(|bytes| wire.send(bytes));
        for data in &all {
            let placed = answer(&mut wire, data);
            // What fits into the first receive together with its head isn't moved.
            assert!(placed || data.len() <= 1000, "{} bytes, in pieces of {piece}", data.len());
        }
    }
}

#[test]
fn it_can_begin_and_end_while_calls_come_in() {
    let (_server, mut wire, program) = serve(false);
    let data = data(50_000);
    for places in [true, false, true, false] {
        program.0.store(places, Ordering::Relaxed);
        // A worker that is at it looks again when it begins anew.
        eventually("the change", || {
            wire.send(&write(1, 77, &data));
            answer(&mut wire, &data) == places
        });
    }
}
