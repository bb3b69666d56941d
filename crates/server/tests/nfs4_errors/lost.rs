//! Errors of lost state: a revoked delegation, and the grace period after a restart.

use std::time::Duration;

use proto::nfs4::Nfsstat4 as S;
use proto::nfs4::Operation as Op;
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::Opaque;

use super::common::called::{answer, call};
use super::common::v4::{ANYBODY, NFS_OK, Session};
use super::common::{Scratch, encoded, wait_for};
use super::table::Table;
use super::{ANY, Bench, clone, copy, lock, lockt, one, open, range, read, seek, setattr, want, write};

const F: OpenClaim4<'_> = OpenClaim4::Null(Opaque(b"f"));

/// I/O with a state id or a special one.
fn io(stateid: Stateid4) -> Vec<(Op, Vec<u8>)> {
    let size = 1_u64.to_be_bytes();
    let hint = IoAdvise4Args { stateid, offset: 0, count: 0, hints: Bitmap4::EMPTY };
    let resize = Setattr4Args { stateid, ..setattr(one(attributes::SIZE, &size)) };
    vec![
        (Op::Read, encoded(&read(stateid))),
        (Op::ReadPlus, encoded(&read(stateid))),
        (Op::Seek, encoded(&seek(stateid, 0, 0))),
        (Op::IoAdvise, encoded(&hint)),
        (Op::Write, encoded(&write(stateid))),
        (Op::Allocate, encoded(&range(stateid, 1))),
        (Op::Deallocate, encoded(&range(stateid, 1))),
        (Op::Setattr, encoded(&resize)),
        (Op::Copy, encoded(&copy(stateid, stateid, 0))),
        (Op::Clone, encoded(&clone(stateid, stateid))),
    ]
}

/// The same on a file that is both the saved and the current one.
fn fails(b: &mut Bench, file: &[u8], all: Vec<(Op, Vec<u8>)>, status: S) {
    let put = (Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }));
    for (op, args) in all {
        b.fails(&[put.clone(), (Op::Savefh, vec![])], op, &args, status);
    }
}

/// Errors of a delegation that was revoked because the client didn't return it.
pub fn revoked() -> Table {
    let scratch = Scratch::new();
    let server = Server::start(Config { lease: Duration::from_secs(10), ..scratch.config(ANYBODY) }).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let [mut session, mut rival] = [b"one", b"two"].map(|name| {
        let mut session = Session::callable(&server, 2, name);
        session.reclaim_complete();
        session
    });
    let root = session.walk(&scratch.export());
    let access = SHARE_ACCESS_READ | SHARE_ACCESS_WANT_READ_DELEG;
    let (_, given, file) = session.open_with(&root, F, false, access, 0).unwrap();
    let given = given.expect("no conflict");
    assert_eq!(rival.open(&root, F, false).err(), Some(S::Delay as u32));
    let recall = call(&mut session);
    answer(&mut session, &recall, &[]);
    wait_for("the delegation's end", || {
        let ops = session.sequence(false);
        assert_eq!(session.run(&ops).status, NFS_OK);
        rival.open(&root, F, false).is_ok()
    });
    let clientid = session.clientid;
    let mut b = Bench { session, table: Table::default() };
    fails(&mut b, &file, io(given), S::DelegRevoked);
    b.at(
        &file,
        Op::Open,
        &open(clientid, OpenClaim4::DelegCurFh(given), Openflag4::Nocreate),
        S::DelegRevoked,
    );
    b.table
}

/// Errors of two clients that reclaim an open and a lock, one of them more than it had.
pub fn restarted() -> Table {
    let scratch = Scratch::new();
    let mut config = Config { lease: Duration::from_secs(3600), ..scratch.config(ANYBODY) };
    let server = Server::start(config.clone()).unwrap();
    config.listen = server.local_addrs();
    server.stop();
    let server = Server::start(config.clone()).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    for name in [b"one", b"two"] {
        let mut session = Session::new(&server, 2, name);
        session.reclaim_complete();
        let root = session.walk(&scratch.export());
        session.open(&root, F, false).unwrap();
    }
    // Without stop(): as if the server was killed.
    drop(server);
    let server = Server::start(config).unwrap();
    let [session, mut other] = [b"one", b"two"].map(|name| Session::new(&server, 2, name));
    let mut b = Bench { session, table: Table::default() };
    let root = b.session.walk(&scratch.export());
    let file = b.session.lookup(&root, b"f").unwrap();
    let clientid = b.session.clientid;
    let previous = OpenClaim4::Previous(0);
    let (theirs, _) = other.open(&file, previous, false).unwrap();
    other.lock(&file, theirs, true).unwrap();
    let denying = Open4Args { share_deny: 3, ..open(clientid, previous, Openflag4::Nocreate) };
    b.at(&file, Op::Open, &denying, S::ReclaimConflict);
    let (ours, _) = b.session.open(&file, previous, false).unwrap();
    b.at(&file, Op::Lock, &lock(ours, b"o", clientid, 1, true), S::ReclaimConflict);
    b.at(&file, Op::Lock, &lock(ours, b"o", clientid, 1, false), S::Grace);
    b.at(&file, Op::Lockt, &lockt(clientid, 1), S::Grace);
    b.at(&root, Op::Open, &open(clientid, F, Openflag4::Nocreate), S::Grace);
    b.at(&file, Op::WantDelegation, &want(SHARE_ACCESS_WANT_READ_DELEG, DelegClaim4::Fh), S::Grace);
    fails(&mut b, &file, io(ANY), S::Grace);
    b.table
}
