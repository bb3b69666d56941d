//! The fuzz targets as plain functions, so that a test can run the stored corpus through the same code
//! (`tests/corpus.rs` in the workspace includes this file).
//!
//! A target panics when it finds a bug: a decoder that panics, or a value that changes when it is encoded and
//! decoded again.

pub mod exports_parser;
pub mod lane_message;
mod round_trip;
pub mod rpc_record;
pub mod xdr_nfs3;
pub mod xdr_nfs4;

/// A target: processes one input.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also its folder under `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("exports_parser", exports_parser::run),
    ("lane_message", lane_message::run),
    ("rpc_record", rpc_record::run),
    ("xdr_nfs3", xdr_nfs3::run),
    ("xdr_nfs4", xdr_nfs4::run),
];
