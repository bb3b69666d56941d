//! What an operation works on: the current and the saved object, the state ids that come with them, and whose
//! they are.

use proto::nfs4::{MinorVersion, Nfsstat4, Stateid4};
use rpc::server::TcpOwner;
use state::{AccessKind, ClientId, Direction, Principal, Requester};
use store::{FileHandle, OwnChange};

use super::compound::{Compound, principal};
use super::object::{File, Object};
use super::{Result, status};
use crate::authorization::access::Admission;
use crate::programs::nfs3::asking;
use crate::service::{Service, refuses};

impl Compound<'_> {
    /// The one check for the export that a handle belongs to.
    pub fn admit(&self, handle: &[u8]) -> Result<Admission> {
        self.service.gate.admit(handle, asking(self.cx)).map_err(status::of_refusal)
    }

    /// The current handle's object.
    pub fn object(&self) -> Result<&Object> {
        self.current.as_ref().ok_or(Nfsstat4::Nofilehandle)
    }

    /// The current handle, for trace events; none of what can't be read or written.
    pub fn handle(&self) -> Option<FileHandle> {
        match &self.current {
            Some(Object::File(file)) => Some(*file.node.handle()),
            _ => None,
        }
    }

    /// The current handle's file; `pseudo` is what is said of a directory that is made up.
    pub fn file(&self, pseudo: Nfsstat4) -> Result<File> {
        match self.object()? {
            Object::File(file) => Ok(file.clone()),
            Object::Pseudo(_) => Err(pseudo),
            Object::Gone(_) => Err(Nfsstat4::Stale),
        }
    }

    /// The saved handle's file.
    pub fn saved_file(&self, pseudo: Nfsstat4) -> Result<File> {
        match self.saved.as_ref().ok_or(Nfsstat4::Nofilehandle)? {
            Object::File(file) => Ok(file.clone()),
            Object::Pseudo(_) => Err(pseudo),
            Object::Gone(_) => Err(Nfsstat4::Stale),
        }
    }

    /// Another current handle. The current state id was for the old one.
    pub fn set_current(&mut self, object: Object) {
        self.current = Some(object);
        self.current_stateid = None;
    }

    /// Who asks: the session's client, or in 4.0 the one that is named.
    pub fn client(&self, named: u64) -> Result<ClientId> {
        match &self.ticket {
            Some(ticket) => Ok(ticket.client),
            None => {
                let client = ClientId(named);
                let known = self.service.state.run(|engine, now| engine.renew40(now, client));
                known.map(|()| client).map_err(status::of_state)
            }
        }
    }

    /// As whom the request comes: as the user whose process it is, where it claims to be another and isn't
    /// believed.
    pub fn principal(&self) -> Principal {
        let owner = self.cx.peer.owner;
        match (principal(self.cx.credential), owner) {
            (Principal::Sys(claimed), _) if self.service.gate.believes(owner, claimed) => {
                Principal::Sys(claimed)
            }
            (Principal::Sys(_), TcpOwner::User(user)) => Principal::Sys(user),
            (Principal::Anonymous | Principal::Sys(_), _) => Principal::Anonymous,
        }
    }

    /// A client, as the user who asks.
    pub fn requester(&self, client: ClientId) -> Requester {
        Requester { client, principal: self.principal() }
    }

    /// Whose own delegations aren't in the way: 4.0 doesn't say who asks.
    pub fn by(&self) -> Option<ClientId> {
        self.ticket.as_ref().map(|ticket| ticket.client)
    }

    /// Whether a file may be changed now; others' delegations of it are recalled if not. What is returned is
    /// to be kept until the change is made.
    pub fn may_change(&self, acting: &store::Acting<'_>, file: &store::Node) -> Result<Option<OwnChange>> {
        self.may_change_if(|| Service::may_touch(acting, file, AccessKind::Change), file)
    }

    /// The same where another right decides. Who hasn't got it has nobody make way: the operation says why it
    /// can't be done.
    pub fn may_change_if(
        &self,
        right: impl FnOnce() -> store::Result<()>,
        file: &store::Node,
    ) -> Result<Option<OwnChange>> {
        if !self.service.state.has_delegations() || refuses(right()) {
            return Ok(None);
        }
        self.service.state.begin_change(self.by(), file.handle()).map_err(status::of_state)
    }

    /// Whether a user may read or write without an open of NFSv4's, by a special state id: where somebody's
    /// state would have to make way, only if the file's permissions say so.
    pub fn may_io(&self, file: &File, id: &state::StateId, direction: Direction) -> Result<()> {
        let special = *id == state::StateId::ANONYMOUS || *id == state::StateId::READ_BYPASS;
        let touch = match direction {
            Direction::Read => AccessKind::Read,
            Direction::Write => AccessKind::Write,
        };
        if !special || self.service.state.is_free(touch) {
            return Ok(());
        }
        Service::may_touch(&file.acting()?, &file.node, touch).map_err(status::of_store)
    }

    /// The same for the file of that name in a directory, if there is one.
    pub fn may_change_entry(
        &self,
        acting: &store::Acting<'_>,
        directory: &store::Node,
        name: &[u8],
    ) -> Result<Option<OwnChange>> {
        if !self.service.state.has_delegations() {
            return Ok(None);
        }
        match acting.lookup(directory, name) {
            Ok(node) => self.may_change_if(|| acting.may_change_entries(directory), &node),
            // What is wrong with it is said by the operation.
            Err(_) => Ok(None),
        }
    }

    /// The session's client.
    pub fn session_client(&self) -> Result<ClientId> {
        self.ticket.as_ref().map(|ticket| ticket.client).ok_or(Nfsstat4::OpNotInSession)
    }

    /// Who asks with a state id: in 4.0 nothing else says it.
    pub fn asker(&self, id: &state::StateId) -> Result<Option<ClientId>> {
        let special = *id == state::StateId::ANONYMOUS || *id == state::StateId::READ_BYPASS;
        match &self.ticket {
            Some(ticket) => Ok(Some(ticket.client)),
            None if special || self.minor >= MinorVersion::V1 => Ok(None),
            None => self.owner(id).map(Some),
        }
    }

    /// The client that a state id, no special one, comes from.
    pub fn owner(&self, id: &state::StateId) -> Result<ClientId> {
        match &self.ticket {
            Some(ticket) => Ok(ticket.client),
            None => self.service.state.run(|engine, now| engine.client_of(now, id)).map_err(status::of_state),
        }
    }

    /// A state id from the client, the current one put in its place (RFC 8881 section 16.2.3.1.2).
    pub fn stateid(&self, from: Stateid4) -> Result<state::StateId> {
        let id = state::StateId { seqid: from.seqid, other: from.other };
        if self.minor >= MinorVersion::V1 && id == state::StateId::CURRENT {
            let current = self.current_stateid.ok_or(Nfsstat4::BadStateid)?;
            return Ok(state::StateId { seqid: current.seqid, other: current.other });
        }
        Ok(id)
    }

    /// A state id for the client, and from now on the current one.
    pub fn give_stateid(&mut self, id: state::StateId) -> Stateid4 {
        let id = Stateid4 { seqid: id.seqid, other: id.other };
        self.current_stateid = Some(id);
        id
    }

    /// Says that a change is coming: where it must be on stable storage before the reply, the call will wait
    /// for the disk.
    pub fn before_change(&self, file: &File) {
        if file.admitted.sync {
            self.cx.will_block();
        }
    }

    /// Makes the metadata of `changed` durable where the export is `sync`.
    pub fn commit(&self, file: &File, acting: &store::Acting<'_>, changed: &[&store::Node]) -> Result<()> {
        if file.admitted.sync {
            for node in changed {
                acting.sync_metadata(node).map_err(status::of_store)?;
            }
        }
        Ok(())
    }
}
