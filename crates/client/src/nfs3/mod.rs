//! NFSv3 (RFC 1813) with MOUNT version 3 and NFSACL: the [`Operations`](crate::operations::Operations) of a
//! session whose server speaks it.
//!
//! | module | what |
//! |---|---|
//! | `connect` | addresses, ports, rpcbind |
//! | `mount` | MOUNT: the session's root, exports |
//! | `operations` | the operations, one procedure each |
//! | `acl` | NFSACL: GETACL, SETACL |
//! | `call` | one call: counted, sent, its results decoded |
//! | `reply_attributes` | which attributes of which files results carry |
//! | `convert` | wire types to the client's types, and back |

mod acl;
mod call;
mod connect;
mod convert;
mod mount;
mod operations;
mod reply_attributes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rpc::client::Client;

use crate::attribute_sink::AttributeSink;
use crate::options::Options;

/// An NFSv3 server's export.
#[derive(Debug)]
pub(crate) struct Nfs3 {
    rpc: Arc<Client>,
    attribute_sink: Option<Arc<dyn AttributeSink>>,
    options: Arc<Options>,
    /// Where MOUNT is served, if not beside NFS.
    mount_address: Option<SocketAddr>,
    /// The path that was mounted, as the server has it.
    mounted: Vec<u8>,
    /// The log says that the server can't decode SETACL.
    has_logged_setacl: AtomicBool,
}
