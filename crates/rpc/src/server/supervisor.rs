//! The supervisor: takes connections from workers in slow calls, and closes connections of stalled peers.
//!
//! While workers are busy it checks them every [`Limits::hand_over_after`](super::Limits). A worker that is
//! still in the same step loses its connection to another worker. From time to time the supervisor closes
//! connections whose peers leave replies unread, or hold receive memory that others wait for. With nothing to
//! check it sleeps until a worker wakes it.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{connection::Connection, engine::Engine, worker::arm_after_take_over};

/// The number of ticks without work after which it sleeps.
const IDLE_TICKS: u32 = 25;

/// The shortest time between two checks of the peers.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A peer that moves this many bytes may stall for another stall time.
const PER_STALL: u64 = 64 << 10;

/// What a worker was doing at the last tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    connection: u64,
    steps: u64,
}

/// Supervises until the engine ends.
pub fn run(engine: &Engine) {
    let mut seen = vec![Seen::default(); engine.activity.len()];
    let check_interval = LOOK_EVERY.min(engine.limits.stall / 4);
    let mut next_look = Instant::now() + check_interval;
    let mut idle = 0u32;
    while !engine.ended.load(Ordering::Acquire) {
        engine.tick();
        let working = check_workers(engine, &mut seen);
        idle = if working { 0 } else { idle.saturating_add(1) };
        if idle < IDLE_TICKS {
            let now = Instant::now();
            if now >= next_look {
                check_peers(engine, now);
                next_look = now + check_interval;
            }
            thread::park_timeout(engine.limits.hand_over_after);
            continue;
        }
        engine.memory.trim();
        // Announce the sleep, then check once more: work that begins after the announcement wakes this
        // thread, and earlier work is seen by the check.
        engine.supervisor_sleeps.store(true, Ordering::SeqCst);
        if engine.ended.load(Ordering::SeqCst) || has_busy_worker(engine) {
            // Tick again.
        } else if check_peers(engine, Instant::now()) {
            thread::park_timeout(check_interval);
        } else {
            thread::park();
        }
        // A worker that woke this thread has work for it. A timeout or a spurious wake-up has none.
        if !engine.supervisor_sleeps.swap(false, Ordering::SeqCst) {
            idle = 0;
        }
    }
}

fn has_busy_worker(engine: &Engine) -> bool {
    engine.activity.iter().any(|activity| activity.connection.load(Ordering::SeqCst) != 0)
}

/// Takes connections from workers that are in the same step as at the last tick. Returns whether any worker
/// is busy.
fn check_workers(engine: &Engine, seen: &mut [Seen]) -> bool {
    let mut working = false;
    for (index, (activity, last)) in engine.activity.iter().zip(seen).enumerate() {
        let now = Seen {
            connection: activity.connection.load(Ordering::Acquire),
            steps: activity.steps.load(Ordering::Relaxed),
        };
        working |= now.connection != 0;
        if now.connection != 0
            && now == *last
            && let Some(connection) = engine.registry.get(now.connection)
        {
            take_over(engine, &connection, index, now.steps);
        }
        *last = now;
    }
    working
}

/// Takes `connection` from worker `index`, if it is still in its step number `steps`.
fn take_over(engine: &Engine, connection: &Arc<Connection>, index: usize, steps: u64) {
    // A worker that holds the lock is not in a slow step.
    let Some(mut receive) = connection.receive.try_lock() else { return };
    // Steps begin under this lock, except sends, during which the connection may change hands as well.
    let same = engine.activity[index].steps.load(Ordering::Relaxed) == steps;
    if same && receive.turn.take_over(index, engine.max_detached()) {
        arm_after_take_over(engine, connection, &receive);
    }
}

/// Closes connections of peers that have stalled for too long. Returns whether any deadline lies ahead.
fn check_peers(engine: &Engine, now: Instant) -> bool {
    let mut deadlines = engine.listeners.iter().any(|listener| listener.resume(&engine.epoll));
    let memory_is_short = engine.memory.has_waiting();
    for workers in engine.registry.all_workers() {
        engine.resume_first(&workers, workers.next());
    }
    let allowed = |moved: u64| {
        engine.limits.stall.saturating_mul(u32::try_from(1 + moved / PER_STALL).unwrap_or(u32::MAX))
    };
    for connection in engine.registry.all() {
        let mut stalled = false;
        if let Some((since, moved)) = connection.send.stalled() {
            deadlines = true;
            stalled |= now.saturating_duration_since(since) > allowed(moved);
        }
        if memory_is_short
            && let Some(receive) = connection.receive.try_lock()
            && let (Some(since), Some(moved)) = (receive.large_since, receive.large_progress())
        {
            deadlines = true;
            stalled |= now.saturating_duration_since(since) > allowed(moved as u64);
        }
        if stalled {
            tracing::info!(peer = %connection.peer.address, "closed: it has stalled for too long");
            engine.close(&connection, true);
        }
    }
    deadlines | memory_is_short
}
