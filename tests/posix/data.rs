//! File data: reads and writes through different descriptors, and how files grow and shrink.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{self as sys, FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::test_dir::{TestDir, chmod, create, lstat, open, when_closed};
use super::{checks, fails};

checks![
    reads_return_what_was_written,
    holes_are_zeros,
    files_far_beyond_4_gib,
    appends_go_to_the_end,
    appenders_do_not_overwrite_one_another,
    two_descriptors_see_one_file,
    readers_see_writers_of_every_kind,
    truncating_and_growing,
    a_write_right_after_a_truncation,
    descriptors_allow_only_their_access_mode,
    direct_io,
    synchronous_writes,
    vectored_io,
    the_end_of_a_file,
    fallocate_allocates_or_fails,
    seeking_data_and_holes,
    copy_file_range_copies,
    locks_exclude,
    a_running_program_cannot_be_written,
    large_transfers_of_odd_lengths,
    truncated_data_does_not_reappear,
    extended_attributes_are_stored_or_refused,
];

fn fd_file(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    samehost_tests::scratch::pattern(seed, len)
}

fn reads_return_what_was_written(base: &TestDir) {
    let path = base.at("file");
    let mut file = fd_file(&path);
    for (seed, len) in [(1, 1), (2, 4096), (3, 100_000), (4, 3 << 20)] {
        let data = pattern(seed, len);
        file.rewind().unwrap();
        file.set_len(0).unwrap();
        file.write_all(&data).unwrap();
        assert!(fs::read(&path).unwrap() == data, "{len} bytes");
        assert_eq!(lstat(&path).st_size as usize, len);
    }
}

fn holes_are_zeros(base: &TestDir) {
    let file = fd_file(&base.at("file"));
    file.write_all_at(b"end", 1_000_000).unwrap();
    file.write_all_at(b"middle", 500_001).unwrap();
    let bytes = fs::read(base.at("file")).unwrap();
    assert_eq!(bytes.len(), 1_000_003);
    assert!(bytes[..500_001].iter().chain(&bytes[500_007..1_000_000]).all(|byte| *byte == 0));
    assert_eq!((&bytes[500_001..500_007], &bytes[1_000_000..]), (&b"middle"[..], &b"end"[..]));
}

fn files_far_beyond_4_gib(base: &TestDir) {
    let file = fd_file(&base.at("file"));
    let far = (1 << 40) + 12_345;
    file.write_all_at(b"far out", far).unwrap();
    let mut bytes = [0; 7];
    file.read_exact_at(&mut bytes, far).unwrap();
    assert_eq!(&bytes, b"far out");
    assert_eq!(lstat(&base.at("file")).st_size as u64, far + 7);
    file.read_exact_at(&mut bytes, 1 << 32).unwrap();
    assert_eq!(bytes, [0; 7]);
}

fn appends_go_to_the_end(base: &TestDir) {
    let path = base.file("file", 0o644, b"begin");
    let mut file = fs::OpenOptions::new().append(true).read(true).open(&path).unwrap();
    file.write_all(b"-one").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"-two").unwrap();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"-other").unwrap();
    file.write_all(b"-three").unwrap();
    // On Linux pwrite(2) appends to such a file, too.
    file.write_all_at(b"-four", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"begin-one-two-other-three-four");
}

fn appenders_do_not_overwrite_one_another(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
                for number in 0..50 {
                    file.write_all(format!("{writer}:{number:04}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!((text.len(), lines.len()), (200 * 7, 200));
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 200);
}

fn two_descriptors_see_one_file(base: &TestDir) {
    let path = base.file("file", 0o644, b"0123456789");
    let (one, two) = (fd_file(&path), fd_file(&path));
    let mut bytes = [0; 10];
    for round in 0..20_u8 {
        one.write_all_at(&[round; 5], 2).unwrap();
        two.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[2..7], [round; 5]);
        two.write_all_at(&[round + 100; 3], 4).unwrap();
        one.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[4..7], [round + 100; 3]);
    }
    one.set_len(3).unwrap();
    assert_eq!(two.read_at(&mut bytes, 0).unwrap(), 3);
    assert_eq!(two.metadata().unwrap().len(), 3);
}

