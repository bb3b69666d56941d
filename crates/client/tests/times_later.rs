//! Times of new files that are set with the file's first data, with attributes, or soon (NFSv4): the calls
//! that this saves, and that nobody notices.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::nfs4::{Nfsstat4, Operation as Op, StableHow4, Write4ResOk};
use samehost_client as client;

use client::{
    Attributes, Credential, Error, File, LaneMode, OpenOptions, Operation, Plus, Session, SetAttributes,
    SetTime, Status, Timestamp, Version,
};
use support::odd_v4::{OddServer, ScriptedAnswer, attributes_of, encoded, opened, soft};
use support::{Served, wait_for};

const DATA: Bytes = Bytes::from_static(b"a small file");

fn exclusively() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create_new(true).times_later(true)
}

/// The last access and modification of a file on the server.
fn times(path: &Path) -> [(i64, i64); 2] {
    let at = fs::metadata(path).unwrap();
    [(at.atime(), at.atime_nsec()), (at.mtime(), at.mtime_nsec())]
}

fn stamp(time: Timestamp) -> (i64, i64) {
    (time.seconds, time.nanoseconds.into())
}

fn stamps(attributes: &Attributes) -> [(i64, i64); 2] {
    [stamp(attributes.atime), stamp(attributes.mtime)]
}

fn shown(file: &File) -> [(i64, i64); 2] {
    stamps(&file.attributes_at_open().unwrap())
}

/// OPEN, WRITE and SETATTR calls.
fn calls(session: &Session) -> [u64; 3] {
    [Operation::Create, Operation::Write, Operation::Setattr].map(|one| session.counters().calls(one))
}

/// The calls since `before`.
fn made(session: &Session, before: [u64; 3]) -> [u64; 3] {
    let after = calls(session);
    std::array::from_fn(|index| after[index] - before[index])
}

/// How often the clock may overtake a test: on a busy machine the times may be set by themselves before
/// the next call.
const ATTEMPTS: usize = 50;

/// A WRITE has at most wsize bytes, also one that could set the times.
#[tokio::test]
async fn large_data_is_written_in_pieces() {
    let served = Served::wire_only();
    let mut options = served.options(LaneMode::Off).version(Version::V4_2);
    options.wsize = Some(64 << 10);
    let session = Session::connect(&served.url(), options).await.unwrap();
    let data = support::pattern(1, 200_000);
    for attempt in 0..ATTEMPTS {
        let file = session.open(format!("{attempt}").as_bytes(), &exclusively()).await.unwrap();
        let before = calls(&session);
        file.write_behind(data.clone().into(), 0).await.unwrap();
        file.close().await.unwrap();
        let [_, writes, setattrs] = made(&session, before);
        assert!(fs::read(served.export().join(attempt.to_string())).unwrap() == data);
        assert_eq!(writes, 4);
        if setattrs == 1 {
            return;
        }
    }
    panic!("the times were set before the data each time");
}

#[tokio::test]
async fn the_times_go_with_the_first_data() {
    let served = Served::wire_only();
    let path = served.export().join("file");
    for (version, setattrs) in [(Version::V3, 1), (Version::V4_1, 1), (Version::V4_2, 0)] {
        let session = served.wire_by(version).await;
        for attempt in 0.. {
            let before = calls(&session);
            let file = session.open(b"file", &exclusively()).await.unwrap();
            let at_open = shown(&file);
            file.write_behind(DATA, 0).await.unwrap();
            file.flush().await.unwrap();
            let now = times(&path);
            assert_eq!(now[0], at_open[0], "{version:?}");
            assert!(now[1] >= at_open[1], "{version:?}");
            assert_eq!(fs::read(&path).unwrap(), DATA);
            file.close().await.unwrap();
            fs::remove_file(&path).unwrap();
            if made(&session, before) == [1, 1, setattrs] {
                break;
            }
            assert!(attempt < ATTEMPTS, "{version:?}: {:?}", made(&session, before));
        }
    }
}

