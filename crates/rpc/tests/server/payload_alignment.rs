//! Payloads that are received with the alignment that their program wants, and payloads that are sent without
//! a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use samehost_rpc::server::{CallContext, CallError, PayloadAlignment, Program, Reply, Server};
use xdr::Decoder;

use crate::rig::{PROGRAM, Wire, call, eventually, opaque};

const WRITE: u32 = 1;
const PAGE: usize = 4096;

/// Returns whether a payload had the alignment of its offset, and the payload itself.
struct Placing(AtomicBool);

impl Program for Placing {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        2..=3
    }

    fn aligns_payloads(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn payload_alignment(&self, _version: u32, procedure: u32, args: &[u8]) -> PayloadAlignment {
        match (procedure, args.first_chunk::<8>()) {
            (WRITE, Some(offset)) => PayloadAlignment::At { at: 12, offset: u64::from_be_bytes(*offset) },
            (WRITE, None) => PayloadAlignment::NotYet,
            _ => PayloadAlignment::Anywhere,
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

/// Whether the payload was aligned. Asserts that it came back unchanged.
fn answer(wire: &mut Wire, sent: &[u8]) -> bool {
    let (_, results) = wire.results();
    assert!(results[4..] == opaque(sent), "{} bytes came back changed", sent.len());
    results[3] == 1
}

#[test]
fn payloads_of_any_size_have_the_alignment_of_their_offsets() {
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
fn payloads_are_aligned_in_a_stream_of_calls_and_in_any_pieces() {
    let (_server, mut wire, _) = serve(true);
    let all: Vec<Vec<u8>> = [1000, 65_536, 600, 4096, 100_000, 47_008].iter().map(|n| data(*n)).collect();
    let stream: Vec<u8> =
        all.iter().enumerate().flat_map(|(at, data)| write(1, at as u64 * 47_008, data)).collect();
    for piece in [1 << 20, 60_000, 97] {
        stream.chunks(piece).for_each(|bytes| wire.send(bytes));
        for data in &all {
            let placed = answer(&mut wire, data);
            // A payload within the first receive isn't moved.
            assert!(placed || data.len() <= 1000, "{} bytes, in pieces of {piece}", data.len());
        }
    }
}

#[test]
fn alignment_can_be_switched_while_calls_arrive() {
    let (_server, mut wire, program) = serve(false);
    let data = data(50_000);
    for places in [true, false, true, false] {
        program.0.store(places, Ordering::Relaxed);
        // A driving worker notices the change when it becomes the driver again.
        eventually("the change", || {
            wire.send(&write(1, 77, &data));
            answer(&mut wire, &data) == places
        });
    }
}
