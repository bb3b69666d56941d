//! The callback program: what the server calls on the session's back channel (RFC 8881 section 20).
//!
//! Delegations and slots are recalled, waiters for locks are notified, asynchronous copies end, and
//! CB_GETATTR asks for the size of a file with a write delegation. No callback waits for anything. The other
//! operations behind CB_SEQUENCE are answered by what the RFC has for a client without the object: it has no
//! layouts, no delegations of directories, and has registered no wants. A slot's reply is kept, so that a
//! retry gets the same, also if an operation's arguments can't be decoded.

use std::sync::{Arc, Weak};

use client_state::{DelegationKind, StateId};
use parking_lot::Mutex;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    Bitmap4, CB_COMPOUND, CB_GETATTR, CB_NOTIFY_LOCK, CB_OFFLOAD, CB_RECALL, CB_RECALL_ANY, CB_SEQUENCE,
    CB_VERSION, CbCompound4Head, CbCompound4ResHead, CbGetattr4Args, CbGetattr4ResOk, CbNotifyLock4Args,
    CbOffload4Args, CbRecall4Args, CbRecallAny4Args, CbSequence4Args, CbSequence4ResOk, Fattr4, ILLEGAL,
    Nfsstat4, RCA4_DEFINED, RCA4_RDATA_DLG, RCA4_WDATA_DLG, Sessionid4,
};
use rpc::client::CallbackProgram;
use rpc::message::{CallHeader, ReplyStatus};
use xdr::{Decoder, Encoder, Opaque};

use super::lock::LockWaiters;
use super::session::SessionClient;
use super::state::state_id;
use crate::types::Handle;

/// The number of the callback program, the one of the kernel's client (`NFS4_CALLBACK`).
pub(super) const PROGRAM: u32 = 0x4000_0000;

/// The slots of the back channel. The server holds back further callbacks.
pub(super) const MAX_CALLBACK_SLOTS: u32 = 16;

/// The operations of a callback.
pub(super) const MAX_CALLBACK_OPERATIONS: u32 = 8;

/// The largest callback, its reply, and the reply that is kept, in bytes.
pub(super) const MAX_CALLBACK: u32 = 4096;

/// CB_LAYOUTRECALL.
const CB_LAYOUTRECALL: u32 = 5;
/// CB_NOTIFY.
const CB_NOTIFY: u32 = 6;
/// CB_PUSH_DELEG.
const CB_PUSH_DELEG: u32 = 7;
/// CB_RECALLABLE_OBJ_AVAIL.
const CB_RECALLABLE_OBJ_AVAIL: u32 = 9;
/// CB_RECALL_SLOT.
const CB_RECALL_SLOT: u32 = 10;
/// CB_WANTS_CANCELLED.
const CB_WANTS_CANCELLED: u32 = 12;
/// CB_NOTIFY_DEVICEID.
const CB_NOTIFY_DEVICEID: u32 = 14;

/// A slot of the back channel.
#[derive(Debug, Clone, Default)]
struct Slot {
    sequence: u32,
    reply: Vec<u8>,
}

/// The back channel of the current session.
#[derive(Debug)]
struct Channel {
    session: Sessionid4,
    slots: Vec<Slot>,
}

