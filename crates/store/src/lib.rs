//! A POSIX filesystem made safe to serve.
