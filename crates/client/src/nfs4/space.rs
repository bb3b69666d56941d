//! A file's space and holes, advice about its use, and copies within the server (RFC 7862): ALLOCATE,
//! DEALLOCATE, SEEK, IO_ADVISE, COPY and CLONE, which NFSv4.2 has.

use client_state::CopyAttempts;
use proto::nfs4::{
    Allocate4Args, Bitmap4, Clone4Args, Copy4Args, Copy4ResOk, DataContent4, IoAdvise4Args, Nfsstat4,
    Operation as Op, Seek4Args, SeekRes4, Stateid4,
};
use xdr::Array;

use super::Nfs4;
use super::compound::{Compound, Results, check, refused};
use super::convert::{self, FILE};
use super::data::{IoAttempts, io_stateid};
use super::offloaded_copy::{CopyOutcome, OffloadedCopy};
use super::session::CompoundReply;
use super::state::{READ_ACCESS, WRITE_ACCESS};
use crate::error::{Error, Result, not_supported};
use crate::operations::CopyReply;
use crate::types::{Advice, Fallocate, Handle, Operation, SeekTo};
use crate::user::User;

/// The state ids under which a source is read and a target is written.
type StateIds = (Stateid4, Stateid4);

impl Nfs4 {
    /// ALLOCATE and DEALLOCATE. Both together zero a range.
    pub(super) async fn change_space(
        &self,
        user: &User,
        file: &Handle,
        how: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let (operations, counted) = match how {
            Fallocate::Allocate => (&[Op::Allocate][..], Operation::Allocate),
            Fallocate::PunchHole => (&[Op::Deallocate][..], Operation::Deallocate),
            Fallocate::ZeroRange => (&[Op::Deallocate, Op::Allocate][..], Operation::Deallocate),
        };
        self.need_4_2(operations[0])?;
        let report = self.report();
        let mut attempts = IoAttempts::new(self, user, file);
        'attempts: loop {
            let id = attempts.state_id(WRITE_ACCESS).await?;
            let args = Allocate4Args { stateid: io_stateid(id), offset, length };
            let compound = operations
                .iter()
                .fold(Compound::once().put_fh(file), |compound, operation| compound.then(*operation, &args))
                .get_attributes(&FILE);
            let reply = self.call(user, counted, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            for operation in operations {
                let status = results.status(*operation)?;
                if attempts.must_repeat(id, status) {
                    continue 'attempts;
                }
                check(*operation, status)?;
            }
            report.file(&mut results, file, None);
            return Ok(());
        }
    }

