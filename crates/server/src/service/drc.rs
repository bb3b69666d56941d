//! The duplicate-request cache (DRC): a non-idempotent call that is sent twice runs once and is answered
//! twice.
//!
//! A client that lost its connection sends its calls again on the next one, with the same xid. [`Key`]
//! identifies a call. Replies are kept for a while, bounded in bytes and time. The bytes are shared by peer:
//! when they are used up, the peer with the most loses its oldest reply, so that a flood of calls by one
//! client can't make another client's retransmission run twice. [`Core`] decides and takes its clock as an
//! argument; [`Drc`] is a lock around it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairness::{Peer, Shares};
use parking_lot::Mutex;
use rpc::server::CallContext;

/// The bytes that all replies together may take, including [`OVERHEAD`] for each.
const MAX_BYTES: usize = 2 << 20;
/// The bytes that are charged for the entry of a reply.
const OVERHEAD: usize = 256;
/// How long a reply is kept: twice the time after which clients give a connection up.
const LIFE: Duration = Duration::from_secs(120);

/// The identity of a call. The port is not part of it, since a new connection may have another one. The
/// arguments and the credential are, as a checksum with a key of this run. Users of one host share its
/// address, so the owner of the process is part of it, too: a reply is for its own caller only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    address: IpAddr,
    peer: Peer,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    checksum: u64,
}

impl Key {
    /// The key of a call with these undecoded arguments.
    pub(crate) fn new(cx: &CallContext<'_>, program: u32, procedure: u32, args: &[u8]) -> Self {
        static CHECKSUM: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
        let mut hasher = CHECKSUM.build_hasher();
        cx.credential.hash(&mut hasher);
        hasher.write(args);
        let checksum = hasher.finish();
        Self {
            address: cx.peer.address.ip(),
            peer: cx.peer.share(),
            xid: cx.xid,
            program,
            version: cx.version,
            procedure,
            checksum,
        }
    }
}

/// What the cache has about a call.
pub(crate) enum Seen<'d> {
    /// Nothing: the caller must run it and finish the ticket. Dropping the ticket unfinished forgets the
    /// call.
    New(Ticket<'d>),
    /// It is running, and the reply of that run serves both.
    InProgress,
    /// It was answered with these results.
    Before(Arc<[u8]>),
}

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Drc {
    core: Mutex<Core>,
}

/// A call that is running.
pub(crate) struct Ticket<'d> {
    drc: &'d Drc,
    key: Key,
    reply: Option<Arc<[u8]>>,
}

impl Drc {
    /// Looks a call up and, if it is new, notes that it is running.
    pub(crate) fn begin(&self, key: Key) -> Seen<'_> {
        match self.core.lock().begin(key, Instant::now()) {
            Known::New => Seen::New(Ticket { drc: self, key, reply: None }),
            Known::InProgress => Seen::InProgress,
            Known::Before(reply) => Seen::Before(reply),
        }
    }
}

impl Ticket<'_> {
    /// Keeps the results for a retransmission.
    pub(crate) fn finish(mut self, results: &[u8]) {
        self.reply = Some(results.into());
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.drc.core.lock().end(self.key, self.reply.take(), Instant::now());
    }
}

/// The result of [`Core::begin`].
#[derive(Debug, PartialEq, Eq)]
enum Known {
    New,
    InProgress,
    Before(Arc<[u8]>),
}

/// The cache without its lock and clock. Running calls are bounded by the number of workers, replies here.
#[derive(Debug)]
struct Core {
    calls: HashMap<Key, Option<Arc<[u8]>>>,
    /// The answered calls of each peer, oldest first. A peer without any has no entry.
    answered: HashMap<Peer, VecDeque<(Key, Instant)>>,
    bytes: Shares,
}

impl Default for Core {
    fn default() -> Self {
        Self { calls: HashMap::new(), answered: HashMap::new(), bytes: Shares::new(MAX_BYTES) }
    }
}

impl Core {
    fn begin(&mut self, key: Key, now: Instant) -> Known {
        self.expire(&key.peer, now);
        match self.calls.get(&key) {
            Some(Some(reply)) => Known::Before(Arc::clone(reply)),
            Some(None) => Known::InProgress,
            None => {
                self.calls.insert(key, None);
                Known::New
            }
        }
    }

    fn end(&mut self, key: Key, reply: Option<Arc<[u8]>>, now: Instant) {
        let Some(reply) = reply else {
            self.calls.remove(&key);
            return;
        };
        self.bytes.charge(&key.peer, OVERHEAD + reply.len());
        self.calls.insert(key, Some(reply));
        self.answered.entry(key.peer).or_default().push_back((key, now));
        if self.bytes.total() > MAX_BYTES {
            for peer in self.answered.keys().copied().collect::<Vec<_>>() {
                self.expire(&peer, now);
            }
        }
        while self.bytes.total() > MAX_BYTES
            && let Some((greediest, _)) = self.bytes.greediest()
        {
            self.forget_oldest(&greediest);
        }
    }

