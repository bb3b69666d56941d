//! A FUSE filesystem over `client`, with passthrough for granted files.
//!
//! A [`Mount`] is a server's directory in this host's tree. The kernel sends requests over io_uring
//! (`queues`) or /dev/fuse (`fuse`). `requests` has them handled and replies, and `filesystem` handles each
//! by calls of the client. `inode` has the state of one file, including two state machines without side
//! effects: the attribute cache and the kernel's I/O mode. `options` parses mount options. [`process`] starts
//! and runs the process that serves a mount.
//!
//! If the server is on this host, a file is opened over the lane and its descriptor is handed to the kernel.
//! Reads and writes then reach the server's filesystem without any process in between. If the kernel refuses
//! the descriptor, this process reads and writes the granted file. Without a lane they go over the wire.
//! Applications see no difference but the speed.

mod attribute_sink;
mod backing;
mod buffers;
mod device_readers;
mod disk_threads;
mod entry_keeper;
mod error;
mod filesystem;
mod fuse;
mod inode;
mod listing;
mod mount;
mod mount_grant;
pub mod mountinfo;
mod open_table;
pub mod options;
mod passthrough;
mod privileges;
pub mod process;
mod queues;
mod replies;
mod report;
mod requests;
mod runtime;
mod settings;
mod users;
mod waiting;

pub use error::Error;
pub use fuse::attach::{FSTYPE, detach};
pub use mount::Mount;
pub use mount_grant::MountGrantState;
pub use report::{FuseTransport, LaneChange, MountCounters, MountReport};
pub use runtime::runtime;
pub use settings::{AttributeTimes, Direct, LocalLocks, LookupCache, MountOptions, UringMode};
