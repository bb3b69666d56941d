//! The duplicate-request cache: a call that can't be done twice and is sent twice is done once and answered twice.
//!
//! A client that lost its connection sends its calls again on the next one, with the same xid. Which calls are the
//! same is told by [`Key`]; what was answered is kept for a while, bounded in number, bytes and time. [`Core`] decides
//! and takes its clock as an argument; [`Drc`] is a lock around it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rpc::server::CallContext;

/// How many replies are kept.
const MAX_REPLIES: usize = 4096;
/// How many bytes of replies are kept.
const MAX_BYTES: usize = 1 << 20;
/// How long a reply is kept: twice the time after which clients give a connection up.
const LIFE: Duration = Duration::from_secs(120);

/// What makes two calls the same. The port is not part of it (a new connection may have another), the program's
/// arguments and the credential are, as a checksum with a key of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    peer: IpAddr,
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
        Self { peer: cx.peer.address.ip(), xid: cx.xid, program, version: cx.version, procedure, checksum }
    }
}

/// What the cache knows of a call.
pub(crate) enum Seen<'d> {
    /// Nothing: run it, then finish the ticket. Dropping the ticket unfinished forgets the call.
    New(Ticket<'d>),
    /// It is running: the answer of that run serves both.
    InProgress,
    /// It was run and answered with this.
    Before(Arc<[u8]>),
}

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Drc {
    core: Mutex<Core>,
}

/// A call that is being run.
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
    /// Keeps the reply for a retransmission.
    pub(crate) fn finish(mut self, results: &[u8]) {
        self.reply = Some(results.into());
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.drc.core.lock().end(self.key, self.reply.take(), Instant::now());
    }
}

/// What [`Core::begin`] says.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    New,
    InProgress,
    Before(Arc<[u8]>),
}

/// The deciding part. Calls in progress are as many as the engine runs at once; replies are bounded here.
#[derive(Debug, Default)]
struct Core {
    calls: HashMap<Key, Option<Arc<[u8]>>>,
    /// The answered ones, oldest first.
    answered: VecDeque<(Key, Instant)>,
    bytes: usize,
}

impl Core {
    fn begin(&mut self, key: Key, now: Instant) -> Known {
        self.expire(now);
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
        self.bytes += reply.len();
        self.calls.insert(key, Some(reply));
        self.answered.push_back((key, now));
        while self.answered.len() > MAX_REPLIES || self.bytes > MAX_BYTES {
            self.forget_oldest();
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.answered.front().is_some_and(|(_, since)| now.saturating_duration_since(*since) >= LIFE) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((key, _)) = self.answered.pop_front()
            && let Some(Some(reply)) = self.calls.remove(&key)
        {
            self.bytes -= reply.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> Key {
        let peer = IpAddr::from([127, 0, 0, 1]);
        Key { peer, xid, program: 100_003, version: 3, procedure: 12, checksum: 5 }
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
            Key { peer: [127, 0, 0, 2].into(), ..first },
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
    fn replies_are_bounded_in_number_bytes_and_time() {
        let (mut core, now) = (Core::default(), Instant::now());
        for xid in 0..10_000 {
            assert_eq!(core.begin(key(xid), now), Known::New);
            core.end(key(xid), Some(vec![0; 100].into()), now);
            assert!(core.calls.len() <= MAX_REPLIES && core.answered.len() <= MAX_REPLIES);
        }
        assert!(matches!(core.begin(key(9_999), now), Known::Before(_)));
        for xid in 20_000..20_020 {
            core.begin(key(xid), now);
            core.end(key(xid), Some(vec![0; MAX_BYTES / 4].into()), now);
            assert!(core.bytes <= MAX_BYTES);
        }
        assert_eq!(core.begin(key(20_019), now + LIFE), Known::New);
        assert_eq!((core.answered.len(), core.bytes, core.calls.len()), (0, 0, 1));
    }

    #[test]
    fn a_call_in_progress_outlives_everything() {
        let (mut core, now) = (Core::default(), Instant::now());
        core.begin(key(0), now);
        for xid in 1..=2 * MAX_REPLIES as u32 {
            core.begin(key(xid), now);
            core.end(key(xid), Some([].into()), now);
        }
        assert_eq!(core.begin(key(0), now + 10 * LIFE), Known::InProgress);
    }
}
