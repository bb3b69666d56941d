//! OPEN: one COMPOUND opens a file, and brings its handle, its attributes and the user's rights, and if it is
//! small and is only read, its content.
//!
//! The content is read behind the attributes: if another client writes meanwhile it is the newer of the two,
//! and later attributes show the change. The reply is kept by the server like that to any other OPEN, so the
//! content must have room in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client_state::Share;
use proto::nfs4::{
    Access4Args, Access4ResOk, ChangeInfo4, Createhow4, Creatverfattr, Nfsstat4, Open4Args, Open4ResOk,
    OpenClaim4, Openflag4, Operation as Op, Read4Args, Read4ResOk, SHARE_ACCESS_WANT_NO_DELEG,
    SHARE_ACCESS_WANT_READ_DELEG, SHARE_ACCESS_WANT_WRITE_DELEG, Stateid4,
};
use xdr::Opaque;

use super::compound::{Compound, Results, refused};
use super::convert::{FILE, Settable};
use super::delegation::{GrantedDelegation, OpenedFile, send_return};
use super::session::{CompoundReply, SessionClient};
use super::state::{
    CURRENT, ChangeInFlight, ClosesAlong, HeldState, OpenOwner, READ_ACCESS, WRITE_ACCESS, WireOpen,
    open_args, state_id,
};
use super::{Nfs4, Report, got_handle, reply_attributes};
use crate::attribute_sink::PreOpAttributes;
use crate::error::{Error, Result, Status};
use crate::operations::{FileTarget, OpenPlan, OpenReply, Operations as _, open_without_state};
use crate::types::{Access, Attributes, Create, Found, Handle, Operation, SetAttributes};
use crate::user::User;

/// The rights that an open asks for: those to a regular file.
const RIGHTS: Access = Access(Access::READ.0 | Access::MODIFY.0 | Access::EXTEND.0 | Access::EXECUTE.0);

/// The operations of an OPEN's request at most, SEQUENCE not counted.
const MAX_OPERATIONS: usize = 7;

/// The room for everything but the content in a reply to OPEN, in bytes, with that for CLOSEs. If attributes
/// need more, the server doesn't read the content.
const OPEN_REPLY: u32 = 1 << 10;

/// The pauses before a LOOKUP is sent again that the server delays. They double.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// An OPEN to be sent.
struct OpenCall {
    owner: OpenOwner,
    share: Share,
    /// An `OPEN4_SHARE_ACCESS_WANT_` value.
    want: u32,
    kind: OpenKind,
    /// The bytes that the READ at the end asks for; 0 without one.
    content: u32,
    compound: Compound,
}

/// What an OPEN is of, as far as its results depend on it.
enum OpenKind {
    /// The file of this handle.
    File(Handle),
    /// An existing file of a name in a directory.
    Entry(Handle, Box<[u8]>),
    /// A file that is created, followed by the directory's attributes.
    New(Handle, Box<[u8]>),
}

/// The results of an OPEN that succeeded.
struct OpenResults {
    stateid: Stateid4,
    file: Found,
    access: Option<Access>,
    directory: Option<(Option<PreOpAttributes>, Option<Attributes>)>,
    content: Option<Vec<u8>>,
    /// `OPEN4_RESULT_` flags.
    flags: u32,
    delegation: Option<GrantedDelegation>,
}

/// How an OPEN was answered.
enum Opened {
    /// With the time when the OPEN was sent whose results these are.
    File(Box<OpenResults>, WireOpen, Instant),
    /// The name's file isn't regular.
    Other,
    /// The file was created, and isn't found.
    Unknown,
}

/// The results in a reply.
enum OpenAnswer {
    File(Box<OpenResults>),
    Other,
    /// The file was opened, and the server's GETFH failed: its handle is missing.
    WithoutHandle(OpenedWithoutHandle),
}

