//! Reads that wait for a disk announce it first; reads of cached data don't.

extern crate samehost_store as store;

mod common;

use std::fs::File;
use std::path::Path;

use common::{Export, local, root, root_of};

const SIZE: usize = 1 << 20;
/// How many files are tried: the kernel need not drop a page.
const TRIES: usize = 32;

fn contents() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 4096) as u8 ^ at as u8).collect()
}

/// Asks the kernel to drop a file's cached pages.
fn drop_from_cache(path: &Path) {
    let file = File::open(path).expect("opens");
    file.sync_all().expect("syncs");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advises");
}

/// Whether the filesystem supports reads without waiting.
fn supports_nowait(path: &Path) -> bool {
    let file = File::open(path).expect("opens");
    let mut byte = [0];
    let mut parts = [std::io::IoSliceMut::new(&mut byte)];
    let asked = rustix::io::preadv2(&file, &mut parts, 0, rustix::io::ReadWriteFlags::NOWAIT);
    asked != Err(rustix::io::Errno::OPNOTSUPP)
}

#[test]
fn cached_reads_and_tmpfs_reads_announce_no_wait() {
    for parent in [std::env::temp_dir(), "/dev/shm".into()] {
        let export = Export::at(&parent);
        local(|| std::fs::write(export.path("f"), contents()).expect("writes"));
        let store = export.open();
        let context = store.as_user(&root()).expect("acts");
        let node = context.lookup(&root_of(&context, &store), b"f").expect("is there");
        // Reading caches what writing didn't.
        for (offset, length) in [(0, 4096), (8192, 65536), (SIZE - 10, 100), (SIZE, 10), (SIZE + 10, 10)] {
            let mut buffer = vec![0; length];
            let read = context
                .read_or_wait(&node, offset as u64, &mut buffer, || panic!("waits at {offset}"))
                .expect("reads");
            assert_eq!(read.count, SIZE.saturating_sub(offset).min(length));
            assert_eq!(buffer[..read.count], contents()[offset.min(SIZE)..][..read.count]);
            assert_eq!(read.eof, offset + length >= SIZE);
            let (file, _) = context.read_file(&node).expect("opens");
            let waits = || panic!("waits at {offset}");
            assert!(context.can_send(&node, &file, offset as u64, length as u32, waits));
        }
        let mut one = [0];
        for offset in [1 << 63, u64::MAX] {
            let read = context.read_or_wait(&node, offset, &mut one, || panic!("waits")).expect("reads");
            assert_eq!((read.count, read.eof), (0, true));
            let (file, _) = context.read_file(&node).expect("opens");
            assert!(context.can_send(&node, &file, offset, u32::MAX, || panic!("waits")), "nothing to do");
        }
    }
}

#[test]
fn uncached_reads_announce_the_wait_and_return_all_data() {
    let export = Export::at(&std::env::temp_dir());
    let (mut reads, mut warmings) = (0, 0);
    let store = export.open();
    let context = store.as_user(&root()).expect("acts");
    for number in 0..TRIES {
        let name = format!("f{number}");
        let path = export.path(&name);
        local(|| std::fs::write(&path, contents()).expect("writes"));
        if !supports_nowait(&path) {
            return; // this filesystem can't report it; the other test covers that case
        }
        let node = context.lookup(&root_of(&context, &store), name.as_bytes()).expect("is there");
        drop_from_cache(&path);
        let mut buffer = vec![0; 40_000];
        let read = context.read_or_wait(&node, 300_001, &mut buffer, || reads += 1).expect("reads");
        assert_eq!(read.count, buffer.len());
        assert_eq!(buffer, contents()[300_001..340_001]);
        drop_from_cache(&path);
        let (file, _) = context.read_file(&node).expect("opens");
        assert!(context.can_send(&node, &file, 0, SIZE as u32, || warmings += 1));
        assert!(context.can_send(&node, &file, 0, SIZE as u32, || panic!("it was read just now")));
        if reads > 0 && warmings > 0 {
            return;
        }
    }
    panic!("{TRIES} files were read from the disk, {reads} and {warmings} of them announced");
}
