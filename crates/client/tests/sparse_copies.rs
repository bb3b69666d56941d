//! Copies of files with holes: which stay holes, and that the bytes are the same in any case.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, fallocate};
use samehost_client as client;

use client::{CopyOptions, File, LaneMode, OpenOptions, Operation, Progress, Session, Version};
use support::{BOUND, Served, on_disk, pattern};

/// More than one chunk and one COPY, and not a multiple of a block.
const SIZE: u64 = (40 << 20) + 4321;

/// A file that is a hole but for some data.
struct Sparse {
    what: &'static str,
    data: Vec<(u64, Vec<u8>)>,
}

fn all_sparse() -> [Sparse; 6] {
    let one_byte = |offset| (offset, vec![7]);
    [
        Sparse { what: "a hole at the beginning", data: vec![(SIZE - 100_000, pattern(1, 100_000))] },
        Sparse {
            what: "a hole in the middle",
            data: vec![(0, pattern(2, 1_200_000)), (SIZE - 70_001, pattern(3, 70_001))],
        },
        Sparse { what: "a hole at the end", data: vec![(0, pattern(4, 100_000))] },
        Sparse { what: "nothing but a hole", data: vec![] },
        Sparse {
            what: "single bytes",
            data: vec![one_byte(1), one_byte(4_999_999), one_byte(17_000_001), one_byte(SIZE - 1)],
        },
        Sparse {
            what: "much and little",
            data: vec![one_byte(123_457), (20 << 20, pattern(5, 2_000_001)), one_byte(39_999_999)],
        },
    ]
}

impl Sparse {
    fn make(&self, path: &Path) {
        let file = fs::File::create(path).unwrap();
        file.set_len(SIZE).unwrap();
        for (offset, data) in &self.data {
            file.write_all_at(data, *offset).unwrap();
        }
    }

    fn check_bytes(&self, path: &Path, how: &str) {
        let mut expected = vec![0; SIZE as usize];
        for (offset, data) in &self.data {
            expected[*offset as usize..][..data.len()].copy_from_slice(data);
        }
        assert!(on_disk(path) == expected, "{}, {how}", self.what);
    }

    fn check(&self, path: &Path, how: &str) {
        self.check_bytes(path, how);
        assert!(is_sparse(path), "{}, {how}: {} bytes are used", self.what, used(path));
    }
}

fn used(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn is_sparse(path: &Path) -> bool {
    used(path) < SIZE / 10
}

/// Whether the directory's filesystem has holes.
fn has_holes(directory: &Path) -> bool {
    let path = directory.join("a hole");
    fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let has_holes = is_sparse(&path);
    fs::remove_file(path).unwrap();
    has_holes
}

async fn new_file(session: &Session, name: &str) -> File {
    session.open(name.as_bytes(), &OpenOptions::replacing()).await.unwrap()
}

/// Copies to the server, from it, on it and to another session and server, and checks all. `tells` says
/// whether the server tells its holes.
async fn copy_all_ways(served: &Served, session: &Session, other: &Session, tells: bool) {
    let elsewhere = Served::wire_only();
    let far = elsewhere.wire().await;
    let scratch = tempfile::tempdir().unwrap();
    if !has_holes(scratch.path()) || !has_holes(&served.export()) {
        return;
    }
    let options = CopyOptions::new();
    for sparse in all_sparse() {
        let check = |path: PathBuf, how| {
            if tells {
                sparse.check(&path, how)
            } else {
                sparse.check_bytes(&path, how)
            }
            fs::remove_file(path).unwrap();
        };
        let path = scratch.path().join("local");
        sparse.make(&path);
        let local = Arc::new(fs::File::open(&path).unwrap());
        let to = new_file(session, "there").await;
        assert_eq!(client::write_to(&local, &to, &options).await.unwrap(), SIZE);
        to.close().await.unwrap();
        sparse.check(&served.export().join("there"), "to the server");

        let from = session.open(b"there", &OpenOptions::reading()).await.unwrap();
        // On the filesystem of the export and on another one.
        for directory in [served.export().parent().unwrap(), scratch.path()] {
            let path = directory.join("back");
            let back = Arc::new(fs::File::create(&path).unwrap());
            assert_eq!(client::read_from(&from, &back, &options).await.unwrap(), SIZE);
            check(path, "from the server");
        }
        for (to, how) in [(session, "on the server"), (other, "between sessions")] {
            let to = new_file(to, "copy").await;
            assert_eq!(client::copy(&from, &to, &options).await.unwrap(), SIZE);
            to.close().await.unwrap();
            check(served.export().join("copy"), how);
        }
        let to = new_file(&far, "far").await;
        assert_eq!(client::copy(&from, &to, &options).await.unwrap(), SIZE);
        to.close().await.unwrap();
        check(elsewhere.export().join("far"), "between servers");
    }
}

#[tokio::test]
async fn holes_stay_holes_over_the_lane() {
    let served = Served::with_lane();
    copy_all_ways(&served, &served.lane().await, &served.lane().await, true).await;
}

#[tokio::test]
async fn holes_stay_holes_by_4_2() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    copy_all_ways(&served, &session, &served.wire_by(Version::V4_2).await, true).await;
}

