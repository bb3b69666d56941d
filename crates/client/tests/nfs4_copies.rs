//! Long copies within our server, which makes them asynchronously: their results, callers that stop waiting,
//! and restarts of the server.

mod support;

use std::fs;

use samehost_client as client;

use client::{CopyOptions, OpenOptions, Operation, Version};
use support::{BOUND, Served, on_disk, pattern, wait_for};

/// More than one COPY, and not a multiple of what the server copies at a time.
const LENGTH: usize = (72 << 20) + 12_345;

/// The attempts to stop a copy before it is done.
const MAX_ATTEMPTS: usize = 100;

#[tokio::test]
async fn a_long_copy_stays_on_the_server() {
    let served = Served::wire_only();
    let data = pattern(1, LENGTH);
    fs::write(served.export().join("from"), &data).unwrap();
    let session = served.wire_by(Version::V4_2).await;
    let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
    let to = session.open(b"to", &OpenOptions::replacing()).await.unwrap();
    // Written before, and overwritten by the copy.
    to.write_at(&[7; 100_000], 5 << 20).await.unwrap();
    assert_eq!(client::copy(&from, &to, &CopyOptions::new()).await.unwrap(), LENGTH as u64);
    assert!(on_disk(&served.export().join("to")) == data);
    let counters = session.counters();
    assert_eq!(counters.calls(Operation::Read), 0);
    assert_eq!(counters.calls(Operation::Offloadcancel), 0, "every end is reported or asked for");
    assert_eq!(from.copy_range(LENGTH as u64 - 5, &to, 0, 8 << 20).await.unwrap(), 5, "up to the end");
}

/// Only an asynchronous copy is cancelled. Most are done when that arrives.
#[tokio::test]
async fn a_copy_whose_caller_stops_waiting_is_cancelled() {
    let served = Served::wire_only();
    fs::write(served.export().join("from"), pattern(2, LENGTH)).unwrap();
    let session = served.wire_by(Version::V4_2).await;
    let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
    let path = served.export().join("to");
    for _ in 0..MAX_ATTEMPTS {
        let to = session.open(b"to", &OpenOptions::replacing()).await.unwrap();
        let begins = wait_for("the copy to begin", || fs::metadata(&path).is_ok_and(|to| to.len() > 0));
        tokio::select! {
            biased;
            copied = from.copy_range(0, &to, 0, 64 << 20) => assert_eq!(copied.unwrap(), 64 << 20),
            () = begins => {}
        }
        drop(to);
        // The cancellation is a task of the client.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        if session.counters().calls(Operation::Offloadcancel) > 0 {
            return;
        }
    }
    panic!("no copy was asynchronous, or none was cancelled");
}

/// The server is killed while it copies. Whatever the client knows of the copy, the result is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_survives_kills() {
    let mut served = Served::wire_only();
    let data = pattern(3, LENGTH);
    fs::write(served.export().join("from"), &data).unwrap();
    let session = served.wire_by(Version::V4_2).await;
    let from = session.open(b"from", &OpenOptions::reading()).await.unwrap();
    for round in 0..5 {
        let name = format!("to {round}");
        let path = served.export().join(&name);
        let to = session.open(name.as_bytes(), &OpenOptions::replacing()).await.unwrap();
        let copy = tokio::spawn({
            let from = from.clone();
            // The server's own steps, so that a kill hits a copy.
            let options = CopyOptions::new().chunk(64 << 20);
            async move { client::copy(&from, &to, &options).await }
        });
        wait_for("the copy to begin", || fs::metadata(&path).is_ok_and(|to| to.len() > 0)).await;
        served.kill();
        served.restart();
        let copied = tokio::time::timeout(BOUND, copy).await.expect("an end").unwrap();
        assert_eq!(copied.unwrap(), LENGTH as u64);
        assert!(on_disk(&path) == data, "{round}");
    }
}
