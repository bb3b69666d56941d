//! Filesystems that are on other servers (`refer=` of exports(5), NFS4ERR_MOVED, `fs_locations`), and
//! requests that a server delays.

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Nfsstat4, Operation as Op, SEQ4_LEASE_MOVED, Sequence4ResOk};
use samehost_client as client;
use xdr::{Decoder, Encoder};

use client::{Error, LaneMode, OpenOptions, Plus, Session, Status, Version};
use support::odd_v4::{OddServer, ScriptedAnswer, attributes_of, encoded, opened, sequence, soft};
use support::{BOUND, Served, wait_for};

const LOCATIONS: [&str; 3] = ["one:/a/b", "two:/a/b", "[2001:db8::7]:/c"];

/// The error says where the filesystem is.
fn is_moved(error: &Error) -> bool {
    let Error::Moved { locations, .. } = error else { panic!("{error}") };
    let text = error.to_string();
    let named = LOCATIONS.iter().all(|location| text.contains(location));
    assert_eq!(
        (error.status(), error.errno()),
        (Some(Status::Moved), rustix::io::Errno::REMOTE.raw_os_error())
    );
    named && *locations == LOCATIONS
}

/// The export, and one in it that refers to other servers, if `refers`.
fn exports(served: &mut Served, refers: bool) {
    let away = served.export().join("away");
    let options = "rw,insecure,no_root_squash,no_tree";
    let refer = if refers { ",refer=/a/b@one+two:/c@[2001:db8::7]" } else { "" };
    served.reload_lines(&format!(
        "{} *({options},fsid=7)\n{} *({options},fsid=8{refer})\n",
        served.export().display(),
        away.display()
    ));
}

#[tokio::test]
async fn a_referral_names_where_its_files_are() {
    for version in [Version::V4_1, Version::V4_2, Version::Highest] {
        let mut served = Served::wire_only();
        fs::create_dir(served.export().join("away")).unwrap();
        fs::write(served.export().join("here"), b"here").unwrap();
        exports(&mut served, true);
        let options = || served.options(LaneMode::Off).version(version);
        // What is mounted is one, or behind one.
        for path in ["away", "away/directory/file"] {
            let path = served.export().join(path);
            let url = served.url().with_path(path.to_str().unwrap().as_bytes());
            let error = Session::connect(&url, options()).await.unwrap_err();
            assert!(is_moved(&error), "{error}");
            assert!(error.to_string().contains("away"), "{error}");
        }
        // It is in what is mounted.
        let session = Session::connect(&served.url(), options()).await.unwrap();
        let error = session.lookup(&session.root(), b"away").await.unwrap_err();
        assert!(is_moved(&error), "{error}");
        let error = session.open(b"away/file", &OpenOptions::reading()).await.unwrap_err();
        assert!(is_moved(&error), "{error}");
        let made = session.open(b"away/file", &OpenOptions::replacing()).await.unwrap_err();
        assert!(is_moved(&made), "{made}");
        let mut names: Vec<_> = session.read_dir(&session.root(), Plus::All).collect().await.unwrap();
        names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let names: Vec<_> = names.iter().map(|entry| (&entry.name[..], entry.attributes.is_some())).collect();
        assert_eq!(names, [(&b"away"[..], false), (b"here", true)]);
        let here = session.open(b"here", &OpenOptions::reading()).await.unwrap();
        assert_eq!(here.read_into(Vec::new(), 0, 9).await.unwrap(), b"here");
        session.exports().await.unwrap();
    }
}

