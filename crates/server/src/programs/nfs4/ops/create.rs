//! CREATE: everything but regular files (RFC 8881 section 18.4).

use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Create4Args, Createtype4, NfsFtype4, Nfsstat4};
use store::{Special, Wcc};

use super::handles::must_be_directory;
use super::{change_info, name};
use crate::nfs4::compound::Compound;
use crate::nfs4::object::Object;
use crate::nfs4::{Result, settable, status};

/// What a symbolic link can't have.
const MODES: Bitmap4 = Bitmap4::of(&[number::ACL, number::MODE, number::MODE_UMASK]);
const DIRECTORY: u32 = NfsFtype4::Dir as u32;
const SOCKET: u32 = NfsFtype4::Sock as u32;
const FIFO: u32 = NfsFtype4::Fifo as u32;

pub(in crate::programs::nfs4) fn create(c: &mut Compound<'_>, args: Create4Args<'_>) -> Result<()> {
    let directory = c.file(Nfsstat4::Rofs)?;
    must_be_directory(&directory)?;
    let wanted = name(args.objname.0)?;
    let mut settable = settable::decode(&args.createattrs, c.minor, &c.service.owners)?;
    // A size is a regular file's, and a symbolic link's mode can't be chosen.
    settable.set.size = None;
    settable.mask.remove(number::SIZE);
    c.before_change(&directory);
    let acting = directory.acting()?;
    let acls = match args.objtype {
        Createtype4::Other(DIRECTORY) => settable.acls(&acting, &directory.node, true)?,
        Createtype4::Lnk(_) => None,
        // Linux has lists for them, but they can't be reached without opening what mustn't be opened.
        _ if settable.mask.contains(number::ACL) => return Err(Nfsstat4::Attrnotsupp),
        _ => None,
    };
    let set = &settable.for_new(&acting, &directory.node)?;
    let (dir, mut wcc) = (&*directory.node, Wcc::default());
    let made = match args.objtype {
        Createtype4::Other(DIRECTORY) => acting.mkdir(dir, wanted, set, &mut wcc),
        Createtype4::Lnk(text) => {
            settable.mask = settable.mask.without(&MODES);
            if text.0.is_empty() {
                return Err(Nfsstat4::Inval);
            }
            acting.symlink(dir, wanted, text.0, set, &mut wcc)
        }
        Createtype4::Blk(device) => {
            let what = Special::BlockDevice(device.specdata1, device.specdata2);
            acting.mknod(dir, wanted, what, set, &mut wcc)
        }
        Createtype4::Chr(device) => {
            let what = Special::CharacterDevice(device.specdata1, device.specdata2);
            acting.mknod(dir, wanted, what, set, &mut wcc)
        }
        Createtype4::Other(SOCKET) => acting.mknod(dir, wanted, Special::Socket, set, &mut wcc),
        Createtype4::Other(FIFO) => acting.mknod(dir, wanted, Special::Fifo, set, &mut wcc),
        Createtype4::Other(_) => return Err(Nfsstat4::Badtype),
    };
    let made = made.map_err(status::of_entry)?;
    settable::set_acls(&acting, &made, acls.as_ref())?;
    c.commit(&directory, &acting, &[&made, dir])?;
    let to = c.reply.encoder();
    to.put(&change_info(&wcc));
    to.put(&settable.mask);
    c.set_current(Object::File(directory.sibling(made)));
    Ok(())
}
