//! CREATE: a new object that isn't a regular file (RFC 8881 section 18.4).

use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Create4Args, Createtype4, NfsFtype4, Nfsstat4};
use store::{SpecialFile, Wcc};

use super::change_info;
use crate::programs::nfs4::attributes::settable;
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::lookup::{check_directory, check_name};
use crate::programs::nfs4::object::Object;
use crate::programs::nfs4::status::{self, Result};

/// The attributes that a symbolic link can't have.
const MODES: Bitmap4 = Bitmap4::of(&[number::ACL, number::MODE, number::MODE_UMASK]);
const DIRECTORY: u32 = NfsFtype4::Dir as u32;
const SOCKET: u32 = NfsFtype4::Sock as u32;
const FIFO: u32 = NfsFtype4::Fifo as u32;

pub(crate) fn create(c: &mut Context<'_>, args: Create4Args<'_>) -> Result<()> {
    let directory = c.file(Nfsstat4::Rofs)?;
    check_directory(&directory)?;
    let name = check_name(args.objname.0)?;
    let mut settable = settable::decode(&args.createattrs, c.minor, &c.service.owners)?;
    // A size is a regular file's, and a symbolic link's mode can't be chosen.
    settable.set.size = None;
    settable.mask.remove(number::SIZE);
    c.expect_sync(&directory);
    let user_context = directory.user_context()?;
    let acls = match args.objtype {
        Createtype4::Other(DIRECTORY) => settable.acls(&user_context, &directory.node, true)?,
        Createtype4::Lnk(_) => None,
        // Linux keeps lists for special files, but setting them takes opening the file, which may have
        // effects.
        _ if settable.mask.contains(number::ACL) => return Err(Nfsstat4::Attrnotsupp),
        _ => None,
    };
    let set = &settable.for_new(&user_context, &directory.node)?;
    let (dir, mut wcc) = (&*directory.node, Wcc::default());
    let made = match args.objtype {
        Createtype4::Other(DIRECTORY) => user_context.mkdir(dir, name, set, &mut wcc),
        Createtype4::Lnk(text) => {
            settable.mask = settable.mask.without(&MODES);
            if text.0.is_empty() {
                return Err(Nfsstat4::Inval);
            }
            user_context.symlink(dir, name, text.0, set, &mut wcc)
        }
        Createtype4::Blk(device) => {
            let what = SpecialFile::BlockDevice(device.specdata1, device.specdata2);
            user_context.mknod(dir, name, what, set, &mut wcc)
        }
        Createtype4::Chr(device) => {
            let what = SpecialFile::CharacterDevice(device.specdata1, device.specdata2);
            user_context.mknod(dir, name, what, set, &mut wcc)
        }
        Createtype4::Other(SOCKET) => user_context.mknod(dir, name, SpecialFile::Socket, set, &mut wcc),
        Createtype4::Other(FIFO) => user_context.mknod(dir, name, SpecialFile::Fifo, set, &mut wcc),
        Createtype4::Other(_) => return Err(Nfsstat4::Badtype),
    };
    let made = made.map_err(status::of_entry)?;
    settable::set_acls(&user_context, &made, acls.as_ref())?;
    c.sync_metadata(&directory, &user_context, &[&made, dir])?;
    let to = c.reply.encoder();
    to.put(&change_info(&wcc));
    to.put(&settable.mask);
    c.set_current(Object::File(directory.sibling(made)));
    Ok(())
}
