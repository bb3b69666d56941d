//! How bytes reach a file.
