//! The requester's side of a session channel's slots (RFC 8881 section 2.10.6.1): a client's for its
//! requests, a server's for its callbacks.
//!
//! A slot carries one request at a time. Its sequence id advances by one with each request that the replier
//! has seen, and a request that it hasn't seen is followed by one with the same id.

/// The slots of one channel.
#[derive(Debug, Clone)]
pub struct SessionSlots(Vec<SlotState>);

#[derive(Debug, Clone, Copy, Default)]
struct SlotState {
    /// The sequence id of the last request that the replier has seen.
    sequenceid: u32,
    busy: bool,
}

/// A slot that is reserved for one request: the arguments of its SEQUENCE or CB_SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSlot {
    /// `sa_slotid`.
    pub slotid: u32,
    /// `sa_sequenceid`.
    pub sequenceid: u32,
    /// `sa_highest_slotid`: that of the channel.
    pub highest_slotid: u32,
}

impl SessionSlots {
    /// The slots of a new channel, `count` of them (`ca_maxrequests`), at least one.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self(vec![SlotState::default(); count.max(1) as usize])
    }

    /// Reserves the lowest free slot; `None` if all are busy.
    pub fn reserve(&mut self) -> Option<RequestSlot> {
        let highest_slotid = (self.0.len() - 1) as u32;
        let (slot, slotid) = self.0.iter_mut().zip(0..).find(|(slot, _)| !slot.busy)?;
        slot.busy = true;
        Some(RequestSlot { slotid, sequenceid: slot.sequenceid.wrapping_add(1), highest_slotid })
    }

    /// Frees a slot after its request. `seen` means that the replier has consumed the sequence id.
    pub fn release(&mut self, request: RequestSlot, seen: bool) {
        if let Some(slot) = self.0.get_mut(request.slotid as usize) {
            slot.busy = false;
            if seen {
                slot.sequenceid = request.sequenceid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_busy_until_it_is_released_and_counts_the_requests_that_were_seen() {
        let mut slots = SessionSlots::new(2);
        let request = |slotid, sequenceid| RequestSlot { slotid, sequenceid, highest_slotid: 1 };
        let first = slots.reserve().unwrap();
        assert_eq!((first, slots.reserve(), slots.reserve()), (request(0, 1), Some(request(1, 1)), None));
        slots.release(first, false);
        assert_eq!(slots.reserve(), Some(request(0, 1)), "not seen: the same id again");
        slots.release(first, true);
        assert_eq!(slots.reserve(), Some(request(0, 2)));
    }

    #[test]
    fn sequence_ids_wrap() {
        let mut slots = SessionSlots::new(0);
        slots.release(RequestSlot { slotid: 0, sequenceid: u32::MAX, highest_slotid: 0 }, true);
        assert_eq!(slots.reserve(), Some(RequestSlot { slotid: 0, sequenceid: 0, highest_slotid: 0 }));
    }
}
