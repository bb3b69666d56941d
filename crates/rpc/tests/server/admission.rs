//! Admission: peers that aren't admitted are refused almost everything, and are checked again when the rules
//! change.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use samehost_rpc::{
    message::{AuthStat, CallHeader, Credential, ReplyStatus},
    server::{Admission, CallContext, CallError, Limits, Peer, Program, Reply, Server, Verdict},
};
use xdr::{Decoder, Encoder};

use crate::rig::{ECHO, LATER, Obedient, Wire, call, eventually, fragment, marked, opaque, word};

/// A program that answers all peers: its one procedure returns its argument's length.
const DOOR: u32 = 400_997;

struct Door;

impl Program for Door {
    fn number(&self) -> u32 {
        DOOR
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        1..=1
    }

    fn answers_strangers(&self) -> bool {
        true
    }

    fn call(
        &self,
        _: &CallContext<'_>,
        _: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        let length = args.opaque(1 << 20)?.len();
        reply.encoder().length(length);
        Ok(())
    }
}

/// Rules that a test changes.
struct Rules {
    generation: AtomicU64,
    verdict: Mutex<Verdict>,
}

impl Rules {
    fn change(&self, verdict: Verdict) {
        *self.verdict.lock().unwrap() = verdict;
        self.generation.fetch_add(1, Ordering::SeqCst);
    }
}

impl Admission for Rules {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn verdict(&self, _: &Peer) -> Verdict {
        *self.verdict.lock().unwrap()
    }
}

fn serve(verdict: Verdict) -> (Server, Arc<Rules>, SocketAddr) {
    let rules = Arc::new(Rules { generation: AtomicU64::new(0), verdict: Mutex::new(verdict) });
    let server = Server::builder()
        .program(Arc::new(Obedient::default()))
        .program(Arc::new(Door))
        .admission(Arc::clone(&rules) as Arc<dyn Admission>)
        .limits(Limits::default())
        .bind("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    let address = server.local_addrs()[0];
    (server, rules, address)
}

/// A call of [`DOOR`].
fn knock(xid: u32, args: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    CallHeader::encode(&mut to, xid, DOOR, 1, 1, &Credential::None);
    to.raw(args);
    marked(&to.into_vec())
}

const DENIED: ReplyStatus = ReplyStatus::AuthError(AuthStat::BadCred);

#[test]
fn a_stranger_can_call_null_and_programs_for_all_peers() {
    let (server, _rules, address) = serve(Verdict::Stranger);
    let mut wire = Wire::to(address);
    wire.send(&[call(1, 0, &[]), call(2, ECHO, &opaque(b"x")), knock(3, &opaque(b"four"))].concat());
    let success = ReplyStatus::Success;
    assert_eq!(wire.replies(3), [(1, success, vec![]), (2, DENIED, vec![]), (3, success, word(4))]);
    // Errors of the protocol itself come before.
    wire.send(
        &call(4, 0, &[]).iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 19)).collect::<Vec<_>>(),
    );
    assert!(matches!(wire.reply().1, ReplyStatus::ProgUnavail));
    assert!(!server.connections()[0].admitted);
    assert_eq!(server.totals().denied, 1);
}

#[test]
fn a_strangers_long_call_is_denied_and_takes_no_memory() {
    let (server, _rules, address) = serve(Verdict::Stranger);
    let mut wire = Wire::to(address);
    let long = opaque(&vec![7; 1 << 20]);
    wire.send(&[call(1, ECHO, &long), knock(2, &long), call(3, 0, &[])].concat());
    // A program for all peers refuses a call that long, and the call behind it is found.
    let expected =
        [(1, DENIED, vec![]), (2, ReplyStatus::GarbageArgs, vec![]), (3, ReplyStatus::Success, vec![])];
    assert_eq!(wire.replies(3), expected);
    assert_eq!(server.totals().receive_memory_peak, 0);
    // A stranger's call in fragments isn't assembled.
    wire.send(&fragment(&[0; 8], false));
    wire.assert_closed();
}

#[test]
fn a_changed_verdict_takes_effect_at_the_next_call() {
    let (server, rules, address) = serve(Verdict::Stranger);
    let mut wire = Wire::to(address);
    let long = opaque(&vec![7; 300_000]);
    for (verdict, status) in [
        (Verdict::Admitted, ReplyStatus::Success),
        (Verdict::Stranger, DENIED),
        (Verdict::Admitted, ReplyStatus::Success),
    ] {
        rules.change(verdict);
        for args in [&opaque(b"short"), &long] {
            wire.send(&call(1, ECHO, args));
            let (_, found, results) = wire.reply();
            assert_eq!(found, status);
            assert!(status != ReplyStatus::Success || results == *args);
        }
    }
    // A call that was partly received before the rules changed is denied once it is complete.
    let bytes = call(2, ECHO, &long);
    wire.send(&bytes[..100_000]);
    eventually("the long call has begun", || server.totals().receive_memory > 0);
    rules.change(Verdict::Stranger);
    wire.send(&bytes[100_000..]);
    assert_eq!(wire.reply(), (2, DENIED, vec![]));
    assert_eq!(server.totals().receive_memory, 0);
}

#[test]
fn an_undecided_peer_gets_the_programs_own_try_again_later() {
    let (server, rules, address) = serve(Verdict::NotKnownYet);
    let mut wire = Wire::to(address);
    wire.send(&[call(1, ECHO, &opaque(b"x")), call(2, ECHO, &opaque(&[7; 100_000]))].concat());
    let later = |xid| (xid, ReplyStatus::Success, word(LATER));
    assert_eq!(wire.replies(2), [later(1), later(2)]);
    assert_eq!(server.totals().receive_memory_peak, 0);
    // Without a change of the rules: the verdict was undecided.
    *rules.verdict.lock().unwrap() = Verdict::Admitted;
    wire.send(&call(3, ECHO, &opaque(b"x")));
    assert_eq!(wire.results(), (3, opaque(b"x")));
}
