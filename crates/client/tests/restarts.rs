//! Restarts of the server while a client uses it: no data is lost, and no call fails.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use samehost_client as client;

use client::{Error, LaneMode, OpenOptions, Operation, Session, Stability, Url, Version};
use support::{BOUND, Served, by_each_version, on_disk, pattern, wait_for};

by_each_version! {
    #[tokio::test]
    data_that_a_restarted_server_may_have_lost_is_written_again,
    #[tokio::test]
    all_opens_of_a_file_share_its_uncommitted_writes,
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    a_stream_survives_kills,
    #[tokio::test]
    calls_in_flight_are_retransmitted_after_a_reconnect,
    #[tokio::test]
    a_create_during_a_restart_succeeds_or_the_file_exists,
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    an_exclusive_create_whose_reply_is_lost_with_the_server_is_recognised,
    #[tokio::test]
    a_soft_session_gives_up_and_recovers,
    #[tokio::test]
    a_server_that_is_not_there_yet_is_tried_again_for_retry,
}

const PIECE: usize = 16 << 10;

/// A server that restarts waits for the reclaims of all clients that had state. An idle one notices the
/// restart by its connection's end, long before it renews its lease.
#[tokio::test]
async fn an_idle_client_reclaims_at_once() {
    let mut served = Served::wire_only();
    served.set_lease(3600);
    let (idle, busy) = (served.wire_by(Version::V4_2).await, served.wire_by(Version::V4_1).await);
    let _open = idle.open(b"idle", &OpenOptions::replacing()).await.unwrap();
    let _other = busy.open(b"busy", &OpenOptions::replacing()).await.unwrap();
    served.kill();
    served.restart();
    let new = OpenOptions::replacing();
    let opened = tokio::time::timeout(BOUND, busy.open(b"new", &new)).await.expect("the grace period ends");
    opened.unwrap();
}

/// After unstable writes the server restarts, with a new verifier. The commit writes all unstable data again,
/// and no other data.
async fn data_that_a_restarted_server_may_have_lost_is_written_again(version: Version) {
    let mut served = Served::wire_only();
    let session = served.wire_by(version).await;
    let file = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    let data = pattern(1, 64 * PIECE);
    for (index, piece) in data.chunks(PIECE).enumerate().take(40) {
        file.write_at(piece, (index * PIECE) as u64).await.unwrap();
    }
    file.commit().await.unwrap();
    assert_eq!(session.counters().events.bytes_resent, 0);
    for (index, piece) in data.chunks(PIECE).enumerate().skip(40) {
        file.write_at(piece, (index * PIECE) as u64).await.unwrap();
    }
    served.kill();
    // Removes the unstable data, as a crash of the host would.
    let path = served.export().join("file");
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len((40 * PIECE) as u64).unwrap();
    served.restart();

    let before = session.counters();
    file.commit().await.unwrap();
    assert!(on_disk(&path) == data);
    let after = session.counters();
    assert_eq!(after.events.bytes_resent, (24 * PIECE) as u64);
    assert_eq!(after.calls(Operation::Write) - before.calls(Operation::Write), 24);
    assert_eq!(after.calls(Operation::Commit) - before.calls(Operation::Commit), 2);
    assert_eq!(after.events.reconnects, 1);
    // No uncommitted data remains.
    file.commit().await.unwrap();
    assert_eq!(session.counters().calls(Operation::Commit), after.calls(Operation::Commit));
}

