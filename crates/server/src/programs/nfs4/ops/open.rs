//! OPEN, OPEN_DOWNGRADE and CLOSE (RFC 8881 sections 18.2, 18.16, 18.18).
//!
//! OPEN asks three: the filesystem whether the user may, the engine whether other clients' share reservations
//! let it, and then the filesystem again, to make or to truncate the file. Nothing is made or truncated for
//! an open that is refused.

use std::sync::Arc;

use proto::nfs4::attributes as number;
use proto::nfs4::{
    Bitmap4, ChangeInfo4, Close4Args, Createhow4, MinorVersion, Nfsstat4, Open4Args, Open4ResOk, OpenClaim4,
    OpenDelegation4, OpenDowngrade4Args, Openflag4, RESULT_CONFIRM, RESULT_LOCKTYPE_POSIX,
    RESULT_MAY_NOTIFY_LOCK, SHARE_ACCESS_BOTH, SHARE_ACCESS_WANT_CANCEL, SHARE_ACCESS_WANT_DELEG_MASK,
    SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, SHARE_ACCESS_WANT_PUSH,
    SHARE_ACCESS_WANT_SIGNAL, SHARE_DENY_BOTH, Stateid4,
};
use state::{AccessKind, ClientId, OpenRequest, Requester, Share, StateId};
use store::{AccessMode, Acting, CreateHow, Error, FileHandle, Kind, Node, SetAttributes, Wcc};

use super::delegation;
use super::handles::{find, must_be_directory};
use super::{change_info, name};
use crate::nfs4::attributes::EXCLUSIVE;
use crate::nfs4::compound::Compound;
use crate::nfs4::object::{File, Object};
use crate::nfs4::settable::{self, Settable};
use crate::nfs4::{Result, status};

/// The file that an OPEN is about, found or made.
struct Opened {
    node: Arc<Node>,
    directory: ChangeInfo4,
    /// Attributes that it was made with.
    set: Bitmap4,
    /// It was there before, and is to be cut to nothing.
    truncate: bool,
    /// It wasn't: whoever made it may do with it what he asked for.
    is_new: bool,
}

pub(in crate::programs::nfs4) fn open(c: &mut Compound<'_>, args: Open4Args<'_>) -> Result<()> {
    let share = share(c.minor, args.share_access, args.share_deny)?;
    let client = c.client(args.owner.clientid)?;
    let reclaim = matches!(args.claim, OpenClaim4::Previous(_));
    let here = match c.object()? {
        Object::Pseudo(_) => return Err(refusal_in_pseudo(c, &args)),
        _ => c.file(Nfsstat4::Isdir)?,
    };
    let grace = c.service.state.run(|engine, now| engine.check_grace(now, client, reclaim));
    grace.map_err(status::of_state)?;
    let acting = here.acting()?;
    let opened = match args.claim {
        OpenClaim4::Null(wanted) => {
            must_be_directory(&here)?;
            let wanted = name(wanted.0)?;
            match args.openhow {
                Openflag4::Nocreate => existing(&acting, &here, wanted)?,
                Openflag4::Create(how) => make(c, &acting, &here, wanted, &how)?,
            }
        }
        OpenClaim4::DelegateCur(claim) => {
            must_be_directory(&here)?;
            must_exist(&args.openhow)?;
            let found = existing(&acting, &here, name(claim.file.0)?)?;
            check_delegation(c, client, claim.delegate_stateid, &found.node, share)?;
            found
        }
        OpenClaim4::DelegCurFh(id) => {
            must_exist(&args.openhow)?;
            check_delegation(c, client, id, &here.node, share)?;
            the_current_file(&here)
        }
        OpenClaim4::Fh | OpenClaim4::Previous(_) => {
            must_exist(&args.openhow)?;
            the_current_file(&here)
        }
        // Delegations don't outlive their client.
        OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => return Err(Nfsstat4::Notsupp),
    };
    must_be_regular(c.minor, &opened.node)?;
    if !opened.is_new {
        may(&acting, &opened.node, share)?;
        may_deny(&acting, &opened.node, share)?;
    }
    let key = *opened.node.handle();
    let by = c.requester(client);
    let request = OpenRequest { by: &by, owner: args.owner.owner.0, key: &key, share, reclaim };
    if opened.truncate {
        let may = c.service.state.run(|engine, now| {
            engine.check_open(now, &request)?;
            engine.check_conflicts(now, Some(client), &key, AccessKind::Write)
        });
        may.map_err(status::of_state)?;
        truncate(c, &acting, &here, &opened.node)?;
    }
    let hold = || here.admitted.hold(&opened.node);
    let id = c.service.state.open(&request, hold).map_err(status::of_state)?;
    let owner = args.owner.owner.0;
    let confirm = c.minor == MinorVersion::V0
        && c.service.state.run(|engine, _| engine.needs_confirmation(client, owner, reclaim));
    let delegation = match args.claim {
        // One that has to confirm its open may be a stray request.
        _ if confirm => OpenDelegation4::None,
        OpenClaim4::Previous(kind) => delegation::reclaim(c, &acting, &opened.node, client, kind),
        OpenClaim4::Null(_) | OpenClaim4::Fh => {
            delegation::offer(c, &acting, &opened.node, client, share, args.share_access)
        }
        _ => OpenDelegation4::None,
    };
    let mut rflags = RESULT_LOCKTYPE_POSIX;
    if confirm {
        rflags |= RESULT_CONFIRM;
    }
    if c.minor >= MinorVersion::V1 && c.service.state.callbacks.is_up(client) {
        rflags |= RESULT_MAY_NOTIFY_LOCK;
    }
    c.set_current(Object::File(here.sibling(Arc::clone(&opened.node))));
    let stateid = c.give_stateid(id);
    c.reply.encoder().put(&Open4ResOk {
        stateid,
        cinfo: opened.directory,
        rflags,
        attrset: opened.set,
        delegation,
    });
    Ok(())
}

