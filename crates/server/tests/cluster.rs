//! Three servers of one CephFS.
//!
//! Without a cluster (`tests/ceph/run`) the test says so and passes.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::gateways::*;
use common::v4::{NFS_OK, Ops, compound};
use common::{Client, wait_for};
use proto::nfs4::*;
use xdr::Opaque;

#[test]
fn locks_of_a_killed_gateway_are_reclaimed_and_never_given_to_others() {
    let Some(rig) = Rig::new("gateways") else { return };
    rig.cluster(&["add", "a", "b", "c"]);
    let [mut a, mut b, mut c] =
        [("a", 11), ("b", 12), ("c", 13)].map(|(name, number)| Gateway::new(&rig, name, number));
    for gateway in [&mut a, &mut b, &mut c] {
        gateway.start();
    }
    wait_for("three gateways that give state", || rig.is_normal(3));
    let [mut one, mut two, mut three] = [a.session(b"one"), b.session(b"two"), c.session(b"three")];
    for session in [&mut one, &mut two, &mut three] {
        session.reclaim_complete();
    }

    // NFSv4.0 is served where it is asked for.
    let v40 = |gateway: &Gateway<'_>| {
        let ops = Ops::new().op(Operation::Putrootfh, &());
        compound(&mut Client::to(gateway.address), 0, &ops).status
    };
    assert_eq!((v40(&a), v40(&c)), (Nfsstat4::MinorVersMismatch as u32, NFS_OK));

    // A handle of one is valid on the others, and names the same file.
    let root = one.walk(Path::new("/srv"));
    assert_eq!((two.walk(Path::new("/srv")), three.walk(Path::new("/srv"))), (root.clone(), root.clone()));
    let claim = OpenClaim4::Null(Opaque(b"f"));
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    let (opened, file) = one.open_shared(&root, claim, true, access, 0).unwrap();
    for number in [attributes::FSID, attributes::FILEID] {
        let on_a = one.attribute(&file, number);
        assert_eq!(two.attribute(&file, number), on_a);
        assert_eq!(three.attribute(&file, number), on_a);
    }

    // A lock of one excludes the others.
    until_decided(|| one.lock(&file, opened, false)).unwrap();
    assert_eq!(open_and_lock(&mut two, &file).unwrap_err(), DENIED);
    assert_eq!(open_and_lock(&mut three, &file).unwrap_err(), DENIED);

    // No open may deny anything: the others would not know.
    let denies = two.open_shared(&file, OpenClaim4::Fh, false, access, SHARE_DENY_BOTH);
    assert_eq!(denies.unwrap_err(), Nfsstat4::ShareDenied as u32);

    // While its gateway is killed and recovers, others try all the time.
    let (stops, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for session in [&mut two, &mut three] {
            let (file, stops, tries) = (&file, &stops, &tries);
            scope.spawn(move || {
                let stateid = until_decided(|| open(session, file, OpenClaim4::Fh)).unwrap();
                while !stops.load(Ordering::Acquire) {
                    let tried = session.lock(file, stateid, false);
                    tries.fetch_add(1, Ordering::Relaxed);
                    if !matches!(tried, Err(DENIED | GRACE | DELAY)) {
                        stops.store(true, Ordering::Release);
                        panic!("{tried:?}: another client has the lock");
                    }
                }
            });
        }
        let more_tries = |than: usize| {
            wait_for("tries", || stops.load(Ordering::Acquire) || tries.load(Ordering::Relaxed) > than)
        };
        more_tries(10);
        a.kill();
        more_tries(tries.load(Ordering::Relaxed) + 10);
        a.start();
        one = a.session(b"one");
        let again = until_decided(|| open(&mut one, &file, OpenClaim4::Previous(0))).unwrap();
        until_decided(|| one.lock(&file, again, true)).unwrap();
        one.reclaim_complete();
        wait_for("the end of the grace period", || rig.is_normal(3));
        more_tries(tries.load(Ordering::Relaxed) + 10);
        stops.store(true, Ordering::Release);
    });
    assert!(rig.ganesha(&[]).contains("cur=2 rec=0"), "one grace period: {}", rig.ganesha(&[]));

    // A gateway whose locks were not kept: its clients can't reclaim, and others get the locks.
    a.kill();
    a.manager.kept.clear();
    a.start();
    one = a.session(b"one");
    assert_eq!(until_decided(|| open(&mut one, &file, OpenClaim4::Previous(0))).unwrap_err(), NO_GRACE);
    one.reclaim_complete();
    wait_for("a gateway without clients to reclaim", || rig.is_normal(3));
    open_and_lock(&mut two, &file).unwrap();
    drop((one, two, three));

    // A gateway that stops leaves nothing behind.
    let process = c.process.as_ref().unwrap().id();
    let pid = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait_for("the gateway to stop", || c.process.as_mut().unwrap().try_wait().unwrap().is_some());
    c.process = None;

    // What a server can't offer it says at its start.
    let said = |gateway: &Gateway<'_>, note: &str| gateway.log().contains(note);
    let unstored = "no service manager stores the locks";
    assert!(said(&a, "note: /srv: no delegations") && !said(&a, unstored) && !said(&c, unstored));
    c.stores = false;
    c.start();
    wait_for("the note", || said(&c, unstored));
}
