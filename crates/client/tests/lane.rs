//! The client over the lane, against our own server. The counters of the wire, which don't change, show that
//! the lane was used.

mod support;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use samehost_client as client;

use client::{
    Counters, DataPath, Error, LaneMode, OpenOptions, Operation, Session, Stability, Status, Version,
};
use support::{Served, on_disk, pattern, wait_for};

fn wire_io(counters: &Counters) -> u64 {
    [Operation::Read, Operation::Write, Operation::Commit].iter().map(|one| counters.calls(*one)).sum()
}

#[tokio::test]
async fn open_read_write_and_commit_use_the_lane_only_and_open_takes_one_round_trip() {
    let served = Served::with_lane();
    let session = served.lane().await;
    let report = session.lane();
    assert!(report.local, "{report:?}");
    assert_eq!(report.instance.unwrap().len(), 32);

    let data = pattern(1, 300_000);
    fs::write(served.export().join("file"), &data).unwrap();
    let before = session.counters();
    let both = OpenOptions::new().read(true).write(true);
    let file = session.open_at(&session.root(), b"file", &both).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Lane);
    assert_eq!(file.attributes_at_open().unwrap().size, data.len() as u64);
    let after = session.counters();
    assert_eq!(after.lane.round_trips - before.lane.round_trips, 1);
    assert_eq!(after.wire.round_trips, before.wire.round_trips);

    let mut buffer = vec![0; data.len() + 5];
    assert_eq!(file.read_at(&mut buffer, 0).await.unwrap(), data.len());
    assert!(buffer[..data.len()] == data);
    assert_eq!(file.read_into(Vec::new(), 299_990, 4096).await.unwrap(), &data[299_990..]);
    file.write_at(b"over the lane", 1000).await.unwrap();
    file.write_bytes(Bytes::from_static(b"again"), 299_998).await.unwrap();
    file.write_stable(Bytes::from_static(b"stable"), 5, Stability::FileSync).await.unwrap();
    file.commit().await.unwrap();
    assert_eq!(file.size().await.unwrap(), 300_003);
    file.set_len(2000).await.unwrap();
    let disk = on_disk(&served.export().join("file"));
    assert_eq!((disk.len(), &disk[1000..1013], &disk[5..11]), (2000, &b"over the lane"[..], &b"stable"[..]));
    file.close().await.unwrap();
    let end = session.counters();
    assert_eq!(wire_io(&end), 0);
    assert_eq!(end.wire.round_trips, before.wire.round_trips);
    assert_eq!((end.lane.reads, end.lane.writes, end.lane.opens), (2, 3, 1));
    assert!(end.lane.commits >= 2);
}

#[tokio::test]
async fn opens_of_missing_names_directories_and_links_have_the_right_result() {
    let served = Served::with_lane();
    let session = served.lane().await;
    let root = session.root();
    fs::create_dir(served.export().join("dir")).unwrap();
    fs::write(served.export().join("dir/file"), b"linked").unwrap();
    std::os::unix::fs::symlink("dir/file", served.export().join("link")).unwrap();
    let reading = OpenOptions::reading();
    let status = async |name: &[u8]| session.open_at(&root, name, &reading).await.unwrap_err().status();
    assert_eq!(status(b"none").await, Some(Status::NoEntry));
    assert_eq!(status(b"dir").await, Some(Status::IsDirectory));
    assert_eq!(status(&[b'x'; 300]).await, Some(Status::NameTooLong));
    let linked = session.open_at(&root, b"link", &reading).await.unwrap();
    assert_eq!(linked.data_path(), DataPath::Lane);
    assert_eq!(linked.read_into(Vec::new(), 0, 10).await.unwrap(), b"linked");

    let new = session.open_at(&root, b"new", &OpenOptions::replacing().read(true)).await.unwrap();
    assert_eq!(new.data_path(), DataPath::Lane);
    new.write_at(b"new", 0).await.unwrap();
    let again = session.open_at(&root, b"new", &OpenOptions::replacing()).await.unwrap();
    assert_eq!(again.size().await.unwrap(), 0);
    let only = OpenOptions::new().write(true).create_new(true);
    let exists = session.open_at(&root, b"new", &only).await.unwrap_err();
    assert_eq!(exists.status(), Some(Status::Exists));
    assert_eq!(session.open_at(&root, b"newer", &only).await.unwrap().data_path(), DataPath::Lane);
    assert_eq!(wire_io(&session.counters()), 0);
}

