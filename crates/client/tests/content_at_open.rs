//! Small files that the request which opens them also reads (NFSv4): the calls that this saves, and what
//! servers may answer.

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use parking_lot::Mutex;
use proto::nfs4::{ChannelAttrs4, CreateSession4Args, Nfsstat4, Operation as Op, Read4Args, Read4ResOk};
use samehost_client as client;
use xdr::{Decoder, Opaque};

use client::{File, OpenOptions, Operation, Session, Version};
use support::Served;
use support::odd_v4::{OddServer, ScriptedAnswer, attributes_of, created, encoded, opened};

fn reading(len: u32) -> OpenOptions {
    OpenOptions::reading().content(len)
}

/// OPEN and READ calls, and reads of data over the wire.
fn calls(session: &Session) -> [u64; 3] {
    let counters = session.counters();
    [counters.calls(Operation::Open), counters.calls(Operation::Read), counters.wire.reads]
}

async fn opened_file(session: &Session, len: u32) -> File {
    session.open(b"file", &reading(len)).await.unwrap()
}

#[tokio::test]
async fn the_content_comes_with_the_open() {
    let served = Served::wire_only();
    let path = served.export().join("file");
    fs::write(&path, b"a small file").unwrap();
    for version in [Version::V3, Version::V4_1, Version::V4_2] {
        let session = served.wire_by(version).await;
        let is_v4 = version != Version::V3;
        let handle = session.lookup(&session.root(), b"file").await.unwrap().handle;
        let before = calls(&session);
        for by_name in [true, false] {
            let file = match by_name {
                true => opened_file(&session, 12).await,
                false => session.open_handle(&handle, b"file", &reading(12)).await.unwrap(),
            };
            let content = file.take_content();
            assert_eq!(content.as_deref(), is_v4.then_some(&b"a small file"[..]), "{version:?}");
            assert_eq!(file.take_content(), None);
        }
        let after = calls(&session);
        let expected = if is_v4 { [2, 0, 2] } else { [0, 0, 0] };
        assert_eq!(std::array::from_fn(|one| after[one] - before[one]), expected, "{version:?}");
        // A file that has become longer isn't read whole; nor is one that is written, or one that isn't
        // small enough for a reply that the server keeps.
        assert_eq!(opened_file(&session, 11).await.take_content(), None);
        assert_eq!(opened_file(&session, 1 << 20).await.take_content(), None);
        let writing = session.open(b"file", &reading(12).write(true)).await.unwrap();
        assert_eq!(writing.take_content(), None);
        // One that has become shorter is.
        let content = opened_file(&session, 100).await.take_content();
        assert_eq!(content.as_deref(), is_v4.then_some(&b"a small file"[..]), "{version:?}");
    }
}

/// A reply of the largest size that the server keeps.
#[tokio::test]
async fn content_fills_the_reply() {
    let served = Served::wire_only();
    let session = served.wire_by(Version::V4_2).await;
    let mut largest = 0;
    for len in (0..10_000).step_by(500) {
        let data = support::pattern(1, len);
        fs::write(served.export().join("file"), &data).unwrap();
        let file = opened_file(&session, len as u32).await;
        match file.take_content() {
            Some(content) => {
                assert_eq!(content, data);
                largest = len;
            }
            None => assert_eq!(file.read_into(Vec::new(), 0, len).await.unwrap(), data),
        }
    }
    assert!(largest >= 7000, "{largest}");
}

/// What a server answers to the READ of an OPEN's request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Data(&'static [u8], bool),
    Refused(Nfsstat4),
}

/// What a server was asked for.
type Log<T> = Arc<Mutex<Vec<T>>>;

/// A server that keeps replies of `kept` bytes. Returns the READs that OPENs have brought along, and the
/// state ids of the CLOSEs that were executed.
fn server_with(kept: u32, answer: Answer) -> (OddServer, Log<Read4Args>, Log<u8>) {
    let (reads, closes) = <(Log<Read4Args>, Log<u8>)>::default();
    let (log, closed, opens) = (reads.clone(), closes.clone(), AtomicU8::new(0));
    let server = OddServer::new(move |request| match request.operation {
        Op::CreateSession => {
            let args: CreateSession4Args<'_> = Decoder::new(request.args).get().unwrap();
            let channel = ChannelAttrs4 { maxresponsesize_cached: kept, ..args.fore_chan_attrs.clone() };
            ScriptedAnswer::Ok(encoded(&created(&args, 1, channel)))
        }
        Op::Open => ScriptedAnswer::Ok(opened([opens.fetch_add(1, SeqCst) + 1; 16], None)),
        Op::Getfh if request.compound.contains(&Op::Open) => {
            let handle = vec![b'h'; opens.load(SeqCst).into()];
            ScriptedAnswer::Ok(encoded(&Opaque::<128>(&handle)))
        }
        Op::Getattr if request.compound.contains(&Op::Open) => {
            let requested = Decoder::new(request.args).get().unwrap();
            ScriptedAnswer::Ok(attributes_of(&requested, 1))
        }
        Op::Close => {
            closed.lock().push(request.args[4]);
            ScriptedAnswer::Ok(request.args[4..].to_vec())
        }
        Op::Read => {
            log.lock().push(Decoder::new(request.args).get().unwrap());
            match answer {
                Answer::Data(data, eof) => {
                    ScriptedAnswer::Ok(encoded(&Read4ResOk { eof, data: Opaque(data) }))
                }
                Answer::Refused(status) => ScriptedAnswer::Status(status),
            }
        }
        _ => ScriptedAnswer::Good,
    });
    (server, reads, closes)
}

/// Whatever a server answers to the READ, the file is open and is closed at the end, and so are those whose
/// CLOSEs were behind the READ.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn servers_may_answer_anything_to_the_read() {
    const LARGE: u32 = 4 << 10;
    let cases = [
        (LARGE, Answer::Data(b"content", true), Some(&b"content"[..]), 1),
        (LARGE, Answer::Data(b"", true), Some(b""), 1),
        (LARGE, Answer::Data(b"content", false), None, 1),
        (LARGE, Answer::Data(&[1; 100], true), None, 1),
        (LARGE, Answer::Refused(Nfsstat4::Delay), None, 1),
        (LARGE, Answer::Refused(Nfsstat4::Access), None, 1),
        (LARGE, Answer::Refused(Nfsstat4::RepTooBigToCache), None, 1),
        (1000, Answer::Data(b"content", true), None, 0),
    ];
    for (kept, answer, expected, asked) in cases {
        let (server, reads, closes) = server_with(kept, answer);
        let session = server.session().await;
        for name in ["first", "second"] {
            drop(session.open(name.as_bytes(), &OpenOptions::reading()).await.unwrap());
        }
        let file = opened_file(&session, 7).await;
        assert_eq!(file.take_content().as_deref(), expected, "{answer:?}");
        let sent = reads.lock().clone();
        assert_eq!(sent.len(), asked, "{answer:?}");
        // The state id is that of the OPEN before.
        let is_current = |read: &Read4Args| read.stateid.seqid == 1 && read.stateid.other == [0; 12];
        assert!(sent.iter().all(|read| is_current(read) && (read.offset, read.count) == (0, 7)));
        drop(file);
        session.close().await;
        let mut closed = closes.lock().clone();
        closed.sort_unstable();
        assert_eq!(closed, [1, 2, 3], "{answer:?}");
    }
}
