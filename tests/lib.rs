//! Whole-system tests: what they share.