#[tokio::test]
async fn creating_a_file_takes_one_round_trip_and_sets_mode_and_times() {
    use std::os::unix::fs::MetadataExt as _;
    let served = Served::with_lane();
    let session = served.lane().await;
    let root = session.root();
    let begun = std::time::SystemTime::now() - Duration::from_secs(1);
    for (name, exclusive) in [("exclusive", true), ("unchecked", false)] {
        for (access, read, write) in [("r", true, false), ("w", false, true), ("rw", true, true)] {
            let name = format!("{name}-{access}");
            let options = OpenOptions::new().read(read).write(write).mode(0o400);
            let options = if exclusive { options.create_new(true) } else { options.create(true) };
            let before = session.counters();
            let file = session.open_at(&root, name.as_bytes(), &options).await.unwrap();
            let after = session.counters();
            assert_eq!(after.lane.round_trips - before.lane.round_trips, 1, "{name}");
            assert_eq!(after.wire.round_trips, before.wire.round_trips, "{name}");
            assert_eq!(file.data_path(), DataPath::Lane);
            let there = fs::metadata(served.export().join(&name)).unwrap();
            let told = file.attributes_at_open().unwrap();
            assert_eq!((there.mode() & 0o7777, there.ino(), there.len()), (0o400, told.fileid, 0));
            assert_eq!(
                (there.mtime(), there.mtime_nsec()),
                (told.mtime.seconds, told.mtime.nanoseconds.into())
            );
            assert!(there.modified().unwrap() > begun && there.accessed().unwrap() > begun, "{name}");
            if write {
                file.write_at(b"data", 0).await.unwrap();
            }
        }
    }
    assert_eq!(wire_io(&session.counters()), 0);
}

/// When the lane ends during a create, the client can't know whether the server has created the file, and
/// asks over the wire. The verifier makes both requests create the same file, in either order.
#[tokio::test]
async fn an_exclusive_create_survives_the_end_of_the_lane() {
    let served = Served::with_lane();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    let root = session.root();
    let only = OpenOptions::new().write(true).create_new(true).mode(0o640);
    for round in 0..10 {
        session.set_lane_mode(LaneMode::Auto);
        session.probe().await;
        assert!(session.lane().local);
        let name = format!("mine-{round}");
        served.freeze();
        let asked = session.counters().lane.round_trips;
        let open = tokio::spawn({
            let (session, root, name) = (session.clone(), root.clone(), name.clone());
            async move { session.open_at(&root, name.as_bytes(), &only).await }
        });
        wait_for("the request", || session.counters().lane.round_trips > asked).await;
        session.set_lane_mode(LaneMode::Off);
        wait_for("the wire", || session.counters().calls(Operation::Create) > round).await;
        served.thaw();
        let file = open.await.unwrap().unwrap();
        assert_eq!(file.data_path(), DataPath::Wire);
        file.write_at(name.as_bytes(), 0).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(fs::read(served.export().join(&name)).unwrap(), name.as_bytes());
        let mode = fs::metadata(served.export().join(&name)).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o7777, 0o640);
        let again = session.open_at(&root, name.as_bytes(), &only).await.unwrap_err();
        assert_eq!(again.status(), Some(Status::Exists));
    }
}

