//! OPEN, OPEN_DOWNGRADE and CLOSE (RFC 8881 sections 18.2, 18.16, 18.18).
//!
//! OPEN checks the file's permissions first, then other clients' share reservations in the engine, and only
//! then creates or truncates the file. An open that is refused creates and truncates nothing.

use std::sync::Arc;

use proto::nfs4::attributes as number;
use proto::nfs4::{
    Bitmap4, ChangeInfo4, Close4Args, Createhow4, MinorVersion, Nfsstat4, Open4Args, Open4ResOk, OpenClaim4,
    OpenDelegation4, OpenDowngrade4Args, Openflag4, RESULT_CONFIRM, RESULT_LOCKTYPE_POSIX,
    RESULT_MAY_NOTIFY_LOCK, SHARE_ACCESS_BOTH, SHARE_ACCESS_WANT_CANCEL, SHARE_ACCESS_WANT_DELEG_MASK,
    SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, SHARE_ACCESS_WANT_PUSH,
    SHARE_ACCESS_WANT_SIGNAL, SHARE_DENY_BOTH, Stateid4,
};
use state::{AccessKind, ClientId, OpenRequest, Share, StateId, StateOwner};
use store::{AccessMode, CreateHow, Error, FileKind, Node, SetAttributes, UserContext, Wcc};

use super::change_info;
use crate::programs::nfs4::attributes::EXCLUSIVE;
use crate::programs::nfs4::attributes::settable::{self, Settable};
use crate::programs::nfs4::context::{Context, Operand};
use crate::programs::nfs4::delegations::{self, Delegatee};
use crate::programs::nfs4::lookup::{self, check_directory, check_name};
use crate::programs::nfs4::object::{File, Object};
use crate::programs::nfs4::owner_seqid::{OwnerEffect, SeqidRequest};
use crate::programs::nfs4::status::{self, Result};

/// The file that OPEN has found or created.
struct Opened {
    node: Arc<Node>,
    directory: ChangeInfo4,
    /// The attributes that were set when it was created.
    set: Bitmap4,
    /// It existed, and is to be truncated.
    truncate: bool,
    /// It was created: its permissions don't restrict this open.
    is_new: bool,
}

pub(crate) fn open(c: &mut Context<'_>, args: Open4Args<'_>) -> Result<()> {
    let share = share(c.minor, args.share_access, args.share_deny)?;
    if share.deny != 0 && c.service.cluster.is_some() {
        // Clients of the cluster's other servers may have it open, and would not be refused.
        return Err(Nfsstat4::ShareDenied);
    }
    let client = c.client(args.owner.clientid)?;
    let reclaim = matches!(args.claim, OpenClaim4::Previous(_));
    let here = match c.object()? {
        Object::Pseudo(_) => return Err(refusal_in_pseudo(c, &args)),
        _ => c.file(Nfsstat4::Isdir)?,
    };
    let grace = c.service.state.run(|engine, now| engine.check_grace(now, client, reclaim));
    grace.map_err(status::of_state)?;
    let user_context = here.user_context()?;
    let opened = match args.claim {
        OpenClaim4::Null(name) => {
            check_directory(&here)?;
            let name = check_name(name.0)?;
            match args.openhow {
                Openflag4::Nocreate => existing(&user_context, &here, name)?,
                Openflag4::Create(how) => create(c, client, &user_context, &here, name, &how)?,
            }
        }
        OpenClaim4::DelegateCur(claim) => {
            check_directory(&here)?;
            check_nocreate(&args.openhow)?;
            let found = existing(&user_context, &here, check_name(claim.file.0)?)?;
            check_delegation(c, client, claim.delegate_stateid, &found.node, share)?;
            found
        }
        OpenClaim4::DelegCurFh(id) => {
            check_nocreate(&args.openhow)?;
            check_delegation(c, client, id, &here.node, share)?;
            current_file(&user_context, &here)?
        }
        OpenClaim4::Fh | OpenClaim4::Previous(_) => {
            check_nocreate(&args.openhow)?;
            current_file(&user_context, &here)?
        }
        // Delegations don't outlive their client.
        OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => return Err(Nfsstat4::Notsupp),
    };
    check_regular(c.minor, &opened.node)?;
    let was_delegated = matches!(args.claim, OpenClaim4::DelegateCur(_) | OpenClaim4::DelegCurFh(_));
    if !opened.is_new {
        check_access(&user_context, &opened.node, share, was_delegated)?;
        check_deny(&user_context, &opened.node, share)?;
    }
    let key = *opened.node.handle();
    let by = c.requester(client);
    let under_delegation = c.minor >= MinorVersion::V1 && was_delegated;
    let owner = args.owner.owner.0;
    let request = OpenRequest { by: &by, owner, key: &key, share, reclaim, under_delegation };
    let refusal = |error| match error {
        state::Error::ShareDenied
            if c.service.state.run(|engine, now| engine.may_be_closed_soon(now, &request)) =>
        {
            Nfsstat4::Delay
        }
        error => status::of_state(error),
    };
    if opened.truncate {
        let checked = c.service.state.run(|engine, now| {
            engine.check_open(now, &request)?;
            engine.check_conflicts(now, Some(client), &key, AccessKind::Write)
        });
        checked.map_err(refusal)?;
        truncate(c, &user_context, &here, &opened.node)?;
    }
    let hold = || here.admitted.preserve_unlinked(&opened.node);
    let id = c.service.state.open(&request, hold).map_err(refusal)?;
    let confirm = c.minor == MinorVersion::V0
        && c.service.state.run(|engine, _| engine.needs_confirmation(client, owner, reclaim));
    let to = Delegatee { user_context: &user_context, node: &opened.node, client };
    let delegation = match args.claim {
        // An open that must be confirmed may come from a stray request.
        _ if confirm => OpenDelegation4::None,
        OpenClaim4::Previous(kind) => delegations::reclaim(c, &to, kind),
        OpenClaim4::Null(_) | OpenClaim4::Fh => delegations::with_open(c, &to, share, args.share_access),
        _ => OpenDelegation4::None,
    };
    let mut rflags = RESULT_LOCKTYPE_POSIX;
    if confirm {
        rflags |= RESULT_CONFIRM;
    }
    if c.minor >= MinorVersion::V1 && !under_delegation && c.service.state.callbacks.is_up(client) {
        rflags |= RESULT_MAY_NOTIFY_LOCK;
    }
    c.set_current(Object::File(here.sibling(Arc::clone(&opened.node))));
    let stateid = c.set_stateid(id);
    c.reply.encoder().put(&Open4ResOk {
        stateid,
        cinfo: opened.directory,
        rflags,
        attrset: opened.set,
        delegation,
    });
    Ok(())
}