#[tokio::test]
async fn attributes_take_data_and_times_along() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let path = served.export().join("file");
    let long_ago = Timestamp { seconds: 1_000_000, nanoseconds: 5 };
    let mtime = SetAttributes { mtime: Some(SetTime::To(long_ago)), ..SetAttributes::default() };
    let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    for data in [&[][..], &DATA] {
        let with_data = u64::from(!data.is_empty());
        for attempt in 0.. {
            let (before, commits) = (calls(&session), session.counters().calls(Operation::Commit));
            let file = session.open(b"file", &exclusively()).await.unwrap();
            let expected = [shown(&file)[0], (1_000_000, 5)];
            if !data.is_empty() {
                file.write_behind(DATA, 0).await.unwrap();
            }
            let attributes = session.set_attributes(&file.handle(), &mtime, None).await.unwrap().unwrap();
            assert_eq!((attributes.size, stamps(&attributes)), (data.len() as u64, expected));
            session.set_attributes(&file.handle(), &mode, None).await.unwrap();
            file.close().await.unwrap();
            assert_eq!(times(&path), expected);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
            assert_eq!(fs::read(&path).unwrap(), data);
            fs::remove_file(&path).unwrap();
            if made(&session, before) == [1, with_data, 2 - with_data] {
                assert_eq!(session.counters().calls(Operation::Commit), commits, "the WRITE was stable");
                break;
            }
            assert!(attempt < ATTEMPTS, "{:?}", made(&session, before));
        }
    }
}

/// Attributes that need not be answered at once go with the times, behind the data before them and in front
/// of the data after them.
#[tokio::test]
async fn attributes_join_the_times() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let path = served.export().join("file");
    let long_ago = SetTime::To(Timestamp { seconds: 1_000_000, nanoseconds: 5 });
    let mtime = SetAttributes { mtime: Some(long_ago), ..SetAttributes::default() };
    let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    for (data, more, expected) in
        [(&[][..], &[][..], [1, 0, 1]), (&DATA, &[], [1, 1, 0]), (&DATA, b" and more", [1, 2, 0])]
    {
        for attempt in 0.. {
            let before = calls(&session);
            let file = session.open(b"file", &exclusively()).await.unwrap();
            let [atime, _] = shown(&file);
            if !data.is_empty() {
                file.write_behind(Bytes::copy_from_slice(data), 0).await.unwrap();
            }
            let accepted = session.set_attributes_later(&file.handle(), &mtime);
            let all = session.set_attributes_later(&file.handle(), &mode);
            if !more.is_empty() {
                file.write_behind(Bytes::from_static(more), data.len() as u64).await.unwrap();
            }
            file.close().await.unwrap();
            let [accessed, modified] = times(&path);
            assert_eq!(fs::read(&path).unwrap(), [data, more].concat());
            // With time to spare it is late for some of these.
            if accepted == Some(mtime) && all == Some(SetAttributes { mode: mode.mode, ..mtime }) {
                assert_eq!(accessed, atime);
                assert_eq!(modified == (1_000_000, 5), more.is_empty(), "{modified:?}");
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
                if made(&session, before) == expected {
                    fs::remove_file(&path).unwrap();
                    break;
                }
            }
            fs::remove_file(&path).unwrap();
            assert!(attempt < ATTEMPTS, "{:?}", made(&session, before));
        }
    }
}

/// Nothing is accepted that couldn't be joined: of another user, of a file whose times are set, or a size.
#[tokio::test]
async fn attributes_join_only_what_is_pending() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let other = session.as_user(Credential::Sys { uid: 1234, gid: 1234, groups: vec![] });
    let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let file = session.open(b"file", &exclusively()).await.unwrap();
    assert_eq!(other.set_attributes_later(&file.handle(), &mode), None);
    assert_eq!(session.set_attributes_later(&file.handle(), &size), None);
    file.sync().await.unwrap();
    assert_eq!(session.set_attributes_later(&file.handle(), &mode), None);
    file.close().await.unwrap();
    for version in [Version::V3, Version::V4_1] {
        let session = served.wire_by(version).await;
        let file = session.open(b"other", &exclusively()).await.unwrap();
        assert_eq!(session.set_attributes_later(&file.handle(), &mode), None, "{version:?}");
        file.close().await.unwrap();
        fs::remove_file(served.export().join("other")).unwrap();
    }
}

