//! The client against slow, forgetful and hostile servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpc::client::{Client, Error, Options, Policy, Receive, Reply, Request};
use rpc::message::{AuthStat, AuthSys, CallHeader, Credential, ReplyHeader, ReplyStatus};
use samehost_rpc as rpc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use xdr::{Decoder, Encoder};

const LAST: u32 = 1 << 31;

/// One call as the server sees it.
struct Seen {
    xid: u32,
    procedure: u32,
    args: Vec<u8>,
}

/// The server's end of a connection.
struct Wire(TcpStream);

impl Wire {
    async fn call(&mut self) -> io::Result<Seen> {
        let mark = self.0.read_u32().await?;
        let mut record = vec![0; (mark & !LAST) as usize];
        self.0.read_exact(&mut record).await?;
        let mut from = Decoder::new(&record);
        let header = CallHeader::decode(&mut from).map_err(io::Error::other)?;
        Ok(Seen { xid: header.xid, procedure: header.procedure, args: from.rest().to_vec() })
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Waits until the client closes the connection.
    async fn closed(&mut self) {
        let mut buffer = [0; 4096];
        while matches!(self.0.read(&mut buffer).await, Ok(1..)) {}
    }
}

/// A reply's record without its mark.
fn reply(xid: u32, status: ReplyStatus, results: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(&ReplyHeader { xid, status });
    to.raw(results);
    to.into_vec()
}

/// A record in one fragment.
fn record(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 | LAST).to_be_bytes()[..], body].concat()
}

fn success(xid: u32, results: &[u8]) -> Vec<u8> {
    record(&reply(xid, ReplyStatus::Success, results))
}

/// A server that runs `serve` for each connection, with the connection's number from 0.
async fn server<F, S>(serve: S) -> (SocketAddr, Arc<AtomicUsize>)
where
    S: Fn(usize, Wire) -> F + Send + Sync + 'static,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(count.fetch_add(1, SeqCst), Wire(stream)));
        }
    });
    (address, connections)
}

fn options(hard: bool, timeo: Duration) -> Options {
    Options { policy: Policy { hard, ..Policy::soft(timeo) }, ..Options::default() }
}

async fn soft(address: SocketAddr) -> Client {
    Client::connect(address, options(false, Duration::from_secs(30))).await.unwrap()
}

fn request(procedure: u32) -> Request<'static> {
    Request {
        program: 77,
        version: 1,
        procedure,
        credential: &Credential::None,
        payload: Bytes::new(),
        trailer: Bytes::new(),
        receive: None,
    }
}

async fn call(client: &Client, procedure: u32) -> Result<Reply, Error> {
    client.call(request(procedure), |to| to.u32(procedure)).await
}

/// Results with a payload: a word, the payload's length, the payload.
fn with_payload(payload: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    to.u32(4711);
    to.opaque(payload);
    to.into_vec()
}

fn split(results: &[u8]) -> Option<(usize, usize)> {
    let mut from = Decoder::new(results);
    from.u32().ok()?;
    Some((8, from.u32().ok()? as usize))
}

async fn fetch(client: &Client, limit: usize) -> Result<Reply, Error> {
    let receive = Some(Receive { into: Vec::new(), limit, split });
    client.call(Request { receive, ..request(0) }, |_| {}).await
}

#[tokio::test]
async fn replies_may_come_in_any_order_and_in_any_pieces() {
    let (address, _) = server(|_, mut wire| async move {
        let mut calls = Vec::new();
        for _ in 0..50 {
            calls.push(wire.call().await?);
        }
        let mut bytes = Vec::new();
        for seen in calls.iter().rev() {
            let results: Vec<u8> =
                seen.args.iter().copied().cycle().take(4 * seen.procedure as usize).collect();
            bytes.extend(success(seen.xid, &results));
        }
        for piece in bytes.chunks(7) {
            wire.send(piece).await?;
        }
        wire.closed().await;
        Ok(())
    })
    .await;
    let client = Arc::new(soft(address).await);
    let calls: Vec<_> = (0..50)
        .map(|procedure| {
            let client = client.clone();
            tokio::spawn(async move { call(&client, procedure).await })
        })
        .collect();
    for (procedure, call) in calls.into_iter().enumerate() {
        let reply = call.await.unwrap().unwrap();
        assert_eq!(reply.results, (procedure as u32).to_be_bytes().repeat(procedure));
    }
}

