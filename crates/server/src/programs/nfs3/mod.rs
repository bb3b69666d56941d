//! The NFS program, version 3 (RFC 1813).
//!
//! A procedure is a function from its arguments to `Result<its ok body, Fault>`. It fills the body of a
//! failure on the way, so that errors carry weak cache consistency data and attributes, too. The dispatch
//! here decodes, runs, encodes and counts, and uses the duplicate-request cache for procedures that must not
//! be executed twice.

mod acl;
mod attributes;
mod convert;
mod create;
mod filesystem;
mod link;
mod lookup;
mod read;
mod readdir;
mod remove;
mod write;

use std::ops::RangeInclusive;
use std::sync::Arc;

use exports::Claim;
use proto::nfs3::{self, Nfsstat3, Outcome, PostOpAttr, Procedure};
use rpc::message::Credential;
use rpc::server::{CallContext, CallError, CallTimer, PayloadAlignment, Program, Reply};
use state::AccessKind;
use store::{Node, UserContext};
use xdr::{Decoder, Encode, Encoder};

use crate::authorization::access::{ExportAccess, Refusal};
use crate::authorization::requester::{Requester, Transport};
use crate::programs::request::{self, RequestSpan};
use crate::service::drc::{Drc, Key, Seen};
use crate::service::{Service, is_permission_denied};
use crate::status::counters::{BegunCall, CallEnd, CountedOperation};

pub(crate) use acl::Nfsacl;

/// The program.
pub(crate) struct Nfs3(pub Arc<Service>);

/// Why a procedure fails: a status, without the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault(Nfsstat3);

/// How a call ended, as its reply says.
type Done = request::Done<Nfsstat3>;
/// A call's end, or why there is no reply of this program.
type Replied = std::result::Result<Done, CallError>;

/// A procedure's result before it is joined to a failure's body.
type Result<O> = std::result::Result<O, Fault>;

/// The context of one call, for its procedure.
struct Call<'a> {
    service: &'a Service,
    cx: &'a CallContext<'a>,
}

impl Call<'_> {
    /// The access check for the export that a handle belongs to.
    fn admit(&self, handle: &[u8]) -> Result<ExportAccess> {
        Ok(self.service.access.admit(handle, requester(self.cx))?)
    }

    /// Announces a change: if its metadata must be durable, the call will wait for the disk.
    fn before_change(&self, admitted: &ExportAccess) {
        if self.service.must_sync_metadata(admitted, self.cx.peer.address) {
            self.cx.will_block();
        }
    }

    /// Checks an access against the state of NFSv4's clients: a delegation is recalled first, and an open may
    /// deny the access. Both are temporary, so the client must retry.
    fn check_conflicts(&self, user_context: &UserContext<'_>, node: &Node, touch: AccessKind) -> Result<()> {
        self.check_conflicts_if(|| Service::check_permission(user_context, node, touch), node, touch)
    }

    /// As [`Call::check_conflicts`], with another permission. Without the permission nothing is recalled, and
    /// the procedure reports the error.
    fn check_conflicts_if(
        &self,
        right: impl FnOnce() -> store::Result<()>,
        node: &Node,
        touch: AccessKind,
    ) -> Result<()> {
        if self.service.state.is_free(touch) || is_permission_denied(right()) {
            return Ok(());
        }
        self.service
            .state
            .check_conflicts_without_open(node.handle(), touch)
            .map_err(|_| Fault(Nfsstat3::Jukebox))
    }

    /// As [`Call::check_conflicts`], for the file with a name, if it exists.
    fn check_conflicts_at(
        &self,
        user_context: &UserContext<'_>,
        directory: &Node,
        name: &[u8],
        touch: AccessKind,
    ) -> Result<()> {
        if self.service.state.is_free(touch) {
            return Ok(());
        }
        match user_context.lookup(directory, name) {
            // A change of the name needs permission on the directory, truncation on the file.
            Ok(node) if touch == AccessKind::Change => {
                self.check_conflicts_if(|| user_context.may_change_entries(directory), &node, touch)
            }
            Ok(node) => self.check_conflicts(user_context, &node, touch),
            // The procedure reports the error.
            Err(_) => Ok(()),
        }
    }

    /// A file's attributes where they are optional in the reply. Left out while another client writes the
    /// file under a delegation: a GETATTR then gets them from that client.
    fn current(&self, user_context: &UserContext<'_>, node: &Node) -> PostOpAttr {
        if self.service.state.is_write_delegated(node) { None } else { convert::post_op(user_context, node) }
    }

    /// Makes the metadata of `changed` durable if it must be before the reply.
    fn sync_metadata(
        &self,
        admitted: &ExportAccess,
        user_context: &UserContext<'_>,
        changed: &[&Node],
    ) -> Result<()> {
        Ok(self.service.sync_metadata(admitted, self.cx.peer.address, user_context, changed)?)
    }
}

