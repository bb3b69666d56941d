//! The operations in a tree, compared with the server's answers over the wire.

mod comparison;
mod keeping;
mod listing;
#[path = "../../../tests/support/served.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod served;
mod side;
