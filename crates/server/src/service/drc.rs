//! The duplicate-request cache (DRC): a call that must not be executed twice is executed once and answered
//! twice.
//!
//! A client that lost its connection sends its calls again on the next one, with the same xid. [`Key`]
//! identifies a call. Replies are kept for a while, bounded in bytes and time. The bytes are shared by peer,
//! so that a flood of calls by one client can't make another client's retransmission run twice: a peer gets
//! at least half of an equal part. [`Core`] decides and takes its clock as an argument; [`Drc`] is a lock
//! around it.
//!
//! A WRITE is such a call, too, although it may be repeated at once. Its retransmission can be received late:
//! the client has the first transmission's reply by then, and has written newer data to the same range,
//! which a second execution would overwrite. WRITEs have a cache of their own, because there are so many that
//! they would soon displace the replies to all other calls.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use ahash::{HashMap, RandomState};
use fairness::Peer;
use parking_lot::Mutex;
use rpc::message::Credential;
use rpc::server::CallContext;

/// The bytes that replies may take, including [`OVERHEAD`] for each.
#[derive(Debug, Clone, Copy)]
struct ByteLimits {
    of_all_peers: usize,
    of_one_peer: usize,
}

/// Of the replies to WRITEs: about 4,000 of one peer.
const WRITES: ByteLimits = ByteLimits { of_all_peers: 4 << 20, of_one_peer: 1 << 20 };
/// Of the replies to other calls.
const OTHER_CALLS: ByteLimits = ByteLimits { of_all_peers: 2 << 20, of_one_peer: 1 << 20 };
/// The bytes that are charged for what identifies a reply.
const OVERHEAD: usize = 128;
/// The memory for so many replies of a peer is kept until the last one is gone.
const MIN_CAPACITY: usize = 64;
/// How long a reply is kept: twice the time after which clients give a connection up.
const LIFE: Duration = Duration::from_secs(120);
/// How often a full cache looks for the expired replies of all peers.
const SWEEP: Duration = Duration::from_secs(1);
/// How much of each end of a long request is hashed, in bytes: knfsd hashes the first 256, too. The beginning
/// of a WRITE has all but the data, and the data would take too long.
const HASHED: usize = 256;

/// The identity of a call. Another call with the same xid differs in the checksum.
///
/// The port is not part of it, since a new connection may have another one. Users of one host share its
/// address, so the owner of the process is part of it: a reply is for its own caller only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    peer: Peer,
    xid: u32,
    /// Of the xid, address, procedure, credential and arguments, with a key of this run.
    checksum: u64,
}

/// What the checksum covers in addition to the arguments.
#[derive(Hash)]
struct Summed<'a> {
    address: IpAddr,
    procedure: (u32, u32, u32),
    credential: &'a Credential,
    xid: u32,
    /// Of the arguments.
    length: usize,
}

impl Key {
    /// The key of a call with these undecoded arguments.
    pub(crate) fn new(cx: &CallContext<'_>, program: u32, procedure: u32, args: &[u8]) -> Self {
        static CHECKSUM: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hasher = CHECKSUM.build_hasher();
        Summed {
            address: cx.peer.address.ip(),
            procedure: (program, cx.version, procedure),
            credential: cx.credential,
            xid: cx.xid,
            length: args.len(),
        }
        .hash(&mut hasher);
        match (args.first_chunk::<HASHED>(), args.last_chunk::<HASHED>()) {
            (Some(first), Some(last)) if args.len() > 2 * HASHED => {
                hasher.write(first);
                hasher.write(last);
            }
            _ => hasher.write(args),
        }
        Self { peer: cx.peer.share(), xid: cx.xid, checksum: hasher.finish() }
    }
}

/// What the cache has about a call.
#[derive(Debug)]
pub(crate) enum Seen<'d> {
    /// Nothing: the caller must run it and finish the ticket. Dropping the ticket unfinished forgets the
    /// call.
    New(Ticket<'d>),
    /// It is running, and the reply of that run serves both.
    InProgress,
    /// It was answered with these results.
    Before(Arc<[u8]>),
}

/// A cache.
#[derive(Debug)]
pub(crate) struct Drc {
    core: Mutex<Core>,
}

/// A call that is running.
#[derive(Debug)]
pub(crate) struct Ticket<'d> {
    drc: &'d Drc,
    key: Key,
    is_running: bool,
}

impl Drc {
    /// An empty cache for WRITEs.
    pub(crate) fn for_writes() -> Self {
        Self { core: Mutex::new(Core::new(WRITES)) }
    }

