//! An NFSv4.2 client with a session, which sends one request at a time in each slot.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use proto::nfs4::{
    COMPOUND, CREATE_SESSION_CONN_BACK_CHAN, ChannelAttrs4, ClientOwner4, Close4Args, CreateSession4Args,
    CreateSession4ResOk, EXCHGID_USE_NON_PNFS, ExchangeId4Args, ExchangeId4ResOk, Lock4Args, Locker4,
    Locku4Args, Name4Args, NfsFh4, NfsLockType4, Nfsstat4, Open4Args, Open4ResOk, OpenClaim4,
    OpenDelegation4, OpenToLockOwner4, Openflag4, Operation, PROGRAM, Putfh4Args, ReclaimComplete4Args,
    Sequence4Args, Sessionid4, StateOwner4, StateProtect4A, Stateid4, VERSION,
};
use xdr::{Array, Decode, Decoder, Encode, Encoder, Opaque};

use super::wire::Wire;

/// Length of SEQUENCE's result, with operation number and status.
const SEQUENCE_RESULT: usize = 44;

/// The status of a COMPOUND that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedStatus(pub u32);

impl fmt::Display for FailedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NFS4 status {}", self.0)
    }
}

impl std::error::Error for FailedStatus {}

/// A client with its session.
pub struct Session {
    pub wire: Wire,
    id: Sessionid4,
    pub client: u64,
    /// The last request of each slot.
    requests: Vec<u32>,
}

/// The result of an OPEN.
pub struct Opened {
    pub stateid: Stateid4,
    pub handle: Vec<u8>,
    /// The delegation, if one was granted.
    pub delegation: Option<Stateid4>,
}

/// The operations of a COMPOUND after its SEQUENCE.
pub struct Ops<'a> {
    to: &'a mut Encoder,
    count: u32,
}

impl Ops<'_> {
    /// Adds an operation.
    pub fn op(mut self, operation: Operation, args: &impl Encode) -> Self {
        self.count += 1;
        self.to.u32(operation.number());
        self.to.put(args);
        self
    }

    /// Adds PUTFH.
    pub fn on(self, handle: &[u8]) -> Self {
        self.op(Operation::Putfh, &Putfh4Args { object: Opaque(handle) })
    }
}

fn compound(to: &mut Encoder, ops: impl for<'o> FnOnce(Ops<'o>) -> Ops<'o>) {
    to.opaque(b"");
    to.u32(2);
    let at = to.position();
    to.u32(0);
    let count = ops(Ops { to: &mut *to, count: 0 }).count;
    to.patch_u32(at, count);
}

/// The results of a reply, after the header of a COMPOUND that succeeded.
fn results(reply: &[u8]) -> Result<Decoder<'_>> {
    let mut from = Decoder::new(reply);
    let (status, tag) = (from.u32()?, from.opaque(1024)?);
    if status != Nfsstat4::Ok as u32 {
        return Err(FailedStatus(status).into());
    }
    ensure!(tag.is_empty(), "a tag that wasn't sent");
    from.u32()?;
    Ok(from)
}

/// Decodes the body of the next result.
fn next<'a, T: Decode<'a>>(from: &mut Decoder<'a>) -> Result<T> {
    let (_operation, _status) = (from.u32()?, from.u32()?);
    Ok(from.get()?)
}

fn channel(slots: u32) -> ChannelAttrs4 {
    ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 4096,
        maxoperations: 8,
        maxrequests: slots,
        rdma_ird: Array(vec![]),
    }
}

impl Session {
    /// EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE. The connection is the session's back channel, too:
    /// without one servers grant no delegations. Callbacks aren't handled; none are sent while there is no
    /// other client.
    pub fn new(wire: Wire, name: &[u8], slots: u32) -> Result<Self> {
        // A new verifier for each session: it replaces an earlier client of the same name.
        let verifier = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
        let mut session = Self::before_reclaims(wire, name, verifier, slots)?;
        session.reclaim_complete()?;
        Ok(session)
    }

