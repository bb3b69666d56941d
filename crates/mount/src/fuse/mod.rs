//! The kernel's side: the FUSE protocol over /dev/fuse.
//!
//! Our own, and not a crate, because three things are wanted that those don't give: a node's number that
//! isn't st_ino (file numbers belong to the server, node numbers must never be used twice), INTERRUPT
//! (without it a caller that waits for a server that is down can't be killed), and requests that keep their
//! buffer, so that what is written isn't copied.
//!
//! | module | what |
//! |---|---|
//! | `abi` | the numbers |
//! | `request` | what the kernel asks |
//! | `answer` | what it is told |
//! | `device` | the open /dev/fuse |
//! | `attach` | mount(2), fusermount3, umount(2) |

pub(crate) mod abi;
pub(crate) mod answer;
pub(crate) mod attach;
pub(crate) mod device;
pub(crate) mod request;
