//! One callback: over a session's back channel, or to the address of a client of 4.0.

use std::net::SocketAddr;
use std::time::Duration;

use proto::nfs4::{CB_COMPOUND, CB_VERSION, MinorVersion, Nfsstat4};
use rpc::client::{Client, Options, Policy, Request};
use rpc::message::{AuthSys, Credential};
use rpc::server::BackError;
use state::ClientId;
use xdr::{Encode as _, Encoder};

use super::message::{Compound, outcome, sequence};
use super::paths::{Address, Line, NoWay, Taken, Way};
use super::{Failure, MOST_SLOTS, Operation, Table};

/// How often a slot that isn't where we think it is is tried further on.
const STEPS: u32 = 3;
/// How long it is waited before a busy client is looked at again.
const BUSY: Duration = Duration::from_millis(20);
/// How often.
const BUSY_LOOKS: u32 = 250;

/// Calls a client.
pub(super) async fn call(ways: &Table, client: ClientId, operation: &Operation) -> Result<Vec<u8>, Failure> {
    let (mut steps, mut looks) = (0, 0);
    loop {
        let way = ways.with(|paths| paths.take(client));
        match way {
            Err(NoWay::Down) => return Err(Failure::Path),
            Err(NoWay::Busy) if looks >= BUSY_LOOKS => return Err(Failure::Busy),
            Err(NoWay::Busy) => {
                looks += 1;
                tokio::time::sleep(BUSY).await;
            }
            Ok(Way::Address(to, line)) => {
                let compound = Compound::new(MinorVersion::V0, to.ident, None, operation);
                let results = at_address(ways, client, &to, &line, Some(&compound)).await?;
                return outcome(&results, false).unwrap_or(Err(Failure::Garbage));
            }
            Ok(Way::Session(taken)) => match through(ways, client, &taken, operation).await {
                Next::Done(done) => return done,
                Next::OtherWay => {}
                Next::Further if steps < STEPS => steps += 1,
                Next::Further => {
                    ways.with(|paths| paths.lose(client, taken.session));
                    steps = 0;
                }
            },
        }
    }
}

/// What follows a call through a session.
enum Next {
    Done(Result<Vec<u8>, Failure>),
    /// The connection has gone: perhaps there is another.
    OtherWay,
    /// The slot wasn't where we thought.
    Further,
}

async fn through(ways: &Table, client: ClientId, taken: &Taken, operation: &Operation) -> Next {
    let sequence = sequence(taken.session.0, taken.slot, taken.sequence, taken.highest);
    let compound = Compound::new(taken.minor, 0, Some(sequence), operation);
    let Taken { channel, program, .. } = taken;
    let made = channel.call(program.number, CB_VERSION, CB_COMPOUND, &program.credential, &compound);
    let results = match made {
        Ok(answer) => answer.results(ways.patience).await,
        Err(error) => Err(error),
    };
    let (next, used) = match results {
        Ok(results) => match outcome(&results, true) {
            Ok(done) => (Next::Done(done), true),
            Err(Nfsstat4::SeqMisordered | Nfsstat4::SeqFalseRetry | Nfsstat4::RetryUncachedRep) => {
                (Next::Further, true)
            }
            Err(Nfsstat4::Badsession | Nfsstat4::Badslot | Nfsstat4::ConnNotBoundToSession) => {
                (Next::OtherWay, false)
            }
            Err(other) => (Next::Done(Err(Failure::Refused(other))), false),
        },
        Err(BackError::Busy) => (Next::Done(Err(Failure::Busy)), false),
        Err(BackError::Malformed) => (Next::Done(Err(Failure::Garbage)), false),
        Err(BackError::Gone) => (Next::OtherWay, false),
        Err(BackError::Silent) => (Next::Done(Err(Failure::Silent)), false),
        Err(BackError::Refused(_)) => (Next::Done(Err(Failure::Path)), false),
    };
    // Who doesn't answer is told, with his next SEQUENCE, that he can't be called this way.
    let is_way = !matches!(next, Next::OtherWay | Next::Done(Err(Failure::Silent | Failure::Path)));
    ways.with(|paths| {
        paths.give_back(client, taken, used);
        if !is_way {
            paths.unbind(client, taken.session, channel.connection());
        }
    });
    next
}

