//! Filesystems that a server doesn't have any more, or only refers to (RFC 8881 section 11).
//!
//! An operation there fails with NFS4ERR_MOVED. GETATTR of `fs_locations` succeeds (section 11.3.1), and has
//! the servers and paths where the filesystem is. The client doesn't follow them: the error and the log name
//! them, once for each filesystem, so that it can be mounted from there. State of such a filesystem is lost
//! with it.
//!
//! A server that has moved a filesystem with state of the client says so with each SEQUENCE
//! (`SEQ4_STATUS_LEASE_MOVED`), until the client has met NFS4ERR_MOVED there (section 11.11.9.2). The lease
//! of everything else goes on, so the client has lost nothing else. It asks for the attributes of what it has
//! open.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, Fattr4, Fsid4, Nfsstat4, OPAQUE_LIMIT, Operation as Op};
use xdr::Decoder;

use super::compound::Compound;
use super::convert::FILE;
use super::session::{CompoundReply, SessionClient};
use super::state::ChangeInFlight;
use crate::error::{Error, Result};
use crate::user::User;

/// What a request for locations asks for.
const LOCATIONS: Bitmap4 = Bitmap4::of(&[number::FSID, number::FS_LOCATIONS]);

/// The locations that are named, and the parts that a path may have.
const MAX_LOCATIONS: usize = 16;
const MAX_PARTS: usize = 256;

/// What one attribute may have of either.
const MAX_LISTED: usize = 1024;

/// The filesystems that are remembered as logged.
const MAX_LOGGED: usize = 256;

/// The files that are asked for after `SEQ4_STATUS_LEASE_MOVED`.
const MAX_ASKED: usize = 256;

/// The filesystems of a server that have moved.
#[derive(Debug, Default)]
pub(super) struct MovedFilesystems {
    logged: Mutex<BTreeSet<(u64, u64)>>,
    search: Mutex<Search>,
}

/// The last search for what the server has moved.
#[derive(Debug, Default, Clone, Copy)]
enum Search {
    #[default]
    None,
    Running,
    Ended(Instant),
}

impl Search {
    /// The reply to a SEQUENCE that was sent at `sent` says that something has moved. Returns whether to
    /// search for it. The server may have executed what was sent before the end of a search without knowing
    /// what the search has met.
    fn begin(&mut self, sent: Instant) -> bool {
        let begins = match *self {
            Self::None => true,
            Self::Running => false,
            Self::Ended(ended) => sent > ended,
        };
        if begins {
            *self = Self::Running;
        }
        begins
    }
}

impl MovedFilesystems {
    /// Whether nothing was logged of this filesystem yet.
    fn is_new(&self, filesystem: Fsid4) -> bool {
        let mut logged = self.logged.lock();
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        logged.insert((filesystem.major, filesystem.minor))
    }
}

impl SessionClient {
    /// The error of a request that was answered NFS4ERR_MOVED. `None` if the server doesn't say where the
    /// filesystem is, or if the request has changed something before: its reply has that.
    pub(super) async fn moved(
        self: &Arc<Self>,
        user: &User,
        compound: &Compound,
        reply: &CompoundReply,
    ) -> Option<Error> {
        let (operation, way) = compound.failed(reply.results().ok()?.count())?;
        let asked = self.execute(user, &way.get_attributes(&LOCATIONS), None).await.ok()?;
        let (filesystem, locations) = asked_locations(&asked)?;
        if locations.is_empty() {
            return None;
        }
        if self.moved.is_new(filesystem) {
            let server = self.address();
            let from = locations.join(" or ");
            tracing::warn!(%server, "a filesystem is on another server: mount it from {from}");
        }
        Some(Error::Moved { object: operation.name().to_owned(), locations })
    }

    /// The server has begun to say that it has moved state of the client, in the reply to a SEQUENCE that was
    /// sent at `sent`. Returns whether the client searches for that now.
    pub(super) fn lease_moved(self: &Arc<Self>, sent: Instant) -> bool {
        if !self.moved.search.lock().begin(sent) {
            return false;
        }
        tracing::warn!(server = %self.address(), "the server has moved a filesystem in which files are open");
        drop(self.spawn(find_moved(ChangeInFlight::new(self))));
        true
    }
}

