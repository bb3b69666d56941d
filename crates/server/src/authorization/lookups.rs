//! Questions to the host's databases (names of hosts, of users), which may take long to answer: asked on
//! threads of their own, and the answers remembered.
//!
//! 1. What was never known is waited for, by everybody who needs it, until the patience that the lookups were
//!    made with has passed since it was first asked. From then on it is *not known yet*, at once, until the
//!    answer is there: a slow database costs nobody more than that.
//! 2. What is known serves, however old it is. When it is older than [`FRESH`], or [`Lookups::ask_again`] was
//!    called, it is asked for again meanwhile. Few callers wait at a time: they are workers, of which there
//!    are few, and a stranger can make them ask.
//! 3. A lookup that fails says nothing: the last answer goes on serving. Without one the answer is empty, so
//!    that what nobody can answer keeps nobody waiting.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long an answer is good; after that it is asked for again while the old one still serves.
const FRESH: Duration = Duration::from_secs(60);
/// When a lookup that failed is tried again.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How many answers are remembered; of more, those that were not needed for the longest time go.
pub(crate) const MAX_REMEMBERED: usize = 16_384;
/// How many lookups may wait for a thread. Fewer than are remembered: what is being asked is not forgotten.
const MAX_WAITING: usize = 1024;
/// How many lookups there are at a time, so that a slow one doesn't hold up the others.
const MAX_THREADS: usize = 4;

/// How many callers wait at a time; for one more nothing is known yet.
const MAX_CALLERS: usize = 4;

/// The answer isn't there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotYet;

/// A question that was asked.
#[derive(Debug)]
struct Known<A> {
    /// The last answer.
    answer: Option<Arc<A>>,
    /// Since when the lookup that is waiting or under way is.
    asked: Option<Instant>,
    /// When to ask again.
    due: Instant,
    /// When somebody needed it.
    used: Instant,
}

/// Behind the lock.
#[derive(Debug)]
struct Memory<Q, A> {
    known: HashMap<Q, Known<A>>,
    waiting: VecDeque<Q>,
    threads: usize,
    idle: usize,
    /// Callers that wait for an answer.
    callers: usize,
    /// Counts the calls of [`Lookups::ask_again`]: an answer to what was asked before the last one is not
    /// fresh.
    round: u64,
    closed: bool,
}

/// Answers a question; `None` if nobody can say.
type LookUp<Q, A> = dyn Fn(&Q) -> Option<A> + Send + Sync;

struct Shared<Q, A> {
    memory: Mutex<Memory<Q, A>>,
    /// Something waits for a thread, or the lookups are gone.
    work: Condvar,
    /// An answer has come.
    news: Condvar,
    look_up: Box<LookUp<Q, A>>,
    patience: Duration,
    max_remembered: usize,
    /// Counts the answers that weren't those before.
    changes: AtomicU64,
}

/// Remembers answers `A` to questions `Q`; an empty answer is the default one. The threads start with the
/// first question.
pub(crate) struct Lookups<Q: Question, A: Answer>(Arc<Shared<Q, A>>);

/// What can be asked.
pub(crate) trait Question: fmt::Debug + Clone + Eq + Hash + Send + 'static {}
impl<Q: fmt::Debug + Clone + Eq + Hash + Send + 'static> Question for Q {}

/// What can be answered.
pub(crate) trait Answer: fmt::Debug + Default + PartialEq + Send + Sync + 'static {}
impl<A: fmt::Debug + Default + PartialEq + Send + Sync + 'static> Answer for A {}

impl<Q: Question, A: Answer> fmt::Debug for Lookups<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lookups").field(&self.0.memory).finish()
    }
}

