//! ONC RPC (RFC 5531): record marking, calls and replies, a server and a client; knows no NFS.