    /// An empty cache for other calls.
    pub(crate) fn for_other_calls() -> Self {
        Self { core: Mutex::new(Core::new(OTHER_CALLS)) }
    }

    /// Looks a call up and, if it is new, notes that it is running.
    pub(crate) fn begin(&self, key: Key) -> Seen<'_> {
        match self.core.lock().begin(key, Instant::now) {
            Known::New => Seen::New(Ticket { drc: self, key, is_running: true }),
            Known::InProgress => Seen::InProgress,
            Known::Before(results) => Seen::Before(results),
        }
    }
}

impl Ticket<'_> {
    /// Keeps the results for a retransmission.
    pub(crate) fn finish(mut self, results: &[u8]) {
        self.is_running = false;
        let now = Instant::now();
        self.drc.core.lock().finish(self.key, results, now);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_running {
            self.drc.core.lock().forget_running(self.key);
        }
    }
}

/// The result of [`Core::begin`].
#[derive(Debug, PartialEq, Eq)]
enum Known {
    New,
    InProgress,
    Before(Arc<[u8]>),
}

/// The cache without its lock and clock.
#[derive(Debug)]
struct Core {
    limits: ByteLimits,
    /// The running calls. There are never more than workers, so looking through them is faster than hashing.
    running: Vec<Key>,
    /// What each peer has been answered. A peer without a reply has no entry.
    answered: HashMap<Peer, Answered>,
    /// What all of them are charged.
    bytes: usize,
    /// When the expired replies of all peers were last looked for.
    swept: Option<Instant>,
}

impl Core {
    fn new(limits: ByteLimits) -> Self {
        Self { limits, running: Vec::new(), answered: HashMap::default(), bytes: 0, swept: None }
    }

    /// The clock is read only for a call that was answered before: few were.
    fn begin(&mut self, key: Key, now: impl FnOnce() -> Instant) -> Known {
        if self.running.contains(&key) {
            return Known::InProgress;
        }
        if let Some(answered) = self.answered.get(&key.peer)
            && let Some(index) = answered.find(&key)
            && !answered.replies[index].is_expired(now())
        {
            return Known::Before(answered.results_of(index));
        }
        self.running.push(key);
        Known::New
    }

    fn forget_running(&mut self, key: Key) {
        if let Some(index) = self.running.iter().position(|running| *running == key) {
            self.running.swap_remove(index);
        }
    }

    fn finish(&mut self, key: Key, results: &[u8], now: Instant) {
        self.forget_running(key);
        let all = self.limits.of_all_peers;
        let is_full = self.bytes + OVERHEAD + results.len() > all;
        if is_full && self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP) {
            self.swept = Some(now);
            self.answered.retain(|_, answered| {
                self.bytes -= answered.expire(now);
                !answered.replies.is_empty()
            });
        }
        // A peer with half of an equal part makes room for itself: finding the greediest takes time.
        let half = all / self.answered.len().max(1) / 2;
        let own = self.answered.entry(key.peer).or_default();
        self.bytes -= own.expire(now);
        self.bytes += own.push(&key, results, now);
        while own.bytes > self.limits.of_one_peer || (self.bytes > all && own.bytes >= half) {
            self.bytes -= own.pop();
        }
        if own.replies.is_empty() {
            self.answered.remove(&key.peer);
        }
        while self.bytes > all && self.displace() {}
    }

    /// Forgets the oldest reply of the peer that has the most; whether there was one.
    fn displace(&mut self) -> bool {
        let Some((greediest, answered)) = self.answered.iter_mut().max_by_key(|(_, answered)| answered.bytes)
        else {
            return false;
        };
        let greediest = *greediest;
        self.bytes -= answered.pop();
        if answered.replies.is_empty() {
            self.answered.remove(&greediest);
        }
        true
    }
}

/// The replies to one peer.
///
/// New ones are written behind the others, so that a call touches little memory that isn't in the processor's
/// cache. With a hash table of allocated replies, WRITEs of 4 KiB took several percent longer.
#[derive(Debug, Default)]
struct Answered {
    /// Oldest first.
    replies: VecDeque<KeptReply>,
    /// The results of all replies, one behind the other.
    results: VecDeque<u8>,
    /// The number of each reply, by the checksum of its call.
    numbers: HashMap<u64, u32>,
    /// The number of the oldest reply. Numbers wrap.
    oldest: u32,
    bytes: usize,
}

#[derive(Debug)]
struct KeptReply {
    checksum: u64,
    xid: u32,
    /// Of the results.
    length: u32,
    since: Instant,
}

impl KeptReply {
    fn is_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= LIFE
    }

    const fn bytes(&self) -> usize {
        OVERHEAD + self.length as usize
    }
}

