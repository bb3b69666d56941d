//! exports(5): parsing, and which client may reach what and how; pure functions.
