//! A model of x86-TSO memory for shuttle, which by itself models sequentially consistent memory only: a plain
//! store waits in its thread's buffer and reaches the other threads late. A locked instruction empties its
//! own thread's buffer first, membarrier(2) those of all threads. Otherwise a buffer loses its oldest store
//! at random times.

use samehost_lane::interlock::SharedWord;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread::{self, ThreadId};
use std::collections::{HashMap, VecDeque};

/// The probability that a buffer loses its oldest store at a step of any thread. Low, because late stores are
/// to be tested.
const DRAIN_PROBABILITY: f64 = 0.05;

#[derive(Default)]
struct State {
    words: Vec<u64>,
    buffers: HashMap<ThreadId, VecDeque<(usize, u64)>>,
}

impl State {
    fn drain(&mut self, thread: ThreadId, most: usize) {
        let buffer = self.buffers.entry(thread).or_default();
        for (index, value) in buffer.drain(..most.min(buffer.len())) {
            self.words[index] = value;
        }
    }
}

/// Words that threads share.
#[derive(Clone)]
pub struct Machine(Arc<Mutex<State>>);

impl Machine {
    /// All zeros.
    pub fn new(words: usize) -> Self {
        Self(Arc::new(Mutex::new(State { words: vec![0; words], buffers: HashMap::new() })))
    }

    pub fn words(&self) -> Vec<Late> {
        let words = self.0.lock().unwrap().words.len();
        (0..words).map(|index| Late { machine: self.clone(), index }).collect()
    }

    /// What membarrier(2) does.
    pub fn barrier(&self) {
        self.act(|state| {
            let threads: Vec<_> = state.buffers.keys().copied().collect();
            threads.into_iter().for_each(|thread| state.drain(thread, usize::MAX));
        });
    }

    /// One step of one thread, with random drains of buffers.
    fn act<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap();
        let mut threads: Vec<_> = state.buffers.keys().copied().collect();
        threads.sort_by_key(|thread| format!("{thread:?}"));
        for thread in threads {
            if thread_rng().gen_bool(DRAIN_PROBABILITY) {
                state.drain(thread, 1);
            }
        }
        step(&mut state)
    }

    /// The same, after draining this thread's stores: a locked instruction.
    fn act_in_order<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        self.act(|state| {
            state.drain(thread::current().id(), usize::MAX);
            step(state)
        })
    }
}

/// One word.
pub struct Late {
    machine: Machine,
    index: usize,
}

impl SharedWord for Late {
    fn load(&self) -> u64 {
        self.machine.act(|state| {
            let own = state.buffers.get(&thread::current().id());
            let stored = own.and_then(|buffer| buffer.iter().rfind(|(index, _)| *index == self.index));
            stored.map_or(state.words[self.index], |(_, value)| *value)
        })
    }

    fn store(&self, value: u64) {
        self.machine.act_in_order(|state| state.words[self.index] = value);
    }

    fn add(&self, value: u64) -> u64 {
        self.machine.act_in_order(|state| {
            let before = state.words[self.index];
            state.words[self.index] = before.wrapping_add(value);
            before
        })
    }

    fn sub(&self, value: u64) -> u64 {
        self.add(value.wrapping_neg())
    }

    fn put(&self, value: u64) {
        self.machine.act(|state| {
            state.buffers.entry(thread::current().id()).or_default().push_back((self.index, value));
        });
    }
}
