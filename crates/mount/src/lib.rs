//! The FUSE front over `client`, with passthrough for granted files.

pub mod options;
mod settings;

pub use settings::{AttributeTimes, Direct, LookupCache, MountOptions};