impl Answered {
    /// The index of the reply to a call.
    fn find(&self, key: &Key) -> Option<usize> {
        let index = self.numbers.get(&key.checksum)?.wrapping_sub(self.oldest) as usize;
        self.replies.get(index).is_some_and(|reply| reply.xid == key.xid).then_some(index)
    }

    fn results_of(&self, index: usize) -> Arc<[u8]> {
        let start: usize = self.replies.iter().take(index).map(|reply| reply.length as usize).sum();
        self.results.range(start..start + self.replies[index].length as usize).copied().collect()
    }

    /// Adds a reply, and returns how much it is charged.
    fn push(&mut self, key: &Key, results: &[u8], now: Instant) -> usize {
        let Key { checksum, xid, .. } = *key;
        let reply = KeptReply { checksum, xid, length: results.len() as u32, since: now };
        let bytes = reply.bytes();
        self.numbers.insert(checksum, self.oldest.wrapping_add(self.replies.len() as u32));
        self.replies.push_back(reply);
        self.results.extend(results);
        self.bytes += bytes;
        bytes
    }

    /// Forgets what is expired, and returns how much that was charged.
    fn expire(&mut self, now: Instant) -> usize {
        let mut bytes = 0;
        while self.replies.front().is_some_and(|oldest| oldest.is_expired(now)) {
            bytes += self.pop();
        }
        bytes
    }

    /// Forgets the oldest reply, and returns how much it was charged.
    fn pop(&mut self) -> usize {
        let Some(oldest) = self.replies.pop_front() else { return 0 };
        self.oldest = self.oldest.wrapping_add(1);
        self.results.drain(..oldest.length as usize);
        self.numbers.remove(&oldest.checksum);
        self.bytes -= oldest.bytes();
        if self.replies.capacity() > MIN_CAPACITY.max(4 * self.replies.len()) {
            self.replies.shrink_to(2 * self.replies.len());
            self.numbers.shrink_to(2 * self.numbers.len());
        }
        if self.results.capacity() > (OVERHEAD * MIN_CAPACITY).max(4 * self.results.len()) {
            self.results.shrink_to(2 * self.results.len());
        }
        oldest.bytes()
    }
}

#[cfg(test)]
mod tests {
    use rpc::message::AuthSys;
    use rpc::server::TcpOwner;

    use super::*;

    /// What distinguishes a call.
    #[derive(Clone)]
    struct Call {
        client: ([u8; 4], TcpOwner),
        credential: Credential,
        xid: u32,
        procedure: (u32, u32, u32),
        args: Vec<u8>,
    }

    impl Call {
        fn key_from_port(&self, port: u16) -> Key {
            let (host, owner) = self.client;
            let (program, version, procedure) = self.procedure;
            let local = ([192, 0, 2, 9], 2049).into();
            let connection = port.into();
            let peer = rpc::server::Peer { connection, address: (host, port).into(), local, owner };
            let cx = CallContext::new(self.xid, version, &peer, &self.credential);
            Key::new(&cx, program, procedure, &self.args)
        }

        fn key(&self) -> Key {
            self.key_from_port(700)
        }
    }

    #[test]
    fn every_part_of_a_call_counts_but_the_port_and_the_middle_of_a_payload() {
        let sys = |uid| Credential::Sys(AuthSys { uid, gids: vec![5], ..AuthSys::default() });
        let call = Call {
            client: ([192, 0, 2, 1], TcpOwner::Remote),
            credential: sys(1),
            xid: 1,
            procedure: (100_003, 3, 7),
            args: vec![7; 4096],
        };
        let with = |change: &dyn Fn(&mut Call)| {
            let mut call = call.clone();
            change(&mut call);
            call.key()
        };
        let same = [
            call.key_from_port(701),
            with(&|call| call.args[HASHED] = 8),
            with(&|call| call.args[4095 - HASHED] = 8),
        ];
        assert_eq!(same, [call.key(); 3]);
        let others = [
            with(&|call| call.client.0 = [192, 0, 2, 2]),
            with(&|call| call.client.1 = TcpOwner::User(1)),
            with(&|call| call.credential = sys(2)),
            with(&|call| call.credential = Credential::None),
            with(&|call| call.xid = 2),
            with(&|call| call.procedure.0 = 100_227),
            with(&|call| call.procedure.1 = 4),
            with(&|call| call.procedure.2 = 8),
            with(&|call| call.args[0] = 8),
            with(&|call| call.args[HASHED - 1] = 8),
            with(&|call| call.args[4096 - HASHED] = 8),
            with(&|call| call.args[4095] = 8),
            with(&|call| call.args.truncate(4095)),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(*other, call.key(), "{index}");
        }
        let short = |byte| with(&move |call| call.args = vec![byte; 2 * HASHED]);
        assert_ne!(short(1), short(2));
        for at in 0..2 * HASHED {
            let other = with(&move |call| {
                call.args = vec![1; 2 * HASHED];
                call.args[at] = 2;
            });
            assert_ne!(other, short(1), "{at}");
        }
    }

