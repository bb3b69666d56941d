//! Procedures that make an object: CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).

use super::{
    Createverf3, Diropargs3, Ftype3, Nfspath3, Outcome, PostOpAttr, PostOpFh3, Sattr3, Specdata3, WccData,
};
use xdr::{Decode, Encode};

/// `CREATE3resok`, `MKDIR3resok`, `SYMLINK3resok` and `MKNOD3resok`, which are the same: the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct NewObject3<'a> {
    /// The object.
    pub obj: PostOpFh3<'a>,
    /// Its attributes.
    pub obj_attributes: PostOpAttr,
    /// The directory before and after.
    pub dir_wcc: WccData,
}

/// `createhow3`, with the values of `createmode3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Createhow3 {
    /// `UNCHECKED`: an existing file is accepted.
    #[xdr(0)]
    Unchecked(Sattr3),
    /// `GUARDED`: an existing file is an error.
    #[xdr(1)]
    Guarded(Sattr3),
    /// `EXCLUSIVE`: an existing file is an error, unless it was created with this verifier.
    #[xdr(2)]
    Exclusive(Createverf3),
}

/// Arguments of CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Create3Args<'a> {
    /// `where`: the directory and the new name in it.
    pub where_: Diropargs3<'a>,
    /// The mode of creation.
    pub how: Createhow3,
}

/// Result of CREATE: on failure `dir_wcc`.
pub type Create3Res<'a> = Outcome<NewObject3<'a>, WccData>;

/// Arguments of MKDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Mkdir3Args<'a> {
    /// `where`: the directory and the new name in it.
    pub where_: Diropargs3<'a>,
    /// The new directory's attributes.
    pub attributes: Sattr3,
}

/// Result of MKDIR: on failure `dir_wcc`.
pub type Mkdir3Res<'a> = Outcome<NewObject3<'a>, WccData>;

/// `symlinkdata3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Symlinkdata3<'a> {
    /// `symlink_attributes`.
    pub attributes: Sattr3,
    /// `symlink_data`: the link's text.
    pub data: Nfspath3<'a>,
}

/// Arguments of SYMLINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Symlink3Args<'a> {
    /// `where`: the directory and the new name in it.
    pub where_: Diropargs3<'a>,
    /// The link.
    pub symlink: Symlinkdata3<'a>,
}

/// Result of SYMLINK: on failure `dir_wcc`.
pub type Symlink3Res<'a> = Outcome<NewObject3<'a>, WccData>;

/// `devicedata3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Devicedata3 {
    /// `dev_attributes`.
    pub attributes: Sattr3,
    /// The device's numbers.
    pub spec: Specdata3,
}

/// `mknoddata3`, a union over `ftype3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Mknoddata3 {
    /// `NF3CHR`.
    #[xdr(Ftype3::Chr as u32)]
    Chr(Devicedata3),
    /// `NF3BLK`.
    #[xdr(Ftype3::Blk as u32)]
    Blk(Devicedata3),
    /// `NF3SOCK`.
    #[xdr(Ftype3::Sock as u32)]
    Sock(Sattr3),
    /// `NF3FIFO`.
    #[xdr(Ftype3::Fifo as u32)]
    Fifo(Sattr3),
    /// Any other value, void: a type that MKNOD can't create, which gets `NFS3ERR_BADTYPE`.
    #[xdr(default)]
    Other(u32),
}

/// Arguments of MKNOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Mknod3Args<'a> {
    /// `where`: the directory and the new name in it.
    pub where_: Diropargs3<'a>,
    /// What to make.
    pub what: Mknoddata3,
}

/// Result of MKNOD: on failure `dir_wcc`.
pub type Mknod3Res<'a> = Outcome<NewObject3<'a>, WccData>;