/// All descriptors see the same bytes, with any combination of open flags.
fn readers_see_writers_of_every_kind(base: &TestDir) {
    let path = base.file("file", 0o644, &[0; 8192]);
    let kinds = [
        OFlags::RDWR,
        OFlags::RDWR | OFlags::SYNC,
        OFlags::RDWR | OFlags::DIRECT,
        OFlags::RDWR | OFlags::NOATIME,
    ];
    for first in kinds {
        for second in kinds {
            let (writer, reader) = (open(&path, first).unwrap(), open(&path, second).unwrap());
            for round in 1..4_u8 {
                let block = aligned(round, 4096);
                rustix::io::pwrite(&writer, block.bytes(), 4096).unwrap();
                let mut back = aligned(0, 4096);
                assert_eq!(rustix::io::pread(&reader, back.bytes_mut(), 4096).unwrap(), 4096);
                assert!(back.bytes().iter().all(|byte| *byte == round), "{first:?} then {second:?}");
            }
            let late = open(&path, OFlags::RDONLY).unwrap();
            let mut back = aligned(0, 4096);
            rustix::io::pread(&late, back.bytes_mut(), 4096).unwrap();
            assert!(back.bytes().iter().all(|byte| *byte == 3));
        }
    }
}

fn truncating_and_growing(base: &TestDir) {
    let path = base.file("file", 0o644, &[b'x'; 10_000]);
    let file = fd_file(&path);
    for (len, zeros_from) in [(5_000, 5_000), (8_000, 5_000), (100, 100), (0, 0), (70_000, 0)] {
        file.set_len(len).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len() as u64, lstat(&path).st_size as u64), (len, len));
        assert!(bytes[zeros_from..].iter().all(|byte| *byte == 0));
        assert!(bytes[..zeros_from].iter().all(|byte| *byte == b'x'));
    }
    fails!(sys::ftruncate(open(&path, OFlags::RDONLY).unwrap(), 0), INVAL | BADF);
    // By name, through a symbolic link.
    sys::symlink("file", base.at("link")).unwrap();
    fs::OpenOptions::new().write(true).open(base.at("link")).unwrap().set_len(7).unwrap();
    assert_eq!(lstat(&path).st_size, 7);
}

fn a_write_right_after_a_truncation(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let (one, two) = (fd_file(&path), fd_file(&path));
    for round in 0..20_u8 {
        one.write_all_at(&[round; 6000], 0).unwrap();
        two.set_len(1000).unwrap();
        one.write_all_at(b"behind", 2000).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2006);
        assert!(bytes[..1000].iter().all(|byte| *byte == round));
        assert!(bytes[1000..2000].iter().all(|byte| *byte == 0), "round {round}");
    }
}

fn descriptors_allow_only_their_access_mode(base: &TestDir) {
    let path = base.file("file", 0o644, b"contents");
    let (reading, writing) = (open(&path, OFlags::RDONLY).unwrap(), open(&path, OFlags::WRONLY).unwrap());
    fails!(rustix::io::write(&reading, b"x"), BADF);
    fails!(rustix::io::read(&writing, &mut [0; 8][..]), BADF);
    fails!(rustix::io::pwrite(&writing, b"x", u64::MAX), INVAL);
    assert_eq!(fs::read(&path).unwrap(), b"contents");
}

/// Memory aligned for direct I/O.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

fn aligned(fill: u8, len: usize) -> Aligned {
    let memory = vec![fill; len + 4096];
    let start = memory.as_ptr().align_offset(4096);
    Aligned { memory, start, len }
}

