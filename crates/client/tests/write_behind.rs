//! Write-behind over the wire by each version of NFS: writes that don't wait for the server, and what is told
//! of them.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use samehost_client as client;

use client::{Error, LaneMode, OpenOptions, Operation, Session, Status, Version};
use support::{Served, by_each_version, on_disk, pattern, wait_for};

by_each_version! {
    #[tokio::test]
    writes_join_and_a_single_one_is_committed_by_its_write,
    #[tokio::test]
    every_operation_sees_what_was_written,
    #[tokio::test]
    writes_on_their_way_are_bounded,
    #[tokio::test]
    an_open_truncates_what_was_written,
    #[tokio::test]
    a_failed_write_is_reported_once_to_every_open,
    #[tokio::test]
    a_killed_server_loses_nothing,
    #[tokio::test]
    a_caller_that_stops_waiting_takes_nothing_back,
}

fn piece(data: &[u8], from: usize, to: usize) -> Bytes {
    Bytes::copy_from_slice(&data[from..to])
}

async fn writes_join_and_a_single_one_is_committed_by_its_write(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let data = pattern(1, 100_000);
    let file = session.open(b"small", &OpenOptions::replacing()).await.unwrap();
    for at in (0..data.len()).step_by(1000) {
        file.write_behind(piece(&data, at, at + 1000), at as u64).await.unwrap();
    }
    file.flush().await.unwrap();
    let (writes, commits) = (session.counters().wire.writes, session.counters().calls(Operation::Commit));
    // A busy machine may take longer than writes wait for each other.
    assert!(writes < 50, "{writes} WRITEs");
    assert_eq!(on_disk(&served.export().join("small")), data);
    if writes == 1 {
        assert_eq!(commits, 0, "the WRITE was stable");
    }
    file.close().await.unwrap();

    // What is as long as a WRITE can be is sent at once, and committed as a whole.
    let data = pattern(2, 5 << 20);
    let file = session.open(b"large", &OpenOptions::replacing()).await.unwrap();
    for at in (0..data.len()).step_by(1 << 20) {
        file.write_behind(piece(&data, at, at + (1 << 20)), at as u64).await.unwrap();
    }
    file.close().await.unwrap();
    assert_eq!(session.counters().wire.writes - writes, 5);
    assert!(session.counters().calls(Operation::Commit) > commits);
    assert_eq!(on_disk(&served.export().join("large")), data);
}

async fn every_operation_sees_what_was_written(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let options = OpenOptions::replacing().read(true);
    let file = session.open(b"file", &options).await.unwrap();
    let other = session.open(b"file", &OpenOptions::new().read(true).write(true)).await.unwrap();
    let (first, second) = (pattern(1, 100_000), pattern(2, 100_000));
    file.write_behind(first.clone().into(), 0).await.unwrap();
    assert_eq!(session.unwritten_end(&file.handle()), Some(100_000));
    assert_eq!(session.attributes(&file.handle()).await.unwrap().size, 100_000);
    // Overlapping writes are executed in their order, through whichever open.
    for round in 0..20 {
        let (from, data) = if round % 2 == 0 { (&file, &first) } else { (&other, &second) };
        from.write_behind(data.clone().into(), round).await.unwrap();
    }
    other.write_behind(Bytes::from_static(b"end"), 200_000).await.unwrap();
    let read = file.read_into(Vec::new(), 0, 1 << 20).await.unwrap();
    assert_eq!(read.len(), 200_003);
    assert!(read[19..100_019] == second && read[18] == first[0]);
    assert_eq!(other.size().await.unwrap(), 200_003);
    // A write that waits, and a new length, come behind those that don't.
    file.write_behind(Bytes::from_static(b"behind-"), 0).await.unwrap();
    other.write_at(b"through", 3).await.unwrap();
    file.write_behind(Bytes::from_static(b"lost"), 1000).await.unwrap();
    file.set_len(10).await.unwrap();
    file.write_behind(Bytes::from_static(b"!"), 10).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(on_disk(&served.export().join("file")), b"behthrough!");
    assert_eq!(session.unwritten_end(&other.handle()), None);
}

/// The server doesn't have the data yet, and says that the file is empty.
async fn an_open_truncates_what_was_written(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let one = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    one.write_behind(Bytes::from_static(b"written"), 0).await.unwrap();
    let two = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    two.write_behind(Bytes::from_static(b"x"), 0).await.unwrap();
    one.close().await.unwrap();
    two.close().await.unwrap();
    assert_eq!(on_disk(&served.export().join("file")), b"x");
}

/// A session whose pool has room for this many bytes.
async fn with_room(served: &Served, version: Version, bytes: usize) -> Session {
    let mut options = served.options(LaneMode::Off).version(version);
    options.unstable_max = bytes;
    Session::connect(&served.url(), options).await.unwrap()
}

