//! The pieces of `demo`: a server in a process of its own, trees to copy, and the comparison.

mod child;
mod compare;
mod trees;

pub use child::Child;
pub use compare::compare;
pub use trees::{generate, real};
