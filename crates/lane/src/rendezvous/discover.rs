//! The search through the places where servers listen. It blocks for a short time, so it runs on a thread of
//! its own.
//!
//! Other users can create any number of sockets with servers' names in most of these places. So each place is
//! searched for a bounded time, sockets of trusted users first, and the users take turns
//! ([`crate::round_robin`]). Whether a socket's user is trusted is in any case asked of the kernel after
//! connecting.

use super::candidate::Candidate;
use super::options::RendezvousOptions;
use super::reason::Reason;
use crate::namespaces::{self, Namespace};
use crate::nonce::{Commitment, Instance};
use crate::round_robin::round_robin;
use crate::run_dir;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use sys::AbstractListener;

/// The most servers that are tried. Their users share them.
const MAX_CANDIDATES: usize = 64;
/// The time limit for listing the sockets of one place, and for connecting to them: some 10,000 of them.
const MAX_TIME: Duration = Duration::from_millis(300);
/// The time limit for listing those of another network namespace.
const MAX_TIME_INSIDE: Duration = Duration::from_millis(50);
/// The number of lines of a /proc/net/unix that are read whatever the time.
const MIN_LINES: usize = 4096;
/// The number that are tried however long it takes: on a busy machine time says little.
const MIN_CALLS: usize = 64;
/// The most reasons reported by one search. One that names a trust problem or a missing resource is always
/// among the first.
const MAX_REASONS: usize = 64;
/// The most bytes of a /proc/net/unix that are read: some 500,000 sockets.
const MAX_PROC_NET_UNIX: u64 = 64 << 20;

/// The result of a search.
pub(super) struct SearchResult {
    pub(super) candidates: Vec<Candidate>,
    pub(super) reasons: Vec<Reason>,
    /// Whether a privileged server might find this client though this client couldn't find it.
    pub(super) wait_to_be_called: bool,
}

/// A search in progress.
struct Search<'a> {
    options: &'a RendezvousOptions,
    commitment: Commitment,
    found: SearchResult,
    /// Servers that this client has registered with: a second registration would be ambiguous.
    registered: HashSet<Instance>,
    /// Untrusted users with listening sockets.
    untrusted: HashSet<Option<u32>>,
}

/// The number of sockets of a place that were tried, and the deadline for more.
struct Calls {
    made: usize,
    deadline: Instant,
}

impl Calls {
    fn new() -> Self {
        Self { made: 0, deadline: Instant::now() + MAX_TIME }
    }

    fn one_more(&mut self) -> bool {
        self.made += 1;
        self.made <= MIN_CALLS || Instant::now() < self.deadline
    }
}

/// Searches all places and registers with every trusted server.
pub(super) fn discover(options: &RendezvousOptions, commitment: Commitment) -> SearchResult {
    let found = SearchResult { candidates: Vec::new(), reasons: Vec::new(), wait_to_be_called: false };
    let mut search =
        Search { options, commitment, found, registered: HashSet::new(), untrusted: HashSet::new() };
    search.run_dir();
    if options.search_namespaces {
        search.own_namespace();
        if namespaces::may_enter() {
            search.other_namespaces();
        } else {
            search.note(Reason::MayNotSearch);
        }
        // A client that sees the whole host has found every server.
        search.found.wait_to_be_called = !namespaces::sees_the_host();
    }
    search.found
}