/// The server can't tell its holes. Those of a local file are known.
#[tokio::test]
async fn copies_by_nfs3_have_the_same_bytes() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V3).await;
    copy_all_ways(&served, &session, &served.wire_by(Version::V3).await, false).await;
}

/// A file without holes takes no search, on whichever way.
#[tokio::test]
async fn a_server_is_asked_for_the_holes_of_sparse_files_only() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let calls = |operation| session.counters().calls(operation);
    fs::write(served.export().join("full"), pattern(6, 3_000_000)).unwrap();
    let from = session.open(b"full", &OpenOptions::reading()).await.unwrap();
    let to = new_file(&session, "copy").await;
    assert_eq!(client::copy(&from, &to, &CopyOptions::new()).await.unwrap(), 3_000_000);
    let back = Arc::new(tempfile::tempfile().unwrap());
    assert_eq!(client::read_from(&from, &back, &CopyOptions::new()).await.unwrap(), 3_000_000);
    assert_eq!(calls(Operation::Seek), 0);

    let reads = calls(Operation::Read);
    let [.., sparse] = all_sparse();
    sparse.make(&served.export().join("sparse"));
    let from = session.open(b"sparse", &OpenOptions::reading()).await.unwrap();
    let to = new_file(&session, "copy").await;
    assert_eq!(client::copy(&from, &to, &CopyOptions::new()).await.unwrap(), SIZE);
    assert!(calls(Operation::Seek) > 0);
    assert_eq!(calls(Operation::Read), reads, "the data stays on the server");
    assert_eq!(calls(Operation::Write), 0);
}

/// A server makes each copy durable. Many small ones would take much longer than the holes are worth.
#[tokio::test]
async fn short_holes_do_not_divide_a_copy_of_the_server() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let pieces = (0..2400).map(|number| ((3 << 20) + number * 8192, pattern(number, 4096)));
    let sparse = Sparse { what: "many pieces", data: pieces.collect() };
    let path = served.export().join("from");
    sparse.make(&path);
    let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
    let to = new_file(&session, "to").await;
    assert_eq!(client::copy(&from, &to, &CopyOptions::new()).await.unwrap(), SIZE);
    assert!(session.counters().calls(Operation::Copy) < 6);
    let copied = served.export().join("to");
    sparse.check_bytes(&copied, "on the server");
    assert!(used(&copied) < SIZE * 3 / 4, "{} bytes are used", used(&copied));
}

/// What the target has where the source has a hole doesn't stay there.
#[tokio::test]
async fn holes_replace_what_was_in_the_target() {
    for (served, lane) in [(Served::wire_only(), LaneMode::Off), (Served::with_lane(), LaneMode::Required)] {
        let session = Session::connect(&served.url(), served.options(lane)).await.unwrap();
        let [sparse, ..] = all_sparse();
        let path = served.export().join("from");
        sparse.make(&path);
        let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
        let options = CopyOptions::new();

        let to = new_file(&session, "to").await;
        to.write_at(&[1; 100_000], 3_000_000).await.unwrap();
        client::copy(&from, &to, &options).await.unwrap();
        sparse.check_bytes(&served.export().join("to"), "on the server");

        let to = new_file(&session, "to").await;
        to.write_at(&[1; 100_000], 3_000_000).await.unwrap();
        let local = Arc::new(fs::File::open(&path).unwrap());
        client::write_to(&local, &to, &options).await.unwrap();
        to.close().await.unwrap();
        sparse.check_bytes(&served.export().join("to"), "to the server");

        let back = served.export().join("back");
        fs::write(&back, [1; 100_000]).unwrap();
        let local = Arc::new(fs::File::options().write(true).open(&back).unwrap());
        client::read_from(&from, &local, &options).await.unwrap();
        sparse.check_bytes(&back, "from the server");

        // Not a file that can have holes.
        let null = Arc::new(fs::File::options().write(true).open("/dev/null").unwrap());
        assert_eq!(client::read_from(&from, &null, &options.commit(false)).await.unwrap(), SIZE);
    }
}