/// A filesystem moves while files are open. What is in others goes on.
#[tokio::test]
async fn a_filesystem_that_moves_takes_its_files_along_and_no_others() {
    let mut served = Served::wire_only();
    let away = served.export().join("away");
    fs::create_dir(&away).unwrap();
    exports(&mut served, false);
    let session = served.wire_by(Version::V4_2).await;
    let directory = session.lookup(&session.root(), b"away").await.unwrap().handle;
    let (moving, staying) = (
        session.open_at(&directory, b"file", &OpenOptions::replacing().read(true)).await.unwrap(),
        session.open(b"file", &OpenOptions::replacing().read(true)).await.unwrap(),
    );
    for file in [&moving, &staying] {
        file.write_at(b"data", 0).await.unwrap();
        file.commit().await.unwrap();
    }
    exports(&mut served, true);
    let error = moving.read_into(Vec::new(), 0, 4).await.unwrap_err();
    assert!(is_moved(&error), "{error}");
    assert!(is_moved(&moving.write_at(b"DATA", 0).await.unwrap_err()));
    assert!(is_moved(&session.attributes(&directory).await.unwrap_err()));
    assert_eq!(staying.read_into(Vec::new(), 0, 4).await.unwrap(), b"data");
    drop(moving);
    // It is back.
    exports(&mut served, false);
    let again = session.open_at(&directory, b"file", &OpenOptions::reading()).await.unwrap();
    assert_eq!(again.read_into(Vec::new(), 0, 4).await.unwrap(), b"data");
}

/// `fs_locations`, if they are requested, of the filesystem with this number.
fn moved_to(requested: &Bitmap4, filesystem: u64) -> Option<Vec<u8>> {
    if !requested.contains(number::FS_LOCATIONS) {
        return None;
    }
    let mut values = Encoder::new();
    values.u64(filesystem);
    values.u64(0);
    let path = |parts: &[&str], to: &mut Encoder| {
        to.length(parts.len());
        parts.iter().for_each(|part| to.opaque(part.as_bytes()));
    };
    path(&[], &mut values);
    values.length(2);
    for (servers, parts) in [(&["one", "two"][..], &["a", "b"][..]), (&["2001:db8::7"], &["c"])] {
        values.length(servers.len());
        servers.iter().for_each(|server| values.opaque(server.as_bytes()));
        path(parts, &mut values);
    }
    let mut to = Encoder::new();
    to.put(&Bitmap4::of(&[number::FSID, number::FS_LOCATIONS]));
    to.opaque(values.as_slice());
    Some(to.into_vec())
}

/// Servers may send no locations, or nonsense: the error is the one without them, and no loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_does_not_say_where_its_files_are_is_an_error() {
    let nonsense: [Option<Vec<u8>>; 4] = [
        None,
        Some(Vec::new()),
        // No locations.
        Some(encoded(&Bitmap4::EMPTY).into_iter().chain([0; 4]).collect()),
        // An fsid, and a path of 2^32 - 1 parts.
        Some({
            let mut to = Encoder::new();
            to.put(&Bitmap4::of(&[number::FSID, number::FS_LOCATIONS]));
            to.opaque(&[[0; 16], [0xff; 16]].concat());
            to.into_vec()
        }),
    ];
    for answer in nonsense {
        let has_moved = Arc::new(AtomicBool::new(false));
        let moved = has_moved.clone();
        let server = OddServer::new(move |request| match request.operation {
            Op::Getattr if moved.load(SeqCst) => {
                let requested: Bitmap4 = Decoder::new(request.args).get().unwrap();
                match &answer {
                    Some(answer) if requested.contains(number::FS_LOCATIONS) => {
                        ScriptedAnswer::Ok(answer.clone())
                    }
                    _ => ScriptedAnswer::Status(Nfsstat4::Moved),
                }
            }
            _ => ScriptedAnswer::Good,
        });
        let session = server.session().await;
        has_moved.store(true, SeqCst);
        let before = server.shared.compounds.load(SeqCst);
        let error = session.attributes(&session.root()).await.unwrap_err();
        assert!(matches!(error, Error::Status { status: Status::Moved, .. }), "{error}");
        assert_eq!(error.errno(), rustix::io::Errno::REMOTE.raw_os_error());
        assert_eq!(server.shared.compounds.load(SeqCst), before + 2);
    }
}