#[tokio::test]
async fn payloads_of_every_size_arrive_whole_however_they_are_sent() {
    for (fragment, chunk) in
        [(usize::MAX, usize::MAX), (usize::MAX, 1000), (usize::MAX, 33), (40_000, 4096), (100, 77)]
    {
        let (address, _) = server(move |_, mut wire| async move {
            loop {
                let seen = wire.call().await?;
                let len = Decoder::new(&seen.args).u32().unwrap_or(0) as usize;
                let payload: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                let body = reply(seen.xid, ReplyStatus::Success, &with_payload(&payload));
                let mut bytes = Vec::new();
                let mut fragments = body.chunks(fragment.min(body.len()).max(body.len() / 500)).peekable();
                while let Some(part) = fragments.next() {
                    let last = if fragments.peek().is_none() { LAST } else { 0 };
                    bytes.extend((part.len() as u32 | last).to_be_bytes());
                    bytes.extend(part);
                }
                for part in bytes.chunks(chunk.min(bytes.len())) {
                    wire.send(part).await?;
                }
            }
        })
        .await;
        let client = soft(address).await;
        let mut buffer = Vec::new();
        for len in [0, 1, 3, 4, 4096, 32_767, 32_768, 32_769, 65_536, 131_072, 300_001, 5] {
            let receive = Some(Receive { into: buffer, limit: len.max(40_000), split });
            let reply = client
                .call(Request { receive, ..request(0) }, |to| to.u32(len as u32))
                .await
                .unwrap_or_else(|error| panic!("{len} bytes: {error}"));
            assert_eq!(reply.results[..4], 4711_u32.to_be_bytes());
            assert_eq!(reply.results.len(), 8);
            assert!(
                reply.payload == (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>(),
                "{len} bytes"
            );
            buffer = reply.payload;
        }
    }
}

#[tokio::test]
async fn a_payload_is_sent_behind_the_arguments_with_its_padding() {
    let (address, _) = server(|_, mut wire| async move {
        loop {
            let seen = wire.call().await?;
            wire.send(&success(seen.xid, &seen.args)).await?;
        }
    })
    .await;
    let client = soft(address).await;
    for len in [0, 1, 2, 3, 4, 1000, 100_001] {
        let payload = Bytes::from(vec![7; len]);
        let reply = client.call(Request { payload, ..request(0) }, |to| to.u32(len as u32)).await.unwrap();
        assert_eq!(reply.results.len(), 4 + len.next_multiple_of(4));
        assert!(reply.results[4..][..len].iter().all(|byte| *byte == 7));
        assert!(reply.results[4 + len..].iter().all(|byte| *byte == 0));
    }
}

#[tokio::test]
async fn refusals_are_precise() {
    let statuses = [
        ReplyStatus::ProgUnavail,
        ReplyStatus::ProgMismatch { low: 2, high: 4 },
        ReplyStatus::ProcUnavail,
        ReplyStatus::GarbageArgs,
        ReplyStatus::SystemErr,
        ReplyStatus::RpcMismatch { low: 3, high: 3 },
        ReplyStatus::AuthError(AuthStat::TooWeak),
    ];
    let (address, connections) = server(move |_, mut wire| async move {
        loop {
            let seen = wire.call().await?;
            wire.send(&record(&reply(seen.xid, statuses[seen.procedure as usize], &[]))).await?;
        }
    })
    .await;
    let client = soft(address).await;
    let mut errors = Vec::new();
    for procedure in 0..statuses.len() as u32 {
        errors.push(call(&client, procedure).await.unwrap_err());
    }
    assert!(matches!(errors[0], Error::ProgramUnavailable { program: 77, .. }));
    assert!(matches!(errors[1], Error::ProgramMismatch { program: 77, version: 1, low: 2, high: 4, .. }));
    assert!(matches!(errors[2], Error::ProcedureUnavailable { procedure: 2, .. }));
    assert!(matches!(errors[3], Error::GarbageArguments { procedure: 3, .. }));
    assert!(matches!(errors[4], Error::System { .. }));
    assert!(matches!(errors[5], Error::RpcVersion { low: 3, high: 3, .. }));
    assert!(matches!(errors[6], Error::Auth { status: AuthStat::TooWeak, .. }));
    assert!(errors.iter().all(|error| error.to_string().contains(&address.to_string())));
    assert_eq!(connections.load(SeqCst), 1);
}

/// Whatever the first connections send instead of replies, the call is answered on a later one, the client
/// neither panics nor floods the server, and an invalid stream isn't read any further.
#[tokio::test]
async fn garbage_ends_the_connection_and_the_call_is_resent() {
    let garbage: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("text", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec()),
        ("a record of 2 GiB", [0xff; 4].to_vec()),
        ("fragments that never end", [0; 8192].to_vec()),
        ("a record of one byte", record(b"x")),
        ("a call instead of a reply", {
            let mut to = Encoder::new();
            CallHeader::encode(&mut to, 1, 2, 3, 4, &Credential::Sys(AuthSys::default()));
            record(&to.into_vec())
        }),
        ("a fragment above the bound", [&0x7fff_ffff_u32.to_be_bytes()[..], &[0; 1000]].concat()),
        ("half a reply", record(&[0; 400])[..200].to_vec()),
    ];
    for (what, bytes) in garbage {
        let (address, connections) = server(move |number, mut wire| {
            let bytes = bytes.clone();
            async move {
                let seen = wire.call().await?;
                if number < 3 {
                    wire.send(&bytes).await?;
                    // A client that continues to read gets the end of the stream.
                    wire.0.shutdown().await?;
                    wire.closed().await;
                    return Ok(());
                }
                wire.send(&success(seen.xid, &seen.args)).await?;
                wire.closed().await;
                Ok(())
            }
        })
        .await;
        let client = Client::connect(address, options(true, Duration::from_secs(30))).await.unwrap();
        let start = Instant::now();
        let reply = call(&client, 5).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(reply.results, 5_u32.to_be_bytes(), "{what}");
        assert_eq!(connections.load(SeqCst), 4, "{what}");
        assert!(start.elapsed() >= Duration::from_millis(20), "{what}: no pause between attempts");
        assert_eq!(client.stats().retransmits, 3, "{what}");
    }
}

