//! Opens over the lane, decided by the same access check as calls on the wire; and the lane's call sockets.
//!
//! A grant counts as an open in the NFSv4 state. An open with a conflicting share denial, or a delegation,
//! prevents a grant; the client is then sent to the wire, which has an error for every reason. While a file
//! is granted, no open that denies its access is given to other clients.

use std::collections::HashMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use exports::Claim;
use lane::peer::may_claim;
use lane::{
    Bound, CreateMode, DirectoryChange, GrantAttributes, GrantService, NewFile, OpenGrant, OpenRequest,
    OpenStatus, PreOpAttributes, Target,
};
use parking_lot::Mutex;
use proto::{nfs3, nfs4, nfsacl};
use rpc::message::Credential;
use rpc::server::{CallSocketError, CallSocketRules, TcpOwner};
use state::{AccessKind, Share};
use store::{
    AccessMode, CreateHow, CreatedFile, FileHandle, FileKind, Grant, Holder, LookupResult, Node,
    SetAttributes, UserContext, Wcc,
};

use super::tree_grants::Whole;
use crate::authorization::access::{ExportAccess, Refusal};
use crate::authorization::requester::{Requester, Transport};
use crate::service::Service;
use crate::service::cluster_gate::{CallEntry, ClusterGate};
use crate::status::counters::{BegunCall, CallEnd, CallPath, CountedOperation};

/// The programs, with their versions, that can be called on call sockets. Sessions of NFSv4 bind no call
/// socket: it has no back channel.
const CALL_SOCKET_PROGRAMS: &[(u32, u32)] =
    &[(nfs3::PROGRAM, nfs3::VERSION), (nfsacl::PROGRAM, nfsacl::VERSION), (nfs4::PROGRAM, nfs4::VERSION)];

/// Decides the lane's requests.
pub(crate) struct LaneGrantService {
    pub(super) service: Arc<Service>,
    /// The numbers of the call sockets of the lanes. At most one for each lane.
    call_sockets: Mutex<HashMap<u64, u64>>,
}

impl LaneGrantService {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service, call_sockets: Mutex::default() }
    }

    /// Closes the call socket of a lane, if it has one.
    fn close_call_socket(&self, lane: u64) {
        let number = self.call_sockets.lock().remove(&lane);
        if let (Some(number), Some(wire)) = (number, self.service.call_sockets.get()) {
            wire.close(number);
        }
    }

    fn decide(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus> {
        let credential = request.credential;
        let claim = Claim { uid: credential.uid, gid: credential.gid, gids: &credential.gids };
        let owner = bound.process.uid.map_or(TcpOwner::Unknown, TcpOwner::User);
        let requester =
            Requester { address: bound.nfs_peer, owner, claim: Some(claim), transport: Transport::Lane };
        let handle = match request.target {
            Target::Handle(handle)
            | Target::Tree(handle)
            | Target::Mount(handle)
            | Target::Entry { directory: handle, .. }
            | Target::New(NewFile { directory: handle, .. }) => handle,
        };
        let admitted = self.service.access.admit(handle, requester).map_err(refused)?;
        let holder = admitted.holder(&bound.process).map_err(failed)?;
        let user_context = admitted.user_context().map_err(failed)?;
        let node = user_context.node(handle).map_err(failed)?;
        match request.target {
            Target::New(new) => {
                return self.make(bound, &admitted, &user_context, (&node, &new), request.access, holder);
            }
            Target::Tree(_) => {
                let asked = (&*node, request.access, Whole::Tree);
                return self.open_tree(bound, &admitted, &user_context, asked);
            }
            Target::Mount(_) => {
                let asked = (&*node, request.access, Whole::Mount);
                return self.open_tree(bound, &admitted, &user_context, asked);
            }
            Target::Handle(_) | Target::Entry { .. } => {}
        }
        // This way the file is known only once it is open, which is too late where NFSv4 state may conflict.
        if let (Target::Entry { name, .. }, lane::Access::Read) = (request.target, request.access)
            && !self.service.state.restricts()
            && let Some(grant) = user_context.grant_entry(&node, name, holder)
        {
            let counted = self.count(grant.handle, request.access)?;
            return Ok(granted(grant, user_context.modes(), counted));
        }
        let found = match request.target {
            Target::Entry { name, .. } => user_context.find(&node, name).map_err(failed)?,
            _ => LookupResult::from(node),
        };
        self.open_found(&user_context, &found, request.access, holder)
    }

    /// Creates a file as NFSv3's CREATE does, and opens it. If the open fails after the file was created, the
    /// client repeats the request over the wire, where its verifier (or without one, the name) finds the
    /// file.
    fn make(
        &self,
        bound: &Bound,
        admitted: &ExportAccess,
        user_context: &UserContext<'_>,
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
        let made = user_context.create_granted(directory, new.name, &how, asked, &mut wcc).map_err(failed)?;
        let (CreatedFile::Open(node, _) | CreatedFile::Closed(node)) = &made;
        let lasts = self.service.sync_metadata(admitted, bound.nfs_peer, user_context, &[node, directory]);
        lasts.map_err(failed)?;
        let granted_file = match made {
            CreatedFile::Open(_, grant) => {
                let counted = self.count(grant.handle, access)?;
                granted(grant, user_context.modes(), counted)
            }
            CreatedFile::Closed(node) => {
                self.open_found(user_context, &LookupResult::from(node), access, holder)?
            }
        };
        Ok(OpenGrant { directory: Some(Box::new(changed(&wcc))), ..granted_file })
    }

    /// Grants the file that a name or a handle has led to.
    fn open_found(
        &self,
        user_context: &UserContext<'_>,
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
            Service::check_permission(user_context, &found.node, touch).map_err(failed)?;
        }
        let counted = self.count(*found.node.handle(), access)?;
        let grant = user_context.grant_found(found, mode, holder).map_err(failed)?;
        Ok(granted(grant, user_context.modes(), counted))
    }

    /// Registers a grant as an open, unless NFSv4 state conflicts with it.
    fn count(&self, file: FileHandle, access: lane::Access) -> Result<CountedOpen, OpenStatus> {
        let access = access as u8;
        let counted = self.service.state.run(|engine, now| engine.grant(now, &file, access));
        counted.map_err(|_| OpenStatus::TryWire)?;
        Ok(CountedOpen { service: Arc::clone(&self.service), file, access })
    }
}

