//! Queries and changes, with processes that answer, that are dead, and that send too much.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use samehost_control::ProcessKind::{self, Mount, Server};
use samehost_control::{
    AskError, ControlAnswer, LateAnswer, MAX_REQUEST, MAX_SOCKETS_OF_USER, ProcessSocket, Reply, Socket,
    SocketDirectory, query, query_all, tell,
};

const ONE: &str = "00112233445566778899aabbccddeeff";
const OTHER: &str = "ffeeddccbbaa99887766554433221100";

/// A process with the status `name`, which accepts any string as a change.
fn process(dir: &Path, instance: &str, kind: ProcessKind, name: &'static str) -> Socket {
    Socket::start(dir, instance, kind, move |request| {
        let answer = match serde_json::from_slice::<String>(request) {
            _ if request.is_empty() => return ControlAnswer::now(&name),
            Ok(change) => Reply::Done(format!("{name} does {change}")),
            Err(error) => Reply::Error { reason: error.to_string(), next: Some("write JSON".to_owned()) },
        };
        ControlAnswer::now(&answer)
    })
    .unwrap()
}

/// The path of a process's socket.
fn socket_of(dir: &Path, instance: &str, kind: ProcessKind) -> PathBuf {
    dir.join(format!("{instance}.{}", kind.suffix()))
}

/// A process that sends `piece` as long as somebody reads it, with `pause` after each.
fn endless(path: &Path, piece: Vec<u8>, pause: Duration) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            while stream.write_all(&piece).is_ok() {
                std::thread::sleep(pause);
            }
        }
    });
}

#[test]
fn kinds_of_processes_are_queried_separately() {
    let scratch = tempfile::tempdir().unwrap();
    // Longer than a socket's address can be.
    let dir = scratch.path().join("d".repeat(120));
    std::fs::create_dir(&dir).unwrap();
    let (one, other) = (process(&dir, ONE, Server, "one"), process(&dir, OTHER, Server, "other"));
    let mount = process(&dir, ONE, Mount, "mount");
    let answers = |kind| -> Vec<String> {
        query(&dir, kind).unwrap().all().unwrap().into_iter().map(|asked| asked.answer).collect()
    };
    assert_eq!(answers(Server), ["one", "other"]);
    assert_eq!(answers(Mount), ["mount"]);
    let socket = query::<String>(&dir, Mount).unwrap().answers.pop().unwrap().socket;
    assert_eq!(socket.path(), mount.path());
    assert_eq!(tell(&socket, &"this", || ()).unwrap(), Reply::Done("mount does this".to_owned()));
    let refused = tell(&socket, &7, || ()).unwrap();
    assert!(matches!(&refused, Reply::Error { next: Some(next), .. } if next == "write JSON"), "{refused:?}");
    assert_eq!(std::fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(other);
    assert_eq!(answers(Server), ["one"]);
}

#[test]
fn sockets_of_dead_processes_are_skipped_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dead = socket_of(dir.path(), OTHER, Server);
    let file = socket_of(dir.path(), &OTHER.replace('f', "e"), Server);
    std::fs::write(&file, "kept").unwrap();
    let other = process(dir.path(), OTHER, Server, "other");
    let socket = query::<String>(dir.path(), Server).unwrap().answers.pop().unwrap().socket;
    drop(other);
    drop(UnixListener::bind(&dead).unwrap());
    assert!(query::<String>(dir.path(), Server).unwrap().all().unwrap().is_empty());
    assert!(tell(&socket, &1, || ()).unwrap_err().is_gone());
    let _one = process(dir.path(), ONE, Server, "one");
    assert!(!dead.exists());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    assert!(query::<String>(&dir.path().join("none"), Server).is_err());
}

#[test]
fn silent_and_endless_clients_do_not_delay_others() {
    let dir = tempfile::tempdir().unwrap();
    let one = process(dir.path(), ONE, Server, "one");
    let silent: Vec<_> = (0..15).map(|_| UnixStream::connect(one.path()).unwrap()).collect();
    assert_eq!(query::<String>(dir.path(), Server).unwrap().answers[0].answer, "one");
    let mut endless = UnixStream::connect(one.path()).unwrap();
    // The connection is closed: before everything is written, or while an answer is awaited.
    let long = vec![b' '; MAX_REQUEST + 1];
    let cut = endless.write_all(&long).and_then(|()| endless.read_exact(&mut [0]));
    assert!(cut.is_err());
    drop(silent);
    assert_eq!(query::<String>(dir.path(), Server).unwrap().answers[0].answer, "one");
}