/// A server says that it has moved a filesystem in which the client has a file open
/// (`SEQ4_STATUS_LEASE_MOVED`). The client keeps everything, finds the filesystem, and the server stops
/// saying so.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_moved_lease_is_no_loss() {
    const ID: [u8; 16] = [0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    let (has_moved, is_met) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let counts = Arc::<[AtomicU32; 3]>::default();
    let (moved, met, counted) = (has_moved.clone(), is_met.clone(), counts.clone());
    let server = OddServer::new(move |request| match request.operation {
        Op::Sequence if moved.load(SeqCst) && !met.load(SeqCst) => {
            let good = sequence(request.args);
            ScriptedAnswer::Ok(encoded(&Sequence4ResOk { status_flags: SEQ4_LEASE_MOVED, ..good }))
        }
        Op::Open => {
            counted[0].fetch_add(1, SeqCst);
            ScriptedAnswer::Ok(opened(ID, None))
        }
        Op::Getfh if request.compound.contains(&Op::Open) => {
            ScriptedAnswer::Ok(encoded(&xdr::Opaque::<128>(b"a file")))
        }
        Op::Getattr if request.compound.contains(&Op::Open) => {
            ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
        }
        // Behind a SEQUENCE and the PUTFH of the open file: the directory is asked for by nothing here.
        Op::Getattr if moved.load(SeqCst) && request.compound.len() == 3 => {
            match moved_to(&Decoder::new(request.args).get().unwrap(), 5) {
                Some(locations) => ScriptedAnswer::Ok(locations),
                None => {
                    counted[1].fetch_add(1, SeqCst);
                    met.store(true, SeqCst);
                    ScriptedAnswer::Status(Nfsstat4::Moved)
                }
            }
        }
        Op::ExchangeId | Op::TestStateid => {
            counted[2].fetch_add(1, SeqCst);
            ScriptedAnswer::Good
        }
        Op::Close => ScriptedAnswer::Ok(ID.to_vec()),
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().timeo(BOUND)).await.unwrap();
    let file = session.open(b"name", &OpenOptions::reading()).await.unwrap();
    has_moved.store(true, SeqCst);
    for _ in 0..10 {
        session.access(&session.root(), client::Access::READ).await.unwrap();
    }
    wait_for("the file's GETATTR", || is_met.load(SeqCst)).await;
    session.access(&session.root(), client::Access::READ).await.unwrap();
    let counts = || [0, 1, 2].map(|index| counts[index].load(SeqCst));
    assert_eq!(counts(), [1, 1, 1], "opened, asked for and exchanged once, and nothing tested");
    assert_eq!(server.shared.sessions.load(SeqCst), 1);
    assert!(is_moved(&session.attributes(&file.handle()).await.unwrap_err()));
}

/// A file is on another server when it is closed. The server hasn't looked at the CLOSEs behind its own.
#[tokio::test]
async fn a_moved_file_is_closed_with_others_of_other_filesystems() {
    const FILES: u8 = 5;
    let (opens, closes) = (Arc::new(AtomicU32::new(0)), Arc::<Mutex<Vec<u8>>>::default());
    let (count, log) = (opens.clone(), closes.clone());
    let server = OddServer::new(move |request| match request.operation {
        Op::Open => ScriptedAnswer::Ok(opened([count.fetch_add(1, SeqCst) as u8 + 1; 16], None)),
        Op::Getfh if request.compound.contains(&Op::Open) => {
            let handle = vec![b'h'; count.load(SeqCst) as usize];
            ScriptedAnswer::Ok(encoded(&xdr::Opaque::<128>(&handle)))
        }
        Op::Getattr if request.compound.contains(&Op::Open) => {
            ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
        }
        Op::Getattr => match moved_to(&Decoder::new(request.args).get().unwrap(), 5) {
            Some(locations) => ScriptedAnswer::Ok(locations),
            None => ScriptedAnswer::Good,
        },
        Op::Close => {
            let closes = request.compound.iter().filter(|operation| **operation == Op::Close).count();
            let file = request.args[4];
            log.lock().push(file);
            match file {
                1 => {
                    assert_eq!(closes, FILES as usize);
                    ScriptedAnswer::Status(Nfsstat4::Moved)
                }
                _ => ScriptedAnswer::Ok(vec![file; 16]),
            }
        }
        _ => ScriptedAnswer::Good,
    });
    let session = Session::connect(&server.url(), soft().timeo(BOUND)).await.unwrap();
    let mut files = Vec::new();
    for file in 0..FILES {
        files.push(session.open(&[b'a' + file], &OpenOptions::reading()).await.unwrap());
    }
    // This thread runs the task that sends CLOSEs, too: it begins when all files are closed.
    drop(files);
    wait_for("the CLOSEs", || closes.lock().len() >= FILES as usize).await;
    session.close().await;
    assert_eq!(*closes.lock(), (1..=FILES).collect::<Vec<_>>());
}

/// A server that delays the end of a session is asked again, and not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_end_of_a_session_that_is_delayed_is_asked_for_again() {
    for delays in [3, u32::MAX] {
        let counts = Arc::<[AtomicU32; 2]>::default();
        let counted = counts.clone();
        let server = OddServer::new(move |request| {
            let of = match request.operation {
                Op::DestroySession => &counted[0],
                Op::DestroyClientid => &counted[1],
                _ => return ScriptedAnswer::Good,
            };
            match of.fetch_add(1, SeqCst) < delays {
                true => ScriptedAnswer::Status(Nfsstat4::Delay),
                false => ScriptedAnswer::Good,
            }
        });
        let session = server.session().await;
        tokio::time::timeout(BOUND, session.close()).await.unwrap();
        let counts = [0, 1].map(|index| counts[index].load(SeqCst));
        match delays {
            3 => assert_eq!(counts, [4, 4]),
            _ => assert!(counts.iter().all(|count| (5..20).contains(count)), "{counts:?}"),
        }
    }
}