impl Search<'_> {
    fn run_dir(&mut self) {
        let dir = &self.options.run_dir;
        let sockets = match run_dir::owned_sockets(dir, "lane", Instant::now() + MAX_TIME) {
            Ok(sockets) => sockets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.note(Reason::NoRunDir(dir.clone()));
            }
            Err(error) => {
                let reason = Reason::UnreadableRunDir { dir: dir.clone(), error: error.to_string() };
                return self.note(reason);
            }
        };
        if sockets.is_empty() {
            return self.note(Reason::NoSocket(dir.clone()));
        }
        let mut calls = Calls::new();
        for (instance, path) in round_robin(sockets, |owner| self.options.trusts(owner)) {
            if !self.has_room(&mut calls, &dir.display()) {
                break;
            }
            self.candidate(instance, path.display().to_string(), connect_path(&path));
        }
    }

    fn own_namespace(&mut self) {
        match listening(Instant::now() + MAX_TIME) {
            Ok(instances) => {
                let mut calls = Calls::new();
                for instance in round_robin(instances, |owner| self.options.trusts(owner)) {
                    let name = run_dir::abstract_name(&instance);
                    if self.is_new(&instance) {
                        if !self.has_room(&mut calls, &"this network namespace") {
                            break;
                        }
                        self.candidate(instance, format!("@{name}"), connect_abstract(&name));
                    }
                }
            }
            Err(error) => self.note(Reason::SocketsNotListed(error.to_string())),
        }
    }

    fn other_namespaces(&mut self) {
        let options = self.options;
        let trusts = |owner| options.trusts(owner);
        let namespaces = match namespaces::others(options.trusted()) {
            Ok(namespaces) => namespaces,
            Err(error) => return self.note(Reason::NamespacesNotListed(error.to_string())),
        };
        let before = self.registered.len();
        let (mut looked_at, mut calls) = (0, Calls::new());
        for Namespace { pid, file } in namespaces {
            let place = format!("the network namespace of process {pid}");
            looked_at += 1;
            if self.found.candidates.len() >= MAX_CANDIDATES {
                break;
            }
            let deadline = Instant::now() + MAX_TIME_INSIDE;
            // Its sockets are listed from within: another way leads past the process, which may hang.
            let listed = sys::namespace::in_network_namespace(file.as_fd(), || listening(deadline));
            let listed = listed.and_then(|listed| listed).unwrap_or_default();
            for instance in round_robin(listed, trusts) {
                if !self.is_new(&instance) {
                    continue;
                }
                if !self.has_room(&mut calls, &place) {
                    break;
                }
                let name = run_dir::abstract_name(&instance);
                let socket = sys::namespace::in_network_namespace(file.as_fd(), || connect_abstract(&name));
                self.candidate(
                    instance,
                    format!("@{name} in {place}"),
                    socket.and_then(|connected| connected),
                );
            }
        }
        if self.registered.len() == before {
            self.note(Reason::NothingInNamespaces(looked_at));
        }
    }

    /// Whether to try one more socket of this place.
    fn has_room(&mut self, calls: &mut Calls, place: &dyn Display) -> bool {
        let has_room = self.found.candidates.len() < MAX_CANDIDATES && calls.one_more();
        if !has_room {
            self.note(Reason::TooMany(place.to_string()));
        }
        has_room
    }

    /// Adds a reason, if it is new: of each untrusted user one socket is named.
    fn note(&mut self, reason: Reason) {
        let news = match &reason {
            Reason::Untrusted { uid, .. } => self.untrusted.insert(Some(*uid)),
            Reason::UntrustedUnmapped { .. } => self.untrusted.insert(None),
            _ => true,
        };
        if news && self.found.reasons.len() < MAX_REASONS {
            self.found.reasons.push(reason);
        }
    }

    fn is_new(&self, instance: &Instance) -> bool {
        !self.registered.contains(instance)
    }

    fn candidate(&mut self, instance: Instance, through: String, socket: io::Result<OwnedFd>) {
        let registered = match socket {
            Ok(socket) => Candidate::register(socket, through, Some(instance), self.options, self.commitment),
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
            Err(reason) => self.note(reason),
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

/// The servers that listen on an abstract socket of this thread's network namespace, and their users.
fn listening(deadline: Instant) -> io::Result<Vec<(Option<u32>, Instance)>> {
    let overflow = sys::peer::overflow_uid();
    let mut found = Vec::new();
    let listed = sys::abstract_listeners(deadline, |AbstractListener { name, uid }| {
        let instance = std::str::from_utf8(&name).ok().and_then(run_dir::instance_of_abstract);
        found.extend(instance.map(|instance| (uid.filter(|uid| *uid != overflow), instance)));
    });
    match listed {
        Ok(()) => Ok(found),
        // sock_diag failed: /proc lists the names, too, but not their users.
        Err(_) => {
            let names = names_in_proc("/proc/thread-self/net/unix", deadline)?;
            Ok(names.into_iter().map(|instance| (None, instance)).collect())
        }
    }
}

/// The same from a `/proc/net/unix`.
fn names_in_proc(proc_net_unix: &str, deadline: Instant) -> io::Result<HashSet<Instance>> {
    let mut instances = HashSet::new();
    let file = std::fs::File::open(proc_net_unix).map_err(sys::proc_error)?;
    let mut lines = BufReader::new(file.take(MAX_PROC_NET_UNIX));
    let mut line = Vec::new();
    let mut read = 0;
    while lines.read_until(b'\n', &mut line)? > 0 {
        instances.extend(server_in(&line));
        line.clear();
        read += 1;
        if read >= MIN_LINES && Instant::now() >= deadline {
            break;
        }
    }
    Ok(instances)
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
