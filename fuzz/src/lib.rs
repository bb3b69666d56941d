//! What each fuzz target does with its input, apart from the fuzzer, so that a plain test can feed the kept
//! corpus to the same code (`tests/corpus.rs` in the workspace above includes this file).
//!
//! A target panics when it has found a bug: a decoder that panics itself, or a value that doesn't survive
//! being encoded and decoded again.

pub mod exports_parser;
pub mod lane_message;
pub mod rpc_record;
mod there_and_back;
pub mod xdr_nfs3;
pub mod xdr_nfs4;

/// What a target does with one input.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also its folder under `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("exports_parser", exports_parser::run),
    ("lane_message", lane_message::run),
    ("rpc_record", rpc_record::run),
    ("xdr_nfs3", xdr_nfs3::run),
    ("xdr_nfs4", xdr_nfs4::run),
];
