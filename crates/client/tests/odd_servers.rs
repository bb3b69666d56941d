//! The client against servers that use unusual freedoms of RFC 1813, or violate it. Each test scripts the
//! replies of a procedure.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use proto::nfs3::{self, Fattr3, Ftype3, Nfsstat3, Nfstime3, Outcome, Procedure, Specdata3, StableHow};
use proto::nfsacl::{self, Getacl3Res, Getacl3ResOk, Secattr, Setacl3Args};
use proto::{localio, mount3};
use rpc::server::{CallError, ProgramFn, Reply, Server};
use samehost_client as client;
use xdr::{Array, Decoder, List, Opaque};

use client::{
    Error, Handle, OpenOptions, Operation, Options, Session, SetAcl, Stability, Status, Url, Version,
};
use support::Served;

fn attributes(kind: Ftype3, size: u64) -> Fattr3 {
    let time = Nfstime3 { seconds: 1, nseconds: u32::MAX };
    Fattr3 {
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size,
        used: size,
        rdev: Specdata3::default(),
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

const HANDLE: &[u8] = b"a handle";

/// A server whose NFS replies come from `script`. Procedures that the script calls unavailable get an
/// ordinary reply. MOUNT and LOCALIO work. It has only NFSv3, so the session, whose
/// version is the default, uses that.
async fn odd(
    script: impl Fn(Procedure, &mut Decoder<'_>, &mut Reply) -> Result<(), CallError> + Send + Sync + 'static,
) -> (Server, Session) {
    let server = serve(0, script);
    let port = server.local_addrs()[0].port();
    let empty = tempfile::tempdir().unwrap();
    let options = Options::new()
        .run_dir(empty.path())
        .search_namespaces(false)
        .hard(false)
        .timeo(Duration::from_secs(20));
    let session = Session::connect(&Url::new("127.0.0.1", Some(port), b"/odd"), options).await.unwrap();
    assert!(!session.lane().local && session.version() == Version::V3);
    (server, session)
}

/// Starts the server on this port; 0 for any.
fn serve(
    port: u16,
    script: impl Fn(Procedure, &mut Decoder<'_>, &mut Reply) -> Result<(), CallError> + Send + Sync + 'static,
) -> Server {
    let mount = ProgramFn::new(mount3::PROGRAM, 3..=3, |_, _, args, reply| {
        // As on Linux, the path may name a file, too. UMNT gets the same reply, which the client ignores.
        let path: mount3::Dirpath<'_> = args.get().unwrap_or(Opaque(b""));
        let fhandle = Opaque(if path.0.ends_with(b"/file") { b"a file" } else { HANDLE });
        let ok = mount3::Mountres3Ok { fhandle, auth_flavors: Array(vec![1]) };
        reply.encoder().put(&mount3::Mountres3::Ok(ok));
        Ok(())
    });
    let nfs = ProgramFn::new(nfs3::PROGRAM, 3..=3, move |_, procedure, args, reply| {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        match script(procedure, args, reply) {
            Err(CallError::ProcedureUnavailable) => {}
            done => return done,
        }
        let to = reply.encoder();
        match procedure {
            Procedure::Fsinfo => to.put(&Outcome::<_, nfs3::PostOpAttr>::Ok(nfs3::Fsinfo3ResOk {
                obj_attributes: None,
                rtmax: 1 << 20,
                rtpref: 4096,
                rtmult: 1,
                wtmax: 1 << 20,
                wtpref: 4096,
                wtmult: 1,
                dtpref: 0,
                maxfilesize: u64::MAX,
                time_delta: Nfstime3::default(),
                properties: 0,
            })),
            Procedure::Lookup => to.put(&Outcome::<_, nfs3::PostOpAttr>::Ok(nfs3::Lookup3ResOk {
                object: Opaque(b"a file"),
                obj_attributes: None,
                dir_attributes: None,
            })),
            Procedure::Getattr => {
                let asked: nfs3::Getattr3Args<'_> = args.get().expect("a handle");
                let kind = if asked.object.0 == HANDLE { Ftype3::Dir } else { Ftype3::Reg };
                to.put(&Outcome::<_, ()>::Ok(attributes(kind, 10)));
            }
            _ => return Err(CallError::ProcedureUnavailable),
        }
        Ok(())
    });
    // As nfs-ganesha 4.3: a list without entries can't be decoded.
    let nfsacl = ProgramFn::new(nfsacl::PROGRAM, 3..=3, |_, procedure, args, reply| {
        if procedure != nfsacl::Procedure::Getacl.number() {
            let asked: Setacl3Args<'_> = args.get().expect("lists");
            assert!(asked.lists.default.0.is_empty());
            return Err(CallError::GarbageArguments);
        }
        let lists =
            Secattr { mask: 0, acl_count: 0, acl: Array(vec![]), default_count: 0, default: Array(vec![]) };
        let attributes = Some(attributes(Ftype3::Dir, 10));
        reply.encoder().put(&Getacl3Res::Ok(Getacl3ResOk { attributes, lists }));
        Ok(())
    });
    // It accepts every nonce, and offers no lane.
    let localio = ProgramFn::new(localio::PROGRAM, 1..=1, |_, _, _, _| Ok(()));
    Server::builder()
        .program(Arc::new(mount))
        .program(Arc::new(nfs))
        .program(Arc::new(nfsacl))
        .program(Arc::new(localio))
        .bind(SocketAddr::from(([127, 0, 0, 1], port)))
        .start()
        .unwrap()
}

/// If the path is a file, the session mounts the directory above it, so that every command finds the file by
/// name.
#[tokio::test]
async fn a_server_that_mounts_files_is_mounted_above_them() {
    let server = serve(0, |_, _, _| Err(CallError::ProcedureUnavailable));
    let port = server.local_addrs()[0].port();
    let empty = tempfile::tempdir().unwrap();
    let options = Options::new().run_dir(empty.path()).search_namespaces(false).hard(false);
    for (path, mounted, target) in
        [("/odd", "/odd", ""), ("/odd/file", "/odd", "file"), ("/odd/a/file/", "/odd/a", "file/")]
    {
        let url = Url::new("127.0.0.1", Some(port), path.as_bytes());
        let session = Session::connect(&url, options.clone()).await.unwrap();
        assert_eq!(session.root().as_bytes(), HANDLE, "{path}");
        assert_eq!((session.mounted(), session.target()), (mounted.as_bytes(), target.as_bytes()), "{path}");
    }
}

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

/// A successful UUID_IS_LOCAL is no proof: there is no lane, and the report has a reason.
#[tokio::test]
async fn a_server_that_accepts_every_nonce_is_not_local() {
    let (_server, session) = odd(|_, _, _| Err(CallError::ProcedureUnavailable)).await;
    let report = session.probe().await;
    assert!(!report.local && !report.reasons.is_empty(), "{report:?}");
    assert_eq!(session.sizes().dir_preferred, 0);
    assert_eq!(session.transfer_sizes(), (4096, 4096));
}

#[tokio::test]
async fn short_reads_and_writes_are_continued() {
    let written = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let store = written.clone();
    let (_server, session) = odd(move |procedure, args, reply| match procedure {
        Procedure::Read => {
            let args: nfs3::Read3Args<'_> = args.get()?;
            // A file of 1000 bytes, at most 7 in a reply.
            let end = 1000.min(args.offset + u64::from(args.count)).min(args.offset + 7);
            let data: Vec<u8> = (args.offset..end.max(args.offset)).map(|at| at as u8).collect();
            let ok = nfs3::Read3ResOk {
                attributes: None,
                count: data.len() as u32,
                eof: end == 1000,
                data: Opaque(&data),
            };
            reply.encoder().put(&Outcome::<_, nfs3::PostOpAttr>::Ok(ok));
            Ok(())
        }
        Procedure::Write => {
            let args: nfs3::Write3Args<'_> = args.get()?;
            let some = args.data.0.len().div_ceil(2);
            let mut store = store.lock();
            let at = args.offset as usize;
            let len = store.len().max(at + some);
            store.resize(len, 0);
            store[at..at + some].copy_from_slice(&args.data.0[..some]);
            let ok = nfs3::Write3ResOk {
                file_wcc: nfs3::WccData::default(),
                count: some as u32,
                committed: StableHow::FileSync,
                verf: [0; 8],
            };
            reply.encoder().put(&Outcome::<_, nfs3::WccData>::Ok(ok));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    let file = session.open(b"file", &both()).await.unwrap();
    let data = file.read_into(Vec::new(), 0, 5000).await.unwrap();
    assert_eq!(data, (0..1000_u32).map(|at| at as u8).collect::<Vec<u8>>());
    file.write_at(&data, 0).await.unwrap();
    assert_eq!(*written.lock(), data);
    file.commit().await.unwrap();
    assert_eq!(session.counters().calls(client::Operation::Commit), 0, "it was all FILE_SYNC");
}

/// The client can't tell such a file from a longer one, of which the rest would be lost in a copy.
#[tokio::test]
async fn a_read_without_data_is_an_error_unless_the_file_ends() {
    let (_server, session) = odd(move |procedure, args, reply| match procedure {
        Procedure::Read => {
            let args: nfs3::Read3Args<'_> = args.get()?;
            let data = if args.offset == 0 { &[7; 10][..] } else { &[] };
            let (count, data) = (data.len() as u32, Opaque(data));
            let ok = nfs3::Read3ResOk { attributes: None, count, eof: args.offset >= 100, data };
            reply.encoder().put(&Outcome::<_, nfs3::PostOpAttr>::Ok(ok));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    let file = session.open(b"file", &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.read_into(Vec::new(), 0, 10).await.unwrap(), [7; 10]);
    assert!(file.read_into(Vec::new(), 100, 10).await.unwrap().is_empty());
    for (offset, len) in [(0, 20), (10, 1), (0, 5000), (0, 3 << 20)] {
        let error = file.read_into(Vec::new(), offset, len).await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
}

#[tokio::test]
async fn replies_with_wrong_lengths_are_errors() {
    let lie = Arc::new(AtomicU64::new(0));
    let which = lie.clone();
    let (_server, session) = odd(move |procedure, args, reply| match procedure {
        Procedure::Read => {
            let args: nfs3::Read3Args<'_> = args.get()?;
            let data = vec![0; args.count as usize + if which.load(SeqCst) == 1 { 8 } else { 0 }];
            let count = if which.load(SeqCst) == 0 { 1 } else { data.len() as u32 };
            let ok = nfs3::Read3ResOk { attributes: None, count, eof: true, data: Opaque(&data) };
            reply.encoder().put(&Outcome::<_, nfs3::PostOpAttr>::Ok(ok));
            Ok(())
        }
        Procedure::Write => {
            let count = if which.load(SeqCst) == 0 { 0 } else { u32::MAX };
            let ok = nfs3::Write3ResOk {
                file_wcc: nfs3::WccData::default(),
                count,
                committed: StableHow::Unstable,
                verf: [0; 8],
            };
            reply.encoder().put(&Outcome::<_, nfs3::WccData>::Ok(ok));
            Ok(())
        }
        Procedure::Getattr => {
            reply.encoder().raw(&[0, 0, 0, 0, 0, 0, 0, 99]);
            Ok(())
        }
        Procedure::Access => {
            reply.encoder().raw(&[0, 0, 0x77, 0x77]);
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    let handle = Handle::new(b"x").unwrap();
    let file = session.open_handle(&handle, b"it", &both()).await.unwrap();
    for lies in 0..2 {
        lie.store(lies, SeqCst);
        for len in [16, 40_000] {
            let error = file.read_into(Vec::new(), 0, len).await.unwrap_err();
            assert!(matches!(error, Error::Protocol { .. } | Error::Rpc { .. }), "{error}");
        }
        let error = file.write_at(b"data", 0).await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
    let error = session.attributes(&handle).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    let error = session.access(&handle, client::Access::READ).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

/// A server whose write verifier changes with every reply never makes data durable. That is an error, not an
/// endless loop.
#[tokio::test]
async fn a_write_verifier_that_always_changes_is_an_error() {
    let clock = AtomicU64::new(0);
    let (_server, session) = odd(move |procedure, args, reply| {
        let verf = clock.fetch_add(1, SeqCst).to_be_bytes();
        match procedure {
            Procedure::Write => {
                let args: nfs3::Write3Args<'_> = args.get()?;
                let count = args.data.0.len() as u32;
                // Less durable than requested.
                let ok = nfs3::Write3ResOk {
                    file_wcc: nfs3::WccData::default(),
                    count,
                    committed: StableHow::Unstable,
                    verf,
                };
                reply.encoder().put(&Outcome::<_, nfs3::WccData>::Ok(ok));
            }
            Procedure::Commit => {
                let ok = nfs3::Commit3ResOk { file_wcc: nfs3::WccData::default(), verf };
                reply.encoder().put(&Outcome::<_, nfs3::WccData>::Ok(ok));
            }
            _ => return Err(CallError::ProcedureUnavailable),
        }
        Ok(())
    })
    .await;
    let file = session.open(b"file", &both()).await.unwrap();
    let error = file.write_stable(Bytes::from_static(b"data"), 0, Stability::FileSync).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    assert!(session.counters().events.bytes_resent >= 4);
}

/// Of two COMMITs the first fails, and the second succeeds with the same write verifier: the kernel has told
/// the server of the lost data once. The data is durable after it was written again.
#[tokio::test]
async fn data_of_a_commit_that_failed_is_written_again() {
    let (writes, commits) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (writes.clone(), commits.clone());
    let (_server, session) = odd(move |procedure, args, reply| {
        match procedure {
            Procedure::Write => {
                counts.0.fetch_add(1, SeqCst);
                let args: nfs3::Write3Args<'_> = args.get()?;
                let ok = nfs3::Write3ResOk {
                    file_wcc: nfs3::WccData::default(),
                    count: args.data.0.len() as u32,
                    committed: StableHow::Unstable,
                    verf: [0; 8],
                };
                reply.encoder().put(&Outcome::<_, nfs3::WccData>::Ok(ok));
            }
            Procedure::Commit => {
                let wcc = nfs3::WccData::default();
                let ok = nfs3::Commit3ResOk { file_wcc: wcc, verf: [0; 8] };
                let is_first = counts.1.fetch_add(1, SeqCst) == 0;
                let outcome = if is_first { Outcome::Fail(Nfsstat3::Io, wcc) } else { Outcome::Ok(ok) };
                reply.encoder().put(&outcome);
            }
            _ => return Err(CallError::ProcedureUnavailable),
        }
        Ok(())
    })
    .await;
    let file = session.open(b"file", &both()).await.unwrap();
    file.write_at(b"data", 0).await.unwrap();
    assert_eq!(file.commit().await.unwrap_err().status(), Some(Status::Io));
    assert_eq!(writes.load(SeqCst), 1);
    file.commit().await.unwrap();
    assert_eq!((writes.load(SeqCst), commits.load(SeqCst)), (2, 3), "written again, and committed then");
    file.commit().await.unwrap();
    assert_eq!(commits.load(SeqCst), 3, "nothing is left to be committed");
}

#[tokio::test]
async fn jukebox_is_retried_and_in_the_end_an_error_of_a_soft_session() {
    let asked = AtomicU64::new(0);
    let (_server, session) = odd(move |procedure, _, reply| match procedure {
        Procedure::Getattr => {
            // The first is the one of the connect, which doesn't need the attributes.
            let result = if asked.fetch_add(1, SeqCst) < 3 {
                Outcome::Fail(Nfsstat3::Jukebox, ())
            } else {
                Outcome::Ok(attributes(Ftype3::Reg, 5))
            };
            reply.encoder().put(&result);
            Ok(())
        }
        Procedure::Remove => {
            let wcc = nfs3::WccData::default();
            reply.encoder().put(&Outcome::<nfs3::WccData, _>::Fail(Nfsstat3::Jukebox, wcc));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    let root = session.root();
    let found = session.attributes(&root).await.unwrap();
    assert_eq!((found.size, found.mtime.nanoseconds), (5, 999_999_999));
    assert_eq!(session.counters().calls(client::Operation::Getattr), 3, "two were put off");
    assert_eq!(session.remove(&root, b"x").await.unwrap_err().status(), Some(Status::TryLater));
}

/// A listing in pages of three names, whose cookies become invalid twice. It uses READDIR, since the server
/// has no READDIRPLUS.
#[tokio::test]
async fn a_listing_starts_over_and_repeats_no_name() {
    let lost = AtomicU64::new(0);
    let (_server, session) = odd(move |procedure, args, reply| match procedure {
        Procedure::Readdirplus => {
            reply.encoder().put(&Outcome::<(), nfs3::PostOpAttr>::Fail(Nfsstat3::Notsupp, None));
            Ok(())
        }
        Procedure::Readdir => {
            let args: nfs3::Readdir3Args<'_> = args.get()?;
            let losses = lost.load(SeqCst);
            if args.cookie >= 6 && losses < 2 {
                lost.store(losses + 1, SeqCst);
                reply.encoder().put(&Outcome::<(), nfs3::PostOpAttr>::Fail(Nfsstat3::BadCookie, None));
                return Ok(());
            }
            let names = [&b"."[..], b"..", b"a", b"b/c", b"\xff\xfe", b"d", b"e", b"f\0", b"g"];
            let from = args.cookie as usize;
            let to = names.len().min(from + 3);
            let entries = (from..to).map(|index| nfs3::Entry3 {
                fileid: 1,
                name: Opaque(names[index]),
                cookie: index as u64 + 1,
            });
            let head = nfs3::ReaddirHead { dir_attributes: None, cookieverf: [losses as u8; 8] };
            let list = nfs3::Dirlist3 { entries: List(entries.collect()), eof: to == names.len() };
            let ok = nfs3::Readdir3ResOk { head, reply: list };
            reply.encoder().put(&Outcome::<_, nfs3::PostOpAttr>::Ok(ok));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    let all = session.read_dir(&session.root(), client::Plus::All).collect().await.unwrap();
    let names: Vec<&[u8]> = all.iter().map(|entry| &entry.name[..]).collect();
    // Names that a directory can't contain are left out: a caller might use them as a path out of it.
    assert_eq!(names, [&b"a"[..], b"\xff\xfe", b"d", b"e", b"g"]);
}

#[tokio::test]
async fn an_endless_listing_is_an_error() {
    let page = Arc::new(AtomicU64::new(0));
    let which = page.clone();
    let (_server, session) = odd(move |procedure, args, reply| match procedure {
        Procedure::Readdir => {
            let _: nfs3::Readdir3Args<'_> = args.get()?;
            let entry = nfs3::Entry3 { fileid: 1, name: Opaque(b"same"), cookie: 9 };
            let entries = if which.load(SeqCst) == 0 { vec![] } else { vec![entry] };
            let head = nfs3::ReaddirHead { dir_attributes: None, cookieverf: [0; 8] };
            let list = nfs3::Dirlist3 { entries: List(entries), eof: false };
            let ok = nfs3::Readdir3ResOk { head, reply: list };
            reply.encoder().put(&Outcome::<_, nfs3::PostOpAttr>::Ok(ok));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    for kind in 0..2 {
        page.store(kind, SeqCst);
        let error = session.read_dir(&session.root(), client::Plus::None).collect().await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
}

/// The reply to CREATE need not contain the handle (RFC 1813 section 3.3.8).
#[tokio::test]
async fn a_new_file_without_a_handle_is_looked_up() {
    let (_server, session) = odd(|procedure, _, reply| match procedure {
        Procedure::Mkdir => {
            let new = nfs3::NewObject3 { obj: None, obj_attributes: None, dir_wcc: nfs3::WccData::default() };
            reply.encoder().put(&Outcome::<_, nfs3::WccData>::Ok(new));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    })
    .await;
    let made = session.make_dir(&session.root(), b"new", &client::SetAttributes::default()).await.unwrap();
    assert_eq!(made.handle.as_bytes(), b"a file");
}

/// A peer that accepts connections and never replies is no NFS server. Even the connect of a hard session
/// fails in time.
#[tokio::test]
async fn even_a_hard_session_gives_up_connecting_to_a_peer_that_never_replies() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = Url::new("127.0.0.1", Some(listener.local_addr().unwrap().port()), b"/x");
    let timeo = Duration::from_millis(50);
    let options = Options::new().attempt_timeout(Duration::from_millis(300)).timeo(timeo).retrans(0);
    let error = Session::connect(&url, options).await.unwrap_err();
    assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
    assert_eq!(error.errno(), rustix::io::Errno::TIMEDOUT.raw_os_error());
}

/// After a lane was established, fsync(2) of a directory is a COMMIT, which only our server accepts for a
/// directory. Another server at the same address since then makes changes durable before it replies.
#[tokio::test]
async fn a_directory_is_synced_with_a_server_that_commits_only_files() {
    let mut served = Served::with_lane();
    let options = served.options(client::LaneMode::Required).version(client::Version::V3);
    let session = Session::connect(&served.url(), options).await.unwrap();
    session.set_lane_mode(client::LaneMode::Auto);
    served.kill();
    let says = Arc::new(parking_lot::Mutex::new(Nfsstat3::Isdir));
    let said = says.clone();
    let _server = serve(served.port(), move |procedure, _, reply| match procedure {
        Procedure::Commit => {
            reply
                .encoder()
                .put(&Outcome::<nfs3::Commit3ResOk, _>::Fail(*said.lock(), nfs3::WccData::default()));
            Ok(())
        }
        _ => Err(CallError::ProcedureUnavailable),
    });
    let root = session.root();
    for status in [Nfsstat3::Isdir, Nfsstat3::Inval, Nfsstat3::Notsupp, Nfsstat3::Badtype] {
        *says.lock() = status;
        session.sync_metadata(&root).await.unwrap_or_else(|error| panic!("{status:?}: {error}"));
    }
    assert_eq!(session.counters().calls(client::Operation::Commit), 4);
    *says.lock() = Nfsstat3::Io;
    let error = session.sync_metadata(&root).await.expect_err("the directory isn't durable");
    assert_eq!(error.status(), Some(Status::Io));
}

/// Trying again doesn't help, and setfacl(1) ignores ENOTSUP when it removes a default list.
#[tokio::test]
async fn a_server_that_cannot_decode_lists_has_none_to_set() {
    let (_server, session) = odd(|_, _, _| Err(CallError::ProcedureUnavailable)).await;
    let root = session.root();
    let list = session.acls(&root).await.unwrap().access;
    for (change, status) in
        [(SetAcl::Access(list.clone()), Status::NotSupported), (SetAcl::Default(None), Status::NotPermitted)]
    {
        assert_eq!(session.set_acl(&root, &change).await.unwrap_err().status(), Some(status));
    }
    assert_eq!(session.counters().calls(Operation::Setacl), 2);
}