/// Asks for the attributes of all that is open, so that the server knows that the client has met
/// NFS4ERR_MOVED. What it learns is logged.
async fn find_moved(in_flight: ChangeInFlight) {
    let client = in_flight.client();
    let files: BTreeSet<_> = client.look(|held| {
        let open = held.opens.state_ids().map(|(file, _, _)| file);
        open.chain(held.delegations.state_ids().map(|(file, _)| file)).cloned().collect()
    });
    let owner = client.owner.clone();
    for file in files.into_iter().take(MAX_ASKED) {
        let compound = Compound::new().put_fh(&file).get_attributes(&FILE);
        if let Err(error) = client.call(&owner, &compound, None).await {
            tracing::debug!(%error, "an open file's filesystem");
        }
    }
    *client.moved.search.lock() = Search::Ended(Instant::now());
}

/// The filesystem and its locations in the reply to a request for them.
fn asked_locations(reply: &CompoundReply) -> Option<(Fsid4, Vec<String>)> {
    let mut results = reply.results().ok()?;
    if results.status != Nfsstat4::Ok {
        return None;
    }
    results.skip_to(Op::Getattr).ok()?;
    let attributes: Fattr4<'_> = results.value(Op::Getattr).ok()?;
    let mut values = Decoder::new(attributes.attr_vals.0);
    let filesystem = match attributes.attrmask.contains(number::FSID) {
        true => values.get().ok()?,
        false => return None,
    };
    let locations = match attributes.attrmask.contains(number::FS_LOCATIONS) {
        true => locations(&mut values).ok()?,
        false => Vec::new(),
    };
    Some((filesystem, locations))
}

/// `fs_locations4`: each server with the path there, in the form of mount(8).
fn locations(from: &mut Decoder<'_>) -> Result<Vec<String>, xdr::Error> {
    let _here = path(from)?;
    let mut locations = Vec::new();
    for _ in 0..from.length(MAX_LISTED)? {
        let servers = (0..from.length(MAX_LISTED)?)
            .map(|_| from.opaque(OPAQUE_LIMIT).map(printable))
            .collect::<Result<Vec<_>, _>>()?;
        let path = path(from)?;
        let host = |server: &String| match server.contains(':') {
            true => format!("[{server}]:{path}"),
            false => format!("{server}:{path}"),
        };
        let room = MAX_LOCATIONS - locations.len();
        locations.extend(servers.iter().filter(|server| !server.is_empty()).take(room).map(host));
    }
    Ok(locations)
}

/// `pathname4`.
fn path(from: &mut Decoder<'_>) -> Result<String, xdr::Error> {
    let parts = (0..from.length(MAX_PARTS)?).map(|_| from.opaque(OPAQUE_LIMIT).map(printable));
    Ok(format!("/{}", parts.collect::<Result<Vec<_>, _>>()?.join("/")))
}

/// Text of the server's for a terminal or a log.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn replies_from_before_the_end_of_a_search_begin_none() {
        let (mut search, begun) = (Search::default(), Instant::now());
        let ended = begun + Duration::from_millis(1);
        assert!(search.begin(begun));
        assert!(!search.begin(begun) && !search.begin(ended), "one is running");
        search = Search::Ended(ended);
        assert!(!search.begin(begun) && !search.begin(ended));
        assert!(search.begin(ended + Duration::from_nanos(1)));
    }

    #[test]
    fn each_filesystem_is_logged_once() {
        let moved = MovedFilesystems::default();
        let filesystem = |major| Fsid4 { major, minor: 1 };
        assert!(moved.is_new(filesystem(1)) && moved.is_new(filesystem(2)));
        assert!(!moved.is_new(filesystem(1)) && !moved.is_new(filesystem(2)));
        // A server can't make the client remember more than a bound.
        assert!((3..10_000).all(|major| moved.is_new(filesystem(major))));
        assert!(moved.logged.lock().len() <= MAX_LOGGED);
    }
}