/// Every step of the state manager, and what isn't an operation of a file, is repeated while it is delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_step_of_a_session_that_is_delayed_is_repeated() {
    for delayed in [
        Op::ExchangeId,
        Op::CreateSession,
        Op::ReclaimComplete,
        Op::Putrootfh,
        Op::Getattr,
        Op::Access,
        Op::Readdir,
        Op::Lookup,
        Op::Open,
        Op::Close,
    ] {
        let left = AtomicU32::new(3);
        let server = OddServer::new(move |request| {
            if request.operation == delayed && left.load(SeqCst) > 0 {
                left.fetch_sub(1, SeqCst);
                return ScriptedAnswer::Status(Nfsstat4::Delay);
            }
            match request.operation {
                Op::Open => ScriptedAnswer::Ok(opened([7; 16], None)),
                Op::Close => ScriptedAnswer::Ok([7; 16].to_vec()),
                Op::Getattr if request.compound.contains(&Op::Open) => {
                    ScriptedAnswer::Ok(attributes_of(&Decoder::new(request.args).get().unwrap(), 1))
                }
                _ => ScriptedAnswer::Good,
            }
        });
        let options = soft().hard(true).timeo(BOUND).attempt_timeout(BOUND);
        let used = async {
            let session = Session::connect(&server.url(), options).await.unwrap();
            let root = session.root();
            session.attributes(&root).await.unwrap();
            session.access(&root, client::Access::READ).await.unwrap();
            session.lookup(&root, b"name").await.unwrap();
            session.read_dir(&root, Plus::None).collect().await.unwrap();
            session.exports().await.unwrap();
            let file = session.open(b"name", &OpenOptions::reading()).await.unwrap();
            file.close().await.unwrap();
            session.close().await;
        };
        assert!(tokio::time::timeout(BOUND + Duration::from_secs(1), used).await.is_ok(), "{delayed:?}");
    }
}