#[test]
fn a_hanging_process_is_reported_and_others_answer() {
    let dir = tempfile::tempdir().unwrap();
    let _one = process(dir.path(), ONE, Server, "one");
    // It listens, but doesn't accept.
    let hung = socket_of(dir.path(), OTHER, Server);
    let _listener = UnixListener::bind(&hung).unwrap();
    let asked = query::<String>(dir.path(), Server).unwrap();
    assert_eq!(asked.answers.iter().map(|asked| &asked.answer[..]).collect::<Vec<_>>(), ["one"]);
    let [silent] = &asked.silent[..] else { panic!("{asked:?}") };
    assert_eq!(&silent.path, &hung);
    assert!(matches!(silent.error, AskError::TimedOut { .. }), "{silent:?}");
    let pid = std::process::id().to_string();
    assert!(silent.error.to_string().contains(&pid), "{}", silent.error);
    assert_eq!(asked.all().unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn an_answer_in_many_small_pieces_takes_no_longer_than_another() {
    let dir = tempfile::tempdir().unwrap();
    endless(&socket_of(dir.path(), ONE, Server), b" ".to_vec(), Duration::from_millis(100));
    let asked = query::<String>(dir.path(), Server).unwrap();
    assert!(matches!(asked.silent[0].error, AskError::TimedOut { .. }), "{asked:?}");
}

#[test]
fn an_endless_answer_is_not_read_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    endless(&socket_of(dir.path(), ONE, Mount), vec![b' '; 1 << 16], Duration::ZERO);
    let asked = query::<String>(dir.path(), Mount).unwrap();
    let most = Mount.max_reply();
    assert!(matches!(asked.silent[0].error, AskError::TooLong { most: bound } if bound == most), "{asked:?}");
}

/// What a process says when it accepts a change extends no query.
#[test]
fn a_query_waits_for_no_result_that_is_promised() {
    let dir = tempfile::tempdir().unwrap();
    let (_hostile, promises) = slow_process(dir.path(), |_| true);
    let asked = query::<String>(dir.path(), Server).unwrap();
    assert!(matches!(asked.silent[0].error, AskError::TimedOut { .. }), "{asked:?}");
    drop(promises);
}

/// A process that hands the connections of these requests over to the caller, and its socket.
fn slow_process(
    dir: &Path,
    is_slow: impl Fn(&[u8]) -> bool + Send + 'static,
) -> (Socket, Receiver<LateAnswer>) {
    let (late, changes) = sync_channel(1);
    let answer = move |request: &[u8]| {
        if is_slow(request) { ControlAnswer::Later(late.clone()) } else { ControlAnswer::now(&"slow") }
    };
    (Socket::start(dir, ONE, Server, answer).unwrap(), changes)
}

/// The socket of the only server.
fn only_socket(dir: &Path) -> ProcessSocket {
    query::<String>(dir, Server).unwrap().answers.pop().unwrap().socket
}

#[test]
fn the_result_of_a_change_is_awaited_and_others_are_answered_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (_process, changes) = slow_process(dir.path(), |request| !request.is_empty());
    let (waits, waiting) = sync_channel(16);
    let socket = only_socket(dir.path());
    let client = std::thread::spawn(move || {
        tell(&socket, &"this", || {
            let _ = waits.try_send(());
        })
    });
    let late = changes.recv_timeout(Duration::from_secs(60)).unwrap();
    // Longer than an answer may take otherwise.
    for _ in 0..2 {
        waiting.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    assert_eq!(query::<String>(dir.path(), Server).unwrap().answers[0].answer, "slow");
    late.send(&Reply::Done("done".to_owned())).unwrap();
    assert_eq!(client.join().unwrap().unwrap(), Reply::Done("done".to_owned()));
}

/// Root changes the mounts of hostile users, too.
#[test]
fn a_mount_that_promises_a_result_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (late, promises) = sync_channel(1);
    let answer = move |request: &[u8]| match request {
        [] => ControlAnswer::now(&"mount"),
        _ => ControlAnswer::Later(late.clone()),
    };
    let _hostile = Socket::start(dir.path(), ONE, Mount, answer).unwrap();
    let socket = query::<String>(dir.path(), Mount).unwrap().answers.pop().unwrap().socket;
    let error = tell(&socket, &"this", || panic!("no time is given")).unwrap_err();
    assert!(matches!(error, AskError::TimedOut { .. }), "{error}");
    drop(promises);
}

