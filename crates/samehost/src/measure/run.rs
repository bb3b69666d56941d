//! The measuring loop.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{MeasureTarget, Workload};
use crate::exit::Failure;

/// Operations between two readings of the clock, which cost a tenth of a small read.
const CLOCK_INTERVAL: u64 = 16;

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// Their time.
    pub elapsed: Duration,
}

impl Done {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The offsets of operations, and the end of the run.
struct Plan {
    blocks: u64,
    block: u64,
    random: bool,
    state: u64,
    started: u64,
    operations: u64,
    deadline: Instant,
    over: bool,
}

impl Plan {
    fn next(&mut self) -> Option<u64> {
        if self.started.is_multiple_of(CLOCK_INTERVAL) && Instant::now() >= self.deadline {
            self.over = true;
        }
        if self.over {
            return None;
        }
        let block = if self.random { self.random() % self.blocks } else { self.started % self.blocks };
        self.started += 1;
        Some(block * self.block)
    }

    /// xorshift64*: fast, and the same offsets in each run.
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

/// Reads or writes `target` (`size` bytes long) in the pattern of `workload` for about `time`, with `depth`
/// operations in flight. Operations that were begun are finished and counted with their time.
pub async fn run<T: MeasureTarget>(
    target: &T,
    workload: Workload,
    size: u64,
    depth: u16,
    time: Duration,
) -> Result<Done, Failure> {
    let begin = Instant::now();
    let plan = RefCell::new(Plan {
        blocks: (size / workload.block as u64).max(1),
        block: workload.block as u64,
        random: workload.random,
        state: 0x9e37_79b9_7f4a_7c15,
        started: 0,
        operations: 0,
        deadline: begin + time,
        over: false,
    });
    let mut workers: FuturesUnordered<_> = (0..depth).map(|_| worker(target, workload, &plan)).collect();
    while let Some(ended) = workers.next().await {
        ended?;
    }
    Ok(Done { operations: plan.borrow().operations, elapsed: begin.elapsed() })
}

/// Runs operations one after another until the run ends.
async fn worker<T: MeasureTarget>(
    target: &T,
    workload: Workload,
    plan: &RefCell<Plan>,
) -> Result<(), Failure> {
    let mut buffer = vec![0x5a; workload.block];
    let data = if workload.write { Bytes::from(buffer.clone()) } else { Bytes::new() };
    loop {
        let Some(offset) = plan.borrow_mut().next() else { return Ok(()) };
        if workload.write {
            target.write(data.clone(), offset).await?;
        } else {
            buffer = target.read(buffer, offset).await?;
        }
        plan.borrow_mut().operations += 1;
    }
}
