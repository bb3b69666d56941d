//! The NFSACL program: a file's POSIX access control lists, with NFSv3's handles and the same access check.
//!
//! The kernel stores and enforces the lists. Mounts request them to learn whether the mode bits are
//! sufficient, kernel clients on behalf of getfacl(1) and setfacl(1).

use std::ops::RangeInclusive;
use std::sync::Arc;

use acl::nfsacl::{entries, list};
use proto::nfs3::{Nfsstat3, PostOpAttr};
use proto::nfsacl::{
    self, DEFAULT, Getacl3Args, Getacl3ResOk, NFS_ACL, NFS_ACLCNT, NFS_DFACL, NFS_DFACLCNT, Procedure,
    Secattr, Setacl3Args,
};
use rpc::server::{CallContext, CallError, Program, Reply};
use state::AccessKind;
use store::{FileKind, PosixAcl, PosixAcls, Wcc};
use xdr::{Array, Decoder};

use super::{Call, Done, Fault, Result, answer, convert, end_of, run_once};
use crate::programs::request::RequestSpan;
use crate::service::Service;
use crate::service::drc::Key;
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
            Procedure::Setacl => {
                let key = Key::new(cx, nfsacl::PROGRAM, procedure.number(), args.rest());
                run_once((&self.0.drc, key), args, reply, |args, reply| {
                    answer(&call, reply.encoder(), args.get()?, setacl)
                })
            }
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
    let PosixAcls { access, default } = user_context.acls(&node)?;
    *body = call.current(&user_context, &node);
    let mut lists = Secattr { mask: args.mask, ..Secattr::default() };
    if args.mask & (NFS_ACL | NFS_ACLCNT) != 0 {
        let entries = entries(&access, 0);
        lists.acl_count = entries.len() as u32;
        lists.acl = Array(if args.mask & NFS_ACL != 0 { entries } else { Vec::new() });
    }
    if let (true, Some(default)) = (args.mask & (NFS_DFACL | NFS_DFACLCNT) != 0, &default) {
        let entries = entries(default, DEFAULT);
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
    let decoded = |entries| list(entries).map_err(|_| Fault(Nfsstat3::Inval));
    let mut access = if lists.mask & NFS_ACL != 0 { decoded(&lists.acl.0)? } else { None };
    let mut default = if lists.mask & NFS_DFACL != 0 { decoded(&lists.default.0)? } else { None };
    if default.is_some() && node.kind() != FileKind::Directory {
        return Err(Fault(Nfsstat3::Inval));
    }
    if access.is_none() || lists.mask & NFS_DFACL == 0 {
        let now = user_context.acls(&node)?;
        // An empty list removes the list and leaves the mode.
        access = access.or_else(|| {
            let mode = user_context.attributes(&node).ok()?.mode;
            Some(if lists.mask & NFS_ACL != 0 { PosixAcl::of_mode(mode) } else { now.access })
        });
        if lists.mask & NFS_DFACL == 0 {
            default = now.default;
        }
    }
    let access = access.ok_or(Fault(Nfsstat3::Inval))?;
    call.check_conflicts(&user_context, &node, AccessKind::Change)?;
    call.before_change(&admitted);
    let done = user_context.set_acls(&node, &PosixAcls { access, default }, &mut Wcc::default());
    *body = convert::post_op(&user_context, &node);
    done?;
    call.sync_metadata(&admitted, &user_context, &[&node])?;
    Ok(*body)
}

fn check_mask(mask: u32) -> Result<()> {
    const ALL: u32 = NFS_ACL | NFS_ACLCNT | NFS_DFACL | NFS_DFACLCNT;
    if mask & !ALL == 0 { Ok(()) } else { Err(Fault(Nfsstat3::Inval)) }
}
