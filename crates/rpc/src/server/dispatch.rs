//! From a call's bytes to its reply: header, credential, program, version, procedure, in the order in which
//! RFC 5531 section 9 lists the errors of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use super::{
    BackChannel, CallContext, CallError, Program, Reply, Verdict,
    back_channel::CallbackSender,
    connection::Connection,
    context::Within,
    credentials::Credentials,
    engine::Engine,
    pieces::REPLY_BUFFER,
    reply::{Attachment, FilePart},
};
use crate::message::{AuthFlavor, AuthStat, CallHeader, RPC_VERSION, ReplyHeader, ReplyStatus};
use crate::transport::Capabilities;

/// The smallest payload that goes from the page cache to the socket with sendfile, in bytes. Below (measured:
/// at 32 KiB by a fifth), reading it into the reply is faster, because the reply then goes out in one piece
/// with others.
const SENDFILE_FROM: u32 = 64 << 10;

/// After a file without support for RWF_NOWAIT, this many reads don't try it.
const UNASKED: u32 = 1000;

/// What follows from a record.
#[derive(Debug)]
pub enum CallOutcome {
    /// The dispatcher's buffer holds a reply with its mark. The payload follows it.
    Reply(Option<Attachment>),
    /// No reply.
    Silence,
    /// No reply, and the connection is to be closed.
    Disconnect,
    /// The record is no call: the peer breaks the protocol.
    NoCall,
}

/// The origin of a call, and whether it is complete.
pub struct Caller<'a> {
    /// The engine that has received it.
    pub engine: &'a Arc<Engine>,
    /// The connection that it came on.
    pub connection: &'a Connection,
    /// Whether the peer is served.
    pub verdict: Verdict,
    /// Only the beginning of the call was received: it is longer than a stranger's may be.
    pub is_cut: bool,
}

/// What a program has to do with a call.
#[derive(Debug, Clone, Copy)]
enum Action {
    Call,
    Postpone,
}

impl Caller<'_> {
    /// What `program` has to do with a call that isn't simply run.
    #[cold]
    fn other_than_admitted(
        &self,
        program: &dyn Program,
        hand_over: &dyn Fn(),
    ) -> Result<Action, CallRefusal> {
        let answers_everybody = program.answers_strangers();
        if answers_everybody && !self.is_cut {
            return Ok(Action::Call);
        }
        let mut verdict = self.verdict;
        if verdict == Verdict::NotKnownYet {
            hand_over();
            verdict = self.connection.admission.wait(&*self.engine.admission, &self.connection.peer);
        }
        match verdict {
            Verdict::Admitted if !self.is_cut => Ok(Action::Call),
            // The client's retransmission will be received in full.
            Verdict::Admitted | Verdict::NotKnownYet => Ok(Action::Postpone),
            Verdict::Stranger if answers_everybody => Err(ReplyStatus::GarbageArgs.into()),
            Verdict::Stranger => {
                self.engine.denied.fetch_add(1, Ordering::Relaxed);
                Err(ReplyStatus::AuthError(AuthStat::BadCred).into())
            }
        }
    }
}

/// Runs one worker's calls.
#[derive(Debug)]
pub struct Dispatcher {
    /// The reply being encoded, or the last one.
    pub buffer: Vec<u8>,
    credentials: Credentials,
    /// The number of reads that don't try RWF_NOWAIT.
    unasked: u32,
}

impl Dispatcher {
    /// A dispatcher with an empty reply buffer.
    pub fn new() -> Self {
        Self { buffer: Vec::with_capacity(REPLY_BUFFER), credentials: Credentials::default(), unasked: 0 }
    }

