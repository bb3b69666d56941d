//! Procedures that change names: REMOVE, RMDIR, RENAME and LINK (RFC 1813 sections 3.3.12 to 3.3.15).

use super::{Diropargs3, NfsFh3, Outcome, PostOpAttr, WccData};
use xdr::{Decode, Encode};

/// Arguments of REMOVE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Remove3Args<'a> {
    /// The directory and the name in it.
    pub object: Diropargs3<'a>,
}

/// Result of REMOVE: `dir_wcc` either way.
pub type Remove3Res = Outcome<WccData, WccData>;

/// Arguments of RMDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Rmdir3Args<'a> {
    /// The directory and the name in it.
    pub object: Diropargs3<'a>,
}

/// Result of RMDIR: `dir_wcc` either way.
pub type Rmdir3Res = Outcome<WccData, WccData>;

/// Arguments of RENAME.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Rename3Args<'a> {
    /// The old directory and name.
    pub from: Diropargs3<'a>,
    /// The new directory and name.
    pub to: Diropargs3<'a>,
}

/// `RENAME3resok` and `RENAME3resfail`, which are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Rename3Body {
    /// The old directory before and after.
    pub fromdir_wcc: WccData,
    /// The new directory before and after.
    pub todir_wcc: WccData,
}

/// Result of RENAME.
pub type Rename3Res = Outcome<Rename3Body, Rename3Body>;

/// Arguments of LINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Link3Args<'a> {
    /// The object that gets another name.
    pub file: NfsFh3<'a>,
    /// The directory and the new name in it.
    pub link: Diropargs3<'a>,
}

/// `LINK3resok` and `LINK3resfail`, which are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Link3Body {
    /// The object's attributes.
    pub file_attributes: PostOpAttr,
    /// The directory before and after.
    pub linkdir_wcc: WccData,
}

/// Result of LINK.
pub type Link3Res = Outcome<Link3Body, Link3Body>;
