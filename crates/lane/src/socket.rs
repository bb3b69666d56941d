//! Datagrams and descriptors.
