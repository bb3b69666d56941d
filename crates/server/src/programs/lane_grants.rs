//! The lane's questions, answered by the same check as the wire's, and its grants, which count as opens.
//!
//! What clients of NFSv4 have open may keep a file from a grant, as it would from an open: then the wire is
//! asked, which has a word for every reason. And while a file is granted, nobody is given an open that denies
//! what it was granted for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use exports::Claim;
use lane::{
    Bound, CreateMode, DirectoryChange, GrantAttributes, GrantService, NewFile, OpenGrant, OpenRequest,
    OpenStatus, PreOpAttributes, Target,
};
use rpc::server::TcpOwner;
use state::{AccessKind, Share};
use store::{
    AccessMode, CreateHow, CreatedFile, FileHandle, FileKind, Grant, Holder, LookupResult, Node,
    SetAttributes, UserContext, Wcc,
};

use crate::authorization::access::{Admission, Asking, Refusal, Road};
use crate::service::Service;

/// Answers the lane.
pub(crate) struct Grants {
    service: Arc<Service>,
}

impl Grants {
    pub(crate) const fn new(service: Arc<Service>) -> Self {
        Self { service }
    }

    fn decide(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus> {
        let credential = request.credential;
        let claim = Claim { uid: credential.uid, gid: credential.gid, gids: &credential.gids };
        let owner = bound.process.uid.map_or(TcpOwner::Unknown, TcpOwner::User);
        let asking = Asking { address: bound.nfs_peer, owner, claim: Some(claim), road: Road::Lane };
        let handle = match request.target {
            Target::Handle(handle)
            | Target::Entry { directory: handle, .. }
            | Target::New(NewFile { directory: handle, .. }) => handle,
        };
        let admitted = self.service.gate.admit(handle, asking).map_err(refused)?;
        let holder = admitted.holder(&bound.process).map_err(failed)?;
        let acting = admitted.acting().map_err(failed)?;
        let node = acting.node(handle).map_err(failed)?;
        if let Target::New(new) = request.target {
            return self.make(bound, &admitted, &acting, (&node, &new), request.access, holder);
        }
        // This way the file is known only when it is open. Where somebody may have something against it, that
        // is too late.
        if let (Target::Entry { name, .. }, lane::Access::Read) = (request.target, request.access)
            && !self.service.state.restricts()
            && let Some(grant) = acting.grant_entry(&node, name, holder)
        {
            let counted = self.count(grant.handle, request.access)?;
            return Ok(granted(grant, acting.modes(), counted));
        }
        let found = match request.target {
            Target::Entry { name, .. } => acting.find(&node, name).map_err(failed)?,
            Target::Handle(_) | Target::New(_) => LookupResult::from(node),
        };
        self.open_found(&acting, &found, request.access, holder)
    }

    /// Makes a file as NFSv3's CREATE does, and opens it. Whatever stops it on the way has stopped the open
    /// and not the making: the client asks over the wire, where its verifier (or the name, where there is
    /// none) leads to the file.
    fn make(
        &self,
        bound: &Bound,
        admitted: &Admission,
        acting: &UserContext<'_>,
        (directory, new): (&Node, &NewFile<'_>),
        access: lane::Access,
        holder: Holder,
    ) -> Result<OpenGrant, OpenStatus> {
        let how = match new.how {
            CreateMode::Unchecked => {
                CreateHow::Unchecked(SetAttributes { mode: Some(new.mode), ..SetAttributes::default() })
            }
            CreateMode::Exclusive(verifier) => CreateHow::Exclusive(verifier, new.mode),
        };
        let (mut wcc, asked) = (Wcc::default(), (mode(access), holder));
        let made = acting.create_granted(directory, new.name, &how, asked, &mut wcc).map_err(failed)?;
        let (CreatedFile::Open(node, _) | CreatedFile::Closed(node)) = &made;
        let lasts = self.service.make_last(admitted, bound.nfs_peer, acting, &[node, directory]);
        lasts.map_err(failed)?;
        let granted_file = match made {
            CreatedFile::Open(_, grant) => {
                let counted = self.count(grant.handle, access)?;
                granted(grant, acting.modes(), counted)
            }
            CreatedFile::Closed(node) => {
                self.open_found(acting, &LookupResult::from(node), access, holder)?
            }
        };
        Ok(OpenGrant { directory: Some(Box::new(changed(&wcc))), ..granted_file })
    }

    /// Grants what a name or a handle has led to.
    fn open_found(
        &self,
        acting: &UserContext<'_>,
        found: &LookupResult,
        access: lane::Access,
        holder: Holder,
    ) -> Result<OpenGrant, OpenStatus> {
        match found.node.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(OpenStatus::IsDirectory),
            FileKind::Symlink => return Err(OpenStatus::Symlink),
            FileKind::Block | FileKind::Character | FileKind::Socket | FileKind::Fifo => {
                return Err(OpenStatus::NotRegular);
            }
        }
        let mode = mode(access);
        if self.service.state.restricts() {
            let touch = AccessKind::Open(Share { access: access as u8, deny: 0 });
            Service::may_touch(acting, &found.node, touch).map_err(failed)?;
        }
        let counted = self.count(*found.node.handle(), access)?;
        let grant = acting.grant_found(found, mode, holder).map_err(failed)?;
        Ok(granted(grant, acting.modes(), counted))
    }

    /// Has a grant counted as an open, if nobody is against it.
    fn count(&self, file: FileHandle, access: lane::Access) -> Result<Counted, OpenStatus> {
        let access = access as u8;
        let counted = self.service.state.run(|engine, now| engine.grant(now, &file, access));
        counted.map_err(|_| OpenStatus::TryWire)?;
        Ok(Counted { service: Arc::clone(&self.service), file, access })
    }
}

/// A grant that counts as an open until this is dropped.
struct Counted {
    service: Arc<Service>,
    file: FileHandle,
    access: u8,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.service.state.run(|engine, _| engine.release_grant(&self.file, self.access));
    }
}