/// Why nothing is opened or made in a pseudo directory: there are directories only, and nobody can add
/// anything.
fn refusal_in_pseudo(c: &Compound<'_>, args: &Open4Args<'_>) -> Nfsstat4 {
    let OpenClaim4::Null(wanted) = args.claim else { return Nfsstat4::Isdir };
    let found = find(c, wanted.0);
    match (found, &args.openhow) {
        (Ok(_), Openflag4::Nocreate | Openflag4::Create(Createhow4::Unchecked(_))) => Nfsstat4::Isdir,
        (Ok(_), Openflag4::Create(_)) => Nfsstat4::Exist,
        (Err(Nfsstat4::Noent), Openflag4::Create(_)) => Nfsstat4::Rofs,
        (Err(status), _) => status,
    }
}

/// What was opened before by another right isn't made now.
fn must_exist(how: &Openflag4<'_>) -> Result<()> {
    if matches!(how, Openflag4::Nocreate) { Ok(()) } else { Err(Nfsstat4::Inval) }
}

fn the_current_file(here: &File) -> Opened {
    Opened {
        node: Arc::clone(&here.node),
        directory: ChangeInfo4::default(),
        set: Bitmap4::EMPTY,
        truncate: false,
        is_new: false,
    }
}

/// Whether the client's delegation lets it open the file so.
fn check_delegation(
    c: &Compound<'_>,
    client: ClientId,
    id: Stateid4,
    node: &Node,
    share: Share,
) -> Result<()> {
    let (id, key) = (c.stateid(id)?, node.handle());
    let checked = c.service.state.run(|engine, _| engine.check_delegation(client, &id, key, share.access));
    checked.map_err(status::of_state)
}

/// What is opened for, and what is denied.
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

/// Whether the user may open the file so.
fn may(acting: &Acting<'_>, node: &Node, share: Share) -> Result<()> {
    let mode = match share.access {
        1 => AccessMode::Read,
        2 => AccessMode::Write,
        _ => AccessMode::ReadWrite,
    };
    acting.may_open(node, mode).map_err(status::of_store)
}

/// Whether the user may keep others from the file: who may write it. Deny modes bind everybody, NFSv3 and the
/// lane included, and a client keeps one for as long as it likes. With no more than the right to read, a user
/// could so shut out whoever else needs the file, its owner and root among them; a user who may write it can
/// spoil it for them anyhow.
fn may_deny(acting: &Acting<'_>, node: &Node, share: Share) -> Result<()> {
    if share.deny == 0 {
        return Ok(());
    }
    acting.may(node, AccessMode::Write).map_err(|error| match error {
        Error::ReadOnly | Error::Permission => Nfsstat4::Access,
        other => status::of_store(other),
    })
}

/// Only regular files can be opened.
fn must_be_regular(minor: MinorVersion, node: &Node) -> Result<()> {
    match node.kind() {
        Kind::Regular => Ok(()),
        Kind::Directory => Err(Nfsstat4::Isdir),
        Kind::Symlink => Err(Nfsstat4::Symlink),
        _ if minor >= MinorVersion::V1 => Err(Nfsstat4::WrongType),
        _ => Err(Nfsstat4::Symlink),
    }
}

fn existing(acting: &Acting<'_>, directory: &File, wanted: &[u8]) -> Result<Opened> {
    let node = acting.lookup(&directory.node, wanted).map_err(status::of_store)?;
    let now = acting.attributes(&directory.node).map_err(status::of_store)?.change;
    Ok(Opened {
        node,
        directory: ChangeInfo4 { atomic: true, before: now, after: now },
        set: Bitmap4::EMPTY,
        truncate: false,
        is_new: false,
    })
}

