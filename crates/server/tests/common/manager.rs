//! The service manager's part: it stores the descriptors of a server, and passes them to the next.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use samehost_server::LockStore;

use super::Scratch;

/// A service manager that stores descriptors, as systemd does.
pub struct Manager {
    socket: UnixDatagram,
    pub path: PathBuf,
    pub kept: Vec<(String, OwnedFd)>,
}

impl Manager {
    pub fn new(scratch: &Scratch) -> Self {
        Self::at(scratch.run_dir().with_file_name("notify"))
    }

    /// A manager with its socket there.
    pub fn at(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, path, kept: Vec::new() }
    }

    /// Handles the service's pending messages; the names of the stored descriptors.
    pub fn names(&mut self) -> Vec<String> {
        loop {
            let mut bytes = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [std::io::IoSliceMut::new(&mut bytes)];
            let Ok(received) =
                rustix::net::recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
            else {
                return self.kept.iter().map(|(name, _)| name.clone()).collect();
            };
            let files = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            });
            let file = files.flatten().next();
            let message = String::from_utf8(bytes[..received.bytes].to_vec()).unwrap();
            // Other messages say that the service is ready, or stops.
            let Some((what, name)) = message.split_once("\nFDNAME=") else { continue };
            let name = name.lines().next().unwrap().to_owned();
            match what {
                "FDSTORE=1" => self.kept.push((name, file.expect("a descriptor comes with it"))),
                "FDSTOREREMOVE=1" => self.kept.retain(|(other, _)| *other != name),
                other => panic!("{other}"),
            }
        }
    }

    /// The store of the next server, which gets all stored descriptors.
    pub fn store(&mut self, max: usize) -> Arc<LockStore> {
        self.names();
        let passed = self.kept.iter().map(|(name, file)| (name.clone(), file.try_clone().unwrap()));
        let address = SocketAddr::from_pathname(&self.path).unwrap();
        Arc::new(LockStore::new(address, max, passed.collect()))
    }
}
