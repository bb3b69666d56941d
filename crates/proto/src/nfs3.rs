//! NFS version 3 (RFC 1813): every constant, argument and result.
//!
//! Procedure `X` takes `X3Args` and returns `X3Res`, which is [`Outcome`]`<ok body, fail body>`. A body with
//! one member is that member's type itself; a body with more is a struct of its own (`X3ResOk`).
//!
//! The payload of READ and WRITE has two types: `Read3ResOk` and `Write3Args` borrow it from the record, and
//! [`Read3Head`] and [`Write3Head`] are everything in front of it, for a side that moves the bytes itself. A
//! directory can be encoded entry by entry: [`ReaddirHead`], then `Some(entry)` for each, then
//! [`DirlistTail`].

mod attributes;
mod create;
mod data;
mod directory;
mod filesystem;
mod handle;
mod lookup;
mod outcome;
mod remove;
mod sattr;
mod status;

use crate::numbered::numbered;

pub use attributes::{Fattr3, Ftype3, Nfstime3, PostOpAttr, PreOpAttr, Specdata3, WccAttr, WccData};
pub use create::{
    Create3Args, Create3Res, Createhow3, Devicedata3, Mkdir3Args, Mkdir3Res, Mknod3Args, Mknod3Res,
    Mknoddata3, NewObject3, Symlink3Args, Symlink3Res, Symlinkdata3,
};
pub use data::{
    Commit3Args, Commit3Res, Commit3ResOk, Read3Args, Read3Head, Read3Res, Read3ResHead, Read3ResOk,
    StableHow, Write3Args, Write3Head, Write3Res, Write3ResOk,
};
pub use directory::{
    Dirlist3, DirlistTail, Entry3, Entryplus3, Readdir3Args, Readdir3Res, Readdir3ResOk, ReaddirHead,
    ReaddirResHead, Readdirplus3Args, Readdirplus3Res, Readdirplus3ResOk,
};
pub use filesystem::{
    Fsinfo3Args, Fsinfo3Res, Fsinfo3ResOk, Fsstat3Args, Fsstat3Res, Fsstat3ResOk, Pathconf3Args,
    Pathconf3Res, Pathconf3ResOk,
};
pub use handle::{Cookieverf3, Createverf3, Diropargs3, Filename3, NfsFh3, Nfspath3, PostOpFh3, Writeverf3};
pub use lookup::{
    Access3Args, Access3Res, Access3ResOk, Getattr3Args, Getattr3Res, Lookup3Args, Lookup3Res, Lookup3ResOk,
    Readlink3Args, Readlink3Res, Readlink3ResOk,
};
pub use outcome::Outcome;
pub use remove::{
    Link3Args, Link3Body, Link3Res, Remove3Args, Remove3Res, Rename3Args, Rename3Body, Rename3Res,
    Rmdir3Args, Rmdir3Res,
};
pub use sattr::{Sattr3, Sattrguard3, SetTime, Setattr3Args, Setattr3Res};
pub use status::Nfsstat3;

/// The program's number (section 2.1).
pub const PROGRAM: u32 = 100_003;
/// The protocol's version.
pub const VERSION: u32 = 3;
/// The port that servers use by custom (RFC 2054 section 3).
pub const PORT: u16 = 2049;

/// `NFS3_FHSIZE`: bytes in a file handle, at most (section 2.4).
pub const FHSIZE: usize = 64;
/// `NFS3_COOKIEVERFSIZE`: bytes in a READDIR verifier (section 2.4).
pub const COOKIEVERFSIZE: usize = 8;
/// `NFS3_CREATEVERFSIZE`: bytes in an exclusive CREATE's verifier (section 2.4).
pub const CREATEVERFSIZE: usize = 8;
/// `NFS3_WRITEVERFSIZE`: bytes in a WRITE's and COMMIT's verifier (section 2.4).
pub const WRITEVERFSIZE: usize = 8;
/// Bytes in a file name. The RFC has no bound; this one is far above any filesystem's, so that a name which
/// is merely too long reaches the server and is answered `NFS3ERR_NAMETOOLONG`.
pub const MAX_FILENAME: usize = 4096;
/// Bytes in a symbolic link's text. As [`MAX_FILENAME`]: above any filesystem's.
pub const MAX_PATH: usize = 65_536;
/// Bytes of payload in one READ or WRITE. The RFC has no bound; the record's own comes first.
pub const MAX_DATA: usize = 16 << 20;
/// Entries in one READDIR or READDIRPLUS result. The RFC has no bound; more don't fit into a record.
pub const MAX_DIR_ENTRIES: usize = 65_536;

/// `ACCESS3_READ`: read data or read a directory (section 3.3.4).
pub const ACCESS3_READ: u32 = 0x0001;
/// `ACCESS3_LOOKUP`: look up a name in a directory.
pub const ACCESS3_LOOKUP: u32 = 0x0002;
/// `ACCESS3_MODIFY`: rewrite existing data or entries.
pub const ACCESS3_MODIFY: u32 = 0x0004;
/// `ACCESS3_EXTEND`: write new data or add entries.
pub const ACCESS3_EXTEND: u32 = 0x0008;
/// `ACCESS3_DELETE`: delete an existing directory entry.
pub const ACCESS3_DELETE: u32 = 0x0010;
/// `ACCESS3_EXECUTE`: execute a file.
pub const ACCESS3_EXECUTE: u32 = 0x0020;

/// `FSF3_LINK`: hard links are supported (section 3.3.19).
pub const FSF3_LINK: u32 = 0x0001;
/// `FSF3_SYMLINK`: symbolic links are supported.
pub const FSF3_SYMLINK: u32 = 0x0002;
/// `FSF3_HOMOGENEOUS`: PATHCONF is the same for every file.
pub const FSF3_HOMOGENEOUS: u32 = 0x0008;
/// `FSF3_CANSETTIME`: SETATTR can set times to [`Fsinfo3ResOk::time_delta`].
pub const FSF3_CANSETTIME: u32 = 0x0010;

numbered!(
    "The procedures of NFS version 3 (RFC 1813 section 3.3).",
    Procedure,
    Null = 0 "NULL",
    Getattr = 1 "GETATTR",
    Setattr = 2 "SETATTR",
    Lookup = 3 "LOOKUP",
    Access = 4 "ACCESS",
    Readlink = 5 "READLINK",
    Read = 6 "READ",
    Write = 7 "WRITE",
    Create = 8 "CREATE",
    Mkdir = 9 "MKDIR",
    Symlink = 10 "SYMLINK",
    Mknod = 11 "MKNOD",
    Remove = 12 "REMOVE",
    Rmdir = 13 "RMDIR",
    Rename = 14 "RENAME",
    Link = 15 "LINK",
    Readdir = 16 "READDIR",
    Readdirplus = 17 "READDIRPLUS",
    Fsstat = 18 "FSSTAT",
    Fsinfo = 19 "FSINFO",
    Pathconf = 20 "PATHCONF",
    Commit = 21 "COMMIT",
);
