//! The NFS client library: a session with a server, and for each open file the choice of wire or lane.
//!
//! A [`Session`] is one server's export as one user sees it: RPC connections that reconnect and resend by
//! themselves, the export's root handle, the server's preferred sizes, and, when client and server turn out
//! to share a kernel, a lane. Every NFSv3 procedure is an async method of it. A [`File`] is an open file: it
//! alone knows whether its bytes go over the wire or through a granted descriptor, and it changes data paths
//! in the middle of a stream without the caller noticing. Callers never ask "local or remote?"; who wants to
//! know reads [`Session::lane`] or [`File::data_path`].
//!
//! The async face runs on tokio's current-thread and multi-thread runtimes alike. [`blocking`] is the same
//! thing for code without a runtime; its lane reads and writes are plain `pread` and `pwrite` calls.

mod attribute_sink;
pub mod blocking;
mod copy;
mod counters;
mod error;
mod file;
mod lane;
mod nfs3;
mod open_prefetch;
mod operations;
pub mod options;
mod session;
mod types;
mod url;
mod user;
mod wire;

pub use attribute_sink::{AttributeSink, AttributeUpdate, PreOpAttributes};
pub use copy::{CopyOptions, Progress, copy, read_from, write_to};
pub use counters::{Counters, DataPathCounters, SessionEvents};
pub use error::{Error, OpenFileLimit, Result, RpcError, Status};
pub use file::{DataPath, File};
pub use io::Stability;
pub use options::{Credential, LaneMode, OpenOptions, Options, ReservedPort};
pub use session::{CookieLoopDetector, Directory, Follow, Listed, Session};
pub use types::{
    Access, AclEntry, Attributes, Create, DirEntry, ExportEntry, FileKind, Found, FsInfo, FsStat, Handle,
    LaneReport, Node, Operation, Page, PathConf, SetAttributes, SetTime, Timestamp,
};
pub use url::{Url, UrlError};