    /// SEEK.
    pub(super) async fn find_content(
        &self,
        user: &User,
        file: &Handle,
        to: SeekTo,
        offset: u64,
    ) -> Result<Option<u64>> {
        self.need_4_2(Op::Seek)?;
        let what = match to {
            SeekTo::Data => DataContent4::Data,
            SeekTo::Hole => DataContent4::Hole,
        };
        let mut attempts = IoAttempts::new(self, user, file);
        let found: SeekRes4 = loop {
            let id = attempts.state_id(READ_ACCESS).await?;
            let args = Seek4Args { stateid: io_stateid(id), offset, what: what as u32 };
            let compound = Compound::new().put_fh(file).then(Op::Seek, &args);
            let reply = self.call(user, Operation::Seek, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            match results.status(Op::Seek)? {
                Nfsstat4::Ok => break results.value(Op::Seek)?,
                Nfsstat4::Nxio => return Ok(None),
                status if attempts.must_repeat(id, status) => {}
                status => return Err(refused(Op::Seek, status)),
            }
        };
        if found.offset < offset {
            return Err(senseless(Op::Seek, "it found something before the offset to search from"));
        }
        // Where there is no more data, the answer is the end of the file, which is a hole.
        Ok(Some(found.offset).filter(|_| to == SeekTo::Hole || !found.eof))
    }

    /// IO_ADVISE. Which hints the server takes doesn't matter.
    pub(super) async fn send_advice(
        &self,
        user: &User,
        file: &Handle,
        advice: Advice,
        offset: u64,
        count: u64,
    ) -> Result<()> {
        self.need_4_2(Op::IoAdvise)?;
        let hints = Bitmap4::of(&[hint(advice)]);
        let mut attempts = IoAttempts::new(self, user, file);
        loop {
            let id = attempts.state_id(READ_ACCESS).await?;
            let args = IoAdvise4Args { stateid: io_stateid(id), offset, count, hints };
            let compound = Compound::new().put_fh(file).then(Op::IoAdvise, &args);
            let reply = self.call(user, Operation::Ioadvise, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            let status = results.status(Op::IoAdvise)?;
            if !attempts.must_repeat(id, status) {
                return check(Op::IoAdvise, status);
            }
        }
    }

    /// COPY, of which a part may be copied.
    pub(super) async fn copy_within(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        count: u64,
    ) -> Result<CopyReply> {
        self.need_4_2(Op::Copy)?;
        let mut attempts = CopyAttempts::new(count);
        let copied = loop {
            match self.request_copy(user, from, to, count, attempts.is_synchronous()).await? {
                CopyAnswer::Copied(copied) => break copied,
                CopyAnswer::CannotMeet if attempts.refused() => {}
                CopyAnswer::CannotMeet => return Err(not_supported(Op::Copy.name())),
                CopyAnswer::Begun(copy) => {
                    let outcome = copy.outcome(count).await;
                    // The attributes in the reply are those at the beginning.
                    self.report().send(to.0, None, None);
                    match outcome? {
                        CopyOutcome::Copied(copied) => break copied,
                        CopyOutcome::Lost if attempts.lost() => {}
                        CopyOutcome::Lost => return Err(senseless(Op::Copy, "it loses copies")),
                        CopyOutcome::Inconclusive if attempts.inconclusive() => {}
                        CopyOutcome::Inconclusive => {
                            return Err(senseless(Op::Copy, "it tells nothing about a copy that goes on"));
                        }
                    }
                }
            }
        };
        if copied.count > count {
            return Err(senseless(Op::Copy, "it has copied more than was requested"));
        }
        Ok(copied)
    }

    /// One COPY.
    async fn request_copy(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        count: u64,
        synchronous: bool,
    ) -> Result<CopyAnswer> {
        let send = |(src_stateid, dst_stateid): StateIds| {
            let args = Copy4Args {
                src_stateid,
                dst_stateid,
                src_offset: from.1,
                dst_offset: to.1,
                count,
                consecutive: true,
                synchronous,
                source_server: Array(Vec::new()),
            };
            let compound = between(from.0, to.0).then(Op::Copy, &args).get_attributes(&FILE);
            self.client.call_copy(user, to.0, compound)
        };
        self.between_files(user, Op::Copy, (from.0, to.0), send, |status, results, begun| {
            if status == Nfsstat4::OffloadNoReqs {
                return Ok(CopyAnswer::CannotMeet);
            }
            check(Op::Copy, status)?;
            let Copy4ResOk { response, consecutive, .. } = results.value(Op::Copy)?;
            if let Some(copy) = begun {
                return Ok(CopyAnswer::Begun(copy));
            }
            if response.count < count && !consecutive {
                return Err(senseless(Op::Copy, "it has copied a part, and doesn't tell which"));
            }
            Ok(CopyAnswer::Copied(CopyReply {
                count: response.count,
                stability: convert::stability(response.committed),
                verifier: response.writeverf,
            }))
        })
        .await
    }

    /// CLONE.
    pub(super) async fn clone_within(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        count: u64,
    ) -> Result<()> {
        self.need_4_2(Op::Clone)?;
        let send = |(src_stateid, dst_stateid): StateIds| {
            let args = Clone4Args { src_stateid, dst_stateid, src_offset: from.1, dst_offset: to.1, count };
            let compound = between(from.0, to.0).then(Op::Clone, &args).get_attributes(&FILE);
            async move { Ok((self.call(user, Operation::Clone, &compound).await?, ())) }
        };
        self.between_files(user, Op::Clone, (from.0, to.0), send, |status, _, ()| check(Op::Clone, status))
            .await
    }

    /// Sends a request that reads one file and writes another, until the server knows its state ids. `send`
    /// returns the reply, and what else is known of the request, for `result`.
    async fn between_files<S, T, F>(
        &self,
        user: &User,
        operation: Op,
        (from, to): (&Handle, &Handle),
        send: impl Fn(StateIds) -> F + Sync,
        result: impl Fn(Nfsstat4, &mut Results<'_>, S) -> Result<T> + Sync,
    ) -> Result<T>
    where
        F: Future<Output = Result<(CompoundReply, S)>> + Send,
        S: Send,
    {
        let report = self.report();
        let (mut reads, mut writes) = (IoAttempts::new(self, user, from), IoAttempts::new(self, user, to));
        loop {
            let (source, target) = (reads.state_id(READ_ACCESS).await?, writes.state_id(WRITE_ACCESS).await?);
            let (reply, sent) = send((io_stateid(source), io_stateid(target))).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            results.succeeded(Op::Savefh)?;
            results.succeeded(Op::Putfh)?;
            let status = results.status(operation)?;
            // The status doesn't tell which of the state ids the server doesn't know.
            let (again, also) = (reads.must_repeat(source, status), writes.must_repeat(target, status));
            if again || also {
                continue;
            }
            let value = result(status, &mut results, sent)?;
            if status == Nfsstat4::Ok {
                report.file(&mut results, to, None);
            }
            return Ok(value);
        }
    }
}

/// How a COPY was answered.
enum CopyAnswer {
    Copied(CopyReply),
    /// The server copies on.
    Begun(OffloadedCopy),
    /// The server can't copy in the way that was requested (`NFS4ERR_OFFLOAD_NO_REQS`).
    CannotMeet,
}

/// The operations in front of one on two files: the source becomes the saved file, and the target the current
/// one.
fn between(from: &Handle, to: &Handle) -> Compound {
    Compound::once().put_fh(from).then(Op::Savefh, &()).put_fh(to)
}

/// The number of an `IO_ADVISE_TYPE4` (RFC 7862 section 15.5.1).
const fn hint(advice: Advice) -> u32 {
    match advice {
        Advice::Normal => 0,
        Advice::Sequential => 1,
        Advice::Random => 3,
        Advice::WillNeed => 4,
        Advice::DontNeed => 6,
        Advice::NoReuse => 7,
    }
}

fn senseless(operation: Op, what: &'static str) -> Error {
    Error::Protocol { object: operation.name().to_owned(), what }
}