/// The server restarts in the middle of a stream. The stream continues over the wire and then over the next
/// lane, and loses no data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_changes_its_data_path_and_back_when_the_server_restarts() {
    for cleanly in [true, false] {
        let mut served = Served::with_lane();
        let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
        assert!(session.lane().local);
        let file = session.open(b"stream", &OpenOptions::replacing().read(true)).await.unwrap();
        let other = session.open(b"idle", &OpenOptions::replacing()).await.unwrap();
        other.write_at(b"idle, and dirty", 0).await.unwrap();
        let piece = 8 << 10;
        let data = pattern(3, 4096 * piece);
        let mut changed = Vec::new();
        let mut at = 0;
        // Three lanes, with two restarts between them.
        for restart in 0..3 {
            let mut pieces = 0;
            while pieces < 64 || file.data_path() == DataPath::Wire {
                let bytes = &data[at * piece..][..piece];
                file.write_at(bytes, (at * piece) as u64).await.unwrap();
                let back = file.read_into(Vec::new(), (at * piece) as u64, piece).await.unwrap();
                assert!(back == bytes);
                at = (at + 1) % 4096;
                pieces += 1;
                if pieces > 64 {
                    // The next lane takes a moment; a slower stream does less work until then.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            changed.push(session.counters());
            if restart == 2 {
                break;
            }
            if cleanly {
                served.stop()
            } else {
                served.kill()
            }
            served.restart();
        }
        file.commit().await.unwrap();
        other.close().await.unwrap();
        assert!(on_disk(&served.export().join("stream"))[..at * piece] == data[..at * piece]);
        assert_eq!(on_disk(&served.export().join("idle")), b"idle, and dirty");
        let end = session.counters();
        assert!(end.events.data_path_changes >= 4, "{} changes", end.events.data_path_changes);
        assert_eq!(wire_io(&changed[0]), 0, "the wire was used before the first restart");
        assert!(session.lane().local);
    }
}

/// Copying a tree into the export takes one round trip for each file, whether it exists or not.
#[tokio::test]
async fn creating_or_replacing_a_file_takes_one_round_trip() {
    let served = Served::with_lane();
    let session = served.lane().await;
    for _ in 0..2 {
        let before = session.counters();
        for number in 0..20 {
            let name = number.to_string();
            let file = session.open(name.as_bytes(), &OpenOptions::replacing()).await.unwrap();
            assert_eq!(file.data_path(), DataPath::Lane);
            file.write_at(b"x", 0).await.unwrap();
        }
        let after = session.counters();
        assert_eq!(after.lane.round_trips - before.lane.round_trips, 20);
        assert_eq!(after.wire.round_trips, before.wire.round_trips);
    }
}

/// If the server hangs, the client gives up the lane after the time of a soft call. Then the rules of the
/// wire apply: a soft session fails, and a hard one waits for the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_does_not_reply_is_given_up() {
    let served = Served::with_lane();
    std::fs::write(served.export().join("file"), b"there").unwrap();
    for hard in [false, true] {
        for lane in [LaneMode::Auto, LaneMode::Required] {
            let patient = served.options(lane);
            let options = patient.hard(hard).timeo(Duration::from_secs(1)).retrans(1).retry(support::BOUND);
            let session = Session::connect(&served.url(), options).await.unwrap();
            let idle = session.open(b"file", &OpenOptions::reading()).await.unwrap();
            served.freeze();
            let opening = tokio::spawn({
                let session = session.clone();
                async move { session.open(b"file", &OpenOptions::reading()).await }
            });
            wait_for("the lane's end", || !session.lane().local).await;
            assert_eq!(idle.data_path(), DataPath::Wire, "grants end with the lane");
            if !hard {
                let error =
                    tokio::time::timeout(support::BOUND, opening).await.unwrap().unwrap().unwrap_err();
                assert!(matches!(&error, Error::Rpc { source, .. } if source.is_timeout()), "{error}");
                served.thaw();
                continue;
            }
            served.thaw();
            let file = tokio::time::timeout(support::BOUND, opening).await.unwrap().unwrap().unwrap();
            assert_eq!(file.read_into(Vec::new(), 0, 9).await.unwrap(), b"there");
            if lane == LaneMode::Required {
                assert_eq!(file.data_path(), DataPath::Lane);
            }
        }
    }
}

/// A hard session with a required lane survives a restart of the server, as over the wire. It fails only if
/// the server answers and offers no lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_lane_is_waited_for_while_the_server_restarts() {
    let mut served = Served::with_lane();
    std::fs::write(served.export().join("file"), b"there").unwrap();
    // By NFSv4 the grace period would refer the first opens to the wire.
    let options = served.options(LaneMode::Required).version(Version::V3);
    let session = Session::connect(&served.url(), options).await.unwrap();
    let open = || {
        let session = session.clone();
        tokio::spawn(async move { session.open(b"file", &OpenOptions::reading()).await })
    };
    for cleanly in [false, true, false] {
        let lost = session.counters().events.probes;
        if cleanly {
            served.stop();
        } else {
            served.kill();
        }
        let opening = open();
        // The probe registers while there is no server.
        wait_for("a probe", || session.counters().events.probes > lost).await;
        served.restart();
        let file = tokio::time::timeout(support::BOUND, opening).await.unwrap().unwrap().unwrap();
        assert_eq!(file.data_path(), DataPath::Lane);
        assert_eq!(file.read_into(Vec::new(), 0, 9).await.unwrap(), b"there");
    }
    served.kill();
    let opening = open();
    served.forbid_lane();
    served.restart();
    let error = tokio::time::timeout(support::BOUND, opening).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoLane { .. }), "{error}");
}

