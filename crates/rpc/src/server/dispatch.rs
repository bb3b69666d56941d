//! From a call's bytes to its reply: header, credential, program, version, procedure, in the order in which
//! RFC 5531 section 9 lists what can be wrong with each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use super::{
    CallContext, CallError, Program, Reply, Verdict,
    connection::Connection,
    credentials::Credentials,
    engine::Engine,
    pieces::REPLY_BUFFER,
    reply::{Attachment, FilePart},
};
use crate::message::{AuthFlavor, AuthStat, CallHeader, RPC_VERSION, ReplyHeader, ReplyStatus};

/// Payload of at least so many bytes goes from the page cache to the socket (sendfile); below (measured: at
/// 32 KiB by a fifth), reading it into the reply is faster, because the reply then goes out in one piece with
/// others.
const SENDFILE_FROM: u32 = 64 << 10;

/// After a file that can't say whether it would wait, so many reads aren't asked.
const UNASKED: u32 = 1000;

/// What is to be done about a record.
#[derive(Debug)]
pub enum Outcome {
    /// The caller's buffer holds a reply with its mark; the payload follows.
    Reply(Option<Attachment>),
    /// Nothing is to be answered.
    Silence,
    /// It was no call: the peer doesn't speak our language.
    NoCall,
}

/// Who calls, and how much of the call there is.
pub struct Caller<'a> {
    /// Where the call has come to.
    pub engine: &'a Arc<Engine>,
    /// Where it has come from.
    pub connection: &'a Connection,
    /// Whether the peer is served.
    pub verdict: Verdict,
    /// Only the beginning of the call is there: it is longer than a stranger's may be.
    pub is_cut: bool,
}

/// What a program is to do with a call.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Call,
    Postpone,
}

impl Caller<'_> {
    /// What `program` is to do with a call that isn't simply run.
    #[cold]
    fn other_than_admitted(&self, program: &dyn Program, hand_over: &dyn Fn()) -> Result<Answer, Refusal> {
        let answers_everybody = program.answers_strangers();
        if answers_everybody && !self.is_cut {
            return Ok(Answer::Call);
        }
        let mut verdict = self.verdict;
        if verdict == Verdict::NotKnownYet {
            hand_over();
            verdict = self.connection.admission.wait(&*self.engine.admission, &self.connection.peer);
        }
        match verdict {
            Verdict::Admitted if !self.is_cut => Ok(Answer::Call),
            // What is cut off is there when the client asks again.
            Verdict::Admitted | Verdict::NotKnownYet => Ok(Answer::Postpone),
            Verdict::Stranger if answers_everybody => Err(ReplyStatus::GarbageArgs.into()),
            Verdict::Stranger => {
                self.engine.denied.fetch_add(1, Ordering::Relaxed);
                Err(ReplyStatus::AuthError(AuthStat::BadCred).into())
            }
        }
    }
}

/// One worker's tools.
#[derive(Debug)]
pub struct Dispatcher {
    /// The reply in the making, or the last one.
    pub buffer: Vec<u8>,
    credentials: Credentials,
    /// How many more reads go without asking whether they would wait.
    unasked: u32,
}

impl Dispatcher {
    /// With an empty reply buffer.
    pub fn new() -> Self {
        Self { buffer: Vec::with_capacity(REPLY_BUFFER), credentials: Credentials::default(), unasked: 0 }
    }