    const GREEDY: Peer = Peer::Local(1000);
    const OTHER: Peer = Peer::V4([192, 0, 2, 1]);

    fn key_of(peer: Peer, xid: u32) -> Key {
        Key { peer, xid, checksum: xid.into() }
    }

    fn key(xid: u32) -> Key {
        key_of(GREEDY, xid)
    }

    fn core() -> Core {
        Core::new(OTHER_CALLS)
    }

    const HALF: usize = OTHER_CALLS.of_one_peer;

    /// The results that a call gets.
    fn results(xid: u32, length: usize) -> Vec<u8> {
        xid.to_be_bytes().into_iter().cycle().take(length).collect()
    }

    /// Executes a call that is answered with so many bytes.
    fn execute(core: &mut Core, key: Key, length: usize, now: Instant) {
        assert_eq!(core.begin(key, || now), Known::New);
        core.finish(key, &results(key.xid, length), now);
        let bytes: usize = core.answered.values().map(|answered| answered.bytes).sum();
        assert_eq!(bytes, core.bytes);
        assert!(bytes <= core.limits.of_all_peers);
        for answered in core.answered.values() {
            assert!(answered.bytes <= core.limits.of_one_peer && !answered.replies.is_empty());
            assert_eq!(answered.numbers.len(), answered.replies.len());
        }
    }

    fn execute_all(core: &mut Core, peer: Peer, xids: std::ops::Range<u32>, length: usize, now: Instant) {
        xids.for_each(|xid| execute(core, key_of(peer, xid), length, now));
    }

    /// Whether the call with this number still gets its results.
    fn is_kept(core: &mut Core, key: Key, length: usize, now: Instant) -> bool {
        match core.begin(key, || now) {
            Known::Before(kept) => {
                assert_eq!(kept[..], results(key.xid, length));
                true
            }
            Known::New => {
                core.forget_running(key);
                false
            }
            Known::InProgress => panic!(),
        }
    }

    #[test]
    fn a_retransmission_waits_for_the_first_run_and_gets_its_reply() {
        let (mut core, now) = (core(), Instant::now());
        assert_eq!(core.begin(key(1), || now), Known::New);
        assert_eq!(core.begin(key(1), || now), Known::InProgress);
        core.finish(key(1), b"done", now);
        assert_eq!(core.begin(key(1), || now), Known::Before(b"done"[..].into()));
        assert_eq!(core.begin(key(2), || now), Known::New);
    }

    #[test]
    fn calls_with_the_same_checksum_are_told_apart() {
        let (mut core, now) = (core(), Instant::now());
        let first = key(1);
        let others = [Key { xid: 2, ..first }, Key { peer: OTHER, ..first }];
        assert_eq!(core.begin(first, || now), Known::New);
        assert!(others.iter().all(|key| core.begin(*key, || now) == Known::New));
        others.iter().for_each(|key| core.forget_running(*key));
        core.finish(first, b"done", now);
        assert!(others.iter().all(|key| core.begin(*key, || now) == Known::New));
    }

    #[test]
    fn an_unfinished_call_is_forgotten() {
        let drc = Drc::for_other_calls();
        let Seen::New(ticket) = drc.begin(key(1)) else { panic!() };
        assert!(matches!(drc.begin(key(1)), Seen::InProgress));
        drop(ticket);
        let Seen::New(ticket) = drc.begin(key(1)) else { panic!() };
        ticket.finish(b"done");
        assert!(matches!(drc.begin(key(1)), Seen::Before(results) if *results == *b"done"));
        assert!(drc.core.lock().running.is_empty());
    }

    #[test]
    fn the_last_replies_are_kept_whatever_their_lengths() {
        let (mut core, now) = (core(), Instant::now());
        let length = |xid: u32| (xid % 7 * 20) as usize;
        for xid in 0..10_000 {
            execute(&mut core, key(xid), length(xid), now);
            let last = xid.saturating_sub(1000);
            assert!(is_kept(&mut core, key(last), length(last), now), "{xid}");
        }
        assert!(!is_kept(&mut core, key(0), 0, now));
    }

