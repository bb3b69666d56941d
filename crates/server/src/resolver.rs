//! Host names for the export rules: looked up on a thread of their own and remembered, so that a slow name server
//! holds up nobody for longer than [`PATIENCE`], and nobody twice.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use exports::Names;
use parking_lot::{Condvar, Mutex};

/// How long a call waits for a name that was never looked up before.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer is good; after that it is asked for again while the old one still serves.
const FRESH: Duration = Duration::from_secs(60);
/// How many names and addresses are remembered.
const MAX_REMEMBERED: usize = 4096;
/// How many lookups may wait.
const MAX_WAITING: usize = 256;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    Addresses(String),
    Names(IpAddr),
}

/// What is known.
#[derive(Debug, Clone)]
struct Answer {
    addresses: Arc<[IpAddr]>,
    names: Arc<[String]>,
    /// Since when; `None` as long as nothing was ever answered.
    since: Option<Instant>,
    /// A lookup is under way.
    asked: Option<Instant>,
}

#[derive(Debug, Default)]
struct Memory {
    answers: Mutex<HashMap<Question, Answer>>,
    news: Condvar,
}

/// Remembers names and addresses.
#[derive(Debug)]
pub(crate) struct Resolver {
    memory: Arc<Memory>,
    /// Started with the first question.
    worker: Mutex<Option<SyncSender<Question>>>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { memory: Arc::default(), worker: Mutex::new(None) }
    }
}

impl Names for Resolver {
    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        self.ask(Question::Addresses(host.to_owned())).addresses.to_vec()
    }

    fn names(&self, address: IpAddr) -> Vec<String> {
        self.ask(Question::Names(address)).names.to_vec()
    }
}

impl Resolver {
    /// Forgets everything, so that a reload of the exports also reloads the names in them.
    pub(crate) fn forget(&self) {
        self.memory.answers.lock().clear();
    }

    fn ask(&self, question: Question) -> Answer {
        let now = Instant::now();
        let mut answers = self.memory.answers.lock();
        if answers.len() >= MAX_REMEMBERED && !answers.contains_key(&question) {
            answers.clear();
        }
        let known = answers.entry(question.clone()).or_insert_with(Answer::nothing);
        let stale = known.since.is_none_or(|since| now.duration_since(since) >= FRESH);
        let mut first = false;
        if stale && known.asked.is_none_or(|asked| now.duration_since(asked) >= FRESH) {
            first = known.since.is_none() && known.asked.is_none();
            known.asked = self.send(question.clone()).then_some(now);
        }
        if first {
            let deadline = now + PATIENCE;
            while answers.get(&question).is_some_and(|known| known.since.is_none() && known.asked.is_some()) {
                if self.memory.news.wait_until(&mut answers, deadline).timed_out() {
                    break;
                }
            }
        }
        answers.get(&question).cloned().unwrap_or_else(Answer::nothing)
    }

    /// Hands a question to the worker; false if it has too many already or there's none.
    fn send(&self, question: Question) -> bool {
        let mut worker = self.worker.lock();
        if worker.is_none() {
            let (sender, questions) = sync_channel(MAX_WAITING);
            let memory = Arc::clone(&self.memory);
            let started = std::thread::Builder::new().name("names".into()).spawn(move || {
                while let Ok(question) = questions.recv() {
                    let answer = look_up(&question);
                    if let Some(known) = memory.answers.lock().get_mut(&question) {
                        *known = answer;
                    }
                    memory.news.notify_all();
                }
            });
            if let Err(error) = started {
                tracing::warn!(%error, "no thread to look names up");
                return false;
            }
            *worker = Some(sender);
        }
        !matches!(
            worker.as_ref().map(|worker| worker.try_send(question)),
            None | Some(Err(TrySendError::Full(_)))
        )
    }
}

impl Answer {
    fn nothing() -> Self {
        Self { addresses: Arc::new([]), names: Arc::new([]), since: None, asked: None }
    }
}

fn look_up(question: &Question) -> Answer {
    let mut answer = Answer { since: Some(Instant::now()), ..Answer::nothing() };
    match question {
        Question::Addresses(host) => {
            if let Ok(found) = (host.as_str(), 0).to_socket_addrs() {
                answer.addresses = found.map(|address| address.ip().to_canonical()).collect();
            }
        }
        Question::Names(address) => {
            if let Ok(name) = dns_lookup::lookup_addr(address) {
                answer.names = [name].into();
            }
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_known_both_ways_and_nonsense_is_not() {
        let resolver = Resolver::default();
        assert!(resolver.addresses("localhost").iter().any(IpAddr::is_loopback));
        assert!(!resolver.names(IpAddr::from([127, 0, 0, 1])).is_empty());
        assert!(resolver.addresses("no such name.invalid").is_empty());
        resolver.forget();
        assert!(resolver.addresses("localhost").iter().any(IpAddr::is_loopback));
    }
}
