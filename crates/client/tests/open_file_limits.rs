//! Opens beyond the limits of the lane: they use the wire, or fail without creating a file.

mod support;

use samehost_client as client;

use client::{DataPath, Error, File, LaneMode, OpenFileLimit, OpenOptions, Session};
use support::{BOUND, Served, on_disk};

/// The limit of the server. A lane gets a quarter of it, and each user of the lane half of that.
const GRANTS: usize = 64;
const GRANTS_OF_A_USER: usize = GRANTS / 4 / 2;

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

/// Creates as many files as get a grant, and returns them.
async fn use_up(session: &Session) -> Vec<File> {
    let mut files = Vec::new();
    for number in 0..GRANTS_OF_A_USER {
        let file = session.open(&name(number), &OpenOptions::replacing().read(true)).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Lane, "file {number}");
        files.push(file);
    }
    files
}

#[tokio::test]
async fn files_beyond_the_limit_use_the_wire_until_others_are_closed() {
    let served = with_grants(GRANTS);
    let session = session(&served, LaneMode::Auto).await;
    let mut files = use_up(&session).await;
    let modes = [
        OpenOptions::new().read(true).write(true).create(true),
        OpenOptions::new().read(true).write(true).create_new(true),
        OpenOptions::replacing().read(true),
    ];
    for (number, options) in (GRANTS_OF_A_USER..).zip(&modes) {
        let file = session.open(&name(number), options).await.unwrap();
        assert_eq!(file.data_path(), DataPath::Wire);
        file.write_at(b"by the wire", 0).await.unwrap();
        file.commit().await.unwrap();
        assert_eq!(on_disk(&served.export().join(format!("file{number}"))), b"by the wire");
    }
    let reading = session.open(&name(GRANTS_OF_A_USER), &OpenOptions::reading()).await.unwrap();
    assert_eq!(
        (reading.data_path(), reading.read_into(Vec::new(), 0, 99).await.unwrap().len()),
        (DataPath::Wire, 11)
    );
    // A file below the limit gets a grant again.
    files.pop();
    let file = session.open(&name(GRANTS_OF_A_USER), &OpenOptions::reading()).await.unwrap();
    assert_eq!(
        (file.data_path(), file.read_into(Vec::new(), 0, 99).await.unwrap().len()),
        (DataPath::Lane, 11)
    );
}

#[tokio::test]
async fn with_a_required_lane_an_open_beyond_the_limit_fails_with_enfile_and_creates_nothing() {
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
    // A failed open doesn't truncate an existing file.
    files[0].write_at(b"kept", 0).await.unwrap();
    session.open(&name(0), &OpenOptions::replacing()).await.unwrap_err();
    assert_eq!(on_disk(&served.export().join("file0")), b"kept");
    files.pop();
    let new = session.open(b"new", &OpenOptions::new().write(true).create_new(true)).await.unwrap();
    assert_eq!(new.data_path(), DataPath::Lane);
}

/// The server has restarted with a lower limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_continues_over_the_wire_even_with_a_required_lane() {
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
