//! Reloads on a thread of their own. An exported directory may be on a mount that hangs, and then so does
//! whoever looks at it; the thread that waits for signals, which is the one that asks for reloads, must hear
//! the next one all the same.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// Reloads that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Running,
    /// Asked for again meanwhile, however often: one more will do, for it sees what is there by then.
    Again,
}

impl Reloads {
    /// Runs `reload` soon; one at a time.
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
    fn one_at_a_time_and_one_more_for_all_that_were_asked_for_meanwhile() {
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
