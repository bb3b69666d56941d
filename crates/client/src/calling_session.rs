//! The session that a call is made for. Sessions may share connections and an NFSv4 client; what is theirs
//! alone goes with each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rpc::client::CallSocket;

use crate::counters::SessionCounters;

/// A session of this process.
#[derive(Debug)]
pub(crate) struct CallingSession {
    /// No other session of the process has it.
    pub(crate) number: u64,
    pub(crate) counters: Arc<SessionCounters>,
    /// The one of the session's lane.
    call_socket: Mutex<Option<Arc<CallSocket>>>,
}

impl Default for CallingSession {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Relaxed) + 1;
        Self { number, counters: Arc::default(), call_socket: Mutex::default() }
    }
}

impl CallingSession {
    /// Sets the socket that [`CallingSession::call_socket`] returns. An earlier one ends with the last call
    /// on it.
    pub(crate) fn set_call_socket(&self, socket: Option<Arc<CallSocket>>) {
        let before = std::mem::replace(&mut *self.call_socket.lock(), socket);
        drop(before);
    }

    /// The call socket, if there is one that hasn't ended and on which the server has denied no call.
    pub(crate) fn call_socket(&self) -> Option<Arc<CallSocket>> {
        self.call_socket.lock().clone().filter(|socket| socket.is_usable())
    }
}