/// A drain revokes the grants of idle files, too. Their descriptors are closed and don't keep the export
/// busy.
#[tokio::test]
async fn idle_files_release_their_grants_when_the_server_drains() {
    let mut served = Served::with_lane();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    let mut files = Vec::new();
    for index in 0..20 {
        let name = format!("idle-grant-{index}");
        let file = session.open(name.as_bytes(), &OpenOptions::replacing().read(true)).await.unwrap();
        file.write_at(name.as_bytes(), 0).await.unwrap();
        files.push((name, file));
    }
    // Compares names only, since the server's clones of the mount have other paths.
    let held = || {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
            .filter(|target| target.to_string_lossy().contains("idle-grant-"))
            .count()
    };
    assert_eq!(held(), 20);
    served.stop();
    wait_for("the release of the grants", || held() == 0).await;
    served.restart();
    for (name, file) in &files {
        assert_eq!(file.read_into(Vec::new(), 0, 100).await.unwrap(), name.as_bytes());
        file.commit().await.unwrap();
    }
}

/// While the export forbids the lane, the file uses the wire. The server doesn't restart, so a COMMIT before
/// the next grant makes the data durable, and nothing is written again.
#[tokio::test]
async fn an_export_can_forbid_the_lane_for_a_while() {
    let mut served = Served::with_lane();
    let mut options = served.options(LaneMode::Auto);
    options.probe_throttle = 8;
    let session = Session::connect(&served.url(), options).await.unwrap();
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).await.unwrap();
    let data = pattern(5, 48 << 10);
    let third = 16 << 10;
    file.write_at(&data[..third], 0).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Lane);

    served.reload_also(",no_lane");
    file.write_at(&data[third..2 * third], third as u64).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Wire);
    assert_eq!(session.counters().calls(Operation::Write), 1);

    served.reload_also("");
    let mut buffer = [0; 16];
    let mut wire_reads = 0;
    while file.data_path() == DataPath::Wire {
        assert_eq!(file.read_at(&mut buffer, third as u64).await.unwrap(), 16);
        assert!(buffer == data[third..third + 16]);
        wire_reads += 1;
        assert!(wire_reads <= 16, "a grant is requested every 8 reads and writes");
    }
    file.write_at(&data[2 * third..], 2 * third as u64).await.unwrap();
    file.commit().await.unwrap();
    assert!(on_disk(&served.export().join("file")) == data);
    let counters = session.counters();
    assert_eq!((counters.calls(Operation::Commit), counters.events.bytes_resent), (1, 0));
    assert_eq!(counters.events.data_path_changes, 2);
}

/// After unstable writes over the wire the server restarts with a lane. The data that it may have lost is
/// written again through the grant.
#[tokio::test]
async fn data_that_a_server_without_a_lane_has_lost_is_written_again_over_the_lane() {
    let mut served = Served::wire_only();
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    assert!(!session.lane().local);
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).await.unwrap();
    let data = pattern(6, 100_000);
    file.write_at(&data, 0).await.unwrap();
    served.kill();
    fs::OpenOptions::new().write(true).open(served.export().join("file")).unwrap().set_len(10).unwrap();
    served.allow_lane();
    served.restart();
    let before = session.counters();
    // The reconnect causes a probe, and the file changes its data path at one of its next reads.
    let mut buffer = [0; 10];
    let start = std::time::Instant::now();
    while file.data_path() == DataPath::Wire {
        assert_eq!(file.read_at(&mut buffer, 0).await.unwrap(), 10);
        assert!(start.elapsed() < support::BOUND);
    }
    assert!(on_disk(&served.export().join("file")) == data);
    file.commit().await.unwrap();
    let after = session.counters();
    assert_eq!(after.events.bytes_resent, data.len() as u64);
    assert_eq!(after.calls(Operation::Write), before.calls(Operation::Write));
    assert_eq!(after.calls(Operation::Commit), 0);
}

/// As before, but another open of the file gets the grant.
#[tokio::test]
async fn uncommitted_writes_of_one_open_are_durable_before_another_has_a_grant() {
    let mut served = Served::wire_only();
    // NFSv3 has no grace period, in which there are no grants.
    let options = served.options(LaneMode::Auto).version(Version::V3);
    let session = Session::connect(&served.url(), options).await.unwrap();
    let writer = session.open(b"file", &OpenOptions::replacing()).await.unwrap();
    let data = pattern(7, 100_000);
    writer.write_at(&data, 0).await.unwrap();
    served.kill();
    fs::OpenOptions::new().write(true).open(served.export().join("file")).unwrap().set_len(10).unwrap();
    served.allow_lane();
    served.restart();
    let report = session.probe().await;
    assert!(report.local, "{report:?}");
    let granted = session.open(b"file", &OpenOptions::new().read(true).write(true)).await.unwrap();
    assert_eq!(granted.data_path(), DataPath::Lane);
    assert!(on_disk(&served.export().join("file")) == data);
    granted.write_at(b"newer", 0).await.unwrap();
    writer.commit().await.unwrap();
    assert_eq!(on_disk(&served.export().join("file"))[..8], [b"newer", &data[5..8]].concat());
    assert_eq!(session.counters().events.bytes_resent, data.len() as u64);
}

