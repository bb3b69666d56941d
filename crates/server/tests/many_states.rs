//! A server that stops with thousands of NFSv4 locks: each on an open file description of its own, or, with a
//! write delegation, all on the same one.

mod common;

use common::Scratch;
use common::v4::{ANYBODY, NFS_OK, Session};
use proto::nfs4::*;
use rustix::fs::{FlockOperation, fcntl_lock};
use xdr::Opaque;

const OWNERS: u64 = 400;

#[test]
fn all_locks_end_with_the_server() {
    for delegated in [false, true] {
        let scratch = Scratch::new();
        std::fs::write(scratch.at("f"), "").unwrap();
        let server = scratch.serve(ANYBODY);
        let make = if delegated { Session::callable } else { Session::new };
        let mut session = make(&server, 1, b"owner of many");
        session.reclaim_complete();
        let root = session.walk(&scratch.export());
        let claim = OpenClaim4::Null(Opaque(b"f"));
        let (open, delegation, file) = session.open_with(&root, claim, false, SHARE_ACCESS_BOTH, 0).unwrap();
        assert_eq!(delegation.is_some(), delegated);
        for number in 0..OWNERS {
            let name = number.to_be_bytes();
            let owner = StateOwner4 { clientid: session.clientid, owner: Opaque(&name) };
            let new =
                OpenToLockOwner4 { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner: owner };
            let args = Lock4Args {
                locktype: NfsLockType4::Write,
                reclaim: false,
                offset: number * 2,
                length: 1,
                locker: Locker4::New(new),
            };
            assert_eq!(session.on(&file, Operation::Lock, &args).0, NFS_OK, "{number}");
        }
        server.stop();
        let local = std::fs::File::options().write(true).open(scratch.at("f")).unwrap();
        fcntl_lock(&local, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
