//! Host names for the export rules: looked up on threads of their own and remembered.
//!
//! 1. What was never known is waited for, by everybody who needs it, until [`PATIENCE`] after it was first asked. From
//!    then on it is *not known yet*, at once, until the answer is there: a slow name server costs nobody more than
//!    that, and nobody his export.
//! 2. What is known serves, however old it is. When it is older than [`FRESH`], or the exports were read again, it is
//!    asked for again meanwhile.
//! 3. A lookup that fails says nothing: the last answer goes on serving. Without one the name has no addresses, so
//!    that a name that nobody can resolve keeps none but its own host waiting. That there is no such name is an answer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dns_lookup::{LookupError, LookupErrorKind, lookup_addr, lookup_host};
use exports::{Names, NotKnownYet};
use parking_lot::{Condvar, Mutex};

/// How long calls wait for a name that was never known.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer is good; after that it is asked for again while the old one still serves.
const FRESH: Duration = Duration::from_secs(60);
/// When a lookup that failed is tried again.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How many names and addresses are remembered; of more, those that were not needed for the longest time go.
const MAX_REMEMBERED: usize = 16_384;
/// How many lookups may wait for a thread. Fewer than are remembered: what is being asked is not forgotten.
const MAX_WAITING: usize = 1024;
/// How many lookups there are at a time, so that one slow name doesn't hold up the others.
const MAX_THREADS: usize = 4;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    Addresses(String),
    Names(IpAddr),
}

/// What is found. Nothing, too, is an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Addresses(Vec<IpAddr>),
    Names(Vec<String>),
}

/// A question that was asked.
#[derive(Debug)]
struct Known {
    /// The last answer.
    answer: Option<Arc<Answer>>,
    /// Since when the lookup that is waiting or under way is.
    asked: Option<Instant>,
    /// When to ask again.
    due: Instant,
    /// When somebody needed it.
    used: Instant,
}

/// Behind the lock.
#[derive(Debug, Default)]
struct Memory {
    known: HashMap<Question, Known>,
    waiting: VecDeque<Question>,
    threads: usize,
    idle: usize,
    /// Counts the calls of [`Resolver::ask_again`]: an answer to what was asked before the last one is not fresh.
    round: u64,
    closed: bool,
}

/// Answers a question; `None` if nobody can say.
type LookUp = dyn Fn(&Question) -> Option<Answer> + Send + Sync;

struct Shared {
    memory: Mutex<Memory>,
    /// Something waits for a thread, or the resolver is gone.
    work: Condvar,
    /// An answer has come.
    news: Condvar,
    look_up: Box<LookUp>,
    patience: Duration,
    max_remembered: usize,
}

/// Remembers names and addresses. Its threads start with the first question.
pub(crate) struct Resolver {
    shared: Arc<Shared>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with(look_up, PATIENCE, MAX_REMEMBERED)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resolver").field(&self.shared.memory).finish()
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.memory.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Names for Resolver {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        match &*self.ask(Question::Addresses(host.to_owned()))? {
            Answer::Addresses(addresses) => Ok(addresses.clone()),
            Answer::Names(_) => Ok(Vec::new()),
        }
    }

    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        match &*self.ask(Question::Names(address))? {
            Answer::Names(names) => Ok(names.clone()),
            Answer::Addresses(_) => Ok(Vec::new()),
        }
    }
}

impl Resolver {
    fn with(
        look_up: impl Fn(&Question) -> Option<Answer> + Send + Sync + 'static,
        patience: Duration,
        max_remembered: usize,
    ) -> Self {
        let (memory, work, news) = Default::default();
        let look_up = Box::new(look_up);
        Self { shared: Arc::new(Shared { memory, work, news, look_up, patience, max_remembered }) }
    }

    /// Its name server never answers, and nobody waits for it.
    #[cfg(test)]
    pub(crate) fn in_vain() -> Self {
        let never = |_: &Question| loop {
            std::thread::park();
        };
        Self::with(never, Duration::ZERO, 16)
    }

    /// Whatever is needed from now on is asked for again; until the answers are there the old ones serve. For a reload
    /// of the exports, which reloads the names in them, too.
    pub(crate) fn ask_again(&self) {
        let mut memory = self.shared.memory.lock();
        memory.round += 1;
        let now = Instant::now();
        memory.known.values_mut().for_each(|known| known.due = now);
    }

    /// Somebody will need the addresses of `host`.
    pub(crate) fn expect(&self, host: &str) {
        let question = Question::Addresses(host.to_owned());
        self.shared.want(&mut self.shared.memory.lock(), &question);
    }

    fn ask(&self, question: Question) -> Result<Arc<Answer>, NotKnownYet> {
        let mut memory = self.shared.memory.lock();
        self.shared.want(&mut memory, &question);
        loop {
            let known = memory.known.get(&question).ok_or(NotKnownYet)?;
            if let Some(answer) = &known.answer {
                return Ok(Arc::clone(answer));
            }
            // Counted from when it was asked first, so that nobody waits for what others have waited for in vain.
            let deadline = known.asked.ok_or(NotKnownYet)? + self.shared.patience;
            if Instant::now() >= deadline {
                return Err(NotKnownYet);
            }
            self.shared.news.wait_until(&mut memory, deadline);
        }
    }
}

impl Shared {
    /// Sees to it that `question` is asked if that is due. If there are too many already it isn't, this time.
    fn want(self: &Arc<Self>, memory: &mut Memory, question: &Question) {
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
    fn has_thread(self: &Arc<Self>, memory: &mut Memory) -> bool {
        if memory.idle <= memory.waiting.len() && memory.threads < MAX_THREADS {
            let shared = Arc::clone(self);
            match std::thread::Builder::new().name("names".into()).spawn(move || shared.work()) {
                Ok(_) => memory.threads += 1,
                Err(error) => tracing::warn!(%error, "no thread to look names up"),
            }
        }
        memory.threads > 0
    }

    /// A thread: answers what waits, until the resolver is gone.
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
                known.answer = answer.map(Arc::new).or(old).or_else(|| Some(Arc::new(question.nothing())));
            }
            self.news.notify_all();
        }
    }
}

