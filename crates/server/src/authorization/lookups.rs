//! A cache of queries to the host's databases (names of hosts, of users), answered by threads of its own.
//!
//! 1. Callers wait for the first answer to a query until a timeout has passed since it was first made. From
//!    then on the result is *not known yet* at once, until the answer arrives. Only [`MAX_CALLERS`] wait at a
//!    time: they are worker threads, and a stranger can cause queries.
//! 2. A known answer is used regardless of its age. If it is older than [`FRESH`], or
//!    [`Lookups::ask_again`] was called, it is refreshed in the background.
//! 3. A lookup that fails leaves the last answer in use. Without a last answer the answer is empty, so that
//!    callers don't wait for what can't be answered.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The age from which an answer is refreshed.
const FRESH: Duration = Duration::from_secs(60);
/// How long after a failed lookup the next one is made.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How many answers are cached; the least recently used ones are evicted.
pub(crate) const MAX_REMEMBERED: usize = 16_384;
/// How many lookups may wait for a thread. Fewer than the cache holds: pending queries aren't evicted.
const MAX_WAITING: usize = 1024;
/// How many lookups run at a time, so that a slow one doesn't delay the others.
const MAX_THREADS: usize = 4;

/// How many callers wait at a time; a further caller gets [`NotYet`].
const MAX_CALLERS: usize = 4;

/// The answer hasn't arrived yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotYet;

/// The state of one query.
#[derive(Debug)]
struct CacheEntry<A> {
    /// The last answer.
    answer: Option<Arc<A>>,
    /// When the pending or running lookup was requested.
    asked: Option<Instant>,
    /// When to look it up again.
    due: Instant,
    /// When it was last used.
    used: Instant,
}

/// The state behind the lock.
#[derive(Debug)]
struct Cache<Q, A> {
    known: HashMap<Q, CacheEntry<A>>,
    waiting: VecDeque<Q>,
    threads: usize,
    idle: usize,
    /// Callers that are waiting for an answer.
    callers: usize,
    /// The number of calls of [`Lookups::ask_again`]: answers to lookups from before the last call aren't
    /// fresh.
    round: u64,
    closed: bool,
}

/// Looks a query up; `None` on failure.
type LookUp<Q, A> = dyn Fn(&Q) -> Option<A> + Send + Sync;

struct Shared<Q, A> {
    memory: Mutex<Cache<Q, A>>,
    /// A query is waiting for a thread, or the lookups were dropped.
    work: Condvar,
    /// An answer has arrived.
    news: Condvar,
    look_up: Box<LookUp<Q, A>>,
    patience: Duration,
    max_remembered: usize,
    /// The number of answers that differed from the previous one.
    changes: AtomicU64,
}

/// A cache of answers `A` to queries `Q`. The empty answer is `A::default()`. Threads are started by the
/// first query.
pub(crate) struct Lookups<Q: Query, A: QueryAnswer>(Arc<Shared<Q, A>>);

/// The key of a lookup.
pub(crate) trait Query: fmt::Debug + Clone + Eq + Hash + Send + 'static {}
impl<Q: fmt::Debug + Clone + Eq + Hash + Send + 'static> Query for Q {}

/// The result of a lookup.
pub(crate) trait QueryAnswer: fmt::Debug + Default + PartialEq + Send + Sync + 'static {}
impl<A: fmt::Debug + Default + PartialEq + Send + Sync + 'static> QueryAnswer for A {}

impl<Q: Query, A: QueryAnswer> fmt::Debug for Lookups<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lookups").field(&self.0.memory).finish()
    }
}