#[tokio::test]
async fn an_invalid_reply_is_an_error_of_its_call_only() {
    let (address, connections) = server(|_, mut wire| async move {
        loop {
            let seen = wire.call().await?;
            let xid = seen.xid.to_be_bytes();
            let body = match seen.procedure {
                0 => [&xid[..], &[0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0]].concat(), // no such reply_stat
                1 => [&xid[..], &[0; 12]].concat(),                              // a call
                2 => [&xid[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]].concat(),
                3 => reply(seen.xid, ReplyStatus::Success, &[0, 0, 0, 0, 0, 0, 0x10, 0]), // payload missing
                4 => reply(seen.xid, ReplyStatus::Success, &with_payload(&[0; 5000])),    // payload too long
                5 => reply(seen.xid, ReplyStatus::Success, &with_payload(&[0; 200_000])),
                6 => reply(
                    seen.xid,
                    ReplyStatus::Success,
                    &[&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[0; 70_000]].concat(),
                ),
                _ => reply(seen.xid, ReplyStatus::Success, &[]),
            };
            wire.send(&record(&body)).await?;
        }
    })
    .await;
    let client = soft(address).await;
    for procedure in 0..7 {
        let limit = if procedure < 6 { 4096 } else { 1 << 20 };
        let receive = Some(Receive { into: Vec::new(), limit, split });
        let result = client.call(Request { receive, ..request(procedure) }, |_| {}).await;
        let error = result.map(|reply| reply.results.len()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{procedure}: {error}");
    }
    // The stream is still valid.
    call(&client, 7).await.unwrap();
    assert_eq!(connections.load(SeqCst), 1);
}

#[tokio::test]
async fn replies_without_a_call_are_skipped() {
    let (address, connections) = server(|_, mut wire| async move {
        loop {
            let seen = wire.call().await?;
            for other in [1, 2, 1000, 0x8000_0000] {
                let xid = seen.xid.wrapping_add(other);
                wire.send(&success(xid, &with_payload(&vec![0; 100_000]))).await?;
                wire.send(&success(xid, b"late")).await?;
            }
            wire.send(&success(seen.xid, b"true")).await?;
            wire.send(&success(seen.xid, b"twin")).await?;
        }
    })
    .await;
    let client = soft(address).await;
    for _ in 0..20 {
        assert_eq!(call(&client, 0).await.unwrap().results, b"true");
    }
    assert_eq!(connections.load(SeqCst), 1);
}

#[tokio::test]
async fn a_soft_call_to_a_server_that_never_answers_ends_in_time() {
    let (address, _) = server(|_, mut wire| async move {
        wire.closed().await;
        Ok(())
    })
    .await;
    let mut options = options(false, Duration::from_millis(100));
    options.policy.retrans = 2;
    let client = Client::connect(address, options).await.unwrap();
    let start = Instant::now();
    let error = call(&client, 0).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

/// A program whose results are the arguments. It counts the lost connections.
#[derive(Debug, Default)]
struct Echo {
    lost: AtomicUsize,
}

impl rpc::client::CallbackProgram for Echo {
    fn call(&self, header: &CallHeader<'_>, args: &mut Decoder<'_>, results: &mut Encoder) -> ReplyStatus {
        if header.program != 99 {
            return ReplyStatus::ProgUnavail;
        }
        results.raw(args.rest());
        ReplyStatus::Success
    }

    fn disconnected(&self) {
        self.lost.fetch_add(1, SeqCst);
    }
}

fn callback(xid: u32, program: u32) -> Vec<u8> {
    let mut to = Encoder::new();
    CallHeader::encode(&mut to, xid, program, 1, 1, &Credential::None);
    to.u32(xid);
    record(&to.into_vec())
}

#[tokio::test]
async fn the_server_calls_the_client_on_its_connection() {
    let (address, _) = server(|_, mut wire| async move {
        let seen = wire.call().await?;
        wire.send(&[callback(1, 99), callback(2, 98), callback(3, 99)].concat()).await?;
        let results = [success(1, &1_u32.to_be_bytes()), record(&reply(2, ReplyStatus::ProgUnavail, b""))];
        let expected = [&results.concat()[..], &success(3, &3_u32.to_be_bytes())].concat();
        let mut replies = vec![0; expected.len()];
        wire.0.read_exact(&mut replies).await?;
        let text: &[u8] = if replies == expected { b"good" } else { b"bad!" };
        wire.send(&success(seen.xid, text)).await?;
        wire.closed().await;
        Ok(())
    })
    .await;
    let program = Arc::<Echo>::default();
    let options = Options { callbacks: Some(program.clone()), ..options(false, Duration::from_secs(30)) };
    let client = Client::connect(address, options).await.unwrap();
    assert_eq!(call(&client, 0).await.unwrap().results, b"good");
    assert_eq!((client.stats().reconnects, program.lost.load(SeqCst)), (0, 0));
}

#[tokio::test]
async fn calls_of_a_server_that_reads_no_replies_end_the_connection() {
    let (address, connections) = server(|number, mut wire| async move {
        let seen = wire.call().await?;
        if number == 0 {
            // More than the sockets' buffers take of replies.
            let calls: Vec<u8> = (0..4096_u32).flat_map(|xid| callback(xid, 99)).collect();
            loop {
                wire.send(&calls).await?;
            }
        }
        wire.send(&success(seen.xid, b"done")).await?;
        wire.closed().await;
        Ok(())
    })
    .await;
    let program = Arc::<Echo>::default();
    let options = Options { callbacks: Some(program.clone()), ..options(false, Duration::from_secs(60)) };
    let client = Client::connect(address, options).await.unwrap();
    assert_eq!(call(&client, 0).await.unwrap().results, b"done");
    assert_eq!((connections.load(SeqCst), program.lost.load(SeqCst)), (2, 1));
}

/// A hard client gives up a connection without progress, and resends the same call, under the same id, on the
/// next one.
#[tokio::test]
async fn a_hard_call_reconnects_and_keeps_its_number() {
    let (seen, mut xids) = tokio::sync::mpsc::unbounded_channel();
    let (address, _) = server(move |number, mut wire| {
        let seen = seen.clone();
        async move {
            let call = wire.call().await?;
            let _ = seen.send((call.xid, call.args.clone()));
            if number >= 2 {
                wire.send(&success(call.xid, b"done")).await?;
            }
            wire.closed().await;
            Ok(())
        }
    })
    .await;
    let client = Client::connect(address, options(true, Duration::from_millis(80))).await.unwrap();
    let (payload, trailer) = (Bytes::from_static(b"payload"), Bytes::from_static(b"behind"));
    let reply = client.call(Request { payload, trailer, ..request(9) }, |to| to.u32(9)).await.unwrap();
    assert_eq!(reply.results, b"done");
    let first = xids.recv().await.unwrap();
    assert_eq!(first.1, [&9_u32.to_be_bytes()[..], b"payload\0behind"].concat());
    assert_eq!(xids.recv().await.unwrap(), first);
    assert_eq!(xids.recv().await.unwrap(), first);
    // On a busy machine the reply comes too late perhaps.
    assert!(client.stats().reconnects >= 2);
}

/// A connection that breaks within a payload that is received in place: the buffer goes back to the call and
/// is filled from the beginning.
#[tokio::test]
async fn a_truncated_payload_is_received_again() {
    let payload: Vec<u8> = (0..500_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
    let expected = payload.clone();
    let (address, _) = server(move |number, mut wire| {
        let payload = payload.clone();
        async move {
            let seen = wire.call().await?;
            let bytes = success(seen.xid, &with_payload(&payload));
            let end = if number < 2 { 300_000 } else { bytes.len() };
            wire.send(&bytes[..end]).await?;
            if number == 2 {
                wire.closed().await;
            }
            Ok(())
        }
    })
    .await;
    let client = Client::connect(address, options(true, Duration::from_secs(30))).await.unwrap();
    let reply = fetch(&client, 1 << 20).await.unwrap();
    assert!(reply.payload == expected);
}

#[tokio::test]
async fn dropped_calls_free_their_slots() {
    let (address, _) = server(|_, mut wire| async move {
        loop {
            let seen = wire.call().await?;
            if seen.procedure != 0 {
                wire.send(&success(seen.xid, &[])).await?;
            } else {
                // Answered late, behind the next call.
                let next = wire.call().await?;
                wire.send(&success(next.xid, &[])).await?;
                wire.send(&success(seen.xid, &[0; 64])).await?;
            }
        }
    })
    .await;
    let options = Options { in_flight: 2, ..options(false, Duration::from_secs(30)) };
    let client = Client::connect(address, options).await.unwrap();
    for _ in 0..50 {
        let forgotten = tokio::time::timeout(Duration::from_millis(1), call(&client, 0)).await;
        assert!(forgotten.is_err());
        call(&client, 1).await.unwrap();
    }
}

#[tokio::test]
async fn dropping_the_client_ends_the_calls() {
    let (address, _) = server(|_, mut wire| async move {
        wire.closed().await;
        Ok(())
    })
    .await;
    let refused = Client::connect("127.0.0.1:1".parse().unwrap(), Options::default()).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    let client = Client::connect(address, options(true, Duration::from_secs(30))).await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.reconnects, stats.retransmits), (0, 0));
    drop(client);
}

#[tokio::test]
async fn calls_take_turns_on_several_connections() {
    let (address, connections) = server(|_, mut wire| async move {
        loop {
            let seen = wire.call().await?;
            wire.send(&success(seen.xid, &seen.args)).await?;
        }
    })
    .await;
    let options = Options { connections: 4, ..options(true, Duration::from_secs(30)) };
    let client = Client::connect(address, options).await.unwrap();
    for procedure in 0..40 {
        assert_eq!(call(&client, procedure).await.unwrap().results, procedure.to_be_bytes());
    }
    assert_eq!(connections.load(SeqCst), 4);
    assert_eq!(client.stats().reconnects, 0);
}
