//! One session for several users: each has their own permissions, on both data paths.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use samehost_client as client;

use client::{Access, Credential, DataPath, LaneMode, OpenOptions, Operation, Session, Status};
use support::Served;

fn user(uid: u32, groups: &[u32]) -> Credential {
    Credential::Sys { uid, gid: uid, groups: groups.to_vec() }
}

/// Alice's private file, and one that group 77 may read.
fn prepare(served: &Served) {
    let export = served.export();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
    for (name, mode, gid) in [("private", 0o600, 1001), ("shared", 0o640, 77)] {
        fs::write(export.join(name), name).unwrap();
        chown(export.join(name), Some(1001), Some(gid)).unwrap();
        fs::set_permissions(export.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

async fn check_permissions(session: &Session, served: &Served, data_path: DataPath) {
    let root = session.root();
    let (alice, bob) = (session.as_user(user(1001, &[])), session.as_user(user(1002, &[5, 77])));
    let carol = session.as_user(user(1003, &[5, 6]));
    let reading = OpenOptions::reading();
    let read = async |session: &Session, name: &[u8]| {
        let file = session.open_at(&root, name, &reading).await?;
        let bytes = file.read_into(Vec::new(), 0, 100).await?;
        Ok::<_, client::Error>((bytes, file.data_path()))
    };
    assert_eq!(read(&alice, b"private").await.unwrap(), (b"private".to_vec(), data_path));
    assert_eq!(read(&bob, b"private").await.unwrap_err().status(), Some(Status::Access));
    assert_eq!(read(&bob, b"shared").await.unwrap(), (b"shared".to_vec(), data_path));
    assert_eq!(read(&carol, b"shared").await.unwrap_err().status(), Some(Status::Access));
    let shared = alice.lookup(&root, b"shared").await.unwrap().handle;
    let wanted = Access::READ | Access::MODIFY;
    assert_eq!(alice.access(&shared, wanted).await.unwrap(), wanted);
    assert_eq!(bob.access(&shared, wanted).await.unwrap(), Access::READ);
    assert_eq!(carol.access(&shared, wanted).await.unwrap(), Access::default());

    let making = OpenOptions::replacing();
    for (session, name) in [(&bob, "bob"), (&carol, "carol")] {
        let made = session.open_at(&root, name.as_bytes(), &making).await.unwrap();
        made.write_at(b"mine", 0).await.unwrap();
        made.close().await.unwrap();
    }
    let owner = |name: &str| fs::metadata(served.export().join(name)).unwrap().uid();
    assert_eq!((owner("bob"), owner("carol")), (1002, 1003));
}

#[tokio::test]
async fn users_have_their_own_permissions_over_one_lane_and_one_connection() {
    let served = Served::with_lane();
    prepare(&served);
    let session = served.lane().await;
    check_permissions(&session, &served, DataPath::Lane).await;
    let counters = session.counters();
    assert_eq!(counters.events.probes, 1, "there is more than one lane");
    assert_eq!(counters.calls(Operation::Read) + counters.calls(Operation::Write), 0);
    assert!(counters.lane.opens >= 4, "users' opens are in the session's counters");
}

#[tokio::test]
async fn users_have_their_own_permissions_over_the_wire() {
    let served = Served::with_lane();
    prepare(&served);
    let session = Session::connect(&served.url(), served.options(LaneMode::Off)).await.unwrap();
    check_permissions(&session, &served, DataPath::Wire).await;
}

/// A user with AUTH_NONE has no lane, even if the session has one.
#[tokio::test]
async fn auth_none_uses_the_wire() {
    let served = Served::with_lane();
    prepare(&served);
    let session = Session::connect(&served.url(), served.options(LaneMode::Auto)).await.unwrap();
    assert!(session.lane().local);
    let nobody = session.as_user(Credential::None);
    fs::write(served.export().join("open"), b"to all").unwrap();
    fs::set_permissions(served.export().join("open"), fs::Permissions::from_mode(0o644)).unwrap();
    let file = nobody.open_at(&session.root(), b"open", &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.data_path(), DataPath::Wire);
    assert_eq!(file.read_into(Vec::new(), 0, 100).await.unwrap(), b"to all");
}