/// One open of a file commits the data of another, and writes it again if necessary. Truncated data isn't
/// written again.
async fn all_opens_of_a_file_share_its_uncommitted_writes(version: Version) {
    let mut served = Served::wire_only();
    let session = served.wire_by(version).await;
    let one = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    let other = session.open(b"file", &OpenOptions::new().write(true)).await.unwrap();
    let reader = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    one.write_at(b"0123456789", 0).await.unwrap();
    other.write_at(b"ABC", 3).await.unwrap();
    reader.commit().await.unwrap();
    one.commit().await.unwrap();
    assert_eq!(session.counters().calls(Operation::Commit), 1);

    one.write_at(b"0123456789", 0).await.unwrap();
    other.write_at(b"XY", 4).await.unwrap();
    let cut = client::SetAttributes { size: Some(8), ..client::SetAttributes::default() };
    session.set_attributes(&one.handle(), &cut, None).await.unwrap();
    served.kill();
    let path = served.export().join("file");
    std::fs::write(&path, b"--------").unwrap();
    served.restart();
    reader.commit().await.unwrap();
    assert_eq!(on_disk(&path), b"0123XY67");
    assert_eq!(session.counters().events.bytes_resent, 8);
}

/// The server is killed repeatedly while a stream is written and read. The stream continues, and after each
/// kill the data that was acknowledged as stable is on disk.
async fn a_stream_survives_kills(version: Version) {
    let mut served = Served::wire_only();
    let session = served.wire_by(version).await;
    let path = served.export().join("stream");
    let file = session.open(b"stream", &OpenOptions::replacing().read(true)).await.unwrap();
    let data = Arc::new(pattern(2, 256 * PIECE));
    let stable = Arc::new(AtomicU64::new(0));

    let writer = tokio::spawn({
        let (file, data, stable) = (file.clone(), data.clone(), stable.clone());
        async move {
            for (index, piece) in data.chunks(PIECE).enumerate() {
                let offset = (index * PIECE) as u64;
                if index % 4 == 3 {
                    file.write_stable(Bytes::copy_from_slice(piece), offset, Stability::FileSync).await?;
                    file.commit().await?;
                    stable.store(offset + PIECE as u64, Relaxed);
                } else {
                    file.write_at(piece, offset).await?;
                }
                let back = file.read_into(Vec::new(), offset, PIECE).await?;
                assert!(back == piece, "read back at {offset}");
            }
            file.close().await
        }
    });
    for round in 1..=4_u64 {
        let goal = round * (40 * PIECE) as u64;
        wait_for("more stable data", || stable.load(Relaxed) >= goal).await;
        served.kill();
        let acknowledged = stable.load(Relaxed) as usize;
        assert!(on_disk(&path)[..acknowledged] == data[..acknowledged], "lost before {acknowledged}");
        served.restart();
    }
    writer.await.unwrap().unwrap();
    assert!(on_disk(&path) == *data);
    assert!(session.counters().events.reconnects >= 4);
}

/// Many calls are in flight when the server is killed. All complete after the restart.
async fn calls_in_flight_are_retransmitted_after_a_reconnect(version: Version) {
    let mut served = Served::wire_only();
    let session = served.wire_by(version).await;
    let root = session.root();
    session.null().await.unwrap();
    served.kill();
    let mut calls: Vec<_> = (0..300).map(|_| Box::pin(session.attributes(&root))).collect();
    // They are sent or wait for a connection. None completes or fails.
    for call in &mut calls {
        assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    }
    served.restart();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(session.counters().events.reconnects, 1);
}

/// A file is created once although the reply was lost, thanks to the server's reply cache or the exclusive
/// verifier.
async fn a_create_during_a_restart_succeeds_or_the_file_exists(version: Version) {
    let mut served = Served::wire_only();
    let session = served.wire_by(version).await;
    served.kill();
    let options = OpenOptions::new().write(true).create_new(true);
    let opening = tokio::spawn({
        let session = session.clone();
        async move { session.open(b"new", &options).await }
    });
    tokio::task::yield_now().await;
    served.restart();
    opening.await.unwrap().unwrap();
    let again = session.open(b"new", &options).await.unwrap_err();
    assert_eq!(again.status(), Some(client::Status::Exists));
}

/// Forwards connections to a server.
struct Proxy {
    port: u16,
    drops_replies: Arc<AtomicBool>,
    dropped: Arc<AtomicU64>,
}

