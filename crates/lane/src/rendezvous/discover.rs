//! Looking through the places where servers listen. Blocks a little: runs on a thread of its own.

use super::candidate::Candidate;
use super::{Reason, RendezvousOptions};
use crate::namespaces::{self, Namespace};
use crate::nonce::{Commitment, Instance};
use crate::run_dir;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How many servers are asked.
const MAX_CANDIDATES: usize = 64;
/// How much of a /proc/net/unix is read, in bytes: some 50,000 sockets.
const MAX_PROC_NET_UNIX: u64 = 4 << 20;

/// What was found.
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    pub(super) reasons: Vec<Reason>,
    /// Whether a server that may search could find us where we couldn't find it.
    pub(super) wait_to_be_called: bool,
}

/// The search, and where it stands.
struct Search<'a> {
    options: &'a RendezvousOptions,
    commitment: Commitment,
    found: Found,
    /// Servers that have our registration: twice would be once too often.
    registered: HashSet<Instance>,
}

/// Looks everywhere and registers with everybody who is trusted.
pub(super) fn discover(options: &RendezvousOptions, commitment: Commitment) -> Found {
    let found = Found { candidates: Vec::new(), reasons: Vec::new(), wait_to_be_called: false };
    let mut search = Search { options, commitment, found, registered: HashSet::new() };
    search.run_dir();
    if options.search_namespaces {
        search.own_namespace();
        if namespaces::may_enter() {
            search.other_namespaces();
        } else {
            search.found.reasons.push(Reason::MayNotSearch);
        }
        // Whoever sees all has found all there is.
        search.found.wait_to_be_called = !namespaces::sees_the_host();
    }
    search.found
}

impl Search<'_> {
    fn run_dir(&mut self) {
        let dir = &self.options.run_dir;
        let sockets = match run_dir::sockets(dir, "lane") {
            Ok(sockets) => sockets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.found.reasons.push(Reason::NoRunDir(dir.clone()));
            }
            Err(error) => {
                let reason = Reason::UnreadableRunDir { dir: dir.clone(), error: error.to_string() };
                return self.found.reasons.push(reason);
            }
        };
        if sockets.is_empty() {
            return self.found.reasons.push(Reason::NoSocket(dir.clone()));
        }
        for (instance, path) in sockets {
            let socket = connect_path(&path);
            self.candidate(instance, path.display().to_string(), socket);
        }
    }

    fn own_namespace(&mut self) {
        match listening("/proc/thread-self/net/unix") {
            Ok(instances) => {
                for instance in instances {
                    let name = run_dir::abstract_name(&instance);
                    if self.is_new(&instance) {
                        self.candidate(instance, format!("@{name}"), connect_abstract(&name));
                    }
                }
            }
            Err(error) => self.found.reasons.push(Reason::NoProc(error.to_string())),
        }
    }

    fn other_namespaces(&mut self) {
        let namespaces = match namespaces::others() {
            Ok(namespaces) => namespaces,
            Err(error) => return self.found.reasons.push(Reason::NoProc(error.to_string())),
        };
        let before = self.registered.len();
        for Namespace { pid, file } in &namespaces {
            // Its sockets are listed from within: another way leads past the process, which may hang.
            let listed = sys::namespace::in_network_namespace(file.as_fd(), || {
                listening("/proc/thread-self/net/unix")
            });
            for instance in listed.and_then(|listed| listed).unwrap_or_default() {
                if !self.is_new(&instance) {
                    continue;
                }
                let name = run_dir::abstract_name(&instance);
                let through = format!("@{name} in the network namespace of process {pid}");
                let socket = sys::namespace::in_network_namespace(file.as_fd(), || connect_abstract(&name));
                self.candidate(instance, through, socket.and_then(|connected| connected));
            }
        }
        if self.registered.len() == before {
            self.found.reasons.push(Reason::NothingInNamespaces(namespaces.len()));
        }
    }

    fn is_new(&self, instance: &Instance) -> bool {
        !self.registered.contains(instance)
    }

    fn candidate(&mut self, instance: Instance, through: String, socket: io::Result<OwnedFd>) {
        if self.found.candidates.len() >= MAX_CANDIDATES {
            return self.found.reasons.push(Reason::TooMany(through));
        }
        let registered = match socket {
            Ok(socket) => {
                let candidate = Candidate { socket, through, instance: Some(instance) };
                candidate.register(self.options, self.commitment)
            }
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::CONNREFUSED) => Reason::Dead(through),
                Some(Errno::AGAIN) => Reason::Busy(through),
                _ => Reason::Failed { through, error: error.to_string() },
            }),
        };
        match registered {
            Ok(candidate) => {
                self.registered.insert(instance);
                self.found.candidates.push(candidate);
            }
            Err(reason) => self.found.reasons.push(reason),
        }
    }
}

fn connect_path(path: &Path) -> io::Result<OwnedFd> {
    let socket = run_dir::seqpacket()?;
    let (address, _dir) = run_dir::address(path)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

fn connect_abstract(name: &str) -> io::Result<OwnedFd> {
    let socket = run_dir::seqpacket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// The servers that listen on an abstract socket, by a `/proc/net/unix`.
fn listening(proc_net_unix: &str) -> io::Result<Vec<Instance>> {
    let mut instances = HashSet::new();
    let mut lines = BufReader::new(std::fs::File::open(proc_net_unix)?.take(MAX_PROC_NET_UNIX));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 && instances.len() < MAX_CANDIDATES {
        instances.extend(server_in(&line));
        line.clear();
    }
    Ok(instances.into_iter().collect())
}

/// The server whose listening socket this line of `/proc/net/unix` shows:
/// `Num: RefCount Protocol Flags Type St Inode Path`.
fn server_in(line: &[u8]) -> Option<Instance> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    // Flags: __SO_ACCEPTCON; type: SOCK_SEQPACKET.
    let listens = words.nth(3)? == "00010000";
    let seqpacket = words.next()? == "0005";
    let name = words.nth(2)?.strip_prefix('@')?;
    (listens && seqpacket && words.next().is_none()).then(|| run_dir::instance_of_abstract(name)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_from_proc_net_unix() {
        let line = |flags: &str, kind: &str, path: &str| {
            server_in(
                format!("0000000000000000: 00000002 00000000 {flags} {kind} 01 12345 {path}\n").as_bytes(),
            )
        };
        let name = format!("@samehost/{}", "0f".repeat(16));
        assert_eq!(line("00010000", "0005", &name), Some([0x0f; 16]));
        assert_eq!(line("00000000", "0005", &name), None);
        assert_eq!(line("00010000", "0001", &name), None);
        assert_eq!(line("00010000", "0005", &name[1..]), None);
        assert_eq!(line("00010000", "0005", "@samehost/client/00"), None);
        assert_eq!(line("00010000", "0005", &format!("{name} x")), None);
        assert_eq!(line("00010000", "0005", ""), None);
        assert_eq!(server_in(b"Num       RefCount Protocol Flags    Type St Inode Path\n"), None);
        assert_eq!(server_in(b"\xff\xfe"), None);
        assert_eq!(server_in(b""), None);
    }
}
