//! The engine's tests, which are one program: they share no state, and one program links faster than twelve.

extern crate samehost_state as state;

mod common;
mod delegations;
mod files;
mod grace;
mod grants;
mod limits;
mod model;
mod principals;
mod resumed;
mod sessions;
mod shares;
mod version_0;
mod waiting;
