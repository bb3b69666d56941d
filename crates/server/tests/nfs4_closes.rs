//! An OPEN that denies what another client's open is for is delayed for as long as a CLOSE may take, and then
//! refused.

mod common;

use std::time::{Duration, Instant};

use common::Scratch;
use common::v4::{ANYBODY, Session};
use proto::nfs4::*;
use samehost_server::Server;
use xdr::Opaque;

const SHARE_DENY_WRITE: u32 = 2;
const DELAY: u32 = Nfsstat4::Delay as u32;
const SHARE_DENIED: u32 = Nfsstat4::ShareDenied as u32;

/// The time limit of every wait.
const BOUND: Duration = Duration::from_secs(60);

type Opened = Result<(Stateid4, Vec<u8>), u32>;

/// A client that has nothing to reclaim, and the handle of the export.
fn session(server: &Server, scratch: &Scratch, name: &[u8]) -> (Session, Vec<u8>) {
    let mut session = Session::new(server, 2, name);
    session.reclaim_complete();
    let root = session.walk(&scratch.export());
    (session, root)
}

fn open(session: &mut Session, root: &[u8], access: u32, deny: u32) -> Opened {
    session.open_shared(root, OpenClaim4::Null(Opaque(b"f")), false, access, deny)
}

/// Sends an OPEN until it isn't delayed. Returns for how long it was, too.
fn open_patiently(session: &mut Session, root: &[u8]) -> (Opened, Duration) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < BOUND, "it is delayed for ever");
        let opened = open(session, root, SHARE_ACCESS_READ, SHARE_DENY_WRITE);
        if opened.as_ref().err() != Some(&DELAY) {
            return (opened, started.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_denying_open_waits_for_another_clients_close() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut one, root) = session(&server, &scratch, b"one");
    let (mut two, _) = session(&server, &scratch, b"two");
    let (id, file) = open(&mut one, &root, SHARE_ACCESS_BOTH, 0).unwrap();
    assert_eq!(open(&mut two, &root, SHARE_ACCESS_READ, SHARE_DENY_WRITE).err(), Some(DELAY));
    one.close(&file, id);
    let (theirs, file) = open(&mut two, &root, SHARE_ACCESS_READ, SHARE_DENY_WRITE).unwrap();
    // What an open denies is refused at once: such an open isn't closed late.
    assert_eq!(open(&mut one, &root, SHARE_ACCESS_BOTH, 0).err(), Some(SHARE_DENIED));
    assert_eq!(open(&mut one, &root, SHARE_ACCESS_BOTH, SHARE_DENY_WRITE).err(), Some(SHARE_DENIED));
    two.close(&file, theirs);
    // So is what the client itself has open.
    open(&mut two, &root, SHARE_ACCESS_BOTH, 0).unwrap();
    assert_eq!(open(&mut two, &root, SHARE_ACCESS_READ, SHARE_DENY_WRITE).err(), Some(SHARE_DENIED));
}

#[test]
fn a_file_that_stays_open_is_refused() {
    let scratch = Scratch::new();
    let server = scratch.serve(ANYBODY);
    std::fs::write(scratch.at("f"), "data").unwrap();
    let (mut one, root) = session(&server, &scratch, b"one");
    let (mut two, _) = session(&server, &scratch, b"two");
    open(&mut one, &root, SHARE_ACCESS_BOTH, 0).unwrap();
    let (opened, delayed) = open_patiently(&mut two, &root);
    assert_eq!(opened.err(), Some(SHARE_DENIED));
    // 100 ms of a clock that counts whole milliseconds.
    assert!(delayed >= Duration::from_millis(99), "{delayed:?}");
}