impl Aligned {
    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

fn direct_io(base: &TestDir) {
    let path = base.file("file", 0o644, &pattern(1, 40_960));
    let fd = open(&path, OFlags::RDWR | OFlags::DIRECT).unwrap();
    let mut buffer = aligned(0, 8192);
    assert_eq!(rustix::io::pread(&fd, buffer.bytes_mut(), 4096).unwrap(), 8192);
    assert!(buffer.bytes() == &pattern(1, 40_960)[4096..12_288]);
    let new = aligned(9, 4096);
    assert_eq!(rustix::io::pwrite(&fd, new.bytes(), 40_960).unwrap(), 4096);
    assert_eq!(lstat(&path).st_size, 45_056);
    assert_eq!(rustix::io::pread(&fd, buffer.bytes_mut(), 40_960).unwrap(), 4096, "up to the end");
    assert_eq!(rustix::io::pread(&fd, buffer.bytes_mut(), 49_152).unwrap(), 0);
    assert!(fs::read(&path).unwrap()[40_960..].iter().all(|byte| *byte == 9));
}

fn synchronous_writes(base: &TestDir) {
    for flags in [OFlags::SYNC, OFlags::DSYNC] {
        let path = base.at(format!("file-{}", flags.bits()));
        let fd = create(&path, OFlags::RDWR | flags, 0o644).unwrap();
        assert_eq!(rustix::io::write(&fd, &pattern(2, 70_000)).unwrap(), 70_000);
        assert!(fs::read(&path).unwrap() == pattern(2, 70_000));
        sys::fsync(&fd).unwrap();
        sys::fdatasync(&fd).unwrap();
        fails!(sys::fsync(open(&path, OFlags::PATH).unwrap()), BADF);
    }
    sys::fsync(open(base.path(), OFlags::RDONLY | OFlags::DIRECTORY).unwrap()).unwrap();
    sys::syncfs(open(base.path(), OFlags::RDONLY | OFlags::DIRECTORY).unwrap()).unwrap();
}

fn vectored_io(base: &TestDir) {
    use std::io::{IoSlice, IoSliceMut};
    let fd: OwnedFd = fd_file(&base.at("file")).into();
    let written =
        rustix::io::pwritev(&fd, &[IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")], 5);
    assert_eq!(written.unwrap(), 6);
    let (mut a, mut b) = ([0; 7], [0; 10]);
    let read = rustix::io::preadv(&fd, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 0);
    assert_eq!(read.unwrap(), 11);
    assert_eq!((&a, &b[..4]), (b"\0\0\0\0\0on", &b"etwo"[..]));
}

fn the_end_of_a_file(base: &TestDir) {
    let mut file = fd_file(&base.file("file", 0o644, b"0123456789"));
    let mut bytes = [0; 20];
    assert_eq!(file.read_at(&mut bytes, 5).unwrap(), 5);
    assert_eq!(file.read_at(&mut bytes, 10).unwrap(), 0);
    assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
    assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 7);
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"789");
    assert!(file.seek(SeekFrom::End(-11)).is_err());
    assert_eq!(file.seek(SeekFrom::End(100)).unwrap(), 110);
    file.write_all(b"!").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 111);
}

fn fallocate_allocates_or_fails(base: &TestDir) {
    let path = base.file("file", 0o644, b"0123456789");
    let fd = open(&path, OFlags::RDWR).unwrap();
    let unsupported = |error: Errno| !base.local && error == Errno::OPNOTSUPP;
    match sys::fallocate(&fd, FallocateFlags::empty(), 0, 100_000) {
        Ok(()) => {
            assert_eq!(lstat(&path).st_size, 100_000);
            // NFSv4.2's ALLOCATE makes the file longer (RFC 7862 section 15.1).
            match sys::fallocate(&fd, FallocateFlags::KEEP_SIZE, 0, 300_000) {
                Ok(()) => {}
                Err(error) => assert!(unsupported(error), "{error}"),
            }
            assert_eq!(lstat(&path).st_size, 100_000);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match sys::fallocate(&fd, punch, 2, 5) {
                Ok(()) => assert_eq!(fs::read(&path).unwrap()[..10], *b"01\0\0\0\0\x00789"),
                Err(error) => assert_eq!(error, Errno::OPNOTSUPP),
            }
        }
        Err(error) => {
            assert!(unsupported(error), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"0123456789");
        }
    }
    fails!(
        sys::fallocate(open(&path, OFlags::RDONLY).unwrap(), FallocateFlags::empty(), 0, 10),
        BADF | OPNOTSUPP
    );
}

fn seeking_data_and_holes(base: &TestDir) {
    let path = base.at("file");
    let file = fd_file(&path);
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    file.sync_all().unwrap();
    let seek = |from| sys::seek(&file, from);
    // Without support the whole file is data, with a hole at its end.
    let data = seek(sys::SeekFrom::Data(0)).unwrap();
    assert!(data <= 1 << 20);
    let hole = seek(sys::SeekFrom::Hole(1 << 20)).unwrap();
    assert_eq!(hole, (1 << 20) + 4096);
    fails!(seek(sys::SeekFrom::Data((1 << 20) + 4096)), NXIO);
    fails!(seek(sys::SeekFrom::Hole(1 << 30)), NXIO);
}

fn copy_file_range_copies(base: &TestDir) {
    let data = pattern(7, 3_000_001);
    let from = base.file("from", 0o644, &data);
    fs::copy(&from, base.at("copy")).unwrap();
    assert!(fs::read(base.at("copy")).unwrap() == data);
    let (source, target) = (open(&from, OFlags::RDONLY).unwrap(), fd_file(&base.at("range")));
    let (mut at, mut to) = (1_000_u64, 0_u64);
    while to < 100_000 {
        let left = 100_000 - to as usize;
        match sys::copy_file_range(&source, Some(&mut at), &target, Some(&mut to), left) {
            Ok(count) => assert!(count > 0),
            Err(error) => {
                assert!(!base.local && matches!(error, Errno::OPNOTSUPP | Errno::XDEV), "{error}");
                return;
            }
        }
    }
    assert!(fs::read(base.at("range")).unwrap() == data[1_000..101_000]);
}

