//! Handles, names and verifiers (RFC 1813 sections 2.3 to 2.6).

use super::{COOKIEVERFSIZE, CREATEVERFSIZE, FHSIZE, MAX_FILENAME, MAX_PATH, WRITEVERFSIZE};
use xdr::{Decode, Encode, Opaque};

/// `nfs_fh3`: a file handle, opaque to clients.
pub type NfsFh3<'a> = Opaque<'a, FHSIZE>;
/// `filename3`: one name in a directory, as bytes, not UTF-8. It may be longer than any filesystem accepts.
pub type Filename3<'a> = Opaque<'a, MAX_FILENAME>;
/// `nfspath3`: a symbolic link's text. Bytes; may be longer than any filesystem takes.
pub type Nfspath3<'a> = Opaque<'a, MAX_PATH>;
/// `post_op_fh3`.
pub type PostOpFh3<'a> = Option<NfsFh3<'a>>;

/// `cookieverf3`: validates a READDIR cookie.
pub type Cookieverf3 = [u8; COOKIEVERFSIZE];
/// `createverf3`: distinguishes an exclusive CREATE's retry from another client's file.
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
