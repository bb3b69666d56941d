//! A limit of the lines that each message may write, and reports of lines that were left out or lost.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use fairness::LogLimit;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::TARGET;
use super::lost::LOST_LINES;

/// The lines a minute that one message may write. What is below level info was asked for and isn't limited.
const LINES_A_MINUTE: u32 = 300;

/// Drops the lines of a message beyond its limit, and reports their number with the next one.
#[derive(Default)]
pub struct PerMessageLimit {
    /// By the place in the code that writes the message. Their number is that of such places.
    messages: Mutex<HashMap<Identifier, LogLimit>>,
}

impl PerMessageLimit {
    /// Whether a line of a message may be written; with the number of lines that were skipped before.
    fn admit(&self, message: Identifier, now: Instant) -> Option<u64> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.entry(message).or_insert_with(|| LogLimit::new(LINES_A_MINUTE)).admit(now)
    }
}

impl<S: Subscriber> Layer<S> for PerMessageLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if metadata.target() != TARGET
            && let Some(lost) = LOST_LINES.unreported()
        {
            tracing::warn!(target: TARGET, lost, "lines have been lost since the start: the log took none");
        }
        if *metadata.level() > Level::INFO || metadata.target() == TARGET {
            return true;
        }
        let Some(skipped) = self.admit(metadata.callsite(), Instant::now()) else { return false };
        if skipped > 0 {
            let at = format!("{}:{}", metadata.file().unwrap_or(""), metadata.line().unwrap_or(0));
            tracing::warn!(target: TARGET, skipped, at, "lines of the next message were left out");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct SeenTargets(std::sync::Arc<Mutex<Vec<&'static str>>>);

    impl<S: Subscriber> Layer<S> for SeenTargets {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(event.metadata().target());
        }
    }

    #[test]
    fn each_message_has_its_own_limit() {
        let seen = SeenTargets::default();
        let subscriber = tracing_subscriber::registry().with(seen.clone()).with(PerMessageLimit::default());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..2 * LINES_A_MINUTE {
                tracing::warn!(target: "a", "one");
                tracing::debug!(target: "b", "two");
            }
            tracing::info!(target: "c", "three");
        });
        let seen = seen.0.lock().unwrap();
        let count = |target| seen.iter().filter(|seen| **seen == target).count() as u32;
        assert_eq!((count("a"), count("b"), count("c")), (LINES_A_MINUTE, 2 * LINES_A_MINUTE, 1));
    }

    #[test]
    fn skipped_lines_are_counted() {
        let limit = PerMessageLimit::default();
        let message = || tracing::callsite::Identifier(&CALLSITE);
        let begin = Instant::now();
        for _ in 0..LINES_A_MINUTE {
            assert_eq!(limit.admit(message(), begin), Some(0));
        }
        assert_eq!(limit.admit(message(), begin), None);
        assert_eq!(limit.admit(message(), begin + Duration::from_secs(60)), Some(1));
    }

    static CALLSITE: tracing::callsite::DefaultCallsite = tracing::callsite::DefaultCallsite::new(&METADATA);
    static METADATA: tracing::Metadata<'static> = tracing::metadata! {
        name: "message",
        target: "test",
        level: Level::WARN,
        fields: &[],
        callsite: &CALLSITE,
        kind: tracing::metadata::Kind::EVENT,
    };
}
