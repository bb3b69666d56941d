//! The sending of one callback: over a session's back channel, or to the address of an NFSv4.0 client.

use std::net::SocketAddr;
use std::time::Duration;

use proto::nfs4::{CB_COMPOUND, CB_VERSION, MinorVersion, Nfsstat4};
use rpc::client::{Client, Options, Policy, Request};
use rpc::message::{AuthSys, Credential};
use rpc::server::BackChannelError;
use state::ClientId;
use xdr::{Encode as _, Encoder};

use super::message::{CallbackError, CallbackOperation, CbCompound, decode_reply, sequence_args};
use super::paths::{
    CallbackAddress, CallbackPath, MAX_BACK_SLOTS, PathError, PathTable, ReservedSlot, SharedConnection,
};

/// How often a call is repeated with the next sequence id, where the client's slot is out of step with ours.
const MAX_RESYNCS: u32 = 3;
/// The interval at which a call for which all slots are busy tries again.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// How often it tries.
const MAX_BUSY_RETRIES: u32 = 250;

/// Calls a client by whichever path leads to it; the body of the operation's result.
pub(super) async fn call(
    table: &PathTable,
    client: ClientId,
    operation: &CallbackOperation,
) -> Result<Vec<u8>, CallbackError> {
    let (mut resyncs, mut retries) = (0, 0);
    loop {
        let path = table.with(|paths| paths.reserve(client));
        match path {
            Err(PathError::Down) => return Err(CallbackError::Path),
            Err(PathError::Busy) if retries >= MAX_BUSY_RETRIES => return Err(CallbackError::Busy),
            Err(PathError::Busy) => {
                retries += 1;
                tokio::time::sleep(BUSY_INTERVAL).await;
            }
            Ok(CallbackPath::Address(to, connection)) => {
                let compound = CbCompound::new(MinorVersion::V0, to.ident, None, operation);
                let results = at_address(table, client, &to, &connection, Some(&compound)).await?;
                return decode_reply(&results, false).unwrap_or(Err(CallbackError::Garbage));
            }
            Ok(CallbackPath::Session(reserved)) => {
                match over_session(table, client, &reserved, operation).await {
                    Next::Done(done) => return done,
                    Next::OtherPath => {}
                    Next::Resync if resyncs < MAX_RESYNCS => resyncs += 1,
                    Next::Resync => {
                        table.with(|paths| paths.set_out_of_step(client, reserved.session));
                        resyncs = 0;
                    }
                }
            }
        }
    }
}

/// What follows a call over a session's back channel.
enum Next {
    Done(Result<Vec<u8>, CallbackError>),
    /// The connection can't be used: try another path.
    OtherPath,
    /// The client's slot is out of step: try the next sequence id.
    Resync,
}

async fn over_session(
    table: &PathTable,
    client: ClientId,
    reserved: &ReservedSlot,
    operation: &CallbackOperation,
) -> Next {
    let sequence = sequence_args(reserved.session.0, reserved.slot);
    let compound = CbCompound::new(reserved.minor, 0, Some(sequence), operation);
    let ReservedSlot { channel, program, .. } = reserved;
    let made = channel.call(program.number, CB_VERSION, CB_COMPOUND, &program.credential, &compound);
    let results = match made {
        Ok(reply) => tokio::time::timeout(table.reply_timeout, reply).await.ok(),
        Err(error) => Some(Err(error)),
    };
    let (next, used) = match results {
        None => (Next::Done(Err(CallbackError::Timeout)), false),
        Some(Ok(results)) => match decode_reply(&results, true) {
            Ok(done) => (Next::Done(done), true),
            Err(Nfsstat4::SeqMisordered | Nfsstat4::SeqFalseRetry | Nfsstat4::RetryUncachedRep) => {
                (Next::Resync, true)
            }
            Err(Nfsstat4::Badsession | Nfsstat4::Badslot | Nfsstat4::ConnNotBoundToSession) => {
                (Next::OtherPath, false)
            }
            Err(other) => (Next::Done(Err(CallbackError::Refused(other))), false),
        },
        Some(Err(BackChannelError::Busy)) => (Next::Done(Err(CallbackError::Busy)), false),
        Some(Err(BackChannelError::Malformed)) => (Next::Done(Err(CallbackError::Garbage)), false),
        Some(Err(BackChannelError::Gone)) => (Next::OtherPath, false),
        Some(Err(BackChannelError::Refused(_))) => (Next::Done(Err(CallbackError::Path)), false),
    };
    // A silent connection is unbound, so that the client's next SEQUENCE reports the path as down.
    let is_usable =
        !matches!(next, Next::OtherPath | Next::Done(Err(CallbackError::Timeout | CallbackError::Path)));
    table.with(|paths| {
        paths.release(client, reserved, used);
        if !is_usable {
            paths.unbind(client, reserved.session, channel.connection());
        }
    });
    next
}

