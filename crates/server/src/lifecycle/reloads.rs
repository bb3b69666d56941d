//! Reloads on a thread of their own, one at a time.
//!
//! A reload blocks if an exported directory is on a mount that hangs. The thread that requests reloads is the
//! one that waits for signals, and must not block.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// Requested reloads.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Running,
    /// Requested again, once or more, while one is running. A single further reload covers all requests.
    Again,
}

impl Reloads {
    /// Runs `reload` on a thread, now or after the one that is running.
    pub(crate) fn request(self: &Arc<Self>, reload: impl Fn() + Send + 'static) -> io::Result<()> {
        let mut state = self.state.lock();
        if *state != State::Idle {
            *state = State::Again;
            return Ok(());
        }
        let own = Arc::clone(self);
        std::thread::Builder::new().name("reload".into()).spawn(move || {
            loop {
                reload();
                let mut state = own.state.lock();
                if *state != State::Again {
                    *state = State::Idle;
                    return;
                }
                *state = State::Running;
            }
        })?;
        *state = State::Running;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn requests_during_a_reload_lead_to_one_more() {
        let reloads = Arc::new(Reloads::default());
        let ((began, beginnings), (go, going)) = (sync_channel(4), sync_channel(4));
        let going = Mutex::new(going);
        reloads
            .request(move || {
                began.send(()).unwrap();
                going.lock().recv().unwrap();
            })
            .unwrap();
        beginnings.recv().unwrap();
        for _ in 0..3 {
            reloads.request(|| panic!("one runs already")).unwrap();
        }
        go.send(()).unwrap();
        beginnings.recv().unwrap();
        go.send(()).unwrap();
        while *reloads.state.lock() != State::Idle {
            std::thread::yield_now();
        }
        assert!(beginnings.recv().is_err(), "the thread has ended, and the reload ran twice");
    }
}