    /// As [`Session::new`], with the verifier of the client's instance, and before RECLAIM_COMPLETE.
    pub fn before_reclaims(mut wire: Wire, name: &[u8], verifier: u64, slots: u32) -> Result<Self> {
        let exchange = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: verifier.to_be_bytes(), ownerid: Opaque(name) },
            flags: EXCHGID_USE_NON_PNFS,
            state_protect: StateProtect4A::None,
            client_impl_id: Array(vec![]),
        };
        let what = (PROGRAM, VERSION, COMPOUND);
        let reply = wire.call(what, |to| compound(to, |ops| ops.op(Operation::ExchangeId, &exchange)))?;
        let exchanged: ExchangeId4ResOk<'_> = next(&mut results(reply)?)?;
        let (client, sequence) = (exchanged.clientid, exchanged.sequenceid);
        let create = CreateSession4Args {
            clientid: client,
            sequence,
            flags: CREATE_SESSION_CONN_BACK_CHAN,
            fore_chan_attrs: channel(slots),
            back_chan_attrs: channel(1),
            cb_program: 0x4000_0000,
            sec_parms: Array(vec![proto::nfs4::CallbackSecParms4::None]),
        };
        let reply = wire.call(what, |to| compound(to, |ops| ops.op(Operation::CreateSession, &create)))?;
        let created: CreateSession4ResOk = next(&mut results(reply)?)?;
        let slots = created.fore_chan_attrs.maxrequests as usize;
        Ok(Self { wire, id: created.sessionid, client, requests: vec![0; slots] })
    }

    /// RECLAIM_COMPLETE.
    pub fn reclaim_complete(&mut self) -> Result<()> {
        self.call(|ops| ops.op(Operation::ReclaimComplete, &ReclaimComplete4Args { one_fs: false }))?;
        Ok(())
    }

    /// Sends a COMPOUND in a slot; its call number.
    pub fn send(&mut self, slot: u32, ops: impl for<'o> FnOnce(Ops<'o>) -> Ops<'o>) -> Result<u32> {
        let highest_slotid = self.requests.len() as u32 - 1;
        let request = self.requests.get_mut(slot as usize).context("no such slot")?;
        *request += 1;
        let (sessionid, sequenceid) = (self.id, *request);
        let sequence =
            Sequence4Args { sessionid, sequenceid, slotid: slot, highest_slotid, cachethis: false };
        self.wire.send((PROGRAM, VERSION, COMPOUND), |to| {
            compound(to, |all| ops(all.op(Operation::Sequence, &sequence)));
        })
    }

    /// Sends a COMPOUND in the first slot; its results after SEQUENCE's.
    pub fn call(&mut self, ops: impl for<'o> FnOnce(Ops<'o>) -> Ops<'o>) -> Result<Decoder<'_>> {
        self.send(0, ops)?;
        let (_, reply) = self.wire.receive()?;
        let mut from = results(reply)?;
        from.fixed::<SEQUENCE_RESULT>()?;
        Ok(from)
    }

    /// The handle of a path from NFSv4's root.
    pub fn walk(&mut self, path: &str) -> Result<Vec<u8>> {
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        parts.reverse();
        let mut handle: Option<Vec<u8>> = None;
        // One COMPOUND for each component: a session limits the number of operations.
        while !parts.is_empty() || handle.is_none() {
            let next_part = parts.pop();
            let from = handle.take();
            let mut found = self.call(|ops| {
                let ops = match &from {
                    Some(handle) => ops.on(handle),
                    None => ops.op(Operation::Putrootfh, &()),
                };
                let ops = match next_part {
                    Some(part) => ops.op(Operation::Lookup, &Name4Args { name: Opaque(part.as_bytes()) }),
                    None => ops,
                };
                ops.op(Operation::Getfh, &())
            })?;
            next::<()>(&mut found)?;
            if next_part.is_some() {
                next::<()>(&mut found)?;
            }
            handle = Some(next::<NfsFh4<'_>>(&mut found)?.0.to_vec());
        }
        handle.context("no path")
    }

    /// OPEN of a name in a directory; `share_access` is passed as it is.
    pub fn open(&mut self, directory: &[u8], name: &[u8], owner: &[u8], share_access: u32) -> Result<Opened> {
        self.open_by(directory, OpenClaim4::Null(Opaque(name)), owner, share_access)
    }

    /// OPEN by any claim, on the handle of the directory or of the file.
    pub fn open_by(
        &mut self,
        on: &[u8],
        claim: OpenClaim4<'_>,
        owner: &[u8],
        share_access: u32,
    ) -> Result<Opened> {
        let open = Open4Args {
            seqid: 0,
            share_access,
            share_deny: 0,
            owner: StateOwner4 { clientid: self.client, owner: Opaque(owner) },
            openhow: Openflag4::Nocreate,
            claim,
        };
        let mut from = self.call(|ops| ops.on(on).op(Operation::Open, &open).op(Operation::Getfh, &()))?;
        next::<()>(&mut from)?;
        let opened: Open4ResOk<'_> = next(&mut from)?;
        let delegation = match opened.delegation {
            OpenDelegation4::Read(read) => Some(read.stateid),
            OpenDelegation4::Write(write) => Some(write.stateid),
            OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
        };
        let handle = next::<NfsFh4<'_>>(&mut from)?.0.to_vec();
        Ok(Opened { stateid: opened.stateid, handle, delegation })
    }

    /// CLOSE.
    pub fn close(&mut self, opened: &Opened) -> Result<()> {
        let close = Close4Args { seqid: 0, open_stateid: opened.stateid };
        self.call(|ops| ops.on(&opened.handle).op(Operation::Close, &close))?;
        Ok(())
    }

    /// A write LOCK of one byte by a new owner, or the reclaim of one; the lock's stateid.
    pub fn lock(&mut self, opened: &Opened, owner: &[u8], offset: u64, reclaim: bool) -> Result<Stateid4> {
        let lock = Lock4Args {
            locktype: NfsLockType4::Write,
            reclaim,
            offset,
            length: 1,
            locker: Locker4::New(OpenToLockOwner4 {
                open_seqid: 0,
                open_stateid: opened.stateid,
                lock_seqid: 0,
                lock_owner: StateOwner4 { clientid: self.client, owner: Opaque(owner) },
            }),
        };
        let mut from = self.call(|ops| ops.on(&opened.handle).op(Operation::Lock, &lock))?;
        next::<()>(&mut from)?;
        next(&mut from)
    }

    /// LOCKU of one byte.
    pub fn unlock(&mut self, opened: &Opened, lock_stateid: Stateid4, offset: u64) -> Result<()> {
        let unlock = Locku4Args { locktype: NfsLockType4::Write, seqid: 0, lock_stateid, offset, length: 1 };
        self.call(|ops| ops.on(&opened.handle).op(Operation::Locku, &unlock))?;
        Ok(())
    }
}
