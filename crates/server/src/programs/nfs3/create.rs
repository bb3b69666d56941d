//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).

use std::sync::Arc;

use proto::nfs3::{
    Create3Args, Createhow3, Diropargs3, Mkdir3Args, Mknod3Args, Mknoddata3, NewObject3, Nfsstat3,
    PostOpAttr, Symlink3Args, WccData,
};
use state::AccessKind;
use store::{CreateHow, FileHandle, Node, SetAttributes, SpecialFile, UserContext, Wcc};
use xdr::{Encode, Encoder, Opaque};

use super::convert::{set_attributes, wcc_data};
use super::{Call, Fault, Result};

/// A new object. It owns its handle; the wire type borrows it.
pub(super) struct NewObject {
    handle: FileHandle,
    attributes: PostOpAttr,
    directory: WccData,
}

impl Encode for NewObject {
    fn encode(&self, to: &mut Encoder) {
        to.put(&NewObject3 {
            obj: Some(Opaque(self.handle.as_bytes())),
            obj_attributes: self.attributes,
            dir_wcc: self.directory,
        });
    }
}

/// The common part of the four procedures; `make` is the store's operation.
fn new_object(
    call: &Call<'_>,
    place: Diropargs3<'_>,
    body: &mut WccData,
    make: impl FnOnce(&UserContext<'_>, &Node, &[u8], &mut Wcc) -> Result<Arc<Node>>,
) -> Result<NewObject> {
    let admitted = call.admit(place.dir.0)?;
    let user_context = admitted.user_context()?;
    let directory = user_context.node(place.dir.0)?;
    call.before_change(&admitted);
    let mut wcc = Wcc::default();
    let made = make(&user_context, &directory, place.name.0, &mut wcc);
    *body = wcc_data(&wcc);
    let made = made?;
    call.sync_metadata(&admitted, &user_context, &[&made, &directory])?;
    Ok(NewObject { handle: *made.handle(), attributes: call.current(&user_context, &made), directory: *body })
}

pub(super) fn create(call: &Call<'_>, args: Create3Args<'_>, body: &mut WccData) -> Result<NewObject> {
    let how = match args.how {
        Createhow3::Unchecked(set) => CreateHow::Unchecked(set_attributes(&set)?),
        Createhow3::Guarded(set) => CreateHow::Guarded(set_attributes(&set)?),
        // The mode follows in a SETATTR.
        Createhow3::Exclusive(verifier) => CreateHow::Exclusive(verifier, 0),
    };
    new_object(call, args.where_, body, |user_context, directory, name, wcc| {
        if let CreateHow::Unchecked(SetAttributes { size: Some(_), .. }) = how {
            // The file may exist; then it is truncated.
            call.check_conflicts_at(user_context, directory, name, AccessKind::Write)?;
        }
        Ok(user_context.create(directory, name, &how, wcc)?)
    })
}

pub(super) fn mkdir(call: &Call<'_>, args: Mkdir3Args<'_>, body: &mut WccData) -> Result<NewObject> {
    let set = set_attributes(&args.attributes)?;
    new_object(call, args.where_, body, |user_context, directory, name, wcc| {
        Ok(user_context.mkdir(directory, name, &set, wcc)?)
    })
}

pub(super) fn symlink(call: &Call<'_>, args: Symlink3Args<'_>, body: &mut WccData) -> Result<NewObject> {
    let set = set_attributes(&args.symlink.attributes)?;
    new_object(call, args.where_, body, |user_context, directory, name, wcc| {
        Ok(user_context.symlink(directory, name, args.symlink.data.0, &set, wcc)?)
    })
}

pub(super) fn mknod(call: &Call<'_>, args: Mknod3Args<'_>, body: &mut WccData) -> Result<NewObject> {
    let device = |spec: proto::nfs3::Specdata3| (spec.specdata1, spec.specdata2);
    let (what, set): (SpecialFile, SetAttributes) = match args.what {
        Mknoddata3::Chr(data) => {
            let (major, minor) = device(data.spec);
            (SpecialFile::CharacterDevice(major, minor), set_attributes(&data.attributes)?)
        }
        Mknoddata3::Blk(data) => {
            let (major, minor) = device(data.spec);
            (SpecialFile::BlockDevice(major, minor), set_attributes(&data.attributes)?)
        }
        Mknoddata3::Sock(set) => (SpecialFile::Socket, set_attributes(&set)?),
        Mknoddata3::Fifo(set) => (SpecialFile::Fifo, set_attributes(&set)?),
        Mknoddata3::Other(_) => return Err(Fault(Nfsstat3::Badtype)),
    };
    new_object(call, args.where_, body, |user_context, directory, name, wcc| {
        Ok(user_context.mknod(directory, name, what, &set, wcc)?)
    })
}
