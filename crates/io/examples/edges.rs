//! Measures how the edges of direct writes should travel: streams writes of 47,008 bytes, which start and end
//! within blocks, into a file in DIR, with the edges buffered and with them uncached, in turns. What the
//! block device had to do is a better judge than the clock: it doesn't depend on what else the machine does.
//!
//!     cargo run --release -p samehost-io --example edges DIR [MIB] [ROUNDS]

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use rustix::fs::{CWD, Mode as Bits, OFlags, fsync, openat};
use rustix::io::{ReadWriteFlags, pwritev2};
use samehost_io::{Alignment, IoMode, plan};

const WRITE: usize = 47_008;
const PAGE: u64 = 4096;

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(dir) = args.next() else {
        eprintln!("which directory?");
        std::process::exit(2);
    };
    let mebibytes: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(64);
    let rounds: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    let path = std::path::Path::new(&dir).join("edges");
    let kinds =
        [("buffered", ReadWriteFlags::empty()), ("dontcache", ReadWriteFlags::from_bits_retain(0x80))];
    let mut speeds = [Vec::new(), Vec::new()];
    let mut work = [[0.0; 2]; 2];
    for _ in 0..rounds {
        for (kind, (_, flags)) in kinds.iter().enumerate() {
            let before = device(&path)?;
            speeds[kind].push(stream(&path, mebibytes << 20, *flags)?);
            let after = device(&path)?;
            (0..2).for_each(|n| work[kind][n] += (after[n] - before[n]) as f64);
        }
    }
    std::fs::remove_file(&path)?;
    let writes = (rounds as u64 * (mebibytes << 20).div_ceil(WRITE as u64)) as f64;
    for (kind, (name, _)) in kinds.iter().enumerate() {
        let all = &mut speeds[kind];
        all.sort_by(f64::total_cmp);
        println!(
            "edges {name:9} {:6.0} MiB/s ({:.0} to {:.0}); the device: {:.2} reads, {:.2} writes for each of \
             ours",
            all[rounds / 2],
            all[0],
            all[rounds - 1],
            work[kind][0] / writes,
            work[kind][1] / writes
        );
    }
    Ok(())
}

/// The numbers of reads and writes that the underlying block device has completed.
fn device(path: &std::path::Path) -> std::io::Result<[u64; 2]> {
    let below = std::fs::metadata(path.parent().unwrap_or(path))?.dev();
    let (major, minor) = (rustix::fs::major(below), rustix::fs::minor(below));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    Ok([numbers[0], numbers[4]])
}

/// MiB per second, including the final fsync.
fn stream(path: &std::path::Path, length: u64, edges: ReadWriteFlags) -> std::io::Result<f64> {
    let _ = std::fs::remove_file(path);
    let open = |more| openat(CWD, path, OFlags::WRONLY | OFlags::CREATE | more, Bits::RUSR | Bits::WUSR);
    let (file, direct) = (open(OFlags::empty())?, open(OFlags::DIRECT)?);
    let alignment = Alignment::of(&file);
    // Memory in which the data can be placed so that the middle is aligned for any offset.
    let memory = vec![7_u8; WRITE + 2 * PAGE as usize];
    let base = memory.as_ptr().addr().wrapping_neg() % PAGE as usize;
    let begun = Instant::now();
    let mut at = 0;
    while at < length {
        let start = base + (at % PAGE) as usize;
        let data = &memory[start..start + WRITE];
        let plan = plan::write(at, WRITE, data.as_ptr().addr(), IoMode::Direct, alignment);
        for segment in plan.segments() {
            let bytes = [IoSlice::new(&data[segment.start..segment.start + segment.length])];
            let (to, flags) = match segment.mode {
                IoMode::Direct => (direct.as_fd(), ReadWriteFlags::empty()),
                _ => (file.as_fd(), edges),
            };
            let count = pwritev2(to, &bytes, at + segment.start as u64, flags)?;
            assert_eq!(count, segment.length, "a short write: is the filesystem full?");
        }
        at += WRITE as u64;
    }
    fsync(&file)?;
    Ok((at >> 20) as f64 / begun.elapsed().as_secs_f64())
}