/// What the server recalls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recall<'a> {
    /// CB_RECALL_SLOT: all slots above `highest`.
    Slots { session: Sessionid4, highest: u32 },
    /// CB_RECALL: the delegation of a file.
    Delegation { id: StateId, file: &'a [u8] },
    /// CB_RECALL_ANY: all delegations of these kinds but this number.
    Delegations { keep: usize, kinds: &'a [DelegationKind] },
}

/// The callback program of a client.
#[derive(Default)]
pub(super) struct Callbacks {
    channel: Mutex<Option<Channel>>,
    /// Whom the calls concern.
    client: Mutex<Weak<SessionClient>>,
    pub(super) lock_waiters: LockWaiters,
}

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Callbacks {
    /// A new session has replaced the former one.
    pub(super) fn set_session(&self, session: Sessionid4) {
        let slots = vec![Slot::default(); MAX_CALLBACK_SLOTS as usize];
        *self.channel.lock() = Some(Channel { session, slots });
    }

    /// Says whom the calls concern.
    pub(super) fn set_client(&self, client: &Arc<SessionClient>) {
        *self.client.lock() = Arc::downgrade(client);
    }

    fn client(&self) -> Option<Arc<SessionClient>> {
        self.client.lock().upgrade()
    }

    fn recall(&self, recall: Recall<'_>) -> Nfsstat4 {
        self.client().map_or(Nfsstat4::Badhandle, |client| client.recall(recall))
    }

    /// Those of the requested attributes that the holder of a write delegation knows better than the server.
    /// `None`: the client doesn't hold one of this file.
    fn attributes(&self, file: &[u8], requested: Bitmap4) -> Option<(Bitmap4, Encoder)> {
        let (change, size) = self.client()?.change_and_size(&Handle::new(file)?)?;
        let (mut mask, mut values) = (Bitmap4::of(&[]), Encoder::new());
        for (attribute, value) in [(number::CHANGE, change), (number::SIZE, size)] {
            if requested.contains(attribute) {
                mask.insert(attribute);
                values.u64(value);
            }
        }
        Some((mask, values))
    }

    /// CB_COMPOUND.
    fn compound(&self, args: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), xdr::Error> {
        let head: CbCompound4Head<'_> = args.get()?;
        let result_head =
            |status: Nfsstat4, results| CbCompound4ResHead { status: status as u32, tag: head.tag, results };
        if !matches!(head.minor, 1 | 2) {
            to.put(&result_head(Nfsstat4::MinorVersMismatch, 0));
            return Ok(());
        }
        let refuse = |to: &mut Encoder, operation: u32, status: Nfsstat4| {
            to.put(&result_head(status, 1));
            to.u32(operation);
            to.put(&status);
        };
        if head.operations == 0 {
            to.put(&result_head(Nfsstat4::Ok, 0));
            return Ok(());
        }
        let first = args.u32()?;
        if first != CB_SEQUENCE {
            refuse(to, first, Nfsstat4::OpNotInSession);
            return Ok(());
        }
        let sequence: CbSequence4Args = args.get()?;
        let mut channel = self.channel.lock();
        let slot = match Self::slot(channel.as_mut(), &sequence) {
            Ok(slot) => slot,
            Err(status) => {
                refuse(to, CB_SEQUENCE, status);
                return Ok(());
            }
        };
        if slot.sequence == sequence.sequenceid {
            to.raw(&slot.reply);
            return Ok(());
        }
        if head.operations > MAX_CALLBACK_OPERATIONS {
            refuse(to, CB_SEQUENCE, Nfsstat4::TooManyOps);
            return Ok(());
        }
        let mut results = Encoder::new();
        results.u32(CB_SEQUENCE);
        results.put(&Nfsstat4::Ok);
        results.put(&CbSequence4ResOk {
            sessionid: sequence.sessionid,
            sequenceid: sequence.sequenceid,
            slotid: sequence.slotid,
            highest_slotid: MAX_CALLBACK_SLOTS - 1,
            target_highest_slotid: MAX_CALLBACK_SLOTS - 1,
        });
        let (mut status, mut count, mut recalled) = (Nfsstat4::Ok, 1, None);
        while status == Nfsstat4::Ok && count < head.operations {
            let operation = args.u32()?;
            let answer = self.answer(operation, head.minor, args).unwrap_or_else(|_| Nfsstat4::Badxdr.into());
            status = answer.status;
            count += 1;
            recalled = answer.highest_slot.or(recalled);
            results.u32(if status == Nfsstat4::OpIllegal { ILLEGAL } else { operation });
            results.put(&status);
            if let Some((attrmask, values)) = answer.attributes {
                let obj_attributes = Fattr4 { attrmask, attr_vals: Opaque(values.as_slice()) };
                results.put(&CbGetattr4ResOk { obj_attributes });
            }
        }
        let mut reply = Encoder::new();
        reply.put(&result_head(status, count));
        reply.raw(results.as_slice());
        to.raw(reply.as_slice());
        *slot = Slot { sequence: sequence.sequenceid, reply: reply.into_vec() };
        drop(channel);
        if let Some(highest) = recalled {
            self.recall(Recall::Slots { session: sequence.sessionid, highest });
        }
        Ok(())
    }

    /// Does one operation behind CB_SEQUENCE.
    fn answer(&self, operation: u32, minor: u32, args: &mut Decoder<'_>) -> Result<Answer, xdr::Error> {
        Ok(match operation {
            CB_RECALL_SLOT => Answer { highest_slot: Some(args.u32()?), ..Nfsstat4::Ok.into() },
            CB_NOTIFY_LOCK => {
                let notice: CbNotifyLock4Args<'_> = args.get()?;
                self.lock_waiters.notify(notice.lock_owner.owner.0);
                Nfsstat4::Ok.into()
            }
            CB_RECALL => {
                let CbRecall4Args { stateid, fh, .. } = args.get()?;
                self.recall(Recall::Delegation { id: state_id(stateid), file: fh.0 }).into()
            }
            CB_RECALL_ANY => self.recall_any(args.get()?).into(),
            CB_GETATTR => {
                let CbGetattr4Args { fh, attr_request } = args.get()?;
                match self.attributes(fh.0, attr_request) {
                    None => Nfsstat4::Badhandle.into(),
                    attributes => Answer { attributes, ..Nfsstat4::Ok.into() },
                }
            }
            // RFC 7862 section 16.1: 4.1 doesn't have it.
            CB_OFFLOAD if minor >= 2 => {
                let offload: CbOffload4Args<'_> = args.get()?;
                let ended = |client: Arc<SessionClient>| client.offloads.ended(&offload);
                self.client().map_or(Nfsstat4::BadStateid, ended).into()
            }
            _ => refusal(operation).into(),
        })
    }

    fn recall_any(&self, CbRecallAny4Args { objects_to_keep, type_mask }: CbRecallAny4Args) -> Nfsstat4 {
        if !type_mask.without(&RCA4_DEFINED).is_empty() {
            return Nfsstat4::Inval;
        }
        let is_meant = [(RCA4_RDATA_DLG, DelegationKind::Read), (RCA4_WDATA_DLG, DelegationKind::Write)];
        let kinds = is_meant.into_iter().filter(|(number, _)| type_mask.contains(*number));
        let kinds: Vec<DelegationKind> = kinds.map(|(_, kind)| kind).collect();
        self.recall(Recall::Delegations { keep: objects_to_keep as usize, kinds: &kinds })
    }

    /// The slot of a request, if it has its next sequence id or its last one.
    fn slot<'c>(
        channel: Option<&'c mut Channel>,
        sequence: &CbSequence4Args,
    ) -> Result<&'c mut Slot, Nfsstat4> {
        let channel = channel.filter(|channel| channel.session == sequence.sessionid);
        let channel = channel.ok_or(Nfsstat4::Badsession)?;
        let slot = channel.slots.get_mut(sequence.slotid as usize).ok_or(Nfsstat4::Badslot)?;
        let is_retry = sequence.sequenceid == slot.sequence && !slot.reply.is_empty();
        if is_retry || sequence.sequenceid == slot.sequence.wrapping_add(1) {
            Ok(slot)
        } else {
            Err(Nfsstat4::SeqMisordered)
        }
    }
}