#[test]
fn a_process_that_ends_before_the_change_is_made_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (process, changes) = slow_process(dir.path(), |request| !request.is_empty());
    let socket = only_socket(dir.path());
    let client = std::thread::spawn(move || tell(&socket, &"this", || ()));
    drop(changes.recv_timeout(Duration::from_secs(60)).unwrap());
    assert!(matches!(client.join().unwrap().unwrap_err(), AskError::Ended));
    drop(process);
}

#[test]
fn a_link_is_not_followed() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(elsewhere.path(), ONE, Mount, "other");
    std::os::unix::fs::symlink(other.path(), socket_of(dir.path(), ONE, Mount)).unwrap();
    let asked = query::<String>(dir.path(), Mount).unwrap();
    assert!(asked.answers.is_empty() && asked.silent.is_empty(), "{asked:?}");
    // Nor is one in the place of a user's directory.
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("run")).unwrap();
    let user = std::fs::File::open(dir.path()).unwrap();
    SocketDirectory::open_of_user(&user, "run".as_ref(), dir.path().join("run")).unwrap_err();
}

#[test]
fn a_process_of_another_user_than_the_directory_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let _own = process(dir.path(), ONE, Server, "own");
    let false_one = dir.path().to_owned();
    let Some(_other) = as_user(4711, move || process(&false_one, OTHER, Server, "false")) else { return };
    let asked = query::<String>(dir.path(), Server).unwrap();
    assert_eq!(asked.answers.iter().map(|asked| &asked.answer[..]).collect::<Vec<_>>(), ["own"]);
    let [silent] = &asked.silent[..] else { panic!("{asked:?}") };
    assert!(matches!(silent.error, AskError::Untrusted { uid: Some(4711), .. }), "{silent:?}");
    // The owner of a directory is believed in it.
    std::os::unix::fs::chown(dir.path(), Some(4711), None).unwrap();
    let asked = query::<String>(dir.path(), Server).unwrap().all().unwrap();
    assert_eq!(asked.iter().map(|asked| &asked.answer[..]).collect::<Vec<_>>(), ["own", "false"]);
}

#[test]
fn the_user_nobody_is_answered_by_its_own_processes() {
    let asked = as_user(65534, || {
        let dir = tempfile::tempdir().unwrap();
        let _own = process(dir.path(), ONE, Server, "own");
        query::<String>(dir.path(), Server).unwrap().all().unwrap().pop().unwrap().answer
    });
    assert!(asked.is_none_or(|answer| answer == "own"));
}

#[test]
fn a_user_with_many_hanging_processes_does_not_keep_others_from_being_heard() {
    let (users, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(users.path().join("run")).unwrap();
    let hanging: Vec<_> = (0..2 * MAX_SOCKETS_OF_USER)
        .map(|number| {
            UnixListener::bind(socket_of(&users.path().join("run"), &format!("{number:032x}"), Mount))
                .unwrap()
        })
        .collect();
    let _one = process(dir.path(), ONE, Mount, "one");
    let user = std::fs::File::open(users.path()).unwrap();
    let hostile = SocketDirectory::open_of_user(&user, "run".as_ref(), users.path().join("run")).unwrap();
    let honest = SocketDirectory::open(dir.path()).unwrap();
    let asked = query_all::<String>(&[Arc::new(hostile), Arc::new(honest)], Mount).unwrap();
    assert_eq!(asked.answers.iter().map(|asked| &asked.answer[..]).collect::<Vec<_>>(), ["one"]);
    let (many, hung): (Vec<_>, Vec<_>) =
        asked.silent.iter().partition(|silent| matches!(silent.error, AskError::TooMany { .. }));
    assert_eq!((many.len(), hung.len()), (1, MAX_SOCKETS_OF_USER));
    assert!(hung.iter().all(|silent| matches!(silent.error, AskError::TimedOut { .. })), "{hung:?}");
    drop(hanging);
}

/// Runs as another user: credentials belong to threads, and a socket remembers those of the thread that
/// listens.
fn as_user<T: Send + 'static>(uid: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can act as another user: nothing tested");
        return None;
    }
    let thread = std::thread::spawn(move || {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    });
    Some(thread.join().unwrap())
}

#[test]
fn a_process_is_found_again_when_its_run_directory_was_made_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, other_dir) = (scratch.path().join("run"), scratch.path().join("other"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&other_dir).unwrap();
    let (one, other) = (process(&dir, ONE, Server, "one"), process(&other_dir, OTHER, Server, "other"));
    let heard = |dir: &Path| query::<String>(dir, Server).unwrap().all().unwrap();
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
