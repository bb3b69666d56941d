//! Payloads from files: exactly as long as announced, whatever happens to the file.

use std::{
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
};

use samehost_rpc::server::Limits;

use crate::rig::{ECHO, FILE, FILE_ANNOUNCED, Obedient, Wire, call, opaque, serve_program, word};
use crate::slow_file::{SLOW_FROM, SlowFile};

fn args(offset: u64, length: u32) -> Vec<u8> {
    [&offset.to_be_bytes()[..], &length.to_be_bytes()].concat()
}

fn contents() -> Vec<u8> {
    (0..600_000u32).map(|i| (i / 7) as u8).collect()
}

fn program_with(bytes: &[u8]) -> (Obedient, std::fs::File) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let shared: OwnedFd = file.try_clone().unwrap().into();
    (Obedient::serving(shared), file)
}

#[test]
fn payloads_of_any_length_and_offset() {
    let contents = contents();
    let (program, _file) = program_with(&contents);
    let (_server, _, address) = serve_program(Limits::default(), program);
    let mut wire = Wire::to(address);
    for length in [0usize, 1, 2, 3, 4, 4096, 32_767, 32_768, 32_769, 65_536, 131_072, 500_001] {
        for offset in [0usize, 1, 4095, 99_999] {
            wire.send(&call(1, FILE, &args(offset as u64, length as u32)));
            let (_, results) = wire.results();
            assert!(results == opaque(&contents[offset..offset + length]), "{length} bytes at {offset}");
        }
    }
}

#[test]
fn a_file_that_has_become_shorter_is_filled_with_zeroes() {
    let contents = contents();
    let (program, file) = program_with(&contents);
    let (_server, _, address) = serve_program(Limits::default(), program);
    let mut wire = Wire::to(address);
    for size in [100_000u64, 4097, 0] {
        file.set_len(size).unwrap();
        for length in [5000usize, 33_001, 300_000] {
            wire.send(&[call(1, FILE, &args(0, length as u32)), call(2, ECHO, &opaque(b"behind"))].concat());
            let mut expected = contents[..length.min(size as usize)].to_vec();
            expected.resize(length, 0);
            // On a slow machine the second may overtake the first.
            let mut replies = [wire.results(), wire.results()];
            replies.sort();
            let expected = [(1, opaque(&expected)), (2, opaque(b"behind"))];
            assert!(replies == expected, "{length} bytes of {size}");
        }
    }
}

#[test]
fn many_payloads_in_flight_to_a_slow_reader() {
    let contents = contents();
    let (program, _file) = program_with(&contents);
    let (_server, _, address) = serve_program(Limits::default(), program);
    let mut wire = Wire::to(address);
    let plan: Vec<(u32, u64, u32)> =
        (0..200).map(|i| (i, u64::from(i) * 1001, [10, 4096, 40_000, 250_000][i as usize % 4])).collect();
    let bytes: Vec<u8> =
        plan.iter().flat_map(|(xid, offset, length)| call(*xid, FILE, &args(*offset, *length))).collect();
    wire.send(&bytes);
    let mut seen = vec![false; plan.len()];
    for _ in &plan {
        let (xid, results) = wire.results();
        let (_, offset, length) = plan[xid as usize];
        assert!(!std::mem::replace(&mut seen[xid as usize], true), "answered twice");
        let offset = offset as usize;
        assert!(results == opaque(&contents[offset..offset + length as usize]), "reply {xid}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_the_servers_failure() {
    // A directory: pread fails with EISDIR.
    let directory: OwnedFd = std::fs::File::open("/").unwrap().into();
    let program = Obedient::serving(directory);
    let (_server, _, address) = serve_program(Limits::default(), program);
    let mut wire = Wire::to(address);
    wire.send(&call(1, FILE, &args(0, 100)));
    assert_eq!(wire.reply().1, samehost_rpc::message::ReplyStatus::SystemErr);
    wire.send(&call(2, ECHO, &word(0)));
    assert_eq!(wire.results(), (2, word(0)));
}

/// The client has a part of the reply, which can't be completed.
#[test]
fn a_file_that_fails_while_it_is_sent_ends_the_connection() {
    let disk = SlowFile::new();
    disk.fail();
    let (_server, program, address) = serve_program(Limits::default(), Obedient::serving(disk.open()));
    // The second and fourth are sent as soon as they are encoded, the others when nothing else is to be done.
    // In the last two, another worker drives the connection by then.
    let calls = [(FILE, 200_000), (FILE, 300_000), (FILE_ANNOUNCED, 200_000), (FILE_ANNOUNCED, 300_000)];
    for (failures, (procedure, length)) in (1..).zip(calls) {
        let mut wire = Wire::to(address);
        wire.send(&call(1, procedure, &args(0, length)));
        let mut received = Vec::new();
        wire.0.read_to_end(&mut received).expect("the end, rather than silence");
        assert!((SLOW_FROM..u64::from(length)).contains(&(received.len() as u64)), "{}", received.len());
        program.wait_for_closed(failures);
        assert_eq!(program.failures(), failures);
    }
}

/// The peer is gone; the file is as good as before.
#[test]
fn a_connection_that_is_lost_is_no_failure_of_the_file() {
    let disk = SlowFile::new();
    let (_server, program, address) = serve_program(Limits::default(), Obedient::serving(disk.open()));
    let mut wire = Wire::to(address);
    wire.send(&call(1, FILE, &args(0, 300_000)));
    disk.wait_for_reader();
    // A reset.
    rustix::net::sockopt::set_socket_linger(&wire.0, Some(std::time::Duration::ZERO)).unwrap();
    drop(wire);
    disk.deliver();
    program.wait_for_closed(1);
    assert_eq!(program.failures(), 0);
    let mut wire = Wire::to(address);
    wire.send(&call(2, FILE, &args(0, 300_000)));
    assert_eq!(wire.results().1.len(), 300_004);
}
