//! What signals request of a server's process, from its first moments to its end.
//!
//! 1. Preparing: the command line and the configuration are read. SIGTERM ends the process: it serves nobody.
//! 2. Starting: SIGTERM cancels the start.
//! 3. Running: SIGTERM stops the server. A second one ends the process at once.
//!
//! SIGHUP never ends the process. Before the server runs, it is a reload that follows the start. SIGINT is
//! like SIGTERM.

use std::process::exit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use server::{StaleSockets, StartMonitor};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Failure};
use crate::notify;
use crate::output::print_error;

/// Signals within this time are one request to stop: timeout(1) sends two, one to the command and one to its
/// process group, and so does a terminal together with the shell.
const REPEATED_SIGNAL_INTERVAL: Duration = Duration::from_secs(1);

/// The next thing to do for a server that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeRequest {
    Reload,
    Stop,
}

/// The requests of all signals so far.
#[derive(Debug, Default)]
pub struct Requests {
    state: Mutex<RequestState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RequestState {
    phase: ServePhase,
    wants_reload: bool,
    /// The time of the first signal that asked for a stop.
    stop_asked: Option<Instant>,
    /// What a process that ends at once has to remove.
    sockets: Option<StaleSockets>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ServePhase {
    #[default]
    Preparing,
    /// The server is started, runs, or stops.
    Serving,
    /// Everything is drained.
    Over,
}

/// What a signal leads to at once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reaction {
    Nothing,
    /// The process ends with this code.
    End(Exit),
}

impl RequestState {
    fn signal(&mut self, signal: i32, now: Instant) -> Reaction {
        if signal == SIGHUP {
            self.wants_reload = true;
            return Reaction::Nothing;
        }
        let first = *self.stop_asked.get_or_insert(now);
        match self.phase {
            ServePhase::Preparing => Reaction::End(Exit::Done),
            ServePhase::Serving if now.saturating_duration_since(first) >= REPEATED_SIGNAL_INTERVAL => {
                Reaction::End(Exit::Failed)
            }
            ServePhase::Serving | ServePhase::Over => Reaction::Nothing,
        }
    }
}

impl Requests {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When the handlers can't be installed or there is no thread for them.
    pub fn watch() -> Result<Arc<Self>, Failure> {
        let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT])
            .map_err(|error| Failure::new("signal handlers", error))?;
        let requests = Arc::new(Self::default());
        let own = Arc::clone(&requests);
        let react = move || signals.forever().for_each(|signal| own.react(signal));
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(react)
            .map_err(|error| Failure::new("a thread for signals", error))?;
        Ok(requests)
    }

    fn react(&self, signal: i32) {
        let mut state = self.lock();
        if let Reaction::End(code) = state.signal(signal, Instant::now()) {
            if code == Exit::Failed {
                if let Some(sockets) = &state.sockets {
                    sockets.remove();
                }
                print_error("serve: stopped by a second signal before everything was drained");
            }
            // With the lock: no other thread goes on to the next phase.
            exit(code as i32);
        }
        self.changed.notify_all();
    }

    /// The start begins.
    pub fn starting(&self) {
        self.lock().phase = ServePhase::Serving;
    }

    /// The server has started, and has these sockets.
    pub fn started(&self, sockets: StaleSockets) {
        self.lock().sockets = Some(sockets);
    }

    /// The server has stopped: no further signal matters.
    pub fn stopped(&self) {
        self.lock().phase = ServePhase::Over;
    }

    /// When the first signal has asked for a stop, if one has.
    pub fn stop_asked(&self) -> Option<Instant> {
        self.lock().stop_asked
    }

    /// Waits for the next request. After a stop was asked for, that is the answer.
    pub fn next(&self) -> ServeRequest {
        let mut state = self.lock();
        loop {
            if state.stop_asked.is_some() {
                return ServeRequest::Stop;
            }
            if std::mem::take(&mut state.wants_reload) {
                return ServeRequest::Reload;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartMonitor for Requests {
    fn begins(&self, doing: &str, at_most: Duration) {
        notify::starting(doing, at_most);
    }

    fn is_cancelled(&self) -> bool {
        self.stop_asked().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_means_what_the_phase_says() {
        let now = Instant::now();
        let later = now + REPEATED_SIGNAL_INTERVAL;
        let mut state = RequestState::default();
        assert_eq!(state.signal(SIGHUP, now), Reaction::Nothing);
        assert_eq!(state.signal(SIGTERM, now), Reaction::End(Exit::Done), "nothing is served yet");

        let mut state = RequestState { phase: ServePhase::Serving, ..RequestState::default() };
        assert_eq!(state.signal(SIGINT, now), Reaction::Nothing);
        assert_eq!(state.signal(SIGTERM, later - Duration::from_millis(1)), Reaction::Nothing, "the same");
        assert_eq!(state.signal(SIGHUP, later), Reaction::Nothing);
        assert_eq!(state.signal(SIGTERM, later), Reaction::End(Exit::Failed));

        state.phase = ServePhase::Over;
        assert_eq!(state.signal(SIGTERM, later), Reaction::Nothing);
    }

    #[test]
    fn a_reload_follows_the_start_once_and_a_stop_comes_before_it() {
        let requests = Requests::default();
        requests.starting();
        requests.react(SIGHUP);
        requests.react(SIGHUP);
        assert_eq!(requests.next(), ServeRequest::Reload);
        assert!(!requests.is_cancelled());
        requests.react(SIGHUP);
        requests.react(SIGTERM);
        assert!(requests.is_cancelled());
        assert_eq!(requests.next(), ServeRequest::Stop);
    }
}
