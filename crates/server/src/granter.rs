//! The lane's questions, answered by the same check as the wire's.

use std::sync::Arc;

use exports::Claim;
use lane::{Bound, Granted, Granter, OpenRequest, Status, Target};
use store::{AccessMode, Attributes, Found, Grant, Kind, Timestamp};

use crate::access::{Asking, Refusal, Road};
use crate::service::Service;

/// Answers the lane.
pub(crate) struct Grants {
    service: Arc<Service>,
}

impl Grants {
    pub(crate) const fn new(service: Arc<Service>) -> Self {
        Self { service }
    }

    fn decide(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<Granted, Status> {
        let credential = request.credential;
        let claim = Claim { uid: credential.uid, gid: credential.gid, gids: &credential.gids };
        let asking = Asking { address: bound.nfs_peer, claim: Some(claim), road: Road::Lane };
        let handle = match request.target {
            Target::Handle(handle) | Target::Entry { directory: handle, .. } => handle,
        };
        let admitted = self.service.gate.admit(handle, asking).map_err(refused)?;
        let holder = admitted.holder(&bound.process).map_err(failed)?;
        let acting = admitted.acting().map_err(failed)?;
        let node = acting.node(handle).map_err(failed)?;
        if let (Target::Entry { name, .. }, lane::Access::Read) = (request.target, request.access)
            && let Some(grant) = acting.grant_entry(&node, name, holder)
        {
            return Ok(granted(grant, acting.modes()));
        }
        let found = match request.target {
            Target::Handle(_) => Found::from(node),
            Target::Entry { name, .. } => acting.find(&node, name).map_err(failed)?,
        };
        match found.node.kind() {
            Kind::Regular => {}
            Kind::Directory => return Err(Status::IsDirectory),
            Kind::Symlink => return Err(Status::Symlink),
            Kind::BlockDevice | Kind::CharacterDevice | Kind::Socket | Kind::Fifo => {
                return Err(Status::NotRegular);
            }
        }
        let mode = match request.access {
            lane::Access::Read => AccessMode::Read,
            lane::Access::Write => AccessMode::Write,
            lane::Access::ReadWrite => AccessMode::ReadWrite,
        };
        acting.grant_found(&found, mode, holder).map(|grant| granted(grant, acting.modes())).map_err(failed)
    }
}

fn granted(grant: Grant, io: io::Modes) -> Granted {
    let handle = grant.handle.as_bytes().to_vec();
    Granted { file: grant.file, handle, attributes: attributes(&grant.attributes, io), held: None }
}

impl Granter for Grants {
    fn open(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<Granted, Status> {
        let decided = self.decide(bound, request);
        self.service.counters.open.count(decided.is_err(), 0);
        if matches!(decided, Err(Status::NotFound)) {
            self.service.counters.open_not_found.add();
        }
        decided
    }

    fn verifier(&self) -> [u8; 8] {
        self.service.verifier.get()
    }

    fn ended(&self, bound: &Bound, why: &str) {
        self.service.notes.lane_ended(bound.nfs_peer, why);
    }
}

const fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::BadHandle => Status::BadHandle,
        Refusal::NotExported => Status::Stale,
        // The wire has a word for it.
        Refusal::NotKnownYet => Status::TryWire,
        Refusal::InsecurePort => Status::Access,
        Refusal::NoLane => Status::NoLane,
    }
}

/// What the lane has no word for is asked again on the wire, which has.
const fn failed(error: store::Error) -> Status {
    use store::Error;
    match error {
        Error::Stale => Status::Stale,
        Error::BadHandle => Status::BadHandle,
        Error::NotFound => Status::NotFound,
        Error::NotDirectory => Status::NotDirectory,
        Error::IsDirectory => Status::IsDirectory,
        Error::Access | Error::Permission => Status::Access,
        Error::ReadOnly => Status::ReadOnly,
        Error::Io(_) => Status::Io,
        _ => Status::TryWire,
    }
}

fn attributes(from: &Attributes, io: io::Modes) -> lane::Attributes {
    let time = |time: Timestamp| lane::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
    lane::Attributes {
        kind: match from.kind {
            Kind::Regular => lane::Kind::Regular,
            Kind::Directory => lane::Kind::Directory,
            Kind::BlockDevice => lane::Kind::Block,
            Kind::CharacterDevice => lane::Kind::Character,
            Kind::Symlink => lane::Kind::Symlink,
            Kind::Socket => lane::Kind::Socket,
            Kind::Fifo => lane::Kind::Fifo,
        },
        mode: from.mode,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        used: from.used,
        rdev: from.rdev,
        fsid: from.fsid,
        fileid: from.fileid,
        atime: time(from.atime),
        mtime: time(from.mtime),
        ctime: time(from.ctime),
        change: from.change,
        io,
    }
}