/// Whatever asks for a new file's attributes gets the times that were shown at its open.
#[tokio::test]
async fn everything_shows_the_times() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let root = session.root();
    for way in 0..7 {
        let name = format!("file-{way}");
        let file = session.open(name.as_bytes(), &exclusively()).await.unwrap();
        let (expected, name) = (shown(&file), name.as_bytes());
        let other = OpenOptions::new().write(true);
        let seen = match way {
            0 => session.attributes(&file.handle()).await.unwrap(),
            1 => session.lookup(&root, name).await.unwrap().attributes.unwrap(),
            2 => {
                let all = session.read_dir(&root, Plus::All).collect().await.unwrap();
                all.iter().find(|entry| entry.name == name).unwrap().attributes.unwrap()
            }
            3 => session.open(name, &other).await.unwrap().attributes_at_open().unwrap(),
            4 => {
                let open = session.open_handle(&file.handle(), name, &other).await.unwrap();
                open.attributes_at_open().unwrap()
            }
            5 => {
                session.rename(&root, name, &root, b"moved").await.unwrap();
                session.lookup(&root, b"moved").await.unwrap().attributes.unwrap()
            }
            _ => {
                session.link(&file.handle(), &root, b"linked").await.unwrap();
                session.lookup(&root, b"linked").await.unwrap().attributes.unwrap()
            }
        };
        assert_eq!(stamps(&seen), expected, "{way}");
        file.close().await.unwrap();
    }
}

/// fsync(2) and close(2) set the times of a file without data, and time does, too.
#[tokio::test]
async fn the_times_are_set_soon() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let create = async |name: &str| {
        let file = session.open(name.as_bytes(), &exclusively()).await.unwrap();
        (shown(&file), file, served.export().join(name))
    };
    let (expected, file, path) = create("synced").await;
    file.sync().await.unwrap();
    assert_eq!(times(&path), expected);
    let (expected, file, path) = create("closed").await;
    file.close().await.unwrap();
    assert_eq!(times(&path), expected);
    let (expected, file, path) = create("truncated").await;
    file.set_len(100).await.unwrap();
    assert_eq!(times(&path)[0], expected[0]);
    assert!(times(&path)[1] >= expected[1]);
    let (expected, _open, path) = create("open").await;
    wait_for("the times", || times(&path) == expected).await;
    let (expected, file, path) = create("dropped").await;
    drop(file);
    wait_for("the times", || times(&path) == expected).await;
    // A file that is gone has no times.
    let (_, file, path) = create("removed").await;
    fs::remove_file(path).unwrap();
    file.close().await.unwrap();
}

/// An open learns that the times of its file weren't set, as it learns of a write that has failed. Another
/// user's data and attributes don't suffer.
#[tokio::test]
async fn a_failure_is_reported_by_close() {
    let served = Served::wire_only();
    fs::set_permissions(served.export(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let root = served.wire_by(Version::V4_2).await;
    let session = root.as_user(Credential::Sys { uid: 1234, gid: 1234, groups: vec![] });
    for (name, data) in [("empty", &[][..]), ("data", &DATA)] {
        let file = session.open(name.as_bytes(), &exclusively().mode(0o666)).await.unwrap();
        let path = served.export().join(name);
        // The creator may write to it, and doesn't own it any more.
        chown(&path, Some(0), Some(0)).unwrap();
        if !data.is_empty() {
            file.write_behind(DATA, 0).await.unwrap();
        }
        let failed = file.flush().await.unwrap_err();
        assert!(matches!(failed, Error::EarlierWrite { .. }), "{name}: {failed}");
        let failed = file.sync().await.unwrap_err();
        assert!(matches!(failed, Error::EarlierWrite { .. }), "{name}: {failed}");
        file.sync().await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        file.close().await.unwrap();
    }
    // So is what an application has set, which doesn't take the times with it.
    for attempt in 0.. {
        let file = session.open(b"mode", &exclusively()).await.unwrap();
        let (expected, path) = (shown(&file), served.export().join("mode"));
        let owner = SetAttributes { uid: Some(4321), ..SetAttributes::default() };
        let is_accepted = session.set_attributes_later(&file.handle(), &owner).is_some();
        let closed = file.close().await;
        let set = times(&path);
        fs::remove_file(&path).unwrap();
        if is_accepted {
            assert!(matches!(closed, Err(Error::EarlierWrite { .. })), "{closed:?}");
            assert_eq!(set, expected);
            break;
        }
        assert!(attempt < ATTEMPTS);
    }
    let file = session.open(b"chown", &exclusively()).await.unwrap();
    let expected = shown(&file);
    let owner = SetAttributes { uid: Some(4321), ..SetAttributes::default() };
    let refused = session.set_attributes(&file.handle(), &owner, None).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::NotPermitted));
    assert_eq!(times(&served.export().join("chown")), expected);
    // Another user's request is another one.
    let file = session.open(b"root", &exclusively()).await.unwrap();
    let expected = shown(&file);
    root.set_attributes(&file.handle(), &owner, None).await.unwrap();
    assert_eq!(times(&served.export().join("root")), expected);
    file.close().await.unwrap();
}

