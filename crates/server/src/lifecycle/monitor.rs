//! What a start tells its caller while it lasts, and how the caller ends it.

use std::time::Duration;

use crate::lifecycle::errors::StartError;

/// Observes a [start](crate::Server::start_monitored), which may take long.
pub trait StartMonitor: Send + Sync {
    /// The next step, `doing`, may take as long as `at_most`.
    fn begins(&self, doing: &str, at_most: Duration);

    /// Whether the start is no longer wanted. It is asked between steps, and often during waits.
    fn is_cancelled(&self) -> bool;
}

/// A start that nobody observes.
impl StartMonitor for () {
    fn begins(&self, _: &str, _: Duration) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Fails if the start is no longer wanted.
pub(crate) fn check(monitor: &dyn StartMonitor) -> Result<(), StartError> {
    if monitor.is_cancelled() { Err(StartError::Cancelled) } else { Ok(()) }
}
