//! The NFSACL program: a file's POSIX access control lists, with NFSv3's handles and the same access check.
//!
//! The kernel stores and enforces the lists. Mounts request them to learn whether the mode bits are
//! sufficient, kernel clients on behalf of getfacl(1) and setfacl(1).

use std::ops::RangeInclusive;
use std::sync::Arc;

use proto::nfs3::{Nfsstat3, PostOpAttr};
use proto::nfsacl::{
    self, Aclent, CLASS_OBJ, DEFAULT, GROUP, GROUP_OBJ, Getacl3Args, Getacl3ResOk, NFS_ACL, NFS_ACLCNT,
    NFS_DFACL, NFS_DFACLCNT, OTHER_OBJ, Procedure, Secattr, Setacl3Args, USER, USER_OBJ,
};
use rpc::server::{CallContext, CallError, Program, Reply};
use state::AccessKind;
use store::{FileKind, PosixAcl, Wcc};
use xdr::{Array, Decoder};

use super::{Call, Done, Fault, Result, answer, convert, end_of};
use crate::programs::request::RequestSpan;
use crate::service::Service;
use crate::status::counters::{BegunCall, CountedOperation};

/// The program.
pub(crate) struct Nfsacl(pub Arc<Service>);

impl Program for Nfsacl {
    fn number(&self) -> u32 {
        nfsacl::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfsacl::VERSION..=nfsacl::VERSION
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
        let span = RequestSpan::enter(cx, "NFSACL", procedure.name());
        let call = Call { service: &self.0, cx };
        let done = match procedure {
            Procedure::Null => Ok(Done { status: Nfsstat3::Ok, bytes: 0 }),
            Procedure::Getacl => answer(&call, reply.encoder(), args.get()?, getacl),
            // Idempotent.
            Procedure::Setacl => answer(&call, reply.encoder(), args.get()?, setacl),
        };
        self.0.counters.record(begun, &end_of(cx, CountedOperation::Nfsacl(procedure), &done));
        span.end(&done)
    }
}

fn getacl(call: &Call<'_>, args: Getacl3Args<'_>, body: &mut PostOpAttr) -> Result<Getacl3ResOk> {
    let admitted = call.admit(args.fh.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.fh.0)?;
    check_mask(args.mask)?;
    let (access, inherited) = user_context.acls(&node)?;
    *body = call.current(&user_context, &node);
    let mut lists = Secattr { mask: args.mask, ..Secattr::default() };
    if args.mask & (NFS_ACL | NFS_ACLCNT) != 0 {
        let entries = entries(&access, 0);
        lists.acl_count = entries.len() as u32;
        lists.acl = Array(if args.mask & NFS_ACL != 0 { entries } else { Vec::new() });
    }
    if let (true, Some(inherited)) = (args.mask & (NFS_DFACL | NFS_DFACLCNT) != 0, &inherited) {
        let entries = entries(inherited, DEFAULT);
        lists.default_count = entries.len() as u32;
        lists.default = Array(if args.mask & NFS_DFACL != 0 { entries } else { Vec::new() });
    }
    Ok(Getacl3ResOk { attributes: *body, lists })
}

fn setacl(call: &Call<'_>, args: Setacl3Args<'_>, body: &mut PostOpAttr) -> Result<PostOpAttr> {
    let admitted = call.admit(args.fh.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.fh.0)?;
    let lists = &args.lists;
    check_mask(lists.mask)?;
    let mut access = if lists.mask & NFS_ACL != 0 { acl(&lists.acl.0)? } else { None };
    let mut inherited = if lists.mask & NFS_DFACL != 0 { acl(&lists.default.0)? } else { None };
    if inherited.is_some() && node.kind() != FileKind::Directory {
        return Err(Fault(Nfsstat3::Inval));
    }
    if access.is_none() || lists.mask & NFS_DFACL == 0 {
        let (now, inherits) = user_context.acls(&node)?;
        // An empty list removes the list and leaves the mode.
        access = access.or_else(|| {
            let mode = user_context.attributes(&node).ok()?.mode;
            Some(if lists.mask & NFS_ACL != 0 { PosixAcl::of_mode(mode) } else { now })
        });
        if lists.mask & NFS_DFACL == 0 {
            inherited = inherits;
        }
    }
    let access = access.ok_or(Fault(Nfsstat3::Inval))?;
    call.check_conflicts(&user_context, &node, AccessKind::Change)?;
    call.before_change(&admitted);
    let done = user_context.set_acls(&node, &access, inherited.as_ref(), &mut Wcc::default());
    *body = convert::post_op(&user_context, &node);
    done?;
    call.sync_metadata(&admitted, &user_context, &[&node])?;
    Ok(*body)
}