/// Makes the file, or takes the one that is there, as `how` says.
fn make(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    directory: &File,
    wanted: &[u8],
    how: &Createhow4<'_>,
) -> Result<Opened> {
    match how {
        Createhow4::Unchecked(attributes) => {
            let wanted_set = settable::decode(attributes, c.minor, &c.service.owners)?;
            match existing(acting, directory, wanted) {
                Err(Nfsstat4::Noent) => {}
                found => return found.map(|found| taken(found, &wanted_set)),
            }
            match guarded(c, acting, directory, wanted, &wanted_set) {
                // Somebody was quicker.
                Err(Nfsstat4::Exist) => {
                    existing(acting, directory, wanted).map(|found| taken(found, &wanted_set))
                }
                other => other,
            }
        }
        Createhow4::Guarded(attributes) => {
            let wanted_set = settable::decode(attributes, c.minor, &c.service.owners)?;
            guarded(c, acting, directory, wanted, &wanted_set)
        }
        Createhow4::Exclusive(verifier) => {
            let mask = Bitmap4::of(&[number::TIME_ACCESS, number::TIME_MODIFY]);
            create(c, acting, directory, wanted, &CreateHow::Exclusive(*verifier, 0), mask)
        }
        Createhow4::Exclusive41(both) => {
            let wanted_set = settable::decode(&both.attrs, c.minor, &c.service.owners)?;
            if !wanted_set.mask.without(&EXCLUSIVE).is_empty() {
                return Err(Nfsstat4::Inval);
            }
            let mut mask = wanted_set.mask;
            mask.insert(number::TIME_ACCESS);
            mask.insert(number::TIME_MODIFY);
            let acls = wanted_set.acls(acting, &directory.node, false)?;
            let set = wanted_set.for_new(acting, &directory.node)?;
            // What would be refused when the file is there is refused before it is made.
            acting.check_set_id(Kind::Regular, set.mode.unwrap_or(0)).map_err(status::of_store)?;
            let opened = create(c, acting, directory, wanted, &CreateHow::Exclusive(both.verf, 0), mask)?;
            // A size would move the times that hold the verifier: a retry would find another's file.
            let set = SetAttributes { size: None, ..set };
            if !set.is_empty() {
                acting
                    .set_attributes(&opened.node, &set, None, &mut Wcc::default())
                    .map_err(status::of_store)?;
            }
            settable::set_acls(acting, &opened.node, acls.as_ref())?;
            Ok(opened)
        }
    }
}

/// Makes the file, which mustn't be there.
fn guarded(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    directory: &File,
    wanted: &[u8],
    with: &Settable,
) -> Result<Opened> {
    let acls = with.acls(acting, &directory.node, false)?;
    let how = CreateHow::Guarded(with.for_new(acting, &directory.node)?);
    let opened = create(c, acting, directory, wanted, &how, with.mask)?;
    settable::set_acls(acting, &opened.node, acls.as_ref())?;
    Ok(opened)
}

/// An existing file, taken by UNCHECKED4: of the attributes only a size of 0 means anything.
fn taken(mut opened: Opened, wanted: &Settable) -> Opened {
    if wanted.set.size == Some(0) {
        opened.truncate = true;
        opened.set = Bitmap4::of(&[number::SIZE]);
    }
    opened
}

fn create(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    directory: &File,
    wanted: &[u8],
    how: &CreateHow,
    set: Bitmap4,
) -> Result<Opened> {
    c.before_change(directory);
    let mut wcc = Wcc::default();
    let made = acting.create(&directory.node, wanted, how, &mut wcc);
    let node = made.map_err(|error| match error {
        Error::InvalidName => Nfsstat4::Badname,
        other => status::of_store(other),
    })?;
    c.commit(directory, acting, &[&node, &directory.node])?;
    Ok(Opened { node, directory: change_info(&wcc), set, truncate: false, is_new: true })
}

fn truncate(c: &Compound<'_>, acting: &Acting<'_>, directory: &File, node: &Node) -> Result<()> {
    c.before_change(directory);
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    acting.set_attributes(node, &set, None, &mut Wcc::default()).map_err(status::of_store)?;
    c.commit(directory, acting, &[node])
}

/// Whom an operation on an open is by, and which file it is about.
pub(super) fn place(c: &Compound<'_>, id: &StateId) -> Result<(Requester, FileHandle)> {
    let key = match c.object()? {
        Object::File(file) => *file.node.handle(),
        Object::Gone(handle) => *handle,
        Object::Pseudo(_) => return Err(Nfsstat4::BadStateid),
    };
    Ok((c.requester(c.owner(id)?), key))
}

pub(in crate::programs::nfs4) fn downgrade(c: &mut Compound<'_>, args: OpenDowngrade4Args) -> Result<()> {
    let id = c.stateid(args.open_stateid)?;
    let (by, key) = place(c, &id)?;
    let to = share(c.minor, args.share_access, args.share_deny)?;
    let left = c.service.state.run(|engine, _| engine.downgrade(&by, &id, &key, to));
    let left = c.give_stateid(left.map_err(status::of_state)?);
    c.reply.encoder().put(&left);
    Ok(())
}

pub(in crate::programs::nfs4) fn close(c: &mut Compound<'_>, args: Close4Args) -> Result<()> {
    let id = c.stateid(args.open_stateid)?;
    let (by, key) = place(c, &id)?;
    c.service.state.run(|engine, _| engine.close(&by, &id, &key)).map_err(status::of_state)?;
    let gone = c.give_stateid(StateId::INVALID);
    c.reply.encoder().put(&gone);
    Ok(())
}