    /// Forgets the expired replies of `peer`.
    fn expire(&mut self, peer: &Peer, now: Instant) {
        let is_over = |(_, since): &(Key, Instant)| now.saturating_duration_since(*since) >= LIFE;
        while self.answered.get(peer).and_then(VecDeque::front).is_some_and(is_over) {
            self.forget_oldest(peer);
        }
    }

    fn forget_oldest(&mut self, peer: &Peer) {
        let Some(answered) = self.answered.get_mut(peer) else { return };
        let oldest = answered.pop_front();
        if answered.is_empty() {
            self.answered.remove(peer);
        }
        if let Some((key, _)) = oldest
            && let Some(Some(reply)) = self.calls.remove(&key)
        {
            self.bytes.give_back(peer, OVERHEAD + reply.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> Key {
        let address = IpAddr::from([127, 0, 0, 1]);
        let peer = Peer::Local(1000);
        Key { address, peer, xid, program: 100_003, version: 3, procedure: 12, checksum: 5 }
    }

    #[test]
    fn a_retransmission_waits_for_the_first_run_and_gets_its_reply() {
        let (mut core, now) = (Core::default(), Instant::now());
        assert_eq!(core.begin(key(1), now), Known::New);
        assert_eq!(core.begin(key(1), now), Known::InProgress);
        core.end(key(1), Some(b"done"[..].into()), now);
        assert_eq!(core.begin(key(1), now), Known::Before(b"done"[..].into()));
        assert_eq!(core.begin(key(2), now), Known::New);
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let (mut core, now) = (Core::default(), Instant::now());
        let first = key(1);
        assert_eq!(core.begin(first, now), Known::New);
        for other in [
            Key { address: [127, 0, 0, 2].into(), ..first },
            Key { peer: Peer::Local(1001), ..first },
            Key { xid: 2, ..first },
            Key { program: 1, ..first },
            Key { version: 4, ..first },
            Key { procedure: 13, ..first },
            Key { checksum: 6, ..first },
        ] {
            assert_eq!(core.begin(other, now), Known::New);
        }
    }

    #[test]
    fn an_unfinished_call_is_forgotten() {
        let (mut core, now) = (Core::default(), Instant::now());
        assert_eq!(core.begin(key(1), now), Known::New);
        core.end(key(1), None, now);
        assert_eq!(core.begin(key(1), now), Known::New);
    }

    #[test]
    fn replies_are_bounded_in_bytes_and_time() {
        let (mut core, now) = (Core::default(), Instant::now());
        for xid in 0..10_000 {
            assert_eq!(core.begin(key(xid), now), Known::New);
            core.end(key(xid), Some(vec![0; 100].into()), now);
            assert!(core.calls.len() <= MAX_BYTES / OVERHEAD && core.bytes.total() <= MAX_BYTES);
        }
        assert!(matches!(core.begin(key(9_999), now), Known::Before(_)));
        for xid in 20_000..20_020 {
            core.begin(key(xid), now);
            core.end(key(xid), Some(vec![0; MAX_BYTES / 4].into()), now);
            assert!(core.bytes.total() <= MAX_BYTES);
        }
        assert_eq!(core.begin(key(20_019), now + LIFE), Known::New);
        assert_eq!((core.answered.len(), core.bytes.total(), core.calls.len()), (0, 0, 1));
    }

    #[test]
    fn a_flood_of_one_peer_forgets_no_reply_of_another() {
        let (mut core, now) = (Core::default(), Instant::now());
        let victim = Key { peer: Peer::V4([192, 0, 2, 1]), ..key(1) };
        core.begin(victim, now);
        core.end(victim, Some(b"done"[..].into()), now);
        for xid in 0..20_000 {
            core.begin(key(xid), now);
            core.end(key(xid), Some([].into()), now);
        }
        assert_eq!(core.begin(victim, now), Known::Before(b"done"[..].into()));
    }

    #[test]
    fn expired_replies_make_room_first() {
        let (mut core, now) = (Core::default(), Instant::now());
        let old = Key { peer: Peer::V4([192, 0, 2, 1]), ..key(1) };
        core.begin(old, now);
        core.end(old, Some(vec![0; MAX_BYTES / 4].into()), now);
        let later = now + LIFE;
        for xid in 0..4 {
            core.begin(key(xid), later);
            core.end(key(xid), Some(vec![0; MAX_BYTES / 4 - OVERHEAD].into()), later);
        }
        assert!((0..4).all(|xid| matches!(core.begin(key(xid), later), Known::Before(_))));
    }

    #[test]
    fn a_call_in_progress_outlives_everything() {
        let (mut core, now) = (Core::default(), Instant::now());
        core.begin(key(0), now);
        for xid in 1..=2 * (MAX_BYTES / OVERHEAD) as u32 {
            core.begin(key(xid), now);
            core.end(key(xid), Some([].into()), now);
        }
        assert_eq!(core.begin(key(0), now + 10 * LIFE), Known::InProgress);
    }
}
