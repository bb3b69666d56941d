//! A lane of a client in this process.

use std::os::unix::fs::MetadataExt as _;

use super::{Client, Scratch, TIMEOUT};
use lane::{
    Access, Lane, LaneCredential, OpenError, OpenRequest, OpenStatus, Rendezvous, RendezvousOptions, Target,
};
use proto::localio;
use rpc::message::ReplyStatus;

/// A lane from this process to the server of `scratch`, which any user may run, bound to the connection of
/// `client`.
pub async fn lane(scratch: &Scratch, client: &mut Client) -> Lane {
    let mut options = RendezvousOptions::new(scratch.run_dir());
    options.search_namespaces = false;
    options.trusted_uids.push(std::fs::metadata(scratch.run_dir()).unwrap().uid());
    let candidates = Rendezvous::register(options).await.unwrap();
    let (status, results) = client.raw(localio::PROGRAM, 1, 1, &candidates.nonce());
    assert_eq!((status, results.0), (ReplyStatus::Success, vec![]));
    candidates.finish(TIMEOUT).await.unwrap_or_else(|error| panic!("{error:?}"))
}

pub fn user(uid: u32, gid: u32, gids: &[u32]) -> LaneCredential {
    LaneCredential { uid, gid, gids: gids.to_vec() }
}

pub async fn open(
    lane: &Lane,
    target: Target<'_>,
    access: Access,
    credential: &LaneCredential,
) -> Result<lane::OpenedGrant, OpenStatus> {
    match lane.open(OpenRequest { target, access, credential }).await {
        Ok(opened) => Ok(opened),
        Err(OpenError::Refused(status)) => Err(status),
        Err(other) => panic!("{other:?}"),
    }
}

pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