/// The error of OPEN in a directory of the pseudo-filesystem: it has directories only, and is read-only.
fn refusal_in_pseudo(c: &Context<'_>, args: &Open4Args<'_>) -> Nfsstat4 {
    let OpenClaim4::Null(name) = args.claim else { return Nfsstat4::Isdir };
    match (lookup::child(c, name.0), &args.openhow) {
        (Ok(_), Openflag4::Nocreate | Openflag4::Create(Createhow4::Unchecked(_))) => Nfsstat4::Isdir,
        (Ok(_), Openflag4::Create(_)) => Nfsstat4::Exist,
        (Err(Nfsstat4::Noent), Openflag4::Create(_)) => Nfsstat4::Rofs,
        (Err(status), _) => status,
    }
}

/// A claim of a file that was opened before can't create it.
fn check_nocreate(openhow: &Openflag4<'_>) -> Result<()> {
    if matches!(openhow, Openflag4::Nocreate) { Ok(()) } else { Err(Nfsstat4::Inval) }
}

/// The file of an open by handle.
fn current_file(user_context: &UserContext<'_>, here: &File) -> Result<Opened> {
    user_context.attributes(&here.node).map_err(status::of_store)?;
    Ok(Opened {
        node: Arc::clone(&here.node),
        directory: ChangeInfo4::default(),
        set: Bitmap4::EMPTY,
        truncate: false,
        is_new: false,
    })
}

/// Whether the client's delegation covers an open with this share access.
fn check_delegation(
    c: &Context<'_>,
    client: ClientId,
    id: Stateid4,
    node: &Node,
    share: Share,
) -> Result<()> {
    let (id, key) = (c.stateid(id)?, node.handle());
    let checked = c.service.state.run(|engine, _| engine.check_delegation(client, &id, key, share.access));
    checked.map_err(status::of_state)
}

/// `share_access` and `share_deny`, without what the client wants besides.
fn share(minor: MinorVersion, access: u32, deny: u32) -> Result<Share> {
    let wants = SHARE_ACCESS_WANT_DELEG_MASK
        | SHARE_ACCESS_WANT_SIGNAL
        | SHARE_ACCESS_WANT_PUSH
        | SHARE_ACCESS_WANT_DELEG_TIMESTAMPS
        | SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let plain = if minor >= MinorVersion::V1 { access & !wants } else { access };
    let want = access & SHARE_ACCESS_WANT_DELEG_MASK;
    let known = (1..=SHARE_ACCESS_BOTH).contains(&plain) && deny <= SHARE_DENY_BOTH;
    if !known || (minor >= MinorVersion::V1 && want > SHARE_ACCESS_WANT_CANCEL) {
        return Err(Nfsstat4::Inval);
    }
    Ok(Share { access: plain as u8, deny: deny as u8 })
}

