//! The pending calls of one connection: a table indexed by the lower bits of their transaction ids.
//!
//! Transaction ids (xids) count up from a random start, so an id is reused only after four thousand million
//! calls. An id whose slot is still in use by a slow call is skipped.

use std::collections::VecDeque;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::Bytes;

use super::error::Error;
use super::request::{DIRECT_MIN, Receive, Reply};

/// The bytes of a call: its head, which begins with the record mark, its payload, and what is behind that.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) xid: u32,
    pub(super) head: Vec<u8>,
    pub(super) payload: Bytes,
    pub(super) trailer: Bytes,
}

/// The procedure that a call is for, named in errors.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Procedure {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
}

pub(super) enum CallState {
    /// The call was sent on a call socket. Only its id is in use here.
    OnCallSocket,
    /// The caller waits.
    Waiting(Option<Waker>),
    /// The caller was dropped. The reply may still come.
    Abandoned,
    /// The result is ready for the caller.
    Done(Result<Reply, Error>),
}

pub(super) struct CallSlot {
    pub(super) target: Procedure,
    pub(super) state: CallState,
    /// Empty while the driver writes it.
    pub(super) frame: Frame,
    pub(super) receive: Option<Receive>,
    /// The payload is large enough to be received in place. Set by the table.
    pub(super) large: bool,
    /// When the call was made, or, for a hard client, last resent.
    pub(super) since: Instant,
    /// The number of the connection that it was last sent on, from 1; 0 if it wasn't sent.
    pub(super) sent_on: u32,
    /// The driver has the frame and is writing it.
    pub(super) writing: bool,
}

pub(super) struct CallTable {
    slots: Box<[Option<CallSlot>]>,
    next: u32,
    /// The ids of calls to send, in order. Some calls may have ended by the time they are reached.
    pub(super) queue: VecDeque<u32>,
    /// The number of calls that wait for a payload large enough to be received in place.
    pub(super) large: usize,
    /// Wakes the driver.
    pub(super) driver: Option<Waker>,
    pub(super) closed: bool,
}

impl CallTable {
    /// A table for `in_flight` calls, numbered from `start`.
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

    /// Registers the task of `cx` as the driver, to be woken when there is something to send.
    pub(super) fn register_driver(&mut self, cx: &Context<'_>) {
        match &mut self.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.driver = Some(cx.waker().clone()),
        }
    }

    fn index(&self, xid: u32) -> usize {
        xid as usize & (self.slots.len() - 1)
    }

    /// The id for the next call; `None` if the table is full.
    pub(super) fn number(&mut self) -> Option<u32> {
        for _ in 0..self.slots.len() {
            let xid = self.next;
            self.next = xid.wrapping_add(1);
            if self.slots[self.index(xid)].is_none() {
                return Some(xid);
            }
        }
        None
    }

    /// Adds a call, whose id is new, to the table, and to the queue if it is to be sent.
    pub(super) fn insert(&mut self, mut slot: CallSlot) {
        let xid = slot.frame.xid;
        slot.large = slot.receive.as_ref().is_some_and(|receive| receive.limit >= DIRECT_MIN);
        self.large += usize::from(slot.large);
        let index = self.index(xid);
        if matches!(slot.state, CallState::Waiting(_)) {
            self.queue.push_back(xid);
        }
        self.slots[index] = Some(slot);
    }

    /// The call with this id.
    pub(super) fn get(&mut self, xid: u32) -> Option<&mut CallSlot> {
        let index = self.index(xid);
        self.slots[index].as_mut().filter(|slot| slot.frame.xid == xid)
    }

    /// Removes the call.
    pub(super) fn remove(&mut self, xid: u32) -> Option<CallSlot> {
        self.get(xid)?;
        let index = self.index(xid);
        let slot = self.slots[index].take()?;
        self.large -= usize::from(slot.large);
        Some(slot)
    }

    /// Ends a call. Returns the waker of its caller. If the call was abandoned its slot is freed, which
    /// `freed` counts.
    pub(super) fn finish(
        &mut self,
        xid: u32,
        result: Result<Reply, Error>,
        freed: &mut usize,
    ) -> Option<Waker> {
        let slot = self.get(xid)?;
        let (waker, done, was_large) = match &mut slot.state {
            CallState::Waiting(waker) => (waker.take(), true, std::mem::take(&mut slot.large)),
            CallState::Abandoned => (None, false, false),
            CallState::Done(_) | CallState::OnCallSocket => return None,
        };
        if done {
            slot.state = CallState::Done(result);
            slot.receive = None;
            slot.frame.head = Vec::new();
            slot.frame.payload = Bytes::new();
            slot.frame.trailer = Bytes::new();
            self.large -= usize::from(was_large);
        } else {
            self.remove(xid);
            *freed += 1;
        }
        waker
    }

    /// The ids of the calls that wait for a reply over TCP, oldest first.
    pub(super) fn waiting(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .slots
            .iter()
            .flatten()
            .filter(|slot| !matches!(slot.state, CallState::Done(_) | CallState::OnCallSocket))
            .map(|slot| slot.frame.xid)
            .collect();
        // All ids in use lie within half the circle behind the next one.
        all.sort_unstable_by_key(|xid| xid.wrapping_sub(self.next));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(xid: u32) -> CallSlot {
        CallSlot {
            target: Procedure::default(),
            state: CallState::Waiting(None),
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
        let mut table = CallTable::new(2, u32::MAX - 1);
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
        let mut table = CallTable::new(1, 5);
        for _ in 0..2 {
            let xid = table.number().unwrap();
            table.insert(slot(xid));
        }
        assert_eq!(table.number(), None);
        assert_eq!(table.waiting(), [5, 6]);
    }

    #[test]
    fn the_oldest_call_is_resent_first_even_over_the_wrap() {
        let mut table = CallTable::new(8, u32::MAX - 2);
        for _ in 0..6 {
            let xid = table.number().unwrap();
            table.insert(slot(xid));
        }
        assert_eq!(table.waiting(), [u32::MAX - 2, u32::MAX - 1, u32::MAX, 0, 1, 2]);
    }

    #[test]
    fn a_call_that_ended_is_not_ended_again() {
        let mut table = CallTable::new(4, 0);
        let xid = table.number().unwrap();
        table.insert(slot(xid));
        let mut freed = 0;
        table.finish(xid, Ok(Reply::default()), &mut freed);
        table.finish(xid, Err(Error::TooLong { len: 0, max: 0 }), &mut freed);
        assert!(matches!(table.get(xid).unwrap().state, CallState::Done(Ok(_))));
        assert!(table.waiting().is_empty());
        assert_eq!(freed, 0);
    }
}
