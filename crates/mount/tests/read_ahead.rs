//! Read-ahead of a mount over the wire: it grows with a stream of reads, and random reads have none.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::thread::sleep;
use std::time::Duration;

use client::{Operation, Version};
use samehost_mount::MountOptions;
use support::{Mounted, Served, Transport, pattern, wait_for};

const MIB: u64 = 1 << 20;

/// How often the number of bytes has to be the same, to be sure that no READ is on its way.
const LOOKS_AT_REST: u32 = 20;

/// The bytes that the mount has read, and its READs, when no further one follows.
fn reads_at_rest(mounted: &Mounted) -> (u64, u64) {
    let (mut before, mut looks) = ((u64::MAX, 0), 0);
    wait_for("reads at rest", || {
        let counters = mounted.mount.session().counters();
        let now = (counters.wire.bytes_read, counters.calls(Operation::Read));
        looks = if std::mem::replace(&mut before, now) == now { looks + 1 } else { 0 };
        sleep(Duration::from_millis(5));
        looks == LOOKS_AT_REST
    });
    before
}

#[test]
fn read_ahead_grows_with_a_stream() {
    const PIECE: u64 = 16 << 10;
    let served = Served::start();
    let data = pattern(1, 24 << 20);
    fs::write(served.export().join("file"), &data).unwrap();
    for version in [Version::V3, Version::V4_1, Version::V4_2] {
        let mounted = served.mount_by(version, Transport::Wire, MountOptions::default());
        let read = |file: &File, offset: u64| {
            let mut piece = vec![0; PIECE as usize];
            file.read_exact_at(&mut piece, offset).unwrap();
            assert!(piece == data[offset as usize..][..PIECE as usize], "{version:?}: {offset}");
        };
        // Reads that are no stream cost what they ask for.
        let file = File::open(mounted.path("file")).unwrap();
        let (before, _) = reads_at_rest(&mounted);
        let places = [17, 5, 22, 1, 12].map(|mib| mib * MIB);
        places.into_iter().for_each(|offset| read(&file, offset));
        let (random, _) = reads_at_rest(&mounted);
        assert!(random - before <= 2 * places.len() as u64 * PIECE, "{version:?}: {random} bytes");
        // The open makes the kernel forget what it has: the file has changed.
        drop(file);
        fs::write(served.export().join("file"), &data).unwrap();
        let file = File::open(mounted.path("file")).unwrap();
        let (start, calls) = reads_at_rest(&mounted);
        let mut ahead = Vec::new();
        for until in [PIECE, MIB, 8 * MIB] {
            let from = ahead.last().map_or(0, |(until, _)| *until);
            (from..until).step_by(PIECE as usize).for_each(|offset| read(&file, offset));
            let (bytes, _) = reads_at_rest(&mounted);
            ahead.push((until, bytes - start - until));
        }
        assert!(ahead.is_sorted_by_key(|(_, ahead)| *ahead), "{version:?}: {ahead:?}");
        let [(_, first), _, (_, last)] = ahead[..] else { unreachable!() };
        assert!(first < MIB / 2 && last >= 2 * MIB, "{version:?}: {ahead:?}");
        // The READs grow, too.
        let (bytes, after) = reads_at_rest(&mounted);
        assert!((bytes - start) / (after - calls) >= MIB / 4, "{version:?}: {} READs", after - calls);
    }
}
