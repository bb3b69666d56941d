//! LOOKUP and READLINK (RFC 1813 sections 3.3.3, 3.3.5).

use proto::nfs3::{Lookup3Args, Lookup3ResOk, Nfspath3, Nfsstat3, PostOpAttr, Readlink3Args, Readlink3ResOk};
use store::{FileHandle, FileKind, Node};
use xdr::{Encode, Encoder, Opaque};

use super::convert::post_op;
use super::{Call, Fault, Result, requester};
use crate::authorization::access::{ExportAccess, Refusal};

/// LOOKUP's result. It owns its handle; the wire type borrows it.
pub(super) struct Found {
    handle: FileHandle,
    attributes: PostOpAttr,
    directory: PostOpAttr,
}

impl Encode for Found {
    fn encode(&self, to: &mut Encoder) {
        to.put(&Lookup3ResOk {
            object: Opaque(self.handle.as_bytes()),
            obj_attributes: self.attributes,
            dir_attributes: self.directory,
        });
    }
}

pub(super) fn lookup(call: &Call<'_>, args: Lookup3Args<'_>, body: &mut PostOpAttr) -> Result<Found> {
    let admitted = call.admit(args.what.dir.0)?;
    let user_context = admitted.user_context()?;
    let directory = user_context.node(args.what.dir.0)?;
    let found = user_context.lookup(&directory, args.what.name.0);
    *body = post_op(&user_context, &directory);
    if let Err(store::Error::NestedExport(export)) = found {
        return enter(call, export, *body);
    }
    let found = match found {
        // Without a clone of the mount, the store refuses mount points.
        Err(store::Error::Access) if !admitted.is_cloned() => {
            return cross(call, &admitted, &directory, args.what.name.0, *body)?
                .ok_or(Fault(Nfsstat3::Acces));
        }
        found => found?,
    };
    if found.kind() == FileKind::Directory
        && let Some(root) = cross(call, &admitted, &directory, args.what.name.0, *body)?
    {
        return Ok(root);
    }
    Ok(Found { handle: *found.handle(), attributes: call.current(&user_context, &found), directory: *body })
}

/// The directory of an export that lies in another one, with the inner export's handle, if the inner export
/// admits the client. Both are on the same filesystem, so only the handle differs for the client.
fn enter(call: &Call<'_>, export: u32, directory: PostOpAttr) -> Result<Found> {
    let refused = |refusal| match refusal {
        Refusal::NotExported => Fault(Nfsstat3::Acces),
        other => other.into(),
    };
    let admitted = call.service.access.enter(export, requester(call.cx)).map_err(refused)?;
    let handle = admitted.root()?;
    let user_context = admitted.user_context()?;
    let root = user_context.node(handle.as_bytes())?;
    Ok(Found { handle, attributes: post_op(&user_context, &root), directory })
}

/// The root of another filesystem that is exported at `name` in `directory`, if the client sees it there: by
/// `crossmnt` of the outer export or `nohide` of the inner one (exports(5)), and admitted to the inner one.
fn cross(
    call: &Call<'_>,
    outer: &ExportAccess,
    directory: &Node,
    name: &[u8],
    attributes: PostOpAttr,
) -> Result<Option<Found>> {
    let access = &call.service.access;
    if !access.has_nested(name) {
        return Ok(None);
    }
    let nested = access.nested_in(outer, directory).into_iter().find(|nested| nested.name == name);
    let Some(nested) = nested else { return Ok(None) };
    let inner = match access.admit_to(&nested.inner, requester(call.cx)) {
        Err(Refusal::NotExported) => return Ok(None),
        admitted => admitted?,
    };
    if !outer.options().crossmnt && !inner.options().nohide {
        return Ok(None);
    }
    let handle = inner.root()?;
    let user_context = inner.user_context()?;
    let root = user_context.node(handle.as_bytes())?;
    Ok(Some(Found { handle, attributes: post_op(&user_context, &root), directory: attributes }))
}

/// A symbolic link's text.
pub(super) struct LinkText {
    attributes: PostOpAttr,
    text: Vec<u8>,
}

impl Encode for LinkText {
    fn encode(&self, to: &mut Encoder) {
        let data: Nfspath3<'_> = Opaque(&self.text);
        to.put(&Readlink3ResOk { symlink_attributes: self.attributes, data });
    }
}

pub(super) fn readlink(call: &Call<'_>, args: Readlink3Args<'_>, body: &mut PostOpAttr) -> Result<LinkText> {
    let admitted = call.admit(args.symlink.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.symlink.0)?;
    let text = user_context.readlink(&node);
    *body = post_op(&user_context, &node);
    Ok(LinkText { attributes: *body, text: text? })
}