impl Question {
    const fn nothing(&self) -> Answer {
        match self {
            Self::Addresses(_) => Answer::Addresses(Vec::new()),
            Self::Names(_) => Answer::Names(Vec::new()),
        }
    }
}

fn look_up(question: &Question) -> Option<Answer> {
    let found = match question {
        Question::Addresses(host) => lookup_host(host)
            .map(|found| Answer::Addresses(found.map(|address| address.to_canonical()).collect())),
        Question::Names(address) => lookup_addr(address).map(|name| Answer::Names(vec![name])),
    };
    match found {
        Ok(answer) => Some(answer),
        Err(error) if says_no(&error) => Some(question.nothing()),
        Err(error) => {
            tracing::info!(?question, error = %std::io::Error::from(error), "a lookup failed");
            None
        }
    }
}

/// Whether the error says that there's no such name, as opposed to that nobody could say.
fn says_no(error: &LookupError) -> bool {
    matches!(error.kind(), LookupErrorKind::NoName | LookupErrorKind::NoData)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(60);

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn found(last: u8) -> Option<Answer> {
        Some(Answer::Addresses(vec![address(last)]))
    }

    /// A resolver whose lookups are answered, one after another, with what is sent.
    fn by_hand(patience: Duration) -> (Resolver, SyncSender<Option<Answer>>) {
        let (sender, answers) = sync_channel(64);
        let answers = Mutex::new(answers);
        (Resolver::with(move |_| answers.lock().recv().ok().flatten(), patience, 16), sender)
    }

    /// Waits until nothing is being looked up.
    fn settle(resolver: &Resolver) {
        let mut memory = resolver.shared.memory.lock();
        while memory.known.values().any(|known| known.asked.is_some()) {
            let out = resolver.shared.news.wait_for(&mut memory, LONG).timed_out();
            assert!(!out, "a lookup never ended");
        }
    }

    #[test]
    fn localhost_is_known_both_ways_and_nonsense_is_not() {
        let resolver = Resolver::with(look_up, LONG, MAX_REMEMBERED);
        assert!(resolver.addresses("localhost").unwrap().iter().any(IpAddr::is_loopback));
        assert!(!resolver.names(IpAddr::from([127, 0, 0, 1])).unwrap().is_empty());
        assert!(resolver.addresses("no such name.invalid").unwrap().is_empty());
    }

    #[test]
    fn everybody_waits_for_the_first_answer() {
        let (resolver, answers) = by_hand(LONG);
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| resolver.addresses("a"))).collect();
            answers.send(found(1)).unwrap();
            for one in asking {
                assert_eq!(one.join().unwrap(), Ok(vec![address(1)]));
            }
        });
    }

    #[test]
    fn what_takes_too_long_is_not_known_yet_and_then_it_is() {
        let (resolver, answers) = by_hand(Duration::ZERO);
        assert_eq!(resolver.addresses("a"), Err(NotKnownYet));
        assert_eq!(resolver.addresses("a"), Err(NotKnownYet));
        answers.send(found(1)).unwrap();
        settle(&resolver);
        assert_eq!(resolver.addresses("a"), Ok(vec![address(1)]));
    }

    #[test]
    fn old_answers_serve_until_new_ones_are_there_and_failures_are_none() {
        let (resolver, answers) = by_hand(LONG);
        answers.send(found(1)).unwrap();
        assert_eq!(resolver.addresses("a"), Ok(vec![address(1)]));
        for (answer, then) in [
            (None, vec![address(1)]),
            (found(2), vec![address(2)]),
            // That there is no such name (any more) is an answer.
            (Some(Answer::Addresses(vec![])), vec![]),
        ] {
            let before = resolver.addresses("a");
            resolver.ask_again();
            assert_eq!(resolver.addresses("a"), before, "asked again, but not dropped");
            answers.send(answer).unwrap();
            settle(&resolver);
            assert_eq!(resolver.addresses("a"), Ok(then));
        }
        // Without an answer ever, a failure is none: no addresses, but nobody waits any more.
        answers.send(None).unwrap();
        assert_eq!(resolver.addresses("b"), Ok(vec![]));
    }

    #[test]
    fn an_answer_to_what_was_asked_before_a_reload_is_not_fresh() {
        let (resolver, answers) = by_hand(LONG);
        resolver.expect("a");
        while !resolver.shared.memory.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        resolver.ask_again();
        answers.send(found(1)).unwrap();
        settle(&resolver);
        assert_eq!(resolver.addresses("a"), Ok(vec![address(1)]));
        answers.send(found(2)).unwrap();
        settle(&resolver);
        assert_eq!(resolver.addresses("a"), Ok(vec![address(2)]));
    }

    #[test]
    fn the_memory_is_bounded_and_what_is_in_use_stays() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lookups);
        let resolver = Resolver::with(
            move |question| {
                if *question == Question::Addresses("kept".into()) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                found(1)
            },
            LONG,
            16,
        );
        for number in 0..1000 {
            assert_eq!(resolver.addresses("kept"), Ok(vec![address(1)]));
            assert_eq!(resolver.addresses(&number.to_string()), Ok(vec![address(1)]));
        }
        assert!(resolver.shared.memory.lock().known.len() <= 16);
        assert_eq!(lookups.load(Ordering::SeqCst), 1, "what is needed all the time is never forgotten");
    }
}
