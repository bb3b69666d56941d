//! The FUSE front over `client`, with passthrough for granted files.
//!
//! A [`Mount`] is a directory of this host's tree behind which a server's files are. The kernel asks, over
//! /dev/fuse (`fuse`); requests are read and answered in `requests`, and `filesystem` says what each means in
//! terms of the client. Three machines decide and touch nothing: `attributes` (what is believed for how long,
//! and whether cached data is still good), `passthrough` (how an open may be answered, given the ones that
//! live), `options` (what `-o` means).
//!
//! A file whose server is on this host is opened over the lane, and its descriptor handed to the kernel:
//! reads and writes then reach the server's filesystem without any process in between. Where the kernel
//! doesn't take it, this process reads and writes the granted file; where there is no lane, the wire does it.
//! Who uses the files can't tell but by the speed.

mod attribute_sink;
mod attributes;
mod backing;
mod buffers;
mod error;
mod filesystem;
mod fuse;
mod inodes;
mod listing;
mod mount;
mod open;
pub mod options;
mod passthrough;
mod privileges;
mod report;
mod requests;
mod runtime;
mod settings;
mod users;

pub use error::Error;
pub use fuse::attach::{FSTYPE, detach, is_attached};
pub use mount::Mount;
pub use report::{Change, Report};
pub use runtime::runtime;
pub use settings::{AttributeTimes, Direct, LookupCache, MountOptions};