/// What is known of an opened file without its handle.
struct OpenedWithoutHandle {
    error: Error,
    stateid: Stateid4,
    flags: u32,
    delegation: Option<GrantedDelegation>,
}

impl OpenKind {
    /// Whether the reply tells which file it is.
    const fn is_by_name(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    fn results(&self, results: &mut Results<'_>, asked: u32) -> Result<OpenAnswer> {
        results.succeeded(Op::Putfh)?;
        match results.status(Op::Open)? {
            Nfsstat4::Ok => {}
            Nfsstat4::Symlink | Nfsstat4::Isdir | Nfsstat4::WrongType if matches!(self, Self::Entry(..)) => {
                return Ok(OpenAnswer::Other);
            }
            status => return Err(refused(Op::Open, status)),
        }
        let opened: Open4ResOk<'_> = results.value(Op::Open)?;
        let (flags, delegation) = (opened.rflags, GrantedDelegation::of(&opened.delegation));
        let handle = match self {
            Self::File(file) => file.clone(),
            Self::Entry(directory, name) | Self::New(directory, name) => match got_handle(results) {
                Ok(handle) => handle.found_at(directory, name),
                Err(error) => {
                    let stateid = opened.stateid;
                    let opened = OpenedWithoutHandle { error, stateid, flags, delegation };
                    return Ok(OpenAnswer::WithoutHandle(opened));
                }
            },
        };
        // Whatever fails from here on, the file is open.
        let attributes_now = attributes(results, self.is_by_name().then_some(&handle));
        let file = Found { handle, attributes: attributes_now };
        let access = results.get::<Access4ResOk>(Op::Access).ok();
        let directory = matches!(self, Self::New(..)).then(|| {
            let attributes = results.succeeded(Op::Putfh).ok().and_then(|()| attributes(results, None));
            (before(opened.cinfo), attributes)
        });
        let content = if asked > 0 { content(results, asked) } else { None };
        Ok(OpenAnswer::File(Box::new(OpenResults {
            stateid: opened.stateid,
            file,
            access: access.map(|ok| Access(ok.access & RIGHTS.0)),
            directory,
            content,
            flags,
            delegation,
        })))
    }
}

/// The result of GETATTR of a file, if it is there. That of a file that was `found` tells when it was made.
fn attributes(results: &mut Results<'_>, found: Option<&Handle>) -> Option<Attributes> {
    let attributes = reply_attributes(results).ok()?;
    if let Some(handle) = found {
        handle.note_birth(attributes.birth);
    }
    attributes.file()
}

/// The result of READ, if it is there and has the whole file.
fn content(results: &mut Results<'_>, asked: u32) -> Option<Vec<u8>> {
    let Read4ResOk { eof, data } = results.get(Op::Read).ok()?;
    (eof && data.0.len() <= asked as usize).then(|| data.0.to_vec())
}

/// The change attributes around an operation, if no other change came between.
pub(super) fn before(info: ChangeInfo4) -> Option<PreOpAttributes> {
    let ChangeInfo4 { atomic, before, after } = info;
    atomic.then_some(PreOpAttributes::Change { before, after })
}

/// OPEN of a handle, with attributes and rights.
fn open_handle(file: &Handle, share: Share, want: u32, owner: &OpenOwner) -> Compound {
    Compound::once()
        .put_fh(file)
        .then(Op::Open, &open_args(share, want, &owner.name(), OpenClaim4::Fh))
        .get_attributes(&FILE)
        .then(Op::Access, &Access4Args { access: RIGHTS.0 })
}

/// Sends an OPEN, and again while its session is replaced before the answer.
async fn send_open(client: Arc<SessionClient>, call: OpenCall) -> Result<Opened> {
    let OpenCall { owner, share, want, mut kind, content, mut compound } = call;
    let mut opening = Some(client.update(|held| {
        held.openings += 1;
        held.opens.opening(owner.clone())
    }));
    let mut created = None;
    let answer = loop {
        let sent = client.look(HeldState::sent_open);
        let room = client.max_operations().saturating_sub(MAX_OPERATIONS);
        let along = ClosesAlong::take(&client, &owner, room / 2);
        let reply = match client.call(owner.user(), &along.behind(&compound), None).await {
            Ok(reply) => reply,
            Err(error) => {
                along.end(None);
                break Err(error);
            }
        };
        let results = reply.results().map(|mut results| (kind.results(&mut results, content), results));
        let (answer, rest) =
            results.map_or_else(|error| (Err(error), None), |(answer, rest)| (answer, Some(rest)));
        along.end(rest.filter(Results::has_more).map(|rest| (reply.session, rest)));
        let results = match answer {
            Ok(OpenAnswer::File(results)) => results,
            Ok(OpenAnswer::Other) => break Ok(Opened::Other),
            Ok(OpenAnswer::WithoutHandle(opened)) => {
                match find_opened(&client, &owner, &kind, opened).await {
                    Ok(results) => Box::new(results),
                    Err(_) if matches!(kind, OpenKind::New(..)) => break Ok(Opened::Unknown),
                    Err(error) => break Err(error),
                }
            }
            Err(error) => break Err(error),
        };
        let OpenResults { access, flags, delegation, .. } = *results;
        let (id, attributes) = (state_id(results.stateid), results.file.attributes);
        let opened = OpenedFile { share, id, access, flags, delegation, attributes, sent };
        if let Some(open) = client.opened(reply.session, &mut opening, &results.file.handle, &opened) {
            let (results, asked) = created.unwrap_or((results, sent.at));
            break Ok(Opened::File(results, open, asked));
        }
        if let Some(delegation) = delegation {
            // The server may have it still, if the client id is the same.
            let (in_flight, file) = (ChangeInFlight::new(&client), results.file.handle.clone());
            drop(client.spawn(send_return(in_flight, file, delegation.id)));
        }
        if matches!(kind, OpenKind::New(..)) {
            // The file is there; only its open was lost.
            compound = open_handle(&results.file.handle, share, want, &owner);
            kind = OpenKind::File(results.file.handle.clone());
            created = Some((results, sent.at));
        }
    };
    client.update(|held| {
        held.end_open();
        opening.into_iter().for_each(|opening| held.opens.not_opened(opening));
    });
    answer
}

/// Finds the file that an OPEN by name has opened, so that it can be used and closed. If the name is another
/// file's by now, the server refuses the state id with that, and the file is opened again.
async fn find_opened(
    client: &Arc<SessionClient>,
    owner: &OpenOwner,
    kind: &OpenKind,
    opened: OpenedWithoutHandle,
) -> Result<OpenResults> {
    let OpenedWithoutHandle { error, stateid, flags, delegation } = opened;
    let (directory, name) = match kind {
        OpenKind::Entry(directory, name) | OpenKind::New(directory, name) => (directory, name),
        OpenKind::File(_) => return Err(error),
    };
    tracing::debug!(%error, "an opened file's handle is missing: its name is looked up");
    let compound = Compound::new().put_fh(directory).lookup(name).get_file();
    let mut pause = MIN_PAUSE;
    let file = loop {
        owner.user().session.counters.call(Operation::Lookup);
        let reply = client.call(owner.user(), &compound, None).await?;
        match looked_up(&reply) {
            Err(error) if error.status() == Some(Status::TryLater) && pause < MAX_PAUSE => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => break other?,
        }
    };
    let file = Found { handle: file.handle.found_at(directory, name), ..file };
    Ok(OpenResults { stateid, file, access: None, directory: None, content: None, flags, delegation })
}

/// The file in the reply to a LOOKUP.
fn looked_up(reply: &CompoundReply) -> Result<Found> {
    let mut results = reply.results()?;
    results.succeeded(Op::Putfh)?;
    results.succeeded(Op::Lookup)?;
    let handle = got_handle(&mut results)?;
    let attributes = attributes(&mut results, Some(&handle));
    Ok(Found { handle, attributes })
}

impl SessionClient {
    /// Asks for a write delegation of a file that the owner has open for writing, by another OPEN of it.
    pub(super) async fn ask_for_delegation(self: &Arc<Self>, file: &Handle, owner: &OpenOwner) {
        let is_open = |access| {
            let is_open = self.look(|held| matches!(held.opens.io_id_of(file, owner, access), Ok(Some(_))));
            is_open.then_some(access)
        };
        let Some(access) = is_open(READ_ACCESS | WRITE_ACCESS).or_else(|| is_open(WRITE_ACCESS)) else {
            return;
        };
        let (share, want) = (Share { access, deny: 0 }, SHARE_ACCESS_WANT_WRITE_DELEG);
        let compound = open_handle(file, share, want, owner);
        let (owner, kind) = (owner.clone(), OpenKind::File(file.clone()));
        owner.user().session.counters.call(Operation::Open);
        // The open that this makes is closed at once: it is the one that the owner has already.
        let call = OpenCall { owner, share, want, kind, content: 0, compound };
        let asked = self.spawn(send_open(self.clone(), call));
        if let Ok(Err(error)) = asked.await {
            tracing::debug!(%error, "an OPEN for a delegation has failed");
        }
    }
}

impl Nfs4 {
    /// OPEN, see [`Operations::open`](crate::operations::Operations::open).
    pub(super) async fn open_file(
        &self,
        user: &User,
        target: FileTarget<'_>,
        OpenPlan { read, write, content }: OpenPlan,
    ) -> Result<OpenReply> {
        if !read && !write {
            return open_without_state(self, user, target).await;
        }
        let access = if read { READ_ACCESS } else { 0 } | if write { WRITE_ACCESS } else { 0 };
        let (share, owner) = (Share { access, deny: 0 }, OpenOwner::new(user));
        if let FileTarget::File(file) = target {
            if let Some((open, access)) = self.client.open_delegated(&owner, file, share) {
                let found = Found { handle: file.clone(), attributes: None };
                return Ok(OpenReply {
                    found: Some(found),
                    access: Some(access),
                    state: Some(open),
                    content: None,
                });
            }
            if write {
                self.client.return_delegation_unless_for_writing(file).await;
            }
        }
        let want = match target {
            _ if !self.wants_delegations => SHARE_ACCESS_WANT_NO_DELEG,
            // To ask for a read delegation would be to give up a write delegation (RFC 8881 section 18.16.3).
            _ if self.client.look(|held| held.is_delegated(&target)) => SHARE_ACCESS_WANT_NO_DELEG,
            _ if !write => SHARE_ACCESS_WANT_READ_DELEG,
            FileTarget::File(file) if self.client.look(|held| held.wants_write_delegation(file)) => {
                SHARE_ACCESS_WANT_WRITE_DELEG
            }
            // Which file it will be isn't known yet.
            _ => SHARE_ACCESS_WANT_NO_DELEG,
        };
        let rights = Access4Args { access: RIGHTS.0 };
        let has_room = content <= self.client.max_kept_reply().saturating_sub(OPEN_REPLY);
        let content =
            if write || !has_room || matches!(target, FileTarget::New { .. }) { 0 } else { content };
        let (operation, kind, compound, place) = match target {
            FileTarget::File(file) => {
                let compound = open_handle(file, share, want, &owner);
                (Operation::Open, OpenKind::File(file.clone()), compound, None)
            }
            FileTarget::Entry { directory, name, .. } => {
                let compound = Compound::once()
                    .put_fh(directory)
                    .then(Op::Open, &open_args(share, want, &owner.name(), OpenClaim4::Null(Opaque(name))))
                    .get_file()
                    .then(Op::Access, &rights);
                let kind = OpenKind::Entry(directory.clone(), name.into());
                (Operation::Open, kind, compound, Some((directory, name)))
            }
            FileTarget::New { directory, name, how } => {
                let (settable, owner_name) = (self.settable_at_create(user, how), owner.name());
                let open = Open4Args {
                    openhow: Openflag4::Create(create_how(how, &settable)),
                    ..open_args(share, want, &owner_name, OpenClaim4::Null(Opaque(name)))
                };
                let compound = Compound::once()
                    .put_fh(directory)
                    .then(Op::Open, &open)
                    .get_file()
                    .then(Op::Access, &rights)
                    .put_fh(directory)
                    .get_attributes(&FILE);
                let kind = OpenKind::New(directory.clone(), name.into());
                (Operation::Create, kind, compound, Some((directory, name)))
            }
        };
        let compound = if content > 0 {
            compound.then(Op::Read, &Read4Args { stateid: CURRENT, offset: 0, count: content })
        } else {
            compound
        };
        let report = self.report();
        user.session.counters.call(operation);
        let call = OpenCall { owner, share, want, kind, content, compound };
        // A task of its own, so that what is opened is closed again if this caller stops waiting.
        let sent = self.client.spawn(send_open(self.client.clone(), call)).await;
        let opened = sent.map_err(|error| Error::Local {
            object: Op::Open.name().to_owned(),
            source: std::io::Error::other(error),
        })??;
        match (opened, place) {
            (Opened::File(results, open, asked), place) => {
                // A delegation in this reply begins at this time. While it lasts, the attributes stay true.
                let report = Report { asked, ..report };
                report.send(&results.file.handle, None, results.file.attributes);
                if let (Some((before, attributes)), Some((directory, _))) = (results.directory, place) {
                    report.send(directory, before, attributes);
                }
                let OpenResults { file, access, content, .. } = *results;
                Ok(OpenReply { found: Some(file), access, state: Some(open), content })
            }
            (Opened::Other, Some((directory, name))) => {
                let found = self.lookup(user, directory, name).await?;
                Ok(OpenReply { found: Some(found), access: None, state: None, content: None })
            }
            (Opened::Other | Opened::Unknown, place) => {
                if let Some((directory, _)) = place {
                    report.send(directory, None, None);
                }
                Ok(OpenReply { found: None, access: None, state: None, content: None })
            }
        }
    }
}

impl Nfs4 {
    /// The attributes that a file is made with. A server without `mode_umask` gets the mode as it is if the
    /// file inherits no access control list, like that of the kernel's client.
    pub(super) fn settable_of_new(&self, user: &User, set: &SetAttributes) -> Settable {
        match self.applies_umask {
            true if user.umask != 0 => Settable::with_umask(set, user.umask),
            _ => Settable::new(&user.masked_set(set)),
        }
    }

    /// The attributes that OPEN creates a file with.
    pub(super) fn settable_at_create(&self, user: &User, how: &Create) -> Settable {
        match how {
            Create::Unchecked(set) | Create::Guarded(set) => self.settable_of_new(user, set),
            Create::Exclusive { mode, .. } if self.applies_umask => {
                let set = SetAttributes { mode: Some(*mode), ..SetAttributes::default() };
                Settable::with_umask(&set, user.umask)
            }
            // They are set afterwards: a server may keep the verifier in some.
            Create::Exclusive { .. } => Settable::new(&SetAttributes::default()),
        }
    }
}

/// How OPEN creates a file.
pub(super) fn create_how<'a>(how: &Create, settable: &'a Settable) -> Createhow4<'a> {
    match how {
        Create::Unchecked(_) => Createhow4::Unchecked(settable.fattr()),
        Create::Guarded(_) => Createhow4::Guarded(settable.fattr()),
        Create::Exclusive { verifier, .. } => {
            Createhow4::Exclusive41(Creatverfattr { verf: *verifier, attrs: settable.fattr() })
        }
    }
}