impl Proxy {
    fn new(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (drops_replies, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (drops, count) = (drops_replies.clone(), dropped.clone());
        // The threads end with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                let (from, into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || forward(from, into, |_| true));
                let (drops, count) = (drops.clone(), count.clone());
                let passes = move |bytes: usize| {
                    let is_dropped = drops.load(SeqCst);
                    count.fetch_add(if is_dropped { bytes as u64 } else { 0 }, SeqCst);
                    !is_dropped
                };
                std::thread::spawn(move || forward(server, client, passes));
            }
        });
        Self { port, drops_replies, dropped }
    }
}

/// Forwards bytes that may pass until either side ends.
fn forward(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(usize) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if passes(read) && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The server creates the file and is killed before its reply arrives. The next one finds the verifier in the
/// file: it isn't another client's.
async fn an_exclusive_create_whose_reply_is_lost_with_the_server_is_recognised(version: Version) {
    let mut served = Served::wire_only();
    let proxy = Proxy::new(served.port());
    let url = Url::new("127.0.0.1", Some(proxy.port), served.export().to_str().unwrap().as_bytes());
    let options = served.options(LaneMode::Off).version(version);
    let session = Session::connect(&url, options).await.unwrap();
    let new = OpenOptions::new().write(true).create_new(true).mode(0o640);
    proxy.drops_replies.store(true, SeqCst);
    let creating = tokio::spawn({
        let session = session.clone();
        async move { session.open(b"new", &new).await }
    });
    let path = served.export().join("new");
    wait_for("the lost reply", || path.exists() && proxy.dropped.load(SeqCst) > 0).await;
    served.kill();
    proxy.drops_replies.store(false, SeqCst);
    served.restart();
    let file = creating.await.unwrap().unwrap();
    file.write_at(b"mine", 0).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(on_disk(&path), b"mine");
    let made = std::fs::metadata(&path).unwrap();
    assert_eq!(made.mode() & 0o7777, 0o640);
    assert!((made.atime() - made.ctime()).abs() < 3600, "the verifier isn't left in the times");
    let again = session.open(b"new", &new).await.unwrap_err();
    assert_eq!(again.status(), Some(client::Status::Exists));
}

/// A soft session fails calls in time, and works again when the server is back.
async fn a_soft_session_gives_up_and_recovers(version: Version) {
    let mut served = Served::wire_only();
    let mut options = served.options(LaneMode::Off).version(version);
    options.hard = false;
    options.timeo = Duration::from_millis(150);
    options.retrans = 1;
    // The machine may be slower than that.
    options.retry = Some(support::BOUND);
    let session = client::Session::connect(&served.url(), options).await.unwrap();
    let root = session.root();
    served.kill();
    let error = session.attributes(&root).await.unwrap_err();
    assert!(matches!(&error, Error::Rpc { source, .. } if source.is_timeout()), "{error}");
    assert_eq!(error.errno(), rustix::io::Errno::TIMEDOUT.raw_os_error());
    served.restart();
    let restarted = std::time::Instant::now();
    while let Err(error) = session.attributes(&root).await {
        assert!(restarted.elapsed() < support::BOUND, "{error}");
    }
}

/// nfs(5)'s `retry`: with 0 the first failure is final, and so it is without the option; otherwise a server
/// that isn't there yet is tried again.
async fn a_server_that_is_not_there_yet_is_tried_again_for_retry(version: Version) {
    let mut served = Served::wire_only();
    let url = served.url();
    let mut options = served.options(LaneMode::Off).version(version);
    served.kill();
    let zero: Url = format!("{url}?retry=0").parse().unwrap();
    for url in [&url, &zero] {
        let error = Session::connect(url, options.clone()).await.unwrap_err();
        assert!(error.is_unreachable(), "{url}: {error}");
    }
    options.retry = Some(support::BOUND);
    let mut connecting = std::pin::pin!(Session::connect(&url, options));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut connecting).await;
    assert!(early.is_err(), "there is no server yet");
    served.restart();
    connecting.await.unwrap();
}