/// The origin of a call.
pub(crate) fn requester<'a>(cx: &CallContext<'a>) -> Requester<'a> {
    let claim = match cx.credential {
        Credential::None => None,
        Credential::Sys(sys) => Some(Claim { uid: sys.uid, gid: sys.gid, gids: &sys.gids }),
    };
    Requester { address: cx.peer.address, owner: cx.peer.owner, claim, transport: Transport::Wire }
}

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        nfs3::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs3::VERSION..=nfs3::VERSION
    }

    fn aligns_payloads(&self) -> bool {
        self.0.access.has_direct_writes()
    }

    fn payload_alignment(&self, _version: u32, procedure: u32, args: &[u8]) -> PayloadAlignment {
        if procedure == Procedure::Write.number() {
            write::payload_alignment(args)
        } else {
            PayloadAlignment::Anywhere
        }
    }

    fn postpone(
        &self,
        _: &CallContext<'_>,
        procedure: u32,
        _: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> std::result::Result<(), CallError> {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        let to = reply.encoder();
        to.put(&Nfsstat3::Jukebox);
        (0..optional_attributes(procedure)).for_each(|_| to.bool(false));
        Ok(())
    }

    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> std::result::Result<(), CallError> {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        let begun = BegunCall::now();
        let span = RequestSpan::enter(cx, "NFS", procedure.name());
        let call = Call { service: &self.0, cx };
        let run = |args: &mut Decoder<'_>, reply: &mut Reply| run(&call, procedure, args, reply);
        let done = match drc(&self.0, procedure) {
            None => run(args, reply),
            Some(drc) => {
                let key = Key::new(cx, nfs3::PROGRAM, procedure.number(), args.rest());
                run_once((drc, key), args, reply, run)
            }
        };
        self.0.counters.record_reply(begun, &end_of(cx, CountedOperation::Nfs3(procedure), &done), reply);
        span.end(&done)
    }

    fn completed(&self, timer: CallTimer) {
        self.0.counters.record_completion(timer);
    }
}