fn granted(grant: Grant, modes: io::IoModes, counted: Counted) -> OpenGrant {
    let handle = grant.handle.as_bytes().to_vec();
    let attributes = GrantAttributes { file: grant.attributes, modes };
    let lasts = grant.lasts;
    OpenGrant { file: grant.file, handle, attributes, lasts, directory: None, held: Some(Box::new(counted)) }
}

const fn mode(access: lane::Access) -> AccessMode {
    match access {
        lane::Access::Read => AccessMode::Read,
        lane::Access::Write => AccessMode::Write,
        lane::Access::ReadWrite => AccessMode::ReadWrite,
    }
}

/// What has become of a directory, in the lane's words.
fn changed(wcc: &Wcc) -> DirectoryChange {
    let before = wcc.before.map(|before| PreOpAttributes {
        size: before.size,
        mtime: before.mtime,
        ctime: before.ctime,
    });
    DirectoryChange { before, after: wcc.after }
}

impl GrantService for Grants {
    fn open(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus> {
        let decided = self.decide(bound, request);
        self.service.counters.open.count(decided.is_err(), 0);
        if matches!(decided, Err(OpenStatus::NotFound)) {
            self.service.counters.open_not_found.fetch_add(1, Relaxed);
        }
        decided
    }

    fn verifier(&self) -> [u8; 8] {
        self.service.verifier.get()
    }

    fn async_from_now(&self, bound: &Bound) {
        self.service.neighbours.came(bound.lane, bound.nfs_peer);
    }

    fn ended(&self, bound: &Bound, why: &str) {
        self.service.neighbours.went(bound.lane, bound.nfs_peer);
        self.service.notes.lane_ended(bound.nfs_peer, why);
    }
}

const fn refused(refusal: Refusal) -> OpenStatus {
    match refusal {
        Refusal::BadHandle => OpenStatus::BadHandle,
        Refusal::NotExported => OpenStatus::Stale,
        // The wire has a word for it.
        Refusal::NotKnownYet => OpenStatus::TryWire,
        Refusal::InsecurePort => OpenStatus::Access,
        Refusal::OtherUser => OpenStatus::Denied,
        Refusal::NoLane => OpenStatus::NoLane,
    }
}

/// What the lane has no word for is asked again on the wire, which has.
const fn failed(error: store::Error) -> OpenStatus {
    use store::Error;
    match error {
        Error::Stale => OpenStatus::Stale,
        Error::BadHandle => OpenStatus::BadHandle,
        Error::NotFound => OpenStatus::NotFound,
        Error::NotDirectory => OpenStatus::NotDirectory,
        Error::IsDirectory => OpenStatus::IsDirectory,
        Error::Access | Error::Permission => OpenStatus::Access,
        Error::ReadOnly => OpenStatus::ReadOnly,
        Error::Io(_) => OpenStatus::Io,
        _ => OpenStatus::TryWire,
    }
}