/// Whether the permissions of a file that exists let the user open it with this share access. The client has
/// already made an open that `was_delegated`, and the mode may have changed since: it binds the owner no more
/// than it does when the file is read or written.
fn check_access(
    user_context: &UserContext<'_>,
    node: &Node,
    share: Share,
    was_delegated: bool,
) -> Result<()> {
    let mode = match share.access {
        1 => AccessMode::Read,
        2 => AccessMode::Write,
        _ => AccessMode::ReadWrite,
    };
    let checked =
        if was_delegated { user_context.may(node, mode) } else { user_context.may_open_found(node, mode) };
    checked.map_err(status::of_store)
}

/// Whether the user may deny others access to the file: only with write permission. A share reservation binds
/// all clients, those of NFSv3 and the lane included, for as long as its client likes. With read permission
/// alone a user could lock out all others, the owner and root among them; a user with write permission can
/// spoil the file for them anyhow.
fn check_deny(user_context: &UserContext<'_>, node: &Node, share: Share) -> Result<()> {
    if share.deny == 0 {
        return Ok(());
    }
    user_context.may(node, AccessMode::Write).map_err(|error| match error {
        Error::ReadOnly | Error::Permission => Nfsstat4::Access,
        other => status::of_store(other),
    })
}

/// Only regular files can be opened.
fn check_regular(minor: MinorVersion, node: &Node) -> Result<()> {
    match node.kind() {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Nfsstat4::Isdir),
        FileKind::Symlink => Err(Nfsstat4::Symlink),
        _ if minor >= MinorVersion::V1 => Err(Nfsstat4::WrongType),
        _ => Err(Nfsstat4::Symlink),
    }
}

fn existing(user_context: &UserContext<'_>, directory: &File, name: &[u8]) -> Result<Opened> {
    let node = user_context.lookup(&directory.node, name).map_err(status::of_store)?;
    let now = user_context.attributes(&directory.node).map_err(status::of_store)?.change;
    Ok(Opened {
        node,
        directory: ChangeInfo4 { atomic: true, before: now, after: now },
        set: Bitmap4::EMPTY,
        truncate: false,
        is_new: false,
    })
}

/// Creates the file, or takes the existing one, as `how` says.
fn create(
    c: &Context<'_>,
    client: ClientId,
    user_context: &UserContext<'_>,
    directory: &File,
    name: &[u8],
    how: &Createhow4<'_>,
) -> Result<Opened> {
    match how {
        Createhow4::Unchecked(attributes) => {
            let settable = settable::decode(attributes, c.minor, &c.service.owners)?;
            match existing(user_context, directory, name) {
                Err(Nfsstat4::Noent) => {}
                found => return found.map(|found| unchecked(found, &settable)),
            }
            match guarded(c, client, user_context, directory, name, &settable) {
                // Another request has created it meanwhile.
                Err(Nfsstat4::Exist) => {
                    existing(user_context, directory, name).map(|found| unchecked(found, &settable))
                }
                other => other,
            }
        }
        Createhow4::Guarded(attributes) => {
            let settable = settable::decode(attributes, c.minor, &c.service.owners)?;
            guarded(c, client, user_context, directory, name, &settable)
        }
        Createhow4::Exclusive(verifier) => {
            let mask = Bitmap4::of(&[number::TIME_ACCESS, number::TIME_MODIFY]);
            create_file(c, client, user_context, directory, name, &CreateHow::Exclusive(*verifier, 0), mask)
        }
        Createhow4::Exclusive41(both) => {
            let settable = settable::decode(&both.attrs, c.minor, &c.service.owners)?;
            if !settable.mask.without(&EXCLUSIVE).is_empty() {
                return Err(Nfsstat4::Inval);
            }
            let mut mask = settable.mask;
            mask.insert(number::TIME_ACCESS);
            mask.insert(number::TIME_MODIFY);
            let acls = settable.acls(user_context, &directory.node, false)?;
            let set = settable.for_new(user_context, &directory.node)?;
            // An error after the file was created would leave it behind: check first.
            user_context.check_set_id(FileKind::Regular, set.mode.unwrap_or(0)).map_err(status::of_store)?;
            // With the mode from the beginning the file inherits its directory's default list as others do.
            // The bits that system calls leave out are set afterwards.
            let mode = set.mode.unwrap_or(0);
            let how = CreateHow::Exclusive(both.verf, mode & 0o777);
            let opened = create_file(c, client, user_context, directory, name, &how, mask)?;
            // Setting a size would change the times, which hold the verifier: a retransmission would find
            // another client's file.
            let set = SetAttributes { size: None, mode: set.mode.filter(|mode| mode & 0o7000 != 0), ..set };
            if !set.is_empty() {
                user_context
                    .set_attributes(&opened.node, &set, None, &mut Wcc::default())
                    .map_err(status::of_store)?;
            }
            settable::set_acls(user_context, &opened.node, acls.as_ref())?;
            Ok(opened)
        }
    }
}

