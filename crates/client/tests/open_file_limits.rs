//! A lane that has no room for another open file: the wire takes over, and nothing is made by halves.

mod support;

use samehost_client as client;

use client::{DataPath, Error, File, LaneMode, OpenFileLimit, OpenOptions, Session};
use support::{BOUND, Served, on_disk};

/// A server that gives a lane a quarter of this, and each of its users half of that.
const GRANTS: usize = 64;
const OF_ONE_USER: usize = GRANTS / 4 / 2;

fn with_grants(number: usize) -> Served {
    let mut served = Served::with_lane();
    served.limit_grants(number);
    served
}

fn name(number: usize) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

async fn session(served: &Served, mode: LaneMode) -> Session {
    let session = Session::connect(&served.url(), served.options(mode)).await.unwrap();
    assert!(session.lane().local, "{:?}", session.lane());
    session
}

/// Makes files until one doesn't get a grant, and returns those that did.
async fn use_up(session: &Session) -> Vec<File> {
    let mut files = Vec::new();
    for number in 0..OF_ONE_USER {
        let file = session.open(&name(number), &OpenOptions::replacing().read(true)).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Lane, "file {number}");
        files.push(file);
    }
    files
}

#[tokio::test]
async fn files_beyond_the_share_go_over_the_wire_and_the_lane_comes_back() {
    let served = with_grants(GRANTS);
    let session = session(&served, LaneMode::Auto).await;
    let mut files = use_up(&session).await;
    let modes = [
        OpenOptions::new().read(true).write(true).create(true),
        OpenOptions::new().read(true).write(true).create_new(true),
        OpenOptions::replacing().read(true),
    ];
    for (number, options) in (OF_ONE_USER..).zip(&modes) {
        let file = session.open(&name(number), options).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Wire);
        file.write_at(b"by the wire", 0).await.unwrap();
        file.commit().await.unwrap();
        assert_eq!(on_disk(&served.export().join(format!("file{number}"))), b"by the wire");
    }
    let reading = session.open(&name(OF_ONE_USER), &OpenOptions::reading()).await.unwrap();
    assert_eq!(
        (reading.data_path(), reading.read_into(Vec::new(), 0, 99).await.unwrap().len()),
        (DataPath::Wire, 11)
    );
    // One place is free again.
    files.pop();
    let file = session.open(&name(OF_ONE_USER), &OpenOptions::reading()).await.unwrap();
    assert_eq!(
        (file.data_path(), file.read_into(Vec::new(), 0, 99).await.unwrap().len()),
        (DataPath::Lane, 11)
    );
}

#[tokio::test]
async fn where_a_lane_is_required_an_open_fails_with_enfile_and_makes_nothing() {
    let served = with_grants(GRANTS);
    let session = session(&served, LaneMode::Required).await;
    let mut files = use_up(&session).await;
    for options in [
        OpenOptions::new().write(true).create(true),
        OpenOptions::new().write(true).create_new(true),
        OpenOptions::replacing(),
    ] {
        let error = session.open(b"new", &options).await.unwrap_err();
        assert!(matches!(error, Error::NoGrant { limit: OpenFileLimit::Server, .. }), "{error}");
        assert_eq!(error.errno(), rustix::io::Errno::NFILE.raw_os_error());
        assert!(error.to_string().contains("--lane-grants"), "{error}");
        assert!(!served.export().join("new").exists());
    }
    let error = session.open(&name(0), &OpenOptions::reading()).await.unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::NFILE.raw_os_error());
    // What is there already is neither emptied nor lost by an open that fails.
    files[0].write_at(b"kept", 0).await.unwrap();
    session.open(&name(0), &OpenOptions::replacing()).await.unwrap_err();
    assert_eq!(on_disk(&served.export().join("file0")), b"kept");
    files.pop();
    let new = session.open(b"new", &OpenOptions::new().write(true).create_new(true)).await.unwrap();
    assert_eq!(new.data_path(), DataPath::Lane);
}

/// The server has restarted, and has less room than before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_open_already_is_served_over_the_wire_even_where_a_lane_is_required() {
    let mut served = with_grants(GRANTS);
    let session = session(&served, LaneMode::Required).await;
    let files = use_up(&session).await;
    served.limit_grants(8);
    for (number, file) in files.iter().enumerate() {
        tokio::time::timeout(BOUND, file.write_at(b"going on", 0)).await.unwrap().unwrap();
        tokio::time::timeout(BOUND, file.commit()).await.unwrap().unwrap();
        assert_eq!(on_disk(&served.export().join(format!("file{number}"))), b"going on");
    }
    assert_eq!(files.iter().filter(|file| file.data_path() == DataPath::Lane).count(), 1);
}
