//! The I/O modes against a model: for any offset, length, memory alignment, mode and stability, on tmpfs,
//! ext4 and xfs, a file holds exactly the bytes written to it, and reads return them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use io::{Alignment, Files, IoFallbacks, IoMode, Stability};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{CWD, Mode as Bits, OFlags, openat};
use samehost_tests::disk::Disk;
use samehost_tests::need_root;

/// The model's greatest length.
const MAX_FILE_LENGTH: usize = 300_000;

#[derive(Debug, Clone)]
struct Step {
    write: bool,
    offset: u64,
    length: usize,
    /// Offset in memory from the beginning of a page.
    shift: usize,
    mode: IoMode,
    stability: Stability,
}

/// A filesystem whose image is in memory: the kernel is tested here, not the disk.
fn disk(kind: &str, mebibytes: u64) -> Disk {
    Disk::in_directory(kind, mebibytes, Path::new("/dev/shm"))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode =
        prop_oneof![1 => Just(IoMode::Buffered), 1 => Just(IoMode::DontCache), 3 => Just(IoMode::Direct)];
    let stability = prop_oneof![
        6 => Just(Stability::Unstable), 1 => Just(Stability::DataSync), 1 => Just(Stability::FileSync)
    ];
    let below = |max: u64| {
        prop_oneof![
            (0..max),
            (0..max / 512).prop_map(|block| block * 512),
            (0..max / 4096).prop_map(|page| page * 4096)
        ]
    };
    let length = prop_oneof![3 => below(60_000), 1 => 0u64..600];
    let shift = prop_oneof![Just(0), Just(512), 0usize..4096];
    let step = (any::<bool>(), below(200_000), length, shift, mode, stability).prop_map(
        |(write, offset, length, shift, mode, stability)| Step {
            write,
            offset,
            length: length as usize,
            shift,
            mode,
            stability,
        },
    );
    prop::collection::vec(step, 1..24)
}

struct Opened {
    buffered: OwnedFd,
    direct: Option<(OwnedFd, Alignment)>,
}

impl Opened {
    fn new(path: &Path) -> Self {
        let open = |more| openat(CWD, path, OFlags::RDWR | OFlags::CREATE | more, Bits::RUSR | Bits::WUSR);
        let buffered = open(OFlags::TRUNC).expect("opens");
        let alignment = Alignment::of(&buffered);
        let direct = alignment.map(|alignment| (open(OFlags::DIRECT).expect("opens"), alignment));
        Self { buffered, direct }
    }

    fn files(&self) -> Files<'_> {
        let direct = self.direct.as_ref().map(|(file, alignment)| (file.as_fd(), *alignment));
        Files { buffered: self.buffered.as_fd(), direct, handle: b"" }
    }
}

/// Memory with a part that begins `shift` bytes after a page's beginning.
struct ShiftedMemory(Vec<u8>, usize);

impl ShiftedMemory {
    fn new(shift: usize, length: usize) -> Self {
        let memory = vec![0; 2 * 4096 + length];
        let base = memory.as_ptr().addr().wrapping_neg() % 4096;
        Self(memory, base + shift)
    }

    fn part(&mut self, length: usize) -> &mut [u8] {
        &mut self.0[self.1..self.1 + length]
    }
}

fn run_steps(path: &Path, steps: &[Step], fallbacks: &IoFallbacks) -> Result<(), TestCaseError> {
    let opened = Opened::new(path);
    let mut model: Vec<u8> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let at = step.offset as usize;
        let mut memory = ShiftedMemory::new(step.shift, step.length);
        let bytes = memory.part(step.length);
        if step.write {
            let fill = |(index, byte): (usize, &mut u8)| *byte = (index * 7 + number * 31 + 1) as u8;
            bytes.iter_mut().enumerate().for_each(fill);
            let (files, offset) = (opened.files(), step.offset);
            let wrote =
                io::write(files, step.mode, bytes, offset, step.stability, fallbacks).expect("writes");
            prop_assert_eq!(wrote, step.length, "the count is the request's length, not a segment's");
            if step.length > 0 {
                model.resize(model.len().max(at + step.length), 0);
                model[at..at + step.length].copy_from_slice(bytes);
            }
        } else {
            let expected = &model[at.min(model.len())..(at + step.length).min(model.len())];
            let count = io::read(opened.files(), step.mode, bytes, step.offset, fallbacks).expect("reads");
            prop_assert!(bytes[..count] == *expected, "step {} {:?}: {} bytes", number, step, count);
            prop_assert!(bytes[count..].iter().all(|byte| *byte == 0), "bytes after the end are untouched");
            let fetched =
                io::fetch(opened.files(), step.mode, step.offset, step.length, fallbacks).expect("reads");
            prop_assert!(*fetched == *expected, "step {} {:?} fetched", number, step);
        }
    }
    let whole = std::fs::read(path).expect("there");
    prop_assert!(whole == model, "the file is {} bytes, the model {}", whole.len(), model.len());
    prop_assert!(model.len() <= MAX_FILE_LENGTH);
    Ok(())
}

fn run_random_steps(directory: &Path) -> IoFallbacks {
    let fallbacks = IoFallbacks::default();
    let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| run_steps(&directory.join("model"), &steps, &fallbacks))
        .unwrap_or_else(|failure| panic!("on {}: {failure}", directory.display()));
    fallbacks
}

#[test]
fn reads_return_what_was_written_on_tmpfs() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
    let fallbacks = run_random_steps(directory.path());
    assert_eq!(fallbacks.copies(), 0, "tmpfs reports no alignment, so there is no direct I/O");
}

#[test]
fn reads_return_what_was_written_on_ext4_and_xfs() {
    need_root();
    for (kind, mebibytes) in [("ext4", 64), ("xfs", 320)] {
        let disk = disk(kind, mebibytes);
        let fallbacks = run_random_steps(disk.path());
        assert!(fallbacks.copies() > 0, "{kind}: unaligned memory was among the cases");
        assert!(
            !fallbacks.notes().iter().any(|note| note.contains("refused")),
            "{kind}: {:?}",
            fallbacks.notes()
        );
    }
}

/// XFS preallocates blocks after the end of a file that grows by buffered writes (the unaligned edges of
/// direct writes are buffered), and refuses direct reads that reach these blocks.
#[test]
fn a_direct_read_across_the_end_of_an_xfs_file_with_preallocated_blocks() {
    need_root();
    let disk = disk("xfs", 320);
    let opened = Opened::new(&disk.path().join("grown"));
    let (fallbacks, files) = (IoFallbacks::default(), opened.files());
    let write = |mode, offset: u64, length: usize| {
        let mut memory = ShiftedMemory::new(0, length);
        memory.part(length).fill(b'x');
        io::write(files, mode, memory.part(length), offset, Stability::Unstable, &fallbacks).expect("writes")
    };
    write(IoMode::Buffered, 0x5_d400, 0x76);
    write(IoMode::Buffered, 0x8_bffc, 4);
    write(IoMode::Direct, 0x8_c000, 0x400);
    let read = io::fetch(files, IoMode::Direct, 0x8_0000, 0x1_f800, &fallbacks).expect("reads");
    assert_eq!(read.len(), 0xc400);
    assert!(read[..0xbffc].iter().all(|byte| *byte == 0) && read[0xbffc..].iter().all(|byte| *byte == b'x'));
    assert!(fallbacks.notes().is_empty(), "direct reads stay enabled: {:?}", fallbacks.notes());
}