async fn writes_on_their_way_are_bounded(version: Version) {
    let served = Served::wire_only();
    let session = with_room(&served, version, 1 << 20).await;
    let (stream, other) = (
        session.open(b"stream", &OpenOptions::replacing()).await.unwrap(),
        session.open(b"other", &OpenOptions::replacing()).await.unwrap(),
    );
    let data = pattern(3, 4 << 20);
    served.freeze();
    let accepted = Arc::new(AtomicUsize::new(0));
    let writer = tokio::spawn({
        let (data, accepted) = (data.clone(), accepted.clone());
        async move {
            for at in (0..data.len()).step_by(64 << 10) {
                stream.write_behind(piece(&data, at, at + (64 << 10)), at as u64).await.unwrap();
                accepted.fetch_add(64 << 10, Relaxed);
            }
            stream.close().await.unwrap();
        }
    });
    wait_for("writes without a server", || accepted.load(Relaxed) >= 128 << 10).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    // One file's share is a quarter of the pool, so there is room for the other one.
    assert!(accepted.load(Relaxed) <= 512 << 10, "{} bytes on their way", accepted.load(Relaxed));
    other.write_behind(piece(&data, 0, 64 << 10), 0).await.unwrap();
    served.thaw();
    writer.await.unwrap();
    other.close().await.unwrap();
    assert_eq!(on_disk(&served.export().join("stream")), data);
    assert_eq!(on_disk(&served.export().join("other")), data[..64 << 10]);
}

async fn a_failed_write_is_reported_once_to_every_open(version: Version) {
    let mut served = Served::wire_only();
    let session = served.wire_by(version).await;
    let is_told = |result: client::Result<()>| {
        let Err(error) = result else { return false };
        matches!(error, Error::EarlierWrite { .. }) && error.status() == Some(Status::ReadOnly)
    };
    let one = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    let two = session.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
    let reader = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    two.write_behind(Bytes::from_static(b"two"), 100).await.unwrap();
    two.commit().await.unwrap();
    served.reload_also(",ro");
    one.write_behind(Bytes::from_static(b"lost"), 0).await.unwrap();
    // Each close of a descriptor tells, and doesn't end it for those who use the others.
    assert!(is_told(one.flush().await) && is_told(one.flush().await));
    assert!(is_told(one.commit().await));
    one.flush().await.unwrap();
    one.commit().await.unwrap();
    assert!(is_told(two.write_behind(Bytes::from_static(b"refused"), 0).await));
    two.commit().await.unwrap();
    // As on a local disk, fsync(2) tells it to an open for reading, too, and close(2) doesn't.
    reader.flush().await.unwrap();
    assert!(is_told(reader.commit().await));
    reader.commit().await.unwrap();
    one.write_behind(Bytes::from_static(b"lost"), 0).await.unwrap();
    assert!(is_told(one.close().await));
    served.reload_also("");
    assert!(is_told(two.close().await));
    let new = session.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
    new.write_behind(Bytes::from_static(b"TWO"), 100).await.unwrap();
    new.close().await.unwrap();
    assert_eq!(on_disk(&served.export().join("file"))[100..], *b"TWO");
}

async fn a_killed_server_loses_nothing(version: Version) {
    let mut served = Served::wire_only();
    let session = with_room(&served, version, 2 << 20).await;
    let file = session.open(b"stream", &OpenOptions::replacing()).await.unwrap();
    let data = pattern(4, 6 << 20);
    let mut acknowledged = 0;
    for (index, at) in (0..data.len()).step_by(32 << 10).enumerate() {
        file.write_behind(piece(&data, at, at + (32 << 10)), at as u64).await.unwrap();
        if index % 70 == 50 {
            file.commit().await.unwrap();
            acknowledged = at + (32 << 10);
        }
        if index % 70 == 60 {
            served = tokio::task::spawn_blocking(move || {
                served.kill();
                served
            })
            .await
            .unwrap();
            assert!(on_disk(&served.export().join("stream"))[..acknowledged] == data[..acknowledged]);
            served = tokio::task::spawn_blocking(move || {
                served.restart();
                served
            })
            .await
            .unwrap();
        }
    }
    file.close().await.unwrap();
    assert!(on_disk(&served.export().join("stream")) == data);
}

async fn a_caller_that_stops_waiting_takes_nothing_back(version: Version) {
    let served = Served::wire_only();
    let session = served.wire_by(version).await;
    let file = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    served.freeze();
    file.write_behind(Bytes::from_static(b"accepted"), 0).await.unwrap();
    let flush = tokio::time::timeout(Duration::from_millis(100), file.flush()).await;
    assert!(flush.is_err(), "the server answers nothing");
    // The open is closed at the server when the data is there.
    drop(file);
    served.thaw();
    wait_for("the data", || on_disk(&served.export().join("file")) == b"accepted").await;
}
