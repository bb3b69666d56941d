//! The calls of one connection that wait for an answer: a table indexed by the lower bits of their numbers.
//!
//! Numbers (xids) count up from a random start, so a number comes back only after four thousand million
//! calls. A number whose place is still taken by a slow call is skipped.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;

use super::{Error, Receive, Reply};

/// What a call needs to be sent: its head, which begins with the record mark, and its payload.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) xid: u32,
    pub(super) head: Vec<u8>,
    pub(super) payload: Bytes,
}

/// Which procedure a call is for; errors say it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
}

pub(super) enum State {
    /// The caller waits.
    Waiting(Option<Waker>),
    /// The caller has gone; the answer may still come.
    Abandoned,
    /// The caller can fetch it.
    Done(Result<Reply, Error>),
}

pub(super) struct Slot {
    pub(super) target: Target,
    pub(super) state: State,
    /// Empty while the driver writes it.
    pub(super) frame: Frame,
    pub(super) receive: Option<Receive>,
    /// The payload is large enough to be received in place; kept by the table.
    pub(super) large: bool,
    /// When the call was made, or, for a hard client, sent again.
    pub(super) since: Instant,
    /// The connection that it was last sent on, counted from 1; 0 before.
    pub(super) sent_on: u32,
    /// The driver has the frame and is writing it.
    pub(super) writing: bool,
}

pub(super) struct Table {
    slots: Box<[Option<Slot>]>,
    next: u32,
    /// Numbers of calls to send, in order; some may be gone by the time it is their turn.
    pub(super) queue: VecDeque<u32>,
    /// Calls that wait for a payload large enough to be received in place.
    pub(super) large: usize,
    /// Wakes the driver.
    pub(super) driver: Option<Waker>,
    pub(super) closed: bool,
}

impl Table {
    /// Room for `in_flight` calls, numbered from `start`.
    pub(super) fn new(in_flight: usize, start: u32) -> Self {
        let slots = (in_flight * 2).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| None).collect(),
            next: start,
            queue: VecDeque::new(),
            large: 0,
            driver: None,
            closed: false,
        }
    }

    fn place(&self, xid: u32) -> usize {
        xid as usize & (self.slots.len() - 1)
    }

    /// The number for the next call; `None` if the table is full.
    pub(super) fn number(&mut self) -> Option<u32> {
        for _ in 0..self.slots.len() {
            let xid = self.next;
            self.next = xid.wrapping_add(1);
            if self.slots[self.place(xid)].is_none() {
                return Some(xid);
            }
        }
        None
    }

    /// Puts a call that has just got its number into the table and the queue.
    pub(super) fn insert(&mut self, mut slot: Slot) {
        let xid = slot.frame.xid;
        slot.large = slot.receive.as_ref().is_some_and(|receive| receive.limit >= super::DIRECT_MIN);
        self.large += usize::from(slot.large);
        let place = self.place(xid);
        self.slots[place] = Some(slot);
        self.queue.push_back(xid);
    }

    /// The call with this number, if it is here.
    pub(super) fn get(&mut self, xid: u32) -> Option<&mut Slot> {
        let place = self.place(xid);
        self.slots[place].as_mut().filter(|slot| slot.frame.xid == xid)
    }

    /// Takes the call out.
    pub(super) fn remove(&mut self, xid: u32) -> Option<Slot> {
        self.get(xid)?;
        let place = self.place(xid);
        let slot = self.slots[place].take()?;
        self.large -= usize::from(slot.large);
        Some(slot)
    }

    /// Ends a call. Returns whom to wake; `None` also if nobody waits any more, in which case `freed` counts
    /// the place.
    pub(super) fn finish(
        &mut self,
        xid: u32,
        result: Result<Reply, Error>,
        freed: &mut usize,
    ) -> Option<Waker> {
        let slot = self.get(xid)?;
        let (waker, done, was_large) = match &mut slot.state {
            State::Waiting(waker) => (waker.take(), true, std::mem::take(&mut slot.large)),
            State::Abandoned => (None, false, false),
            State::Done(_) => return None,
        };
        if done {
            slot.state = State::Done(result);
            slot.receive = None;
            slot.frame.head = Vec::new();
            slot.frame.payload = Bytes::new();
            self.large -= usize::from(was_large);
        } else {
            self.remove(xid);
            *freed += 1;
        }
        waker
    }

    /// The numbers of the calls that wait, oldest first.
    pub(super) fn waiting(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .slots
            .iter()
            .flatten()
            .filter(|slot| !matches!(slot.state, State::Done(_)))
            .map(|slot| slot.frame.xid)
            .collect();
        // All numbers in use lie within half the circle behind the next one.
        all.sort_unstable_by_key(|xid| xid.wrapping_sub(self.next));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(xid: u32) -> Slot {
        Slot {
            target: Target::default(),
            state: State::Waiting(None),
            frame: Frame { xid, ..Frame::default() },
            receive: None,
            large: false,
            since: Instant::now(),
            sent_on: 0,
            writing: false,
        }
    }

    #[test]
    fn numbers_wrap_and_skip_places_that_are_taken() {
        let mut table = Table::new(2, u32::MAX - 1);
        let slow = table.number().unwrap();
        table.insert(slot(slow));
        for _ in 0..20 {
            let xid = table.number().unwrap();
            assert_ne!(xid & 3, slow & 3);
            table.insert(slot(xid));
            assert!(table.get(xid).is_some());
            assert!(table.remove(xid).is_some());
        }
        assert!(table.get(slow).is_some());
    }

    #[test]
    fn a_full_table_gives_no_number() {
        let mut table = Table::new(1, 5);
        for _ in 0..2 {
            let xid = table.number().unwrap();
            table.insert(slot(xid));
        }
        assert_eq!(table.number(), None);
        assert_eq!(table.waiting(), [5, 6]);
    }

    #[test]
    fn the_oldest_call_is_resent_first_even_over_the_wrap() {
        let mut table = Table::new(8, u32::MAX - 2);
        for _ in 0..6 {
            let xid = table.number().unwrap();
            table.insert(slot(xid));
        }
        assert_eq!(table.waiting(), [u32::MAX - 2, u32::MAX - 1, u32::MAX, 0, 1, 2]);
    }

    #[test]
    fn a_call_that_ended_is_not_ended_again() {
        let mut table = Table::new(4, 0);
        let xid = table.number().unwrap();
        table.insert(slot(xid));
        let mut freed = 0;
        table.finish(xid, Ok(Reply::default()), &mut freed);
        table.finish(xid, Err(Error::TooLong { len: 0, max: 0 }), &mut freed);
        assert!(matches!(table.get(xid).unwrap().state, State::Done(Ok(_))));
        assert!(table.waiting().is_empty());
        assert_eq!(freed, 0);
    }
}
