//! NFSv4.1 and 4.2 (RFC 8881, 7862): the [`Operations`](crate::operations::Operations) of a session whose
//! server speaks them.
//!
//! | module | what |
//! |---|---|
//! | `connect` | the minor version, the client id, the directory that the URL names |
//! | `identity` | who the client is to its server |
//! | `session` | the client id and its session: slots, retries, the lease |
//! | `shared` | the clients that sessions of the process share |
//! | `state` | opens and locks: the requests that follow from their changes, and their recovery |
//! | `open` | OPEN |
//! | `delegation` | delegations: what needs no request |
//! | `delegated_files` | the files that are delegated |
//! | `rewritten_files` | the files that are worth a write delegation |
//! | `lock` | LOCK, LOCKU, LOCKT |
//! | `moved` | filesystems that are on other servers |
//! | `callbacks` | what the server calls |
//! | `exports` | the list of exports, from the server's root |
//! | `operations` | the operations, one COMPOUND each |
//! | `names` | LOOKUP, CREATE, REMOVE, RENAME, LINK |
//! | `read_dir` | READDIR |
//! | `data` | READ, WRITE, COMMIT |
//! | `compound` | a COMPOUND's operations and results |
//! | `convert` | wire types to the client's types, and back |
//! | `owners` | owners and groups as strings |
//! | `acls` | the attribute `acl`: on the wire, and as POSIX lists |
//! | `aces` | the entries of access control lists, from and to POSIX lists |
//! | `offloads` | asynchronous copies, and what the server reports about them |
//! | `offloaded_copy` | COPY, and the wait for its end |
//! | `read_plus` | reads of sparse files |
//! | `space` | space of files, holes, advice, and copies within the server |
//! | `xattrs` | extended attributes |

mod aces;
mod acls;
mod callbacks;
mod compound;
mod connect;
mod convert;
mod data;
mod delegated_files;
mod delegation;
mod exports;
mod identity;
mod lock;
mod moved;
mod names;
mod offloaded_copy;
mod offloads;
mod open;
mod operations;
mod owners;
mod read_dir;
mod read_plus;
mod rewritten_files;
mod session;
mod shared;
mod space;
mod state;
mod xattrs;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use proto::nfs4::{Fattr4, MinorVersion, NfsFh4, Operation as Op};

use crate::attribute_sink::{AttributeSink, AttributeUpdate, PreOpAttributes};
use crate::error::{Error, Result, not_supported};
use crate::options::Version;
use crate::types::{Attributes, Found, Handle, ReplyAcls};
use crate::uncommitted_writes::UncommittedPool;
use crate::user::User;

use compound::{Results, Trailer, malformed};
use convert::ReplyAttributes;
use session::SessionClient;
use shared::ClientUse;
pub(crate) use state::WireOpen;

/// An NFSv4.1 or 4.2 server's export.
#[derive(Debug)]
pub(crate) struct Nfs4 {
    client: Arc<SessionClient>,
    /// The session's part in the client.
    used: ClientUse,
    attribute_sink: Option<Arc<dyn AttributeSink>>,
    /// Whether OPENs ask for delegations.
    wants_delegations: bool,
    /// The server applies the umask of new files (`mode_umask`, RFC 8275).
    pub(crate) applies_umask: bool,
    /// The number of files that were created: each create is by another open owner.
    creates: AtomicU64,
    /// Whether the server may have READ_PLUS: the version does, and it hasn't refused one.
    has_read_plus: AtomicBool,
    /// GETATTR of a file's attributes: what is behind a WRITE's payload.
    get_attributes: Trailer,
}

/// The attribute sink, for the reply to one request.
#[derive(Clone, Copy)]
struct Report<'a> {
    client: &'a SessionClient,
    to: Option<&'a dyn AttributeSink>,
    /// When the request was sent.
    asked: Instant,
}

impl Nfs4 {
    /// The minor version that the server agreed to.
    pub(crate) fn version(&self) -> Version {
        match self.client.minor {
            MinorVersion::V0 | MinorVersion::V1 => Version::V4_1,
            MinorVersion::V2 => Version::V4_2,
        }
    }

    /// Fails unless the minor version is 4.2, for an operation that earlier ones don't have.
    fn need_4_2(&self, operation: Op) -> Result<()> {
        match self.client.minor {
            MinorVersion::V2 => Ok(()),
            MinorVersion::V0 | MinorVersion::V1 => Err(not_supported(operation.name())),
        }
    }

    /// Since when a file has been delegated to the client, for writing if it `writes`: attributes that were
    /// requested then or later are true.
    pub(crate) fn delegated_since(&self, file: &Handle, writes: bool) -> Option<Instant> {
        self.client.delegated_since(file, writes)
    }

    /// Where the session keeps the data that waits to be sent.
    pub(crate) fn set_written_behind(&self, pool: &Arc<UncommittedPool>) {
        if self.wants_delegations {
            self.client.set_written_behind(pool);
        }
    }

    /// Whether a session has its locks on a file for certain, or none.
    pub(crate) fn has_locks_for_certain(&self, user: &User, file: &Handle) -> bool {
        self.client.has_locks_for_certain(file, user.session.number)
    }

    /// For a request that is sent now.
    fn report(&self) -> Report<'_> {
        Report { client: &self.client, to: self.attribute_sink.as_deref(), asked: Instant::now() }
    }
}

impl Report<'_> {
    /// A reply carries attributes of `file`, or should.
    fn send(&self, file: &Handle, before: Option<PreOpAttributes>, attributes: Option<Attributes>) {
        let asked = self.asked;
        if let Some(attributes) = &attributes {
            self.client.note_attributes(file, attributes, asked);
        }
        if let Some(sink) = self.to {
            sink.attributes(file, &AttributeUpdate { before, attributes, asked });
        }
    }

    /// A reply carries the access control lists of `file` beside these attributes, which were sent before.
    fn acls(&self, file: &Handle, attributes: &Attributes, acls: &ReplyAcls) {
        if let Some(sink) = self.to {
            sink.acls(file, attributes, acls, self.asked);
        }
    }

    /// Reads the result of GETATTR of `file`, and reports it. After a change the file is known to have other
    /// attributes than before even if the server doesn't send them.
    fn file(
        &self,
        results: &mut Results<'_>,
        file: &Handle,
        before: Option<PreOpAttributes>,
    ) -> Option<Attributes> {
        let attributes = reply_attributes(results).ok().and_then(|attributes| attributes.file());
        self.send(file, before, attributes);
        attributes
    }
}

/// The result of GETATTR.
fn reply_attributes<'a>(results: &mut Results<'a>) -> Result<ReplyAttributes<'a>> {
    let attributes: Fattr4<'_> = results.get(Op::Getattr)?;
    ReplyAttributes::decode(&attributes).map_err(|_| malformed(Op::Getattr.name()))
}

/// The results of GETFH and GETATTR.
fn found(results: &mut Results<'_>) -> Result<Found> {
    let handle = got_handle(results)?;
    let attributes = reply_attributes(results)?;
    handle.note_birth(attributes.birth);
    Ok(Found { handle, attributes: attributes.file() })
}

/// The result of GETFH.
fn got_handle(results: &mut Results<'_>) -> Result<Handle> {
    let handle: NfsFh4<'_> = results.get(Op::Getfh)?;
    file_handle(handle.0)
}

/// A handle from the server.
fn file_handle(bytes: &[u8]) -> Result<Handle> {
    Handle::new(bytes).ok_or_else(|| Error::Protocol {
        object: Op::Getfh.name().to_owned(),
        what: "its file handle is longer than a handle can be",
    })
}