/// A grant's registration as an open. Ends when this is dropped.
struct CountedOpen {
    service: Arc<Service>,
    file: FileHandle,
    access: u8,
}

impl Drop for CountedOpen {
    fn drop(&mut self) {
        self.service.state.run(|engine, _| engine.release_grant(&self.file, self.access));
    }
}

fn granted(grant: Grant, modes: io::IoModes, counted: CountedOpen) -> OpenGrant {
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

/// The change of a directory as the lane reports it.
fn changed(wcc: &Wcc) -> DirectoryChange {
    let before = wcc.before.map(|before| PreOpAttributes {
        size: before.size,
        mtime: before.mtime,
        ctime: before.ctime,
    });
    DirectoryChange { before, after: wcc.after }
}

/// How an open ended, for the counters.
pub(super) fn end_of(operation: CountedOperation, decided: &Result<OpenGrant, OpenStatus>) -> CallEnd<'_> {
    let failure = decided.as_ref().err().map(|status| (*status as u32, status as &dyn Debug));
    CallEnd { operation, data_path: CallPath::Lane, failure, bytes: 0 }
}

impl GrantService for LaneGrantService {
    fn open(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus> {
        let begun = BegunCall::now();
        // A call on the wire waits until the cluster permits it.
        let decided = match self.service.cluster.as_ref().map(ClusterGate::enter) {
            None | Some(CallEntry::Executed { .. }) => self.decide(bound, request),
            Some(CallEntry::Postponed | CallEntry::Refused) => Err(OpenStatus::TryWire),
        };
        self.service.counters.record(begun, &end_of(CountedOperation::LaneOpen, &decided));
        decided
    }

    fn verifier(&self) -> [u8; 8] {
        self.service.verifier.get()
    }

    fn async_from_now(&self, bound: &Bound) {
        self.service.async_clients.add(bound.lane, bound.nfs_peer);
    }

    fn call_socket(&self, bound: &Bound) -> Result<OwnedFd, OpenStatus> {
        self.close_call_socket(bound.lane);
        let process = bound.process.clone();
        let rules = CallSocketRules {
            connection: bound.connection,
            programs: CALL_SOCKET_PROGRAMS,
            may_claim: Box::new(move |credential| match credential {
                Credential::None => false,
                Credential::Sys(sys) => may_claim(&process, sys.uid, sys.gid, &sys.gids),
            }),
        };
        // Set once the server listens, which may be a moment after its first client has a lane.
        let wire = self.service.call_sockets.wait();
        let (number, theirs) = wire.open(rules).map_err(|error| match error {
            CallSocketError::Ended => OpenStatus::Draining,
            CallSocketError::TooMany => OpenStatus::TooMany,
            CallSocketError::System(error) => {
                tracing::debug!(lane = bound.lane, %error, "no call socket");
                OpenStatus::Io
            }
        })?;
        self.call_sockets.lock().insert(bound.lane, number);
        Ok(theirs)
    }

    fn ended(&self, bound: &Bound, why: &str) {
        self.close_call_socket(bound.lane);
        self.service.async_clients.remove(bound.lane, bound.nfs_peer);
        self.service.lane_attempts.lane_ended(bound.nfs_peer, why);
    }
}

const fn refused(refusal: Refusal) -> OpenStatus {
    match refusal {
        Refusal::BadHandle => OpenStatus::BadHandle,
        Refusal::NotExported => OpenStatus::Stale,
        // The wire has an error for it.
        Refusal::NotKnownYet => OpenStatus::TryWire,
        Refusal::InsecurePort => OpenStatus::Access,
        Refusal::OtherUser => OpenStatus::Denied,
        Refusal::NoLane => OpenStatus::NoLane,
    }
}

/// A store's error as a lane status. Errors that the lane doesn't have are reported by the wire.
pub(super) const fn failed(error: store::Error) -> OpenStatus {
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
