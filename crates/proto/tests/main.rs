//! The wire types' tests, which are one program: one links faster than five.

extern crate samehost_proto as proto;

mod bytes;
#[macro_use]
mod sample;

mod nfs3_bytes;
mod nfs4_bytes;
mod nfs4_round_trip;
mod program_bytes;
mod round_trip;
