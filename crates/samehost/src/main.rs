//! The `samehost` command.

fn main() {}