/// Calls CB_NULL at a client's address, and notes whether it answers.
pub(super) async fn probe(table: &PathTable, client: ClientId) {
    let path = table.with(|paths| paths.reserve(client));
    match path {
        Ok(CallbackPath::Address(to, connection)) => {
            let answer = at_address(table, client, &to, &connection, None).await;
            tracing::debug!(address = %to.address, up = answer.is_ok(), "callbacks to an NFSv4.0 client");
        }
        Ok(CallbackPath::Session(reserved)) => table.with(|paths| paths.release(client, &reserved, false)),
        Err(_) => {}
    }
}

/// Calls CB_COMPOUND, or without one CB_NULL, at an address, and keeps the connection.
async fn at_address(
    table: &PathTable,
    client: ClientId,
    to: &CallbackAddress,
    shared: &SharedConnection,
    compound: Option<&CbCompound>,
) -> Result<Vec<u8>, CallbackError> {
    let connection = shared.get_or_init(|| connect(table.reply_timeout, to.address)).await;
    let answer = match connection {
        Some(connection) => call_over(connection, to, compound).await,
        None => Err(CallbackError::Path),
    };
    table.with(|paths| paths.answered(client, shared, answer.is_ok()));
    answer
}

async fn call_over(
    connection: &Client,
    to: &CallbackAddress,
    compound: Option<&CbCompound>,
) -> Result<Vec<u8>, CallbackError> {
    let request = Request {
        program: to.program,
        version: CB_VERSION,
        procedure: if compound.is_some() { CB_COMPOUND } else { 0 },
        // The Linux client takes no CB_COMPOUND with AUTH_NONE.
        credential: &Credential::Sys(AuthSys { machine_name: b"samehost".to_vec(), ..AuthSys::default() }),
        payload: Default::default(),
        trailer: Default::default(),
        receive: None,
    };
    let args = |encoder: &mut Encoder| {
        if let Some(compound) = compound {
            compound.encode(encoder);
        }
    };
    match connection.call(request, args).await {
        Ok(reply) => Ok(reply.results),
        Err(error) if error.is_timeout() => Err(CallbackError::Timeout),
        Err(_) => Err(CallbackError::Path),
    }
}

async fn connect(reply_timeout: Duration, address: SocketAddr) -> Option<Client> {
    let options = Options {
        policy: Policy::soft(reply_timeout),
        in_flight: MAX_BACK_SLOTS as usize,
        max_reply: 64 << 10,
        connect_timeout: reply_timeout,
        ..Options::default()
    };
    Client::connect(address, options).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proto::nfs4::{CB_RECALL_ANY, CbRecallAny4Args};
    use tokio::net::TcpListener;

    use super::*;

    const CLIENT: ClientId = ClientId(1);

    /// Sends `many` callbacks to the client; their errors.
    async fn calls(table: &Arc<PathTable>, many: usize) -> Vec<CallbackError> {
        let args = CbRecallAny4Args { objects_to_keep: 0, type_mask: proto::nfs4::Bitmap4::EMPTY };
        let operation = CallbackOperation::new(CB_RECALL_ANY, &args);
        let one = || {
            let (table, operation) = (Arc::clone(table), operation.clone());
            tokio::spawn(async move { call(&table, CLIENT, &operation).await.expect_err("nobody answers") })
        };
        let all: Vec<_> = (0..many).map(|_| one()).collect();
        let mut ended = Vec::new();
        for call in all {
            ended.push(call.await.expect("no panic"));
        }
        ended
    }

    #[test]
    fn concurrent_calls_to_an_address_share_a_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let table = Arc::new(PathTable::new(Duration::from_millis(100)));
            table.with(|paths| {
                paths.propose_address(CLIENT, 1, Some(CallbackAddress { address, program: 1, ident: 0 }))
            });
            assert!(table.with(|paths| paths.confirm_address(CLIENT, 1)));
            let accepted = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&accepted);
            let silent = tokio::spawn(async move {
                let mut open = Vec::new();
                while let Ok((stream, _)) = listener.accept().await {
                    counted.fetch_add(1, Ordering::AcqRel);
                    open.push(stream);
                }
            });
            for connections in 1..=2 {
                let ended = calls(&table, 50).await;
                assert!(ended.iter().all(|ended| *ended == CallbackError::Timeout), "{ended:?}");
                assert_eq!(accepted.load(Ordering::Acquire), connections);
            }
            silent.abort();
            let _ = silent.await;
            // Refused connections are shared, too.
            assert!(calls(&table, 50).await.iter().all(|ended| *ended == CallbackError::Path));
        });
    }
}