/// Runs a procedure once: a retransmission of the call with this key gets the first run's reply.
fn run_once(
    (drc, key): (&Drc, Key),
    args: &mut Decoder<'_>,
    reply: &mut Reply,
    run: impl FnOnce(&mut Decoder<'_>, &mut Reply) -> Replied,
) -> Replied {
    match drc.begin(key) {
        Seen::Before(results) => {
            reply.encoder().raw(&results);
            // The status is the first word of every procedure's results.
            let status = Decoder::new(&results).get()?;
            Ok(Done { status, bytes: 0 })
        }
        Seen::InProgress => Err(CallError::Drop),
        Seen::New(ticket) => {
            let done = run(args, reply)?;
            ticket.finish(reply.results());
            Ok(done)
        }
    }
}

/// How many optional attributes follow a failure's status (RFC 1813 section 3.3).
const fn optional_attributes(procedure: Procedure) -> usize {
    use Procedure as P;
    match procedure {
        P::Null | P::Getattr => 0,
        P::Lookup | P::Access | P::Readlink | P::Read | P::Readdir | P::Readdirplus => 1,
        P::Fsstat | P::Fsinfo | P::Pathconf => 1,
        P::Setattr | P::Write | P::Create | P::Mkdir | P::Symlink | P::Mknod => 2,
        P::Remove | P::Rmdir | P::Commit => 2,
        P::Link => 3,
        P::Rename => 4,
    }
}

/// The cache of the replies to a procedure that changes something. The others may be executed twice.
const fn drc(service: &Service, procedure: Procedure) -> Option<&Drc> {
    use Procedure as P;
    match procedure {
        P::Null | P::Getattr | P::Lookup | P::Access | P::Readlink | P::Read | P::Commit => None,
        P::Readdir | P::Readdirplus | P::Fsstat | P::Fsinfo | P::Pathconf => None,
        P::Write => Some(&service.write_drc),
        P::Setattr | P::Create | P::Mkdir | P::Symlink | P::Mknod => Some(&service.drc),
        P::Remove | P::Rmdir | P::Rename | P::Link => Some(&service.drc),
    }
}

/// Decodes, runs and encodes.
fn run(call: &Call<'_>, procedure: Procedure, args: &mut Decoder<'_>, reply: &mut Reply) -> Replied {
    let to = reply.encoder();
    match procedure {
        Procedure::Null => Ok(Done { status: Nfsstat3::Ok, bytes: 0 }),
        Procedure::Getattr => answer(call, to, args.get()?, attributes::getattr),
        Procedure::Setattr => answer(call, to, args.get()?, attributes::setattr),
        Procedure::Lookup => answer(call, to, args.get()?, lookup::lookup),
        Procedure::Access => answer(call, to, args.get()?, attributes::access),
        Procedure::Readlink => answer(call, to, args.get()?, lookup::readlink),
        Procedure::Read => Ok(read::read(call, args.get()?, reply)),
        Procedure::Write => Ok(write::write(call, args.get()?, to)),
        Procedure::Create => answer(call, to, args.get()?, create::create),
        Procedure::Mkdir => answer(call, to, args.get()?, create::mkdir),
        Procedure::Symlink => answer(call, to, args.get()?, create::symlink),
        Procedure::Mknod => answer(call, to, args.get()?, create::mknod),
        Procedure::Remove => answer(call, to, args.get()?, remove::remove),
        Procedure::Rmdir => answer(call, to, args.get()?, remove::rmdir),
        Procedure::Rename => answer(call, to, args.get()?, link::rename),
        Procedure::Link => answer(call, to, args.get()?, link::link),
        Procedure::Readdir => Ok(readdir::readdir(call, args.get()?, to)),
        Procedure::Readdirplus => Ok(readdir::readdirplus(call, args.get()?, to)),
        Procedure::Fsstat => answer(call, to, args.get()?, filesystem::fsstat),
        Procedure::Fsinfo => answer(call, to, args.get()?, filesystem::fsinfo),
        Procedure::Pathconf => answer(call, to, args.get()?, filesystem::pathconf),
        Procedure::Commit => answer(call, to, args.get()?, write::commit),
    }
}

/// Runs a procedure with an empty failure body, joins the two and encodes.
fn answer<A, O: Encode, F: Encode + Default>(
    call: &Call<'_>,
    to: &mut Encoder,
    args: A,
    procedure: impl FnOnce(&Call<'_>, A, &mut F) -> Result<O>,
) -> Replied {
    let mut body = F::default();
    let outcome = outcome(procedure(call, args, &mut body), body);
    to.put(&outcome);
    Ok(Done { status: outcome.status(), bytes: 0 })
}

/// How a call ended, for the counters.
fn end_of<'a>(cx: &CallContext<'_>, operation: CountedOperation, done: &'a Replied) -> CallEnd<'a> {
    request::call_end(cx, operation, done, (&Nfsstat3::Ok, |status| *status as u32))
}

/// Joins a result to a failure's body.
fn outcome<O, F>(result: Result<O>, body: F) -> Outcome<O, F> {
    match result {
        Ok(ok) => Outcome::Ok(ok),
        Err(Fault(status)) => Outcome::Fail(status, body),
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self(match refusal {
            Refusal::BadHandle => Nfsstat3::Badhandle,
            Refusal::NotExported => Nfsstat3::Stale,
            Refusal::NotKnownYet => Nfsstat3::Jukebox,
            Refusal::InsecurePort => Nfsstat3::Perm,
            Refusal::OtherUser => Nfsstat3::Acces,
            // Can't happen on the wire.
            Refusal::NoLane => Nfsstat3::Acces,
        })
    }
}

impl From<store::Error> for Fault {
    fn from(error: store::Error) -> Self {
        Self(convert::status(error))
    }
}
