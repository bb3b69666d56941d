//! READ, WRITE and COMMIT (RFC 8881 sections 18.22, 18.32 and 18.3).
//!
//! Data is read and written by the state id of the user's open, or by the special one for clients that hold
//! none (RFC 8881 section 8.2.3) if the user hasn't opened the file.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use client_state::StateId;
use io::Stability;
use proto::nfs4::{
    Bitmap4, Commit4Args, Nfsstat4, Operation as Op, Read4Args, Sequence4ResOk, Setattr4Args, StableHow4,
    Stateid4, Verifier4, Write4ResOk,
};
use rpc::client::Receive;
use xdr::{Encode, Encoder};

use super::Nfs4;
use super::compound::{Compound, Results, check};
use super::convert::{self, FILE, Settable};
use super::read_plus::ReadPlusAnswer;
use super::state::{self, ANONYMOUS, READ_ACCESS, WRITE_ACCESS};
use crate::error::{Error, Result};
use crate::operations::{ReadReply, WriteReply};
use crate::types::{Handle, Operation, SetAttributes};
use crate::user::User;

/// The operations of a request that writes data and sets attributes, SEQUENCE not counted.
const OPERATIONS_THAT_SET: usize = 4;

/// How often I/O is sent again because the server doesn't know its state id.
const MAX_ATTEMPTS: u32 = 8;

/// Where the payload of READ's results begins, and its length, behind SEQUENCE and PUTFH.
fn read_payload(results: &[u8]) -> Option<(usize, usize)> {
    let mut from = Results::new(results).ok()?;
    from.get::<Sequence4ResOk>(Op::Sequence).ok()?;
    from.succeeded(Op::Putfh).ok()?;
    from.get::<bool>(Op::Read).ok()?;
    let length: u32 = from.value(Op::Read).ok()?;
    Some((results.len() - from.rest().len(), length as usize))
}

/// The arguments of WRITE in front of the payload.
struct WriteHead {
    stateid: Stateid4,
    offset: u64,
    stable: StableHow4,
}

impl Encode for WriteHead {
    fn encode(&self, to: &mut Encoder) {
        to.put(&self.stateid);
        to.u64(self.offset);
        to.put(&self.stable);
    }
}

/// An I/O request's attempts, each with the state id that is current then.
pub(super) struct IoAttempts<'a> {
    nfs: &'a Nfs4,
    user: &'a User,
    file: &'a Handle,
    done: u32,
}

impl<'a> IoAttempts<'a> {
    pub(super) const fn new(nfs: &'a Nfs4, user: &'a User, file: &'a Handle) -> Self {
        Self { nfs, user, file, done: 0 }
    }

    /// The state id of the next attempt.
    pub(super) async fn state_id(&mut self, access: u8) -> Result<Option<StateId>> {
        self.done += 1;
        self.nfs.client.io_id(self.user, self.file, access).await
    }

    /// Whether the request must be sent again after this status, because the file has to be opened again.
    pub(super) fn must_repeat(&self, id: Option<StateId>, status: Nfsstat4) -> bool {
        let Some(id) = id.filter(|_| state::is_gone(status)) else { return false };
        self.nfs.client.free_if_revoked(Some(id), status);
        self.nfs.client.io_id_gone(self.user, self.file, id);
        self.done < MAX_ATTEMPTS
    }
}

pub(super) fn io_stateid(id: Option<StateId>) -> Stateid4 {
    id.map_or(ANONYMOUS, state::stateid)
}

impl Nfs4 {
    /// READ, or READ_PLUS for a sparse file.
    pub(super) async fn read_data(
        &self,
        user: &User,
        file: &Handle,
        (offset, len): (u64, usize),
        is_sparse: bool,
        buffer: Vec<u8>,
    ) -> Result<ReadReply> {
        let mut buffer = buffer;
        if is_sparse && self.has_read_plus.load(Relaxed) {
            match self.read_plus(user, file, (offset, len), std::mem::take(&mut buffer)).await? {
                ReadPlusAnswer::Data(reply) => return Ok(reply),
                ReadPlusAnswer::NotSupported(unused) => buffer = unused,
            }
        }
        let mut attempts = IoAttempts::new(self, user, file);
        let (reply, eof, length) = loop {
            user.session.counters.call(Operation::Read);
            let id = attempts.state_id(READ_ACCESS).await?;
            let args = Read4Args { stateid: io_stateid(id), offset, count: len as u32 };
            let compound = Compound::new().put_fh(file).then(Op::Read, &args);
            let receive = Receive { into: buffer, limit: len, split: read_payload };
            let reply = self.client.call(user, &compound, Some(receive)).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            let status = results.status(Op::Read)?;
            if attempts.must_repeat(id, status) {
                buffer = reply.payload;
                continue;
            }
            check(Op::Read, status)?;
            let eof: bool = results.value(Op::Read)?;
            let length: u32 = results.value(Op::Read)?;
            break (reply, eof, length);
        };
        let data = reply.payload;
        if length as usize != data.len() || data.len() > len {
            return Err(Error::Protocol {
                object: Op::Read.name().to_owned(),
                what: "it says one length and sends another",
            });
        }
        Ok(ReadReply { data, eof })
    }

    /// WRITE, and SETATTR behind it.
    pub(super) async fn write_data(
        &self,
        user: &User,
        file: &Handle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        set: Option<&SetAttributes>,
    ) -> Result<WriteReply> {
        let set = set.filter(|_| self.client.max_operations() >= OPERATIONS_THAT_SET);
        let _change = set.map(|set| self.client.change_attributes(file, Some(set)));
        let report = self.report();
        let (first, trailer) = match set.map(Settable::new) {
            None => (Compound::new(), self.get_attributes.clone()),
            Some(set) => {
                let args = Setattr4Args { stateid: ANONYMOUS, obj_attributes: set.fattr() };
                (Compound::once(), self.get_attributes.behind(Op::Setattr, &args))
            }
        };
        let first = first.put_fh(file);
        let mut attempts = IoAttempts::new(self, user, file);
        loop {
            let id = attempts.state_id(WRITE_ACCESS).await?;
            let stable = convert::stable_how(stability);
            let head = WriteHead { stateid: io_stateid(id), offset, stable };
            let compound = first.clone().then_payload(Op::Write, &head, data.clone(), trailer.clone());
            let reply = self.call(user, Operation::Write, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            let status = results.status(Op::Write)?;
            if attempts.must_repeat(id, status) {
                continue;
            }
            check(Op::Write, status)?;
            let ok: Write4ResOk = results.value(Op::Write)?;
            let is_set = set.map(|_| results.get::<Bitmap4>(Op::Setattr));
            let attributes = report.file(&mut results, file, None);
            return Ok(WriteReply {
                count: ok.count as usize,
                stability: convert::stability(ok.committed),
                verifier: ok.writeverf,
                set: is_set.map(|is_set| is_set.map(|_| attributes)),
            });
        }
    }

    /// COMMIT of the whole file.
    pub(super) async fn commit_data(&self, user: &User, file: &Handle) -> Result<[u8; 8]> {
        let report = self.report();
        let args = Commit4Args { offset: 0, count: 0 };
        let compound = Compound::new().put_fh(file).then(Op::Commit, &args).get_attributes(&FILE);
        let reply = self.call(user, Operation::Commit, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let verifier: Verifier4 = results.get(Op::Commit)?;
        report.file(&mut results, file, None);
        Ok(verifier)
    }
}