#[tokio::test]
async fn holes_count_as_progress() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    for sparse in all_sparse() {
        let path = served.export().join("from");
        sparse.make(&path);
        let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
        let local = Arc::new(fs::File::open(&path).unwrap());
        let (by_server, by_client) = (new_file(&session, "one").await, new_file(&session, "two").await);
        let told = Arc::new(Mutex::new(Vec::<Progress>::new()));
        let options = CopyOptions::new().progress({
            let told = told.clone();
            move |progress| told.lock().unwrap().push(progress)
        });
        for is_local in [false, true] {
            let copied = if is_local {
                client::write_to(&local, &by_client, &options).await
            } else {
                client::copy(&from, &by_server, &options).await
            };
            assert_eq!(copied.unwrap(), SIZE);
            let told = std::mem::take(&mut *told.lock().unwrap());
            assert!(told.is_sorted_by_key(|progress| progress.bytes), "{}", sparse.what);
            assert!(told.iter().all(|progress| progress.total == SIZE), "{}", sparse.what);
            assert_eq!(told.last().map(|progress| progress.bytes), Some(SIZE), "{}", sparse.what);
        }
    }
}

/// More is appended while a file that ends with a hole is copied.
#[tokio::test]
async fn data_behind_the_last_hole_is_copied() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let appended = pattern(8, 100_000);
    let path = served.export().join("from");
    for is_local in [false, true] {
        all_sparse()[2].make(&path);
        let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
        let to = new_file(&session, "to").await;
        let local = Arc::new(fs::File::open(&path).unwrap());
        let writer = fs::File::options().write(true).open(&path).unwrap();
        let options = CopyOptions::new().window(1).progress({
            let appended = appended.clone();
            // After the first request.
            move |_| writer.write_all_at(&appended, SIZE).unwrap()
        });
        let copied = if is_local {
            client::write_to(&local, &to, &options).await
        } else {
            client::copy(&from, &to, &options).await
        };
        assert_eq!(copied.unwrap(), SIZE + 100_000);
        assert!(on_disk(&served.export().join("to")) == on_disk(&path), "{is_local}");
    }
}

/// Data that nobody touches is copied, whatever happens beside it, and every copy ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_change_is_copied_while_the_rest_does() {
    const CHANGING: std::ops::Range<usize> = 4 << 20..5 << 20;
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let path = served.export().join("from");
    let [.., sparse] = all_sparse();
    sparse.make(&path);
    let expected = on_disk(&path);
    let done = Arc::new(AtomicBool::new(false));
    let changes = std::thread::spawn({
        let (done, path) = (done.clone(), path.clone());
        move || {
            let file = fs::File::options().write(true).open(path).unwrap();
            let (offset, data) = (CHANGING.start as u64, vec![9; CHANGING.len()]);
            while !done.load(Relaxed) {
                file.write_all_at(&data[..300_000], offset).unwrap();
                file.write_all_at(&data[..200_000], offset + 800_000).unwrap();
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, punch, offset, data.len() as u64).unwrap();
            }
        }
    });
    for round in 0..20 {
        let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
        let to = new_file(&session, "to").await;
        let local = Arc::new(fs::File::open(&path).unwrap());
        let copy = async {
            if round % 2 == 0 {
                client::write_to(&local, &to, &CopyOptions::new()).await
            } else {
                client::copy(&from, &to, &CopyOptions::new()).await
            }
        };
        assert_eq!(tokio::time::timeout(BOUND, copy).await.expect("an end").unwrap(), SIZE);
        let copied = on_disk(&served.export().join("to"));
        assert_eq!(copied.len(), expected.len());
        assert!(copied[..CHANGING.start] == expected[..CHANGING.start], "{round}");
        assert!(copied[CHANGING.end..] == expected[CHANGING.end..], "{round}");
        assert!(copied[CHANGING].iter().all(|byte| matches!(byte, 0 | 9)), "{round}");
    }
    done.store(true, Relaxed);
    changes.join().unwrap();
}

#[tokio::test]
async fn a_copy_ends_if_its_source_becomes_shorter() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let path = served.export().join("from");
    for (is_local, len) in [(false, 0), (true, 0), (false, 20 << 20), (true, 20 << 20)] {
        let [.., sparse] = all_sparse();
        sparse.make(&path);
        let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
        let to = new_file(&session, "to").await;
        let local = Arc::new(fs::File::open(&path).unwrap());
        let writer = fs::File::options().write(true).open(&path).unwrap();
        let options = CopyOptions::new().window(1).progress(move |_| writer.set_len(len).unwrap());
        let copy = async {
            if is_local {
                client::write_to(&local, &to, &options).await
            } else {
                client::copy(&from, &to, &options).await
            }
        };
        let copied = tokio::time::timeout(BOUND, copy).await.expect("an end").unwrap();
        assert!(copied <= SIZE, "{copied} bytes");
        assert!(fs::metadata(served.export().join("to")).unwrap().len() <= SIZE);
    }
}
