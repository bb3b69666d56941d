//! The FUSE protocol over /dev/fuse.
//!
//! It isn't taken from a crate because the mount needs three things that those don't offer. Node IDs differ
//! from st_ino: file numbers belong to the server, and a node ID must never be reused. INTERRUPT lets a
//! process be killed while it waits for a server that is down. And a request keeps its buffer, so that the
//! data of a WRITE isn't copied.
//!
//! | module | contents |
//! |---|---|
//! | `abi` | the protocol's constants |
//! | `request` | decoding of requests |
//! | `reply` | encoding of replies |
//! | `device` | the open /dev/fuse |
//! | `attach` | mount(2), fusermount3, umount(2) |

pub(crate) mod abi;
pub(crate) mod attach;
pub(crate) mod device;
pub(crate) mod reply;
pub(crate) mod request;
