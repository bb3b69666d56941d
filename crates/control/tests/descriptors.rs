//! A process that has no descriptor left can still be asked. A test binary of its own: the limit is the
//! process's.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use samehost_control::{ControlAnswer, ProcessKind, Socket};

#[test]
fn a_process_without_descriptors_answers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::start(dir.path(), "00112233445566778899aabbccddeeff", ProcessKind::Server, |_| {
        ControlAnswer::Now(b"answered".to_vec())
    })
    .unwrap();
    let limit = Rlimit { current: Some(64), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // Several times: the socket gets its spare descriptor back.
    for _ in 0..3 {
        // One for the end that asks.
        drop(held.pop().unwrap());
        let mut asking = UnixStream::connect(socket.path()).unwrap();
        asking.write_all(b"anything").unwrap();
        asking.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).unwrap();
        drop(asking);
        assert_eq!(answer, "answered\n");
        held.push(File::open("/dev/null").unwrap());
    }
}
