//! The local lane, both ends: rendezvous, handshake, grants, interlock.
