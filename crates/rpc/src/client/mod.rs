//! The calling side: pipelined calls on one or more connections to one server.
