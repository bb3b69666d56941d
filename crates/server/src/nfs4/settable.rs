//! Attributes to set, from the wire (RFC 8881 section 5.5: which can be set; RFC 8275: mode and umask).

use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Fattr4, MinorVersion, Nfsstat4, Nfstime4, Settime4};
use store::{SetAttributes, SetTime, Timestamp};
use xdr::{Decoder, Opaque};

use super::attributes::supported;
use super::{Result, owners};

/// What can be set.
const SETTABLE: Bitmap4 = Bitmap4::of(&[
    number::SIZE,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::TIME_ACCESS_SET,
    number::TIME_MODIFY_SET,
    number::MODE_UMASK,
]);

/// Attributes to set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settable {
    pub set: SetAttributes,
    /// Which they are, for the answer.
    pub mask: Bitmap4,
}

/// Decodes a `fattr4`.
///
/// # Errors
/// `Attrnotsupp` for what isn't supported, `Inval` for what can't be set, `Badxdr`, `Badowner`.
pub(super) fn decode(from: &Fattr4<'_>, minor: MinorVersion) -> Result<Settable> {
    let mask = from.attrmask;
    if !mask.without(&supported(minor)).is_empty() {
        return Err(Nfsstat4::Attrnotsupp);
    }
    if !mask.without(&SETTABLE).is_empty()
        || (mask.contains(number::MODE) && mask.contains(number::MODE_UMASK))
    {
        return Err(Nfsstat4::Inval);
    }
    let mut set = SetAttributes::default();
    let mut values = Decoder::new(from.attr_vals.0);
    for attribute in mask.iter() {
        match attribute {
            number::SIZE => set.size = Some(get(&mut values)?),
            number::MODE => set.mode = Some(mode(get(&mut values)?)?),
            number::OWNER => set.uid = Some(owners::parse(get::<Opaque<'_, 1024>>(&mut values)?.0)?),
            number::OWNER_GROUP => set.gid = Some(owners::parse(get::<Opaque<'_, 1024>>(&mut values)?.0)?),
            number::TIME_ACCESS_SET => set.atime = time(get(&mut values)?)?,
            number::TIME_MODIFY_SET => set.mtime = time(get(&mut values)?)?,
            number::MODE_UMASK => {
                let (wanted, umask): (u32, u32) = (get(&mut values)?, get(&mut values)?);
                set.mode = Some(mode(wanted)? & !umask);
            }
            _ => return Err(Nfsstat4::Inval),
        }
    }
    values.finish().map_err(|_| Nfsstat4::Badxdr)?;
    Ok(Settable { set, mask })
}

fn get<'a, T: xdr::Decode<'a>>(from: &mut Decoder<'a>) -> Result<T> {
    from.get().map_err(|_| Nfsstat4::Badxdr)
}

/// A mode from the wire: twelve bits.
const fn mode(mode: u32) -> Result<u32> {
    if mode & !0o7777 == 0 { Ok(mode) } else { Err(Nfsstat4::Inval) }
}

fn time(from: Settime4) -> Result<SetTime> {
    match from {
        Settime4::SetToServerTime => Ok(SetTime::Now),
        Settime4::SetToClientTime(Nfstime4 { nseconds: 1_000_000_000.., .. }) => Err(Nfsstat4::Inval),
        Settime4::SetToClientTime(Nfstime4 { seconds, nseconds }) => {
            Ok(SetTime::To(Timestamp { seconds, nanoseconds: nseconds }))
        }
    }
}
