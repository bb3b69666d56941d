//! A process that has no descriptor left can still be asked. A test binary of its own: the limit is the
//! process's.

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use samehost_control::{Reply, SERVER, Socket, tell};

#[test]
fn a_process_without_descriptors_answers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::start(dir.path(), "00112233445566778899aabbccddeeff", SERVER, |_| {
        serde_json::to_vec(&Reply::Done("answered".to_owned())).ok()
    })
    .unwrap();
    let limit = Rlimit { current: Some(64), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // Several times: the socket gets its spare descriptor back.
    for _ in 0..3 {
        // One for the end that asks.
        drop(held.pop().unwrap());
        assert_eq!(tell(socket.path(), &"anything").unwrap(), Reply::Done("answered".to_owned()));
        held.push(File::open("/dev/null").unwrap());
    }
}
