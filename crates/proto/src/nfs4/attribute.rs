//! Attributes by number, and a set of attributes with values (RFC 8881 section 5, RFC 7862 section 12, RFC
//! 8275, RFC 8276).

use super::{Bitmap4, MAX_ATTRIBUTES};
use xdr::{Decode, Encode, Opaque};

/// `fattr4`: attributes, and their values in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Fattr4<'a> {
    /// The attributes.
    pub attrmask: Bitmap4,
    /// Their values.
    pub attr_vals: Opaque<'a, MAX_ATTRIBUTES>,
}

macro_rules! attributes {
    ($($name:ident = $number:literal,)+) => {
        $(
            #[doc = concat!("Attribute ", $number, ", `", stringify!($name), "`.")]
            pub const $name: u32 = $number;
        )+
    };
}

attributes!(
    SUPPORTED_ATTRS = 0,
    TYPE = 1,
    FH_EXPIRE_TYPE = 2,
    CHANGE = 3,
    SIZE = 4,
    LINK_SUPPORT = 5,
    SYMLINK_SUPPORT = 6,
    NAMED_ATTR = 7,
    FSID = 8,
    UNIQUE_HANDLES = 9,
    LEASE_TIME = 10,
    RDATTR_ERROR = 11,
    ACL = 12,
    ACLSUPPORT = 13,
    ARCHIVE = 14,
    CANSETTIME = 15,
    CASE_INSENSITIVE = 16,
    CASE_PRESERVING = 17,
    CHOWN_RESTRICTED = 18,
    FILEHANDLE = 19,
    FILEID = 20,
    FILES_AVAIL = 21,
    FILES_FREE = 22,
    FILES_TOTAL = 23,
    FS_LOCATIONS = 24,
    HIDDEN = 25,
    HOMOGENEOUS = 26,
    MAXFILESIZE = 27,
    MAXLINK = 28,
    MAXNAME = 29,
    MAXREAD = 30,
    MAXWRITE = 31,
    MIMETYPE = 32,
    MODE = 33,
    NO_TRUNC = 34,
    NUMLINKS = 35,
    OWNER = 36,
    OWNER_GROUP = 37,
    QUOTA_AVAIL_HARD = 38,
    QUOTA_AVAIL_SOFT = 39,
    QUOTA_USED = 40,
    RAWDEV = 41,
    SPACE_AVAIL = 42,
    SPACE_FREE = 43,
    SPACE_TOTAL = 44,
    SPACE_USED = 45,
    SYSTEM = 46,
    TIME_ACCESS = 47,
    TIME_ACCESS_SET = 48,
    TIME_BACKUP = 49,
    TIME_CREATE = 50,
    TIME_DELTA = 51,
    TIME_METADATA = 52,
    TIME_MODIFY = 53,
    TIME_MODIFY_SET = 54,
    MOUNTED_ON_FILEID = 55,
    MODE_SET_MASKED = 74,
    SUPPATTR_EXCLCREAT = 75,
    FS_CHARSET_CAP = 76,
    CLONE_BLKSIZE = 77,
    SPACE_FREED = 78,
    CHANGE_ATTR_TYPE = 79,
    MODE_UMASK = 81,
    XATTR_SUPPORT = 82,
    OPEN_ARGUMENTS = 86,
);