fn check_mask(mask: u32) -> Result<()> {
    const ALL: u32 = NFS_ACL | NFS_ACLCNT | NFS_DFACL | NFS_DFACLCNT;
    if mask & !ALL == 0 { Ok(()) } else { Err(Fault(Nfsstat3::Inval)) }
}

/// A list's entries; `flag` is set in each tag. There is always a mask: Solaris requires one, and Linux
/// treats a mask equal to the group's entry as none.
fn entries(acl: &PosixAcl, flag: u32) -> Vec<Aclent> {
    let entry = |tag, id, perm: u8| Aclent { tag: tag | flag, id, perm: perm.into() };
    let mut entries = vec![entry(USER_OBJ, 0, acl.owner)];
    entries.extend(acl.users.iter().map(|(id, perm)| entry(USER, *id, *perm)));
    entries.push(entry(GROUP_OBJ, 0, acl.group));
    entries.extend(acl.groups.iter().map(|(id, perm)| entry(GROUP, *id, *perm)));
    entries.push(entry(CLASS_OBJ, 0, acl.mask.unwrap_or(acl.group)));
    entries.push(entry(OTHER_OBJ, 0, acl.other));
    entries
}

/// The list with these entries; `None` without any.
fn acl(entries: &[Aclent]) -> Result<Option<PosixAcl>> {
    if entries.is_empty() {
        return Ok(None);
    }
    let invalid = Fault(Nfsstat3::Inval);
    let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for entry in entries {
        let permissions = u8::try_from(entry.perm).ok().filter(|perm| *perm <= 7).ok_or(invalid)?;
        let single = match entry.tag & !DEFAULT {
            USER => {
                users.push((entry.id, permissions));
                continue;
            }
            GROUP => {
                groups.push((entry.id, permissions));
                continue;
            }
            USER_OBJ => &mut owner,
            GROUP_OBJ => &mut group,
            CLASS_OBJ => &mut mask,
            OTHER_OBJ => &mut other,
            _ => return Err(invalid),
        };
        if single.replace(permissions).is_some() {
            return Err(invalid);
        }
    }
    let (owner, group, other) = (owner.ok_or(invalid)?, group.ok_or(invalid)?, other.ok_or(invalid)?);
    if users.is_empty() && groups.is_empty() && mask == Some(group) {
        mask = None;
    } else if mask.is_none() && !(users.is_empty() && groups.is_empty()) {
        return Err(invalid);
    }
    Ok(Some(PosixAcl { owner, users, group, groups, mask, other }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_round_trip() {
        let lists = [
            PosixAcl::of_mode(0o751),
            PosixAcl {
                owner: 7,
                users: vec![(1000, 0), (1001, 5)],
                group: 5,
                groups: vec![(50, 1)],
                mask: Some(5),
                other: 5,
            },
            PosixAcl { owner: 7, users: vec![], group: 7, groups: vec![], mask: Some(5), other: 0 },
        ];
        for list in lists {
            for flag in [0, DEFAULT] {
                let entries = entries(&list, flag);
                assert!(entries.iter().all(|entry| entry.tag & DEFAULT == flag));
                assert_eq!(acl(&entries), Ok(Some(list.clone())));
                for without in 0..entries.len() {
                    let mut fewer = entries.clone();
                    let gone = fewer.remove(without);
                    let needed = gone.tag & (USER | GROUP) == 0 && (gone.tag & CLASS_OBJ == 0);
                    assert!(!needed || acl(&fewer).is_err(), "without {gone:?}");
                }
            }
        }
        assert_eq!(acl(&[]), Ok(None));
        assert!(acl(&[Aclent { tag: 0x40, id: 0, perm: 0 }]).is_err());
        assert!(acl(&[Aclent { tag: USER_OBJ, id: 0, perm: 8 }]).is_err());
    }
}