/// The result of an operation behind CB_SEQUENCE.
struct Answer {
    status: Nfsstat4,
    /// Those of CB_GETATTR.
    attributes: Option<(Bitmap4, Encoder)>,
    /// That of CB_RECALL_SLOT, which takes effect behind the reply.
    highest_slot: Option<u32>,
}

impl From<Nfsstat4> for Answer {
    fn from(status: Nfsstat4) -> Self {
        Self { status, attributes: None, highest_slot: None }
    }
}

/// The answer of a client that has none of what the operation is about. It ends the CB_COMPOUND, so the
/// arguments needn't be decoded.
const fn refusal(operation: u32) -> Nfsstat4 {
    match operation {
        CB_LAYOUTRECALL => Nfsstat4::NomatchingLayout,
        CB_PUSH_DELEG => Nfsstat4::RejectDeleg,
        CB_SEQUENCE => Nfsstat4::SequencePos,
        CB_NOTIFY | CB_RECALLABLE_OBJ_AVAIL | CB_WANTS_CANCELLED | CB_NOTIFY_DEVICEID => Nfsstat4::Notsupp,
        _ => Nfsstat4::OpIllegal,
    }
}

impl CallbackProgram for Callbacks {
    fn call(&self, header: &CallHeader<'_>, args: &mut Decoder<'_>, results: &mut Encoder) -> ReplyStatus {
        if header.program != PROGRAM {
            return ReplyStatus::ProgUnavail;
        }
        if header.version != CB_VERSION {
            return ReplyStatus::ProgMismatch { low: CB_VERSION, high: CB_VERSION };
        }
        match header.procedure {
            0 => ReplyStatus::Success,
            CB_COMPOUND => match self.compound(args, results) {
                Ok(()) => ReplyStatus::Success,
                Err(_) => ReplyStatus::GarbageArgs,
            },
            _ => ReplyStatus::ProcUnavail,
        }
    }

    fn disconnected(&self) {
        if let Some(client) = self.client() {
            client.disconnected();
        }
    }
}