impl<Q: Question, A: Answer> Drop for Lookups<Q, A> {
    fn drop(&mut self) {
        self.0.memory.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl<Q: Question, A: Answer> Lookups<Q, A> {
    /// Questions are answered by `look_up`; `patience` is how long a caller waits for an answer that was
    /// never known.
    pub(crate) fn new(
        look_up: impl Fn(&Q) -> Option<A> + Send + Sync + 'static,
        patience: Duration,
        max_remembered: usize,
    ) -> Self {
        let memory = Memory {
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

    /// Whatever is needed from now on is asked for again; until the answers are there the old ones serve.
    pub(crate) fn ask_again(&self) {
        let mut memory = self.0.memory.lock();
        memory.round += 1;
        let now = Instant::now();
        memory.known.values_mut().for_each(|known| known.due = now);
    }

    /// Somebody will need the answer to `question`.
    pub(crate) fn expect(&self, question: &Q) {
        self.0.want(&mut self.0.memory.lock(), question);
    }

    /// A number that changes whenever an answer has become another one.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// The answer to a question.
    pub(crate) fn ask(&self, question: &Q) -> Result<Arc<A>, NotYet> {
        self.ask_for(question, self.0.patience)
    }

    /// The answer to a question, if it is known.
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
            // Counted from when it was asked first, so that nobody waits for what others have waited for in
            // vain.
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

impl<Q: Question, A: Answer> Shared<Q, A> {
    /// Sees to it that `question` is asked if that is due. If there are too many already it isn't, this time.
    fn want(self: &Arc<Self>, memory: &mut Memory<Q, A>, question: &Q) {
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
        known.or_insert(Known { answer: None, asked: None, due: now, used: now }).asked = Some(now);
        memory.waiting.push_back(question.clone());
        self.work.notify_one();
    }

    /// Sees to it that there is a thread for one more question, or at least any.
    fn has_thread(self: &Arc<Self>, memory: &mut Memory<Q, A>) -> bool {
        if memory.idle <= memory.waiting.len() && memory.threads < MAX_THREADS {
            let shared = Arc::clone(self);
            match std::thread::Builder::new().name("names".into()).spawn(move || shared.work()) {
                Ok(_) => memory.threads += 1,
                Err(error) => tracing::warn!(%error, "no thread to look names up"),
            }
        }
        memory.threads > 0
    }

    /// A thread: answers what waits, until the lookups are gone.
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

    /// Lookups that are answered, one after another, with what is sent.
    fn by_hand(patience: Duration) -> (Numbers, SyncSender<Option<Vec<u8>>>) {
        let (sender, answers) = sync_channel(64);
        let answers = Mutex::new(answers);
        (Lookups::new(move |_| answers.lock().recv().ok().flatten(), patience, 16), sender)
    }

    fn ask(lookups: &Numbers, question: &str) -> Result<Vec<u8>, NotYet> {
        lookups.ask(&question.to_owned()).map(|answer| answer.to_vec())
    }

    /// Waits until nothing is being looked up.
    fn settle(lookups: &Numbers) {
        let mut memory = lookups.0.memory.lock();
        while memory.known.values().any(|known| known.asked.is_some()) {
            let out = lookups.0.news.wait_for(&mut memory, LONG).timed_out();
            assert!(!out, "a lookup never ended");
        }
    }

    #[test]
    fn everybody_waits_for_the_first_answer() {
        let (lookups, answers) = by_hand(LONG);
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&lookups, "a"))).collect();
            answers.send(Some(vec![1])).unwrap();
            for one in asking {
                assert_eq!(one.join().unwrap(), Ok(vec![1]));
            }
        });
    }

    #[test]
    fn what_takes_too_long_is_not_known_yet_and_then_it_is() {
        let (lookups, answers) = by_hand(Duration::ZERO);
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
        let (lookups, answers) = by_hand(LONG);
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
    fn old_answers_serve_until_new_ones_are_there_and_failures_are_none() {
        let (lookups, answers) = by_hand(LONG);
        answers.send(Some(vec![1])).unwrap();
        assert_eq!(ask(&lookups, "a"), Ok(vec![1]));
        for (answer, then) in [
            (None, vec![1]),
            (Some(vec![2]), vec![2]),
            // That there is no such thing (any more) is an answer.
            (Some(vec![]), vec![]),
        ] {
            let before = ask(&lookups, "a");
            lookups.ask_again();
            assert_eq!(ask(&lookups, "a"), before, "asked again, but not dropped");
            answers.send(answer).unwrap();
            settle(&lookups);
            assert_eq!(ask(&lookups, "a"), Ok(then));
        }
        // Without an answer ever, a failure is an empty one: nobody waits any more.
        answers.send(None).unwrap();
        assert_eq!(ask(&lookups, "b"), Ok(vec![]));
    }

    #[test]
    fn an_answer_to_what_was_asked_before_asking_again_is_not_fresh() {
        let (lookups, answers) = by_hand(LONG);
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
    fn the_memory_is_bounded_and_what_is_in_use_stays() {
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
