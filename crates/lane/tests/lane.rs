//! A lane from the handshake to the end, with real sockets and files.

mod common;

use common::{World, by_name, content, root};
use lane::{Access, LaneState, OpenError, OpenRequest, Status, Target};
use samehost_lane as lane;

use std::time::Duration;

#[tokio::test]
async fn handshake_open_read_release() {
    let world = World::new();
    let lane = world.connect().await;
    assert_eq!(lane.instance(), world.instance);
    assert_eq!(lane.through(), world.socket_file().to_str().unwrap());
    assert_eq!(lane.state(), LaneState::Live);

    let who = root();
    let opened = lane.open(by_name(b"hello", &who)).await.unwrap();
    assert_eq!(content(&opened.grant), "hello");
    assert_eq!(opened.handle, b"hello");
    assert_eq!(opened.attributes.size, 5);
    assert_eq!(&opened.verifier, b"verifier");
    assert_eq!(world.open_grants(), 1);
    assert_eq!(world.server.status()[0].grants, 1);

    let same = OpenRequest { target: Target::Handle(&opened.handle), access: Access::Read, credential: &who };
    let again = lane.open(same).await.unwrap();
    assert_eq!(content(&again.grant), "hello");
    assert_eq!(lane.open(by_name(b"nothing", &who)).await.unwrap_err(), OpenError::Refused(Status::NotFound));
    drop((opened, again));
    // Nothing follows on which the releases could ride: they go by themselves.
    while world.open_grants() != 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let info = &world.server.status()[0];
    assert_eq!((info.grants, info.granted, info.refused, info.in_flight), (0, 2, 1, 0));
}