impl<Q: Query, A: QueryAnswer> Drop for Lookups<Q, A> {
    fn drop(&mut self) {
        self.0.memory.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl<Q: Query, A: QueryAnswer> Lookups<Q, A> {
    /// Queries are answered by `look_up`; a caller waits up to `patience` for a first answer.
    pub(crate) fn new(
        look_up: impl Fn(&Q) -> Option<A> + Send + Sync + 'static,
        patience: Duration,
        max_remembered: usize,
    ) -> Self {
        let memory = Cache {
            known: HashMap::new(),
            waiting: VecDeque::new(),
            threads: 0,
            idle: 0,
            callers: 0,
            round: 0,
            closed: false,
        };
        Self(Arc::new(Shared {
            memory: Mutex::new(memory),
            work: Condvar::new(),
            news: Condvar::new(),
            look_up: Box::new(look_up),
            patience,
            max_remembered,
            changes: AtomicU64::new(0),
        }))
    }

    /// Refreshes every answer that is needed from now on; the old ones are used until then.
    pub(crate) fn ask_again(&self) {
        let mut memory = self.0.memory.lock();
        memory.round += 1;
        let now = Instant::now();
        memory.known.values_mut().for_each(|known| known.due = now);
    }

    /// Requests the answer to `question` without waiting for it.
    pub(crate) fn expect(&self, question: &Q) {
        self.0.want(&mut self.0.memory.lock(), question);
    }

    /// A number that changes whenever an answer has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// The answer to a query; waits for the first one.
    pub(crate) fn ask(&self, question: &Q) -> Result<Arc<A>, NotYet> {
        self.ask_for(question, self.0.patience)
    }

    /// The answer to a query, if it is known.
    pub(crate) fn ask_at_once(&self, question: &Q) -> Result<Arc<A>, NotYet> {
        self.ask_for(question, Duration::ZERO)
    }

    fn ask_for(&self, question: &Q, patience: Duration) -> Result<Arc<A>, NotYet> {
        let mut memory = self.0.memory.lock();
        self.0.want(&mut memory, question);
        loop {
            let known = memory.known.get(question).ok_or(NotYet)?;
            if let Some(answer) = &known.answer {
                return Ok(Arc::clone(answer));
            }
            // Counted from the first request, so that later callers don't wait the full time again.
            let deadline = known.asked.ok_or(NotYet)? + patience;
            if Instant::now() >= deadline || memory.callers >= MAX_CALLERS {
                return Err(NotYet);
            }
            memory.callers += 1;
            self.0.news.wait_until(&mut memory, deadline);
            memory.callers -= 1;
        }
    }
}

impl<Q: Query, A: QueryAnswer> Shared<Q, A> {
    /// Queues the lookup of `question` if it is due and the queue isn't full.
    fn want(self: &Arc<Self>, memory: &mut Cache<Q, A>, question: &Q) {
        let now = Instant::now();
        if let Some(known) = memory.known.get_mut(question) {
            known.used = now;
            if known.asked.is_some() || now < known.due {
                return;
            }
        }
        if memory.waiting.len() >= MAX_WAITING || !self.has_thread(memory) {
            return;
        }
        if !memory.known.contains_key(question) && memory.known.len() >= self.max_remembered {
            let oldest = memory.known.iter().filter(|(_, known)| known.asked.is_none());
            let oldest = oldest.min_by_key(|(_, known)| known.used).map(|(question, _)| question.clone());
            match oldest {
                Some(oldest) => drop(memory.known.remove(&oldest)),
                None => return,
            }
        }
        let known = memory.known.entry(question.clone());
        known.or_insert(CacheEntry { answer: None, asked: None, due: now, used: now }).asked = Some(now);
        memory.waiting.push_back(question.clone());
        self.work.notify_one();
    }

    /// Starts a thread for one more query, up to [`MAX_THREADS`]. Returns whether there is any thread.
    fn has_thread(self: &Arc<Self>, memory: &mut Cache<Q, A>) -> bool {
        if memory.idle <= memory.waiting.len() && memory.threads < MAX_THREADS {
            let shared = Arc::clone(self);
            match std::thread::Builder::new().name("names".into()).spawn(move || shared.work()) {
                Ok(_) => memory.threads += 1,
                Err(error) => tracing::warn!(%error, "no thread to look names up"),
            }
        }
        memory.threads > 0
    }

    /// A thread: answers pending queries until the lookups are dropped.
    fn work(&self) {
        let mut memory = self.memory.lock();
        while !memory.closed {
            let Some(question) = memory.waiting.pop_front() else {
                memory.idle += 1;
                self.work.wait(&mut memory);
                memory.idle -= 1;
                continue;
            };
            let round = memory.round;
            drop(memory);
            let answer = (self.look_up)(&question);
            memory = self.memory.lock();
            let fresh = memory.round == round;
            if let Some(known) = memory.known.get_mut(&question) {
                let good_for = if answer.is_some() { FRESH } else { AGAIN_AFTER_FAILURE };
                known.due = Instant::now() + if fresh { good_for } else { Duration::ZERO };
                known.asked = None;
                let old = known.answer.take();
                known.answer = answer.map(Arc::new).or_else(|| old.clone()).or_else(|| Some(Arc::default()));
                if known.answer != old {
                    self.changes.fetch_add(1, Ordering::Release);
                }
            }
            self.news.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(60);

    type Numbers = Lookups<String, Vec<u8>>;

    /// Lookups that are answered, one after another, with the values that are sent.
    fn answered_by_test(patience: Duration) -> (Numbers, SyncSender<Option<Vec<u8>>>) {
        let (sender, answers) = sync_channel(64);
        let answers = Mutex::new(answers);
        (Lookups::new(move |_| answers.lock().recv().ok().flatten(), patience, 16), sender)
    }

    fn ask(lookups: &Numbers, question: &str) -> Result<Vec<u8>, NotYet> {
        lookups.ask(&question.to_owned()).map(|answer| answer.to_vec())
    }

    /// Waits until no lookup is pending.
    fn settle(lookups: &Numbers) {
        let mut memory = lookups.0.memory.lock();
        while memory.known.values().any(|known| known.asked.is_some()) {
            let out = lookups.0.news.wait_for(&mut memory, LONG).timed_out();
            assert!(!out, "a lookup never ended");
        }
    }

    #[test]
    fn callers_wait_for_the_first_answer() {
        let (lookups, answers) = answered_by_test(LONG);
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&lookups, "a"))).collect();
            answers.send(Some(vec![1])).unwrap();
            for one in asking {
                assert_eq!(one.join().unwrap(), Ok(vec![1]));
            }
        });
    }

    #[test]
    fn a_slow_answer_is_not_known_yet_and_then_it_is() {
        let (lookups, answers) = answered_by_test(Duration::ZERO);
        assert_eq!(ask(&lookups, "a"), Err(NotYet));
        assert_eq!(ask(&lookups, "a"), Err(NotYet));
        assert_eq!(lookups.changes(), 0);
        answers.send(Some(vec![1])).unwrap();
        settle(&lookups);
        assert_eq!(ask(&lookups, "a"), Ok(vec![1]));
        assert_eq!(lookups.changes(), 1);
        lookups.ask_again();
        assert_eq!(ask(&lookups, "a"), Ok(vec![1]));
        answers.send(Some(vec![1])).unwrap();
        settle(&lookups);
        assert_eq!(lookups.changes(), 1, "the same answer is no change");
    }

    #[test]
    fn few_callers_wait_at_a_time() {
        let (lookups, answers) = answered_by_test(LONG);
        std::thread::scope(|scope| {
            for _ in 0..MAX_CALLERS {
                scope.spawn(|| assert_eq!(ask(&lookups, "a"), Ok(vec![1])));
            }
            while lookups.0.memory.lock().callers < MAX_CALLERS {
                std::thread::yield_now();
            }
            assert_eq!(ask(&lookups, "b"), Err(NotYet));
            answers.send(Some(vec![1])).unwrap();
            answers.send(Some(vec![1])).unwrap();
        });
    }

    #[test]
    fn old_answers_are_used_until_new_ones_arrive_and_after_failures() {
        let (lookups, answers) = answered_by_test(LONG);
        answers.send(Some(vec![1])).unwrap();
        assert_eq!(ask(&lookups, "a"), Ok(vec![1]));
        for (answer, then) in [
            (None, vec![1]),
            (Some(vec![2]), vec![2]),
            // An empty answer replaces the old one.
            (Some(vec![]), vec![]),
        ] {
            let before = ask(&lookups, "a");
            lookups.ask_again();
            assert_eq!(ask(&lookups, "a"), before, "asked again, but not dropped");
            answers.send(answer).unwrap();
            settle(&lookups);
            assert_eq!(ask(&lookups, "a"), Ok(then));
        }
        // Without a previous answer a failure gives an empty one, and callers no longer wait.
        answers.send(None).unwrap();
        assert_eq!(ask(&lookups, "b"), Ok(vec![]));
    }

    #[test]
    fn an_answer_to_a_lookup_from_before_the_refresh_is_not_fresh() {
        let (lookups, answers) = answered_by_test(LONG);
        lookups.expect(&"a".to_owned());
        while !lookups.0.memory.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        lookups.ask_again();
        answers.send(Some(vec![1])).unwrap();
        settle(&lookups);
        assert_eq!(ask(&lookups, "a"), Ok(vec![1]));
        answers.send(Some(vec![2])).unwrap();
        settle(&lookups);
        assert_eq!(ask(&lookups, "a"), Ok(vec![2]));
    }

    #[test]
    fn the_cache_is_bounded_and_recently_used_answers_stay() {
        let counted = Arc::new(AtomicUsize::new(0));
        let kept = Arc::clone(&counted);
        let look_up = move |question: &String| {
            if question == "kept" {
                kept.fetch_add(1, Ordering::SeqCst);
            }
            Some(vec![1])
        };
        let lookups = Lookups::new(look_up, LONG, 16);
        for number in 0..1000 {
            assert_eq!(ask(&lookups, "kept"), Ok(vec![1]));
            assert_eq!(ask(&lookups, &number.to_string()), Ok(vec![1]));
        }
        assert!(lookups.0.memory.lock().known.len() <= 16);
        assert_eq!(counted.load(Ordering::SeqCst), 1, "what is needed all the time is never forgotten");
    }
}
