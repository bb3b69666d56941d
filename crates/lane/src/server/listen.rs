//! The server's listening sockets: a file in the run directory and a name in the abstract namespace.

use super::LaneOptions;
use super::acceptor::LaneListener;
use crate::run_dir;
use rustix::net::SocketAddrUnix;
use std::path::PathBuf;
use tracing::debug;

/// The length of the kernel's queue of connections that aren't accepted yet.
const BACKLOG: i32 = 1024;

/// The sockets that were opened, the socket file, and what failed.
pub(super) fn listen(options: &LaneOptions) -> (Vec<LaneListener>, Option<PathBuf>, Vec<String>) {
    let (mut listeners, mut problems) = (Vec::new(), Vec::new());
    let mut socket_file = None;
    if let Some(dir) = &options.run_dir {
        let path = dir.join(run_dir::lane_name(&options.instance));
        let opened = run_dir::create(dir).and_then(|()| {
            let removed = run_dir::remove_stale(dir);
            if removed > 0 {
                debug!("removed {removed} sockets of dead servers from {}", dir.display());
            }
            run_dir::listen(&path, BACKLOG)
        });
        match opened {
            Ok(socket) => {
                listeners.push(LaneListener { socket, name: path.display().to_string() });
                socket_file = Some(path);
            }
            Err(error) => problems.push(format!(
                "no lane socket in {}: {error}; name another run directory (--run-dir) and share it with \
                 your clients",
                dir.display()
            )),
        }
    }
    if options.abstract_socket {
        let name = run_dir::abstract_name(&options.instance);
        let opened = run_dir::seqpacket().and_then(|socket| {
            rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => listeners.push(LaneListener { socket, name: format!("@{name}") }),
            Err(error) => problems.push(format!("no abstract lane socket @{name}: {error}")),
        }
    }
    (listeners, socket_file, problems)
}