/// Creates the file, which must not exist.
fn guarded(
    c: &Context<'_>,
    client: ClientId,
    user_context: &UserContext<'_>,
    directory: &File,
    name: &[u8],
    settable: &Settable,
) -> Result<Opened> {
    let acls = settable.acls(user_context, &directory.node, false)?;
    let how = CreateHow::Guarded(settable.for_new(user_context, &directory.node)?);
    let opened = create_file(c, client, user_context, directory, name, &how, settable.mask)?;
    settable::set_acls(user_context, &opened.node, acls.as_ref())?;
    Ok(opened)
}

/// UNCHECKED4 of an existing file: of the attributes only a size of 0 has a meaning.
fn unchecked(mut opened: Opened, settable: &Settable) -> Opened {
    if settable.set.size == Some(0) {
        opened.truncate = true;
        opened.set = Bitmap4::of(&[number::SIZE]);
    }
    opened
}

fn create_file(
    c: &Context<'_>,
    client: ClientId,
    user_context: &UserContext<'_>,
    directory: &File,
    name: &[u8],
    how: &CreateHow,
    set: Bitmap4,
) -> Result<Opened> {
    // A file that is left behind by an OPEN that is delayed would be in the way of the next attempt.
    let room = c.service.state.run(|engine, now| engine.check_room_for_new(now, client));
    room.map_err(status::of_state)?;
    c.expect_sync(directory);
    let mut wcc = Wcc::default();
    let created = user_context.create(&directory.node, name, how, &mut wcc);
    let node = created.map_err(|error| match error {
        Error::InvalidName => Nfsstat4::Badname,
        other => status::of_store(other),
    })?;
    c.sync_metadata(directory, user_context, &[&node, &directory.node])?;
    Ok(Opened { node, directory: change_info(&wcc), set, truncate: false, is_new: true })
}

fn truncate(c: &Context<'_>, user_context: &UserContext<'_>, directory: &File, node: &Node) -> Result<()> {
    c.expect_sync(directory);
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    user_context.set_attributes(node, &set, None, &mut Wcc::default()).map_err(status::of_store)?;
    c.sync_metadata(directory, user_context, &[node])
}

/// The owner whose sequence number OPEN carries.
pub(crate) fn open_owner(c: &Context<'_>, args: Open4Args<'_>) -> Result<SeqidRequest> {
    Ok(SeqidRequest {
        by: c.requester(ClientId(args.owner.clientid)),
        owner: StateOwner::Open(args.owner.owner.0.to_vec()),
        seqid: args.seqid,
        effect: OwnerEffect::Opens,
    })
}

pub(crate) fn open_downgrade(c: &mut Context<'_>, args: OpenDowngrade4Args) -> Result<()> {
    let id = c.stateid(args.open_stateid)?;
    let Operand { by, file } = c.operand(&id)?;
    let to = share(c.minor, args.share_access, args.share_deny)?;
    let downgraded = c.service.state.run(|engine, _| engine.downgrade(&by, &id, &file, to));
    let id = c.set_stateid(downgraded.map_err(status::of_state)?);
    c.reply.encoder().put(&id);
    Ok(())
}

/// The owner whose sequence number OPEN_DOWNGRADE carries.
pub(crate) fn open_downgrade_owner(c: &Context<'_>, args: OpenDowngrade4Args) -> Result<SeqidRequest> {
    SeqidRequest::of_stateid(c, args.open_stateid, args.seqid)
}

pub(crate) fn close(c: &mut Context<'_>, args: Close4Args) -> Result<()> {
    let id = c.stateid(args.open_stateid)?;
    let Operand { by, file } = c.operand(&id)?;
    c.service.state.run(|engine, _| engine.close(&by, &id, &file)).map_err(status::of_state)?;
    let closed = c.set_stateid(StateId::INVALID);
    c.reply.encoder().put(&closed);
    Ok(())
}

/// The owner whose sequence number CLOSE carries.
pub(crate) fn close_owner(c: &Context<'_>, args: Close4Args) -> Result<SeqidRequest> {
    let id = StateId { seqid: args.open_stateid.seqid, other: args.open_stateid.other };
    let request = SeqidRequest::of_stateid(c, args.open_stateid, args.seqid)?;
    Ok(SeqidRequest { effect: OwnerEffect::Closes(id), ..request })
}
