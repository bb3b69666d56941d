//! A lane ends with the NFS connection that it is bound to.

mod common;

use common::{LONG, World, by_name, content, root};
use lane::{LaneState, OpenError};
use samehost_lane as lane;

#[tokio::test]
async fn a_lane_and_its_grants_end_with_the_nfs_connection() {
    let world = World::new();
    // Both connections have the same address: only the connection's number counts.
    let (closed, other) = (world.connect_over(1).await, world.connect_over(2).await);
    let granted = closed.open(by_name(b"hello", &root())).await.unwrap().grant;
    assert!(granted.try_get().is_some());
    world.server.connection_closed(1);
    tokio::time::timeout(LONG, closed.gone()).await.unwrap();
    assert_eq!(closed.state(), LaneState::Gone);
    assert!(granted.try_get().is_none(), "the next read or write goes over the wire");
    assert_eq!(closed.open(by_name(b"hello", &root())).await.unwrap_err(), OpenError::Gone);
    world.wait_for("the lane's end", |world| world.server.status().len() == 1 && world.open_grants() == 0);
    assert_eq!(content(other.open(by_name(b"hello", &root())).await.unwrap().grant), "hello");
    assert_eq!(world.server.status()[0].bound.connection, 2);
    // The client reconnects.
    let again = world.connect_over(3).await;
    assert_eq!(content(again.open(by_name(b"hello", &root())).await.unwrap().grant), "hello");
}

#[tokio::test]
async fn all_lanes_of_a_connection_end_and_an_unknown_connection_ends_none() {
    let world = World::new();
    let lanes = [world.connect_over(1).await, world.connect_over(1).await];
    world.server.connection_closed(7);
    assert_eq!(world.server.status().len(), 2);
    world.server.connection_closed(1);
    for lane in &lanes {
        tokio::time::timeout(LONG, lane.gone()).await.unwrap();
    }
    world.wait_for("the lanes' end", |world| world.server.status().is_empty());
}