/// What a server has answered to SETATTRs, and the operations of the requests that had a WRITE or a SETATTR.
type Seen = Arc<Mutex<Vec<Vec<Op>>>>;

/// What the WRITEs take, the results of the SETATTRs, the requests, and whether a commit succeeds.
type Case = (&'static [u32], &'static [Nfsstat4], &'static [&'static [Op]], bool);

/// A server whose WRITEs take `counts` bytes, and whose SETATTRs have these results, one after the other.
fn server_with(counts: &'static [u32], results: &'static [Nfsstat4]) -> (OddServer, Seen) {
    let seen = Seen::default();
    let (log, counts, results) = (seen.clone(), Mutex::new(counts.iter()), Mutex::new(results.iter()));
    let server = OddServer::new(move |request| match request.operation {
        Op::Open => ScriptedAnswer::Ok(opened([7; 16], None)),
        Op::Close => ScriptedAnswer::Ok(vec![7; 16]),
        Op::Write => {
            log.lock().push(request.compound.to_vec());
            let count = *counts.lock().next().expect("a WRITE");
            let (committed, writeverf) = (StableHow4::FileSync, [1; 8]);
            ScriptedAnswer::Ok(encoded(&Write4ResOk { count, committed, writeverf }))
        }
        Op::Setattr => {
            if !request.compound.contains(&Op::Write) {
                log.lock().push(request.compound.to_vec());
            }
            match *results.lock().next().expect("a SETATTR") {
                Nfsstat4::Ok => ScriptedAnswer::Ok(vec![0; 4]),
                refused => ScriptedAnswer::Status(refused),
            }
        }
        Op::Getattr
            if request.compound.iter().any(|one| matches!(one, Op::Open | Op::Write | Op::Setattr)) =>
        {
            let requested = xdr::Decoder::new(request.args).get().unwrap();
            ScriptedAnswer::Ok(attributes_of(&requested, 1))
        }
        _ => ScriptedAnswer::Good,
    });
    (server, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn servers_may_answer_half_of_it() {
    const TOGETHER: [Op; 5] = [Op::Sequence, Op::Putfh, Op::Write, Op::Setattr, Op::Getattr];
    const WRITE: [Op; 4] = [Op::Sequence, Op::Putfh, Op::Write, Op::Getattr];
    const ALONE: [Op; 4] = [Op::Sequence, Op::Putfh, Op::Setattr, Op::Getattr];
    const OK: Nfsstat4 = Nfsstat4::Ok;
    let cases: [Case; 5] = [
        (&[12], &[OK], &[&TOGETHER], true),
        // A part of the data: the rest changes the times again.
        (&[5, 7], &[OK, OK], &[&TOGETHER, &WRITE, &ALONE], true),
        (&[12], &[Nfsstat4::Delay, OK], &[&TOGETHER, &ALONE], true),
        (&[12], &[Nfsstat4::Delay, Nfsstat4::Delay, OK], &[&TOGETHER, &ALONE, &ALONE], true),
        (&[12], &[Nfsstat4::Perm], &[&TOGETHER], false),
    ];
    for (counts, results, requests, succeeds) in cases {
        for attempt in 0.. {
            let (server, seen) = server_with(counts, results);
            let options = soft().version(Version::V4_2).hard(true);
            let session = Session::connect(&server.url(), options).await.unwrap();
            let file = session.open(b"name", &exclusively()).await.unwrap();
            let is_accepted = file.write_behind(DATA, 0).await.is_ok();
            if is_accepted && seen.lock().is_empty() {
                assert_eq!(file.commit().await.is_ok(), succeeds, "{results:?}");
                file.commit().await.unwrap();
                assert_eq!(*seen.lock(), requests, "{results:?}");
                break;
            }
            assert!(attempt < ATTEMPTS);
        }
    }
}