/// A relay in front of the server. A test can close its connections.
struct Relay {
    port: u16,
    connections: Arc<Mutex<Vec<tokio::task::AbortHandle>>>,
}

impl Relay {
    async fn new(server: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<Vec<_>>>::default();
        let its = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                // The lock is held until the connection is in the list, so `cut` misses none that carries
                // data.
                let mut connections = its.lock().unwrap();
                let task = tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
                connections.push(task.abort_handle());
            }
        });
        Self { port, connections }
    }

    /// Closes all connections at both ends.
    fn cut(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

/// A lane ends with its NFS connection, also for an idle client. Open files continue over the wire, and then
/// over the lane of the next connection, without loss of data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_ends_with_its_connection_and_the_next_connection_gets_another() {
    let served = Served::with_lane();
    let relay = Relay::new(served.port()).await;
    let url = client::Url::new("127.0.0.1", Some(relay.port), served.export().to_str().unwrap().as_bytes());
    for nconnect in [1, 3] {
        let options = served.options(LaneMode::Auto).nconnect(nconnect);
        let session = Session::connect(&url, options).await.unwrap();
        let both = OpenOptions::new().read(true).write(true).create(true);
        let file = session.open(b"stream", &both).await.unwrap();
        let data = pattern(7, 4096);
        for round in 0..4 {
            wait_for("the lane", || session.lane().local).await;
            file.write_at(&data, round * 4096).await.unwrap();
            relay.cut();
            wait_for("the lane's end", || !session.lane().local).await;
            file.write_at(&data, (round + 4) * 4096).await.unwrap();
        }
        file.commit().await.unwrap();
        assert!(on_disk(&served.export().join("stream")) == data.repeat(8));
        wait_for("the lane", || session.lane().local).await;
        file.read_into(Vec::new(), 0, 1).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Lane);
        assert!(session.counters().events.probes >= 5);
    }
}

#[tokio::test]
async fn without_a_lane_required_is_an_error_and_auto_has_reasons() {
    let served = Served::wire_only();
    let error = Session::connect(&served.url(), served.options(LaneMode::Required)).await.unwrap_err();
    assert!(matches!(error, Error::NoLane { .. }), "{error}");
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    let report = session.lane();
    assert!(!report.local && !report.reasons.is_empty(), "{report:?}");
    let off = served.wire().await.lane();
    assert!(off.reasons[0].contains("lane=off"), "{off:?}");
    let mut options = served.options(LaneMode::Auto);
    options.credential = client::Credential::None;
    let nobody = Session::connect(&served.url(), options).await.unwrap().probe().await;
    assert!(nobody.reasons[0].contains("AUTH_NONE"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_a_file() {
    let served = Served::with_lane();
    let session = served.lane().await;
    let file = session.open(b"shared", &OpenOptions::replacing().read(true)).await.unwrap();
    let tasks: Vec<_> = (0..16_u64)
        .map(|task| {
            let file = file.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                for round in 0..50 {
                    let data = pattern(task * 1000 + round, 4096);
                    file.write_at(&data, task * 4096).await.unwrap();
                    assert_eq!(file.read_at(&mut buffer, task * 4096).await.unwrap(), 4096);
                    assert!(buffer[..] == data);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(session.counters().lane.reads, 16 * 50);
    assert_eq!(wire_io(&session.counters()), 0);
}

#[test]
fn the_blocking_api_reads_and_writes_without_its_runtime() {
    let mut served = Served::with_lane();
    let session = client::blocking::Session::connect(&served.url(), served.options(LaneMode::Auto)).unwrap();
    assert!(session.session().lane().local);
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).unwrap();
    assert_eq!(file.data_path(), DataPath::Lane);
    file.write_at(b"0123456789", 0).unwrap();
    file.commit().unwrap();
    let mut buffer = [0; 20];
    assert_eq!(file.read_at(&mut buffer, 4).unwrap(), 6);
    assert_eq!(wire_io(&session.session().counters()), 0);
    // The lane ends while no thread drives the runtime. The next read detects it.
    file.write_at(b"dirty", 10).unwrap();
    served.kill();
    served.restart();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 15);
    assert_eq!(&buffer[..15], b"0123456789dirty");
    file.close().unwrap();
}