/// Finds out whether a client's address answers.
pub(super) async fn probe(ways: &Table, client: ClientId) {
    let way = ways.with(|paths| paths.take(client));
    match way {
        Ok(Way::Address(to, line)) => {
            let answer = at_address(ways, client, &to, &line, None).await;
            tracing::debug!(address = %to.address, up = answer.is_ok(), "callbacks to an NFSv4.0 client");
        }
        Ok(Way::Session(taken)) => ways.with(|paths| paths.give_back(client, &taken, false)),
        Err(_) => {}
    }
}

/// CB_COMPOUND, or CB_NULL, at an address; keeps the connection.
async fn at_address(
    ways: &Table,
    client: ClientId,
    to: &Address,
    line: &Line,
    compound: Option<&Compound>,
) -> Result<Vec<u8>, Failure> {
    let connection = line.get_or_init(|| connect(ways.patience, to.address)).await;
    let answer = match connection {
        Some(connection) => attempt(connection, to, compound).await,
        None => Err(Failure::Path),
    };
    ways.with(|paths| paths.answered(client, line, answer.is_ok()));
    answer
}

async fn attempt(connection: &Client, to: &Address, compound: Option<&Compound>) -> Result<Vec<u8>, Failure> {
    let request = Request {
        program: to.program,
        version: CB_VERSION,
        procedure: if compound.is_some() { CB_COMPOUND } else { 0 },
        // The Linux client takes no CB_COMPOUND with AUTH_NONE.
        credential: &Credential::Sys(AuthSys { machine_name: b"samehost".to_vec(), ..AuthSys::default() }),
        payload: Default::default(),
        receive: None,
    };
    let args = |encoder: &mut Encoder| {
        if let Some(compound) = compound {
            compound.encode(encoder);
        }
    };
    match connection.call(request, args).await {
        Ok(reply) => Ok(reply.results),
        Err(error) if error.is_timeout() => Err(Failure::Silent),
        Err(_) => Err(Failure::Path),
    }
}

async fn connect(patience: Duration, address: SocketAddr) -> Option<Client> {
    let options = Options {
        policy: Policy { timeo: patience, retrans: 0, hard: false },
        in_flight: MOST_SLOTS as usize,
        max_reply: 64 << 10,
        connect_timeout: patience,
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

    /// Many callbacks to a client of 4.0 at `address`; what came of them.
    async fn calls(ways: &Arc<Table>, many: usize) -> Vec<Failure> {
        let args = CbRecallAny4Args { objects_to_keep: 0, type_mask: proto::nfs4::Bitmap4::EMPTY };
        let operation = Operation::new(CB_RECALL_ANY, &args);
        let one = || {
            let (ways, operation) = (Arc::clone(ways), operation.clone());
            tokio::spawn(async move { call(&ways, CLIENT, &operation).await.expect_err("nobody answers") })
        };
        let all: Vec<_> = (0..many).map(|_| one()).collect();
        let mut ended = Vec::new();
        for call in all {
            ended.push(call.await.expect("no panic"));
        }
        ended
    }

    #[test]
    fn many_calls_to_an_address_make_one_connection_and_then_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let (paths, in_trouble) = Default::default();
            let ways = Arc::new(Table { paths, patience: Duration::from_millis(100), in_trouble });
            ways.with(|paths| paths.propose(CLIENT, 1, Some(Address { address, program: 1, ident: 0 })));
            assert!(ways.with(|paths| paths.confirm(CLIENT, 1)));
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
                let ended = calls(&ways, 50).await;
                assert!(ended.iter().all(|ended| *ended == Failure::Silent), "{ended:?}");
                assert_eq!(accepted.load(Ordering::Acquire), connections);
            }
            silent.abort();
            let _ = silent.await;
            // Nobody listens any more: that, too, is found out once.
            assert!(calls(&ways, 50).await.iter().all(|ended| *ended == Failure::Path));
        });
    }
}