    /// Runs the call in `record`.
    pub fn run(&mut self, caller: &Caller<'_>, record: &[u8], hand_over: &dyn Fn()) -> CallOutcome {
        let peer = &caller.connection.peer;
        let mut args = xdr::Decoder::new(record);
        let header = match CallHeader::decode(&mut args) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(peer = %peer.address, %error, "no call");
                return CallOutcome::NoCall;
            }
        };
        let xid = header.xid;
        let mut reply = Reply::in_buffer(std::mem::take(&mut self.buffer), xid);
        let mut status = match self.call(caller, &header, &mut args, &mut reply, hand_over) {
            Ok(()) => ReplyStatus::Success,
            Err(CallRefusal::Status(status)) => status,
            Err(CallRefusal::Silence) => {
                self.buffer = reply.into_parts().0;
                return CallOutcome::Silence;
            }
            Err(CallRefusal::Disconnect) => {
                tracing::debug!(peer = %peer.address, "a call isn't answered: disconnected");
                self.buffer = reply.into_parts().0;
                return CallOutcome::Disconnect;
            }
        };
        if status == ReplyStatus::Success
            && let Err(error) =
                self.complete(&mut reply, caller.connection.transport.capabilities(), hand_over)
        {
            let CallHeader { program, procedure, .. } = header;
            tracing::error!(peer = %peer.address, program, procedure, %error, "payload can't be read");
            status = ReplyStatus::SystemErr;
        }
        if let Some(timer) = reply.take_timer()
            && let Ok(program) = find(&caller.engine.programs, header.program, header.version)
        {
            program.completed(timer);
        }
        if status != ReplyStatus::Success {
            reply.status(ReplyHeader { xid, status });
            reply.set_mark();
        }
        let (buffer, attachment) = reply.into_parts();
        self.buffer = buffer;
        CallOutcome::Reply(attachment)
    }

    #[inline]
    fn call(
        &mut self,
        caller: &Caller<'_>,
        header: &CallHeader<'_>,
        args: &mut xdr::Decoder<'_>,
        reply: &mut Reply,
        hand_over: &dyn Fn(),
    ) -> Result<(), CallRefusal> {
        if header.rpcvers != RPC_VERSION {
            return Err(ReplyStatus::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION }.into());
        }
        let credential = self
            .credentials
            .get(&header.credential)
            .map_err(|stat| CallRefusal::from(ReplyStatus::AuthError(stat)))?;
        if header.verifier.flavor != AuthFlavor::NONE {
            return Err(ReplyStatus::AuthError(AuthStat::BadVerf).into());
        }
        let engine = caller.engine;
        let peer = &caller.connection.peer;
        if let Some(rules) = &caller.connection.call_socket {
            rules.check((header.program, header.version), credential)?;
        }
        let program = find(&engine.programs, header.program, header.version)?;
        if header.procedure == 0 {
            return Ok(());
        }
        let back_channel = || {
            let sender: Weak<dyn CallbackSender> = Arc::downgrade(engine) as _;
            BackChannel::new(sender, peer.connection)
        };
        let within = Within { hand_over, back_channel: &back_channel };
        let mut cx = CallContext::new(header.xid, header.version, peer, credential).within(within);
        cx.is_call_socket = caller.connection.call_socket.is_some();
        let action = if caller.verdict == Verdict::Admitted && !caller.is_cut {
            Action::Call
        } else {
            caller.other_than_admitted(program, hand_over)?
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| match action {
            Action::Call => program.call(&cx, header.procedure, args, reply),
            Action::Postpone => program.postpone(&cx, header.procedure, args, reply),
        }));
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(CallError::ProcedureUnavailable)) => Err(ReplyStatus::ProcUnavail.into()),
            Ok(Err(CallError::GarbageArguments)) => Err(ReplyStatus::GarbageArgs.into()),
            Ok(Err(CallError::SystemError)) => Err(ReplyStatus::SystemErr.into()),
            Ok(Err(CallError::Denied(stat))) => Err(ReplyStatus::AuthError(stat).into()),
            Ok(Err(CallError::Drop)) => Err(CallRefusal::Silence),
            Ok(Err(CallError::Disconnect)) => Err(CallRefusal::Disconnect),
            Err(_) => {
                tracing::error!(peer = %peer.address, program = header.program, version = header.version,
                    procedure = header.procedure, "the procedure panicked");
                Err(ReplyStatus::SystemErr.into())
            }
        }
    }

    /// Reads a payload that doesn't go by sendfile into the reply, and sets the mark.
    fn complete(
        &mut self,
        reply: &mut Reply,
        capabilities: Capabilities,
        hand_over: &dyn Fn(),
    ) -> Result<(), Errno> {
        let sendfile_from = if capabilities.sendfile { SENDFILE_FROM } else { u32::MAX };
        if let Some(attachment) = reply.take_small_file(sendfile_from) {
            let length = attachment.length as usize;
            let buffer = reply.encoder().buffer();
            let start = buffer.len();
            buffer.resize(start + length + xdr::padding(length), 0); // what the file doesn't have stays zero
            self.read(&attachment, &mut buffer[start..start + length], hand_over)?;
        }
        if reply.set_mark() { Ok(()) } else { Err(Errno::OVERFLOW) }
    }

    /// Reads until `into` is full or the file ends. If the disk is needed, another worker continues with the
    /// connection meanwhile.
    fn read(&mut self, attachment: &FilePart, into: &mut [u8], hand_over: &dyn Fn()) -> Result<(), Errno> {
        let FilePart { file, offset, .. } = attachment;
        let file = file.as_fd();
        let mut filled = 0;
        // tmpfs and others don't support RWF_NOWAIT. Trying it there is a wasted system call.
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

/// Why a call has no results.
enum CallRefusal {
    Status(ReplyStatus),
    Silence,
    Disconnect,
}

impl From<ReplyStatus> for CallRefusal {
    fn from(status: ReplyStatus) -> Self {
        Self::Status(status)
    }
}

/// The program with this number and version.
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
