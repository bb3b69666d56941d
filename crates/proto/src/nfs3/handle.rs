//! Handles, names and verifiers: what an object is called (RFC 1813 sections 2.3 to 2.6).

use super::{COOKIEVERFSIZE, CREATEVERFSIZE, FHSIZE, MAX_FILENAME, MAX_PATH, WRITEVERFSIZE};
use xdr::{Decode, Encode, Opaque};

/// `nfs_fh3`: a file handle, opaque to clients.
pub type NfsFh3<'a> = Opaque<'a, FHSIZE>;
/// `filename3`: one name in a directory. Bytes, not UTF-8; may be longer than any filesystem takes.
pub type Filename3<'a> = Opaque<'a, MAX_FILENAME>;
/// `nfspath3`: a symbolic link's text. Bytes; may be longer than any filesystem takes.
pub type Nfspath3<'a> = Opaque<'a, MAX_PATH>;
/// `post_op_fh3`.
pub type PostOpFh3<'a> = Option<NfsFh3<'a>>;

/// `cookieverf3`: says whether a READDIR cookie is still good.
pub type Cookieverf3 = [u8; COOKIEVERFSIZE];
/// `createverf3`: tells an exclusive CREATE's retry from somebody else's file.
pub type Createverf3 = [u8; CREATEVERFSIZE];
/// `writeverf3`: changes when unstable data may have been lost.
pub type Writeverf3 = [u8; WRITEVERFSIZE];

/// `diropargs3` (section 2.5.1): a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Diropargs3<'a> {
    /// The directory.
    pub dir: NfsFh3<'a>,
    /// The name in it.
    pub name: Filename3<'a>,
}