    #[test]
    fn four_thousand_writes_of_a_peer_are_kept() {
        const RESULTS: usize = 136;
        let (mut core, now) = (Core::new(WRITES), Instant::now());
        for host in 1..=4 {
            execute_all(&mut core, Peer::V4([192, 0, 2, host]), 0..4000, RESULTS, now);
        }
        for host in 1..=4 {
            let peer = Peer::V4([192, 0, 2, host]);
            assert!((100..4000).all(|xid| is_kept(&mut core, key_of(peer, xid), RESULTS, now)));
        }
    }

    #[test]
    fn replies_expire() {
        let (mut core, now) = (core(), Instant::now());
        execute(&mut core, key(1), 4, now);
        execute(&mut core, key(2), 4, now + Duration::from_secs(1));
        assert!(is_kept(&mut core, key(1), 4, now + LIFE - Duration::from_nanos(1)));
        let later = now + LIFE;
        execute(&mut core, key(1), 8, later);
        assert!(is_kept(&mut core, key(1), 8, later) && is_kept(&mut core, key(2), 4, later));
        execute(&mut core, key(3), 0, later + LIFE);
        assert_eq!(core.bytes, OVERHEAD);
    }

    #[test]
    fn the_memory_of_expired_replies_is_given_back() {
        let (mut core, now) = (core(), Instant::now());
        execute_all(&mut core, GREEDY, 0..4000, 100, now);
        execute_all(&mut core, GREEDY, 4000..4500, 100, now + Duration::from_secs(1));
        execute(&mut core, key(4500), 100, now + LIFE);
        let answered = &core.answered[&GREEDY];
        assert_eq!(answered.replies.len(), 501);
        assert!(answered.replies.capacity() <= 4 * 501 && answered.numbers.capacity() <= 4 * 501);
        assert!(answered.results.capacity() <= 4 * 501 * 100);
    }

    #[test]
    fn a_reply_that_is_too_long_is_not_kept() {
        let (mut core, now) = (core(), Instant::now());
        assert_eq!(core.begin(key(1), || now), Known::New);
        core.finish(key(1), &vec![0; HALF], now);
        assert_eq!((core.bytes, core.begin(key(1), || now)), (0, Known::New));
    }

    #[test]
    fn a_flood_of_one_peer_forgets_no_reply_of_another() {
        let (mut core, now) = (core(), Instant::now());
        execute(&mut core, key_of(OTHER, 1), 4, now);
        execute_all(&mut core, GREEDY, 0..10_000, 0, now);
        assert!(is_kept(&mut core, key_of(OTHER, 1), 4, now));
    }

    #[test]
    fn a_peer_gets_at_least_half_of_an_equal_part() {
        let (mut core, now) = (core(), Instant::now());
        let peers = (1..=10).map(|host| Peer::V4([192, 0, 2, host])).collect::<Vec<_>>();
        execute_all(&mut core, peers[0], 0..6000, 100, now);
        execute_all(&mut core, peers[1], 0..6000, 100, now);
        assert!(core.bytes > 2 * (HALF - 2 * OVERHEAD), "two peers have all of it");
        for xid in 6000..9000 {
            peers.iter().for_each(|peer| execute(&mut core, key_of(*peer, xid), 100, now));
        }
        for (peer, answered) in &core.answered {
            assert!(answered.bytes >= HALF / 10 - 2 * OVERHEAD, "{peer}: {} bytes", answered.bytes);
        }
    }

    #[test]
    fn expired_replies_make_room_first() {
        let (mut core, now) = (core(), Instant::now());
        const PART: usize = HALF / 4 - 1;
        let old = [1, 2].map(|host| Peer::V4([192, 0, 2, host]));
        let fill = |core: &mut Core, peer, xids, now| execute_all(core, peer, xids, PART - OVERHEAD, now);
        old.iter().for_each(|peer| fill(&mut core, *peer, 0..4, now));
        assert_eq!(core.bytes, 8 * PART);
        let later = now + LIFE;
        fill(&mut core, OTHER, 10..14, later);
        fill(&mut core, GREEDY, 10..14, later);
        assert_eq!((core.bytes, core.answered.len()), (8 * PART, 2));
        // They are looked for again later.
        let last = later + LIFE;
        old.iter().for_each(|peer| fill(&mut core, *peer, 20..24, last));
        assert!(core.answered.keys().all(|peer| old.contains(peer)));
    }

    #[test]
    fn a_call_in_progress_outlives_everything() {
        let (mut core, now) = (core(), Instant::now());
        core.begin(key(0), || now);
        execute_all(&mut core, GREEDY, 1..10_000, 0, now);
        assert_eq!(core.begin(key(0), || now + 10 * LIFE), Known::InProgress);
    }
}
