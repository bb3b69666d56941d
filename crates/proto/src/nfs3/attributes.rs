//! Attributes as a server reports them, and weak cache consistency data (RFC 1813 section 2.6).

use xdr::{Decode, Encode};

/// `ftype3`: what kind of object it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Ftype3 {
    /// `NF3REG`: a regular file.
    Reg = 1,
    /// `NF3DIR`: a directory.
    Dir = 2,
    /// `NF3BLK`: a block special device.
    Blk = 3,
    /// `NF3CHR`: a character special device.
    Chr = 4,
    /// `NF3LNK`: a symbolic link.
    Lnk = 5,
    /// `NF3SOCK`: a socket.
    Sock = 6,
    /// `NF3FIFO`: a named pipe.
    Fifo = 7,
}

/// `specdata3`: a device's numbers; zero for anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Specdata3 {
    /// The major number.
    pub specdata1: u32,
    /// The minor number.
    pub specdata2: u32,
}

/// `nfstime3`: since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Encode, Decode)]
pub struct Nfstime3 {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds within the second; a peer may send any 32 bits.
    pub nseconds: u32,
}

/// `fattr3`: an object's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Fattr3 {
    /// `type`.
    pub kind: Ftype3,
    /// Permission bits, the low twelve.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// Bytes of data.
    pub size: u64,
    /// Bytes of disk space.
    pub used: u64,
    /// The device it stands for.
    pub rdev: Specdata3,
    /// The file system.
    pub fsid: u64,
    /// Its number in the file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Nfstime3,
    /// Last change of the data.
    pub mtime: Nfstime3,
    /// Last change of the attributes.
    pub ctime: Nfstime3,
}

/// `post_op_attr`: attributes after an operation, if the server could get them.
pub type PostOpAttr = Option<Fattr3>;

/// `wcc_attr`: the attributes that validate a client's cache from before the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WccAttr {
    /// Bytes of data.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Nfstime3,
    /// Last change of the attributes.
    pub ctime: Nfstime3,
}

/// `pre_op_attr`.
pub type PreOpAttr = Option<WccAttr>;

/// `wcc_data`: before and after an operation, atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct WccData {
    /// Before.
    pub before: PreOpAttr,
    /// After.
    pub after: PostOpAttr,
}

impl From<&Fattr3> for WccAttr {
    fn from(attributes: &Fattr3) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
    }
}
