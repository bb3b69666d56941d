//! Queries and changes, with processes that answer, that are dead, and that send too much.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use samehost_control::{MAX_REQUEST, MOUNT, Reply, SERVER, Socket, query, tell};

const ONE: &str = "00112233445566778899aabbccddeeff";
const OTHER: &str = "ffeeddccbbaa99887766554433221100";

/// A process with the status `name`, which accepts any string as a change.
fn process(dir: &Path, instance: &str, ending: &str, name: &'static str) -> Socket {
    Socket::start(dir, instance, ending, move |request| {
        let answer = match serde_json::from_slice::<String>(request) {
            _ if request.is_empty() => return serde_json::to_vec(name).ok(),
            Ok(change) => Reply::Done(format!("{name} does {change}")),
            Err(error) => Reply::Error { reason: error.to_string(), next: Some("write JSON".to_owned()) },
        };
        serde_json::to_vec(&answer).ok()
    })
    .unwrap()
}

#[test]
fn kinds_of_processes_are_queried_separately() {
    let scratch = tempfile::tempdir().unwrap();
    // Longer than a socket's address can be.
    let dir = scratch.path().join("d".repeat(120));
    std::fs::create_dir(&dir).unwrap();
    let (one, other) = (process(&dir, ONE, SERVER, "one"), process(&dir, OTHER, SERVER, "other"));
    let mount = process(&dir, ONE, MOUNT, "mount");
    let answers = |ending| -> Vec<String> {
        query(&dir, ending).unwrap().all().unwrap().into_iter().map(|asked| asked.answer).collect()
    };
    assert_eq!(answers(SERVER), ["one", "other"]);
    assert_eq!(answers(MOUNT), ["mount"]);
    assert_eq!(tell(mount.path(), &"this").unwrap(), Reply::Done("mount does this".to_owned()));
    let refused = tell(mount.path(), &7).unwrap();
    assert!(matches!(&refused, Reply::Error { next: Some(next), .. } if next == "write JSON"), "{refused:?}");
    assert_eq!(std::fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(other);
    assert_eq!(answers(SERVER), ["one"]);
}

#[test]
fn sockets_of_dead_processes_are_skipped_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join(format!("{OTHER}.{SERVER}"));
    drop(UnixListener::bind(&dead).unwrap());
    assert!(query::<String>(dir.path(), SERVER).unwrap().all().unwrap().is_empty());
    assert_eq!(tell(&dead, &1).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let _one = process(dir.path(), ONE, SERVER, "one");
    assert!(!dead.exists());
    assert!(query::<String>(&dir.path().join("none"), SERVER).is_err());
}

#[test]
fn silent_and_endless_clients_do_not_delay_others() {
    let dir = tempfile::tempdir().unwrap();
    let one = process(dir.path(), ONE, SERVER, "one");
    let silent: Vec<_> = (0..15).map(|_| UnixStream::connect(one.path()).unwrap()).collect();
    assert_eq!(query::<String>(dir.path(), SERVER).unwrap().answers[0].answer, "one");
    let mut endless = UnixStream::connect(one.path()).unwrap();
    // The connection is closed: before everything is written, or while an answer is awaited.
    let long = vec![b' '; MAX_REQUEST + 1];
    let cut = endless.write_all(&long).and_then(|()| endless.read_exact(&mut [0]));
    assert!(cut.is_err());
    drop(silent);
    assert_eq!(query::<String>(dir.path(), SERVER).unwrap().answers[0].answer, "one");
}

#[test]
fn a_hanging_process_is_reported_and_others_answer() {
    let dir = tempfile::tempdir().unwrap();
    let _one = process(dir.path(), ONE, SERVER, "one");
    // It listens, but doesn't accept.
    let hung = dir.path().join(format!("{OTHER}.{SERVER}"));
    let _listener = UnixListener::bind(&hung).unwrap();
    let asked = query::<String>(dir.path(), SERVER).unwrap();
    assert_eq!(asked.answers.iter().map(|asked| &asked.answer[..]).collect::<Vec<_>>(), ["one"]);
    let [silent] = &asked.silent[..] else { panic!("{asked:?}") };
    assert_eq!((&silent.path, silent.error.kind()), (&hung, io::ErrorKind::TimedOut));
    let pid = std::process::id().to_string();
    assert!(silent.error.to_string().contains(&pid), "{}", silent.error);
    assert_eq!(asked.all().unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_process_is_found_again_when_its_run_directory_was_made_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, other_dir) = (scratch.path().join("run"), scratch.path().join("other"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&other_dir).unwrap();
    let (one, other) = (process(&dir, ONE, SERVER, "one"), process(&other_dir, OTHER, SERVER, "other"));
    let heard = |dir: &Path| query::<String>(dir, SERVER).unwrap().all().unwrap();
    assert_eq!(heard(&dir)[0].answer, "one");
    std::fs::remove_dir_all(&dir).unwrap();
    // All users may write to the new directory, which they couldn't before.
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    // Both processes look for their files at the same intervals, so this one has looked meanwhile.
    for _ in 0..2 {
        std::fs::remove_file(other.path()).unwrap();
        wait_for("the other process", || !heard(&other_dir).is_empty());
    }
    assert!(heard(&dir).is_empty());
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    wait_for("the process", || !heard(&dir).is_empty());
    assert_eq!(heard(&dir)[0].answer, "one");
    assert_eq!(std::fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(one);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < until, "{what} didn't come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}
