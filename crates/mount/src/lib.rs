//! The FUSE front over `client`, with passthrough for granted files.

pub mod options;
