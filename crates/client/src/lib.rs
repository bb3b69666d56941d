//! The NFS client library: a session with a server, and for each open file the choice of wire or lane.