fn locks_exclude(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let (one, two) = (open(&path, OFlags::RDWR).unwrap(), open(&path, OFlags::RDWR).unwrap());
    sys::flock(&one, FlockOperation::LockExclusive).unwrap();
    fails!(sys::flock(&two, FlockOperation::NonBlockingLockShared), AGAIN);
    sys::flock(&one, FlockOperation::Unlock).unwrap();
    sys::flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    sys::flock(&one, FlockOperation::NonBlockingLockShared).unwrap();
    fails!(sys::flock(&one, FlockOperation::NonBlockingLockExclusive), AGAIN);
    drop(two);
    sys::flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    // Over NFS both kinds of locks exclude each other, even within a process (nfs(5), local_lock).
    sys::flock(&one, FlockOperation::Unlock).unwrap();
    // fcntl(2) locks belong to a process: another process must see them.
    sys::fcntl_lock(&one, FlockOperation::LockExclusive).unwrap();
    let other = |words: &str| {
        let script =
            format!("import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,{words}|fcntl.LOCK_NB)");
        let status = Command::new("python3").args(["-c", &script]).arg(&path).stderr(Stdio::null()).status();
        status.unwrap().success()
    };
    assert!(!other("fcntl.LOCK_EX") && !other("fcntl.LOCK_SH"));
    sys::fcntl_lock(&one, FlockOperation::Unlock).unwrap();
    assert!(other("fcntl.LOCK_EX"));
}

fn a_running_program_cannot_be_written(base: &TestDir) {
    let path = base.at("sleep");
    fs::copy("/bin/sleep", &path).unwrap();
    chmod(&path, 0o755).unwrap();
    let mut child = when_closed(|| Command::new(&path).arg("1000").spawn()).unwrap();
    let refused = open(&path, OFlags::WRONLY);
    let _ = child.kill();
    child.wait().unwrap();
    fails!(refused, TXTBSY);
    let writer = open(&path, OFlags::WRONLY).unwrap();
    let error = Command::new(&path).arg("0").status().unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::TXTBSY));
    drop(writer);
    assert!(when_closed(|| Command::new(&path).arg("0").status()).unwrap().success());
}

fn large_transfers_of_odd_lengths(base: &TestDir) {
    let path = base.at("file");
    let file = fd_file(&path);
    let data = pattern(11, 5_000_011);
    let mut at = 0;
    for len in [1, 511, 513, 4095, 4097, 65_535, 131_073, 1_048_575, 1_048_577, 2_000_003].iter().cycle() {
        let end = data.len().min(at + len);
        file.write_all_at(&data[at..end], at as u64).unwrap();
        at = end;
        if at == data.len() {
            break;
        }
    }
    for (from, len) in [(0, 5_000_011), (1, 999_999), (4095, 2), (1_048_575, 1_048_577), (5_000_010, 1)] {
        let mut back = vec![0; len];
        file.read_exact_at(&mut back, from as u64).unwrap();
        assert!(back == data[from..from + len], "{len} bytes at {from}");
    }
}

/// A client's uncommitted data must not be written again over newer data.
fn truncated_data_does_not_reappear(base: &TestDir) {
    let path = base.at("file");
    let (one, two) = (fd_file(&path), fd_file(&path));
    one.write_all_at(&[1; 10_000], 0).unwrap();
    two.set_len(0).unwrap();
    two.set_len(10_000).unwrap();
    one.sync_all().unwrap();
    drop(one);
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
}

fn extended_attributes_are_stored_or_refused(base: &TestDir) {
    let path = base.file("file", 0o644, b"");
    let mut buffer = [0; 100];
    match sys::setxattr(&path, "user.samehost", b"value", sys::XattrFlags::empty()) {
        Ok(()) => assert_eq!(sys::getxattr(&path, "user.samehost", &mut buffer[..]).unwrap(), 5),
        Err(error) => {
            assert_eq!(error, Errno::OPNOTSUPP);
            fails!(sys::getxattr(&path, "user.samehost", &mut buffer[..]), OPNOTSUPP | NODATA);
        }
    }
}
