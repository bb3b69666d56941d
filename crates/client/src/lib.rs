//! The NFS client library: sessions with servers, and for each open file the choice of wire or lane.
//!
//! A [`Session`] is one server's export as one user sees it: connections that are made again and calls that
//! are repeated without the caller, the export's root, the server's transfer sizes, and a lane if client and
//! server share a kernel. A [`File`] is an open file. It reads and writes over the wire or through the
//! descriptor that the server granted over the lane, and changes between the two in the middle of a stream.
//! Callers need not know; [`Session::lane`] and [`File::data_path`] tell.
//!
//! ```
//! use samehost_client::{OpenOptions, Options, Session, Url};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: Url = "nfs://server/export".parse()?;
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
//! # let server = example::ExampleServer::start();
//! # let url = server.url();
//! let session = Session::connect(&url, Options::new()).await?;
//!
//! let file = session.open(b"notes", &OpenOptions::new().read(true).write(true).create(true)).await?;
//! file.write_at(b"some text", 0).await?;
//! file.commit().await?;
//!
//! let mut buffer = [0; 4];
//! assert_eq!(file.read_at(&mut buffer, 5).await?, 4);
//! assert_eq!(&buffer, b"text");
//! file.close().await?;
//! session.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The methods run on tokio's current-thread and multi-thread runtimes. [`blocking`] is the same interface
//! for code without a runtime; its lane reads and writes are plain `pread` and `pwrite` calls.
//!
//! # Layers
//!
//! Modules use only modules of the layers below theirs:
//!
//! | layer | modules |
//! |---|---|
//! | values | `handle`, `types`, `counters`, `in_memory` |
//! | options and errors | `attribute_sink`, `options`, `url`, `error`, `calling_session`, `user` |
//! | operations | `operations` (their interface), `connection`, `nfs3`, `nfs4`, `tree`, `protocol`, `wire`, `seal_queue` |
//! | the lane | `open_prefetch`, `lane` |
//! | unstable writes | `uncommitted_writes` |
//! | sessions | `session` |
//! | files | `file`, `open` |
//! | whole files, the blocking interface | `copy`, `blocking` |

mod attribute_sink;
pub mod blocking;
mod calling_session;
mod connection;
mod copy;
mod counters;
#[doc(hidden)]
pub mod disk_waits;
mod error;
mod file;
mod handle;
mod highest;
mod in_memory;
mod lane;
mod nfs3;
mod nfs4;
mod open;
mod open_prefetch;
mod operations;
pub mod options;
mod protocol;
mod seal_queue;
mod session;
mod tree;
mod types;
mod uncommitted_writes;
mod url;
mod user;
mod wire;

// The examples of the package's front page are compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use ::bytes::Bytes;
pub use attribute_sink::{AttributeSink, AttributeUpdate, PreOpAttributes};
pub use client_state::{ByteRange, LockKind};
pub use control::Latencies;
pub use copy::{CopyOptions, Progress, copy, read_from, write_to};
pub use counters::{Counters, DataPathCounters, DataPathTimes, SessionEvents};
pub use error::{Error, OpenFileLimit, Result, RpcError, Status, UnexpectedStatus};
pub use file::{DataPath, File};
pub use io::Stability;
pub use lane::{MountGrant, MountRefusal};
pub use operations::{LockConflict, LockOwner, LockRequest};
pub use options::{
    Credential, LaneMode, OpenOptions, OptionError, Options, ReservedPort, UnknownLaneMode, Version,
};
pub use session::{CookieLoopDetector, Directory, Follow, Listed, Session};
pub use types::{
    Access, Advice, Attributes, Create, DirEntry, DirectoryPage, ExportEntry, Fallocate, FileKind, Found,
    FsInfo, FsStat, Handle, LaneReport, MadeDirectory, NameHint, Node, Operation, Page, PathConf, Plus,
    PosixAcl, PosixAcls, ReplyAcls, SeekTo, SetAcl, SetAttributes, SetTime, SetXattr, Timestamp,
};
pub use url::{Url, UrlError};