    /// Runs the call in `record`.
    pub fn run(&mut self, caller: &Caller<'_>, record: &[u8], hand_over: &dyn Fn()) -> Outcome {
        let peer = &caller.connection.peer;
        let mut args = xdr::Decoder::new(record);
        let header = match CallHeader::decode(&mut args) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(peer = %peer.address, %error, "no call");
                return Outcome::NoCall;
            }
        };
        let xid = header.xid;
        let mut reply = Reply::in_buffer(std::mem::take(&mut self.buffer), xid);
        let mut status = match self.call(caller, &header, &mut args, &mut reply, hand_over) {
            Ok(()) => ReplyStatus::Success,
            Err(Refusal::Status(status)) => status,
            Err(Refusal::Silence) => {
                self.buffer = reply.into_parts().0;
                return Outcome::Silence;
            }
        };
        if status == ReplyStatus::Success
            && let Err(error) = self.complete(&mut reply, hand_over)
        {
            tracing::error!(peer = %peer.address, program = header.program, procedure = header.procedure, %error,
                "payload can't be read");
            status = ReplyStatus::SystemErr;
        }
        if status != ReplyStatus::Success {
            reply.status(ReplyHeader { xid, status });
            reply.set_mark();
        }
        let (buffer, attachment) = reply.into_parts();
        self.buffer = buffer;
        Outcome::Reply(attachment)
    }

    #[inline]
    fn call(
        &mut self,
        caller: &Caller<'_>,
        header: &CallHeader<'_>,
        args: &mut xdr::Decoder<'_>,
        reply: &mut Reply,
        hand_over: &dyn Fn(),
    ) -> Result<(), Refusal> {
        if header.rpcvers != RPC_VERSION {
            return Err(ReplyStatus::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION }.into());
        }
        let credential = self
            .credentials
            .get(&header.credential)
            .map_err(|stat| Refusal::from(ReplyStatus::AuthError(stat)))?;
        if header.verifier.flavor != AuthFlavor::NONE {
            return Err(ReplyStatus::AuthError(AuthStat::BadVerf).into());
        }
        let engine = caller.engine;
        let peer = &caller.connection.peer;
        let program = find(&engine.programs, header.program, header.version)?;
        if header.procedure == 0 {
            return Ok(());
        }
        let cx = CallContext::new(header.xid, header.version, peer, credential).within(engine, hand_over);
        let answer = if caller.verdict == Verdict::Admitted && !caller.is_cut {
            Answer::Call
        } else {
            caller.other_than_admitted(program, hand_over)?
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| match answer {
            Answer::Call => program.call(&cx, header.procedure, args, reply),
            Answer::Postpone => program.postpone(&cx, header.procedure, args, reply),
        }));
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(CallError::ProcedureUnavailable)) => Err(ReplyStatus::ProcUnavail.into()),
            Ok(Err(CallError::GarbageArguments)) => Err(ReplyStatus::GarbageArgs.into()),
            Ok(Err(CallError::SystemError)) => Err(ReplyStatus::SystemErr.into()),
            Ok(Err(CallError::Denied(stat))) => Err(ReplyStatus::AuthError(stat).into()),
            Ok(Err(CallError::Drop)) => Err(Refusal::Silence),
            Err(_) => {
                tracing::error!(peer = %peer.address, program = header.program, version = header.version,
                    procedure = header.procedure, "the procedure panicked");
                Err(ReplyStatus::SystemErr.into())
            }
        }
    }

    /// Reads a small payload into the reply, and sets the mark.
    fn complete(&mut self, reply: &mut Reply, hand_over: &dyn Fn()) -> Result<(), Errno> {
        if let Some(attachment) = reply.take_small_file(SENDFILE_FROM) {
            let length = attachment.length as usize;
            let buffer = reply.encoder().buffer();
            let start = buffer.len();
            buffer.resize(start + length + xdr::padding(length), 0); // what the file doesn't have stays zero
            self.read(&attachment, &mut buffer[start..start + length], hand_over)?;
        }
        if reply.set_mark() { Ok(()) } else { Err(Errno::OVERFLOW) }
    }

    /// Reads until `into` is full or the file ends. If the disk is needed, somebody else drives meanwhile.
    fn read(&mut self, attachment: &FilePart, into: &mut [u8], hand_over: &dyn Fn()) -> Result<(), Errno> {
        let FilePart { file, offset, .. } = attachment;
        let mut filled = 0;
        // tmpfs and others can't say whether they will wait: then asking is for nothing, most of the time.
        let mut patient = self.unasked > 0;
        self.unasked = self.unasked.saturating_sub(1);
        while filled < into.len() {
            let (rest, at) = (&mut into[filled..], offset + filled as u64);
            let read = if patient {
                pread(file, rest, at)
            } else {
                preadv2(file, &mut [std::io::IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT)
            };
            match read {
                Ok(0) => break,
                Ok(some) => filled += some,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !patient => {
                    hand_over();
                    patient = true;
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if !patient => {
                    self.unasked = UNASKED;
                    patient = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Why there are no results.
enum Refusal {
    Status(ReplyStatus),
    Silence,
}

impl From<ReplyStatus> for Refusal {
    fn from(status: ReplyStatus) -> Self {
        Self::Status(status)
    }
}

/// Who answers for a program's version.
#[inline]
fn find(programs: &[Arc<dyn Program>], number: u32, version: u32) -> Result<&dyn Program, ReplyStatus> {
    let mut mismatch = None;
    for program in programs {
        if program.number() != number {
            continue;
        }
        let versions = program.versions();
        if versions.contains(&version) {
            return Ok(&**program);
        }
        let (low, high) = mismatch.unwrap_or((*versions.start(), *versions.end()));
        mismatch = Some((low.min(*versions.start()), high.max(*versions.end())));
    }
    match mismatch {
        Some((low, high)) => Err(ReplyStatus::ProgMismatch { low, high }),
        None => Err(ReplyStatus::ProgUnavail),
    }
}
