//! `vers=highest`: a session has the highest version that the server has for the URL's path.

mod support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use proto::nfs4::{Nfsstat4, Operation};
use samehost_client as client;
use support::Served;
use support::odd_v4::{OddServer, ScriptedAnswer, soft};

use client::{LaneMode, OpenOptions, Session, Url, Version};

/// A session over the wire, by the highest version.
async fn session(served: &Served, url: &Url) -> client::Result<Session> {
    Session::connect(url, served.options(LaneMode::Off).version(Version::Highest)).await
}

fn url_of(served: &Served, path: &Path) -> Url {
    served.url().with_path(path.as_os_str().as_encoded_bytes())
}

#[tokio::test]
async fn the_highest_version_of_this_server_is_used() {
    let served = Served::wire_only();
    assert_eq!(session(&served, &served.url()).await.unwrap().version(), Version::V4_2);
    let refused = session(&served, &served.url().with_path(b"/elsewhere")).await.unwrap_err();
    assert!(matches!(refused, client::Error::Mount { .. }));
    assert_eq!(refused.to_string().matches("no such export").count(), 1, "{refused}");
}

/// With `fsid=0` the root of NFSv4 is an export, and NFSv3's paths aren't NFSv4's.
#[tokio::test]
async fn paths_that_only_nfs3_has_are_mounted_by_it() {
    let mut served = Served::wire_only();
    let (export, other) = (served.export(), served.export().with_file_name("other"));
    for directory in [&export.join("inside"), &other] {
        fs::create_dir(directory).unwrap();
    }
    served.reload_lines(&format!(
        "{} *(rw,insecure,no_root_squash,fsid=0)\n{} *(rw,insecure,no_root_squash)\n",
        export.display(),
        other.display()
    ));
    for directory in [export.clone(), export.join("inside"), other] {
        let by_3 = session(&served, &url_of(&served, &directory)).await.unwrap();
        assert_eq!((by_3.version(), by_3.target()), (Version::V3, &b""[..]), "{directory:?}");
        by_3.open(b"file", &OpenOptions::replacing()).await.unwrap();
        assert!(directory.join("file").exists());
        by_3.close().await;
    }
    for (path, target) in [("/", ""), ("/inside", ""), ("/inside/file", "file"), ("/new", "new")] {
        let by_4 = session(&served, &url_of(&served, Path::new(path))).await.unwrap();
        assert_eq!((by_4.version(), by_4.target()), (Version::V4_2, target.as_bytes()), "{path}");
    }
}

/// NFSv3 follows where the server doesn't have NFSv4.1, or the path by it, and after no other
/// failure: its locks would be this host's.
#[tokio::test]
async fn only_what_is_lacking_by_nfs4_is_looked_for_by_nfs3() {
    use Nfsstat4 as S;
    // What the server answers to a path below its root, which isn't writable; `None`: nothing.
    let attempt = async |answers: &'static [(Operation, Option<S>)]| {
        let odd = OddServer::new(move |request| {
            let answer = answers.iter().find(|(operation, _)| *operation == request.operation);
            match answer {
                Some((_, Some(status))) => ScriptedAnswer::Status(*status),
                Some((_, None)) => ScriptedAnswer::Silence,
                None if request.operation == Operation::Access => ScriptedAnswer::Ok(vec![0; 8]),
                None => ScriptedAnswer::Good,
            }
        });
        let options = soft().version(Version::Highest);
        let error = Session::connect(&odd.url().with_path(b"/directory"), options).await.unwrap_err();
        (odd.shared.mounts.load(SeqCst), error)
    };
    let lacking: [&[_]; 8] = [
        &[(Operation::ExchangeId, Some(S::MinorVersMismatch))],
        &[(Operation::ExchangeId, Some(S::Perm))],
        &[(Operation::CreateSession, Some(S::Inval))],
        &[(Operation::Putrootfh, Some(S::Noent))],
        &[(Operation::Putrootfh, Some(S::Wrongsec))],
        &[(Operation::Lookup, Some(S::Noent))],
        &[(Operation::Lookup, Some(S::Access))],
        &[(Operation::Lookup, Some(S::Noent)), (Operation::Access, Some(S::Access))],
    ];
    for answers in lacking {
        let (mounts, error) = attempt(answers).await;
        assert_eq!(mounts, 1, "{answers:?}: {error}");
    }
    let failing: [&[_]; 7] = [
        &[(Operation::ExchangeId, Some(S::Serverfault))],
        &[(Operation::CreateSession, Some(S::ClidInuse))],
        &[(Operation::Putrootfh, Some(S::Io))],
        &[(Operation::Putrootfh, Some(S::Moved))],
        &[(Operation::Putrootfh, Some(S::Delay))],
        &[(Operation::Lookup, Some(S::Delay))],
        &[(Operation::Lookup, Some(S::Noent)), (Operation::Access, Some(S::Delay))],
    ];
    for answers in failing {
        let (mounts, error) = attempt(answers).await;
        assert_eq!((mounts, error.is_timeout()), (0, false), "{answers:?}: {error}");
    }
    let silent: [&[_]; 3] = [
        &[(Operation::ExchangeId, None)],
        &[(Operation::Putrootfh, None)],
        &[(Operation::Lookup, Some(S::Noent)), (Operation::Access, None)],
    ];
    for answers in silent {
        let (mounts, error) = attempt(answers).await;
        assert_eq!((mounts, error.is_timeout()), (0, true), "{answers:?}: {error}");
    }
}

/// A server that has to ask somebody for a host's exports first delays the client: it connects then.
#[tokio::test]
async fn a_delayed_walk_is_repeated() {
    let delays = AtomicU32::new(0);
    let odd = OddServer::new(move |request| match request.operation {
        Operation::Putrootfh | Operation::Lookup if delays.fetch_add(1, SeqCst) < 3 => {
            ScriptedAnswer::Status(Nfsstat4::Delay)
        }
        _ => ScriptedAnswer::Good,
    });
    let options = soft().hard(true).version(Version::Highest);
    let session = Session::connect(&odd.url().with_path(b"/directory"), options).await.unwrap();
    assert_eq!(session.version(), Version::V4_2);
    session.close().await;
}
