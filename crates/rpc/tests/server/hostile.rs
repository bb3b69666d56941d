//! Invalid input: each kind gets the protocol's own error or a closed connection, and affects no other
//! connection.

use samehost_rpc::{
    message::{AuthStat, AuthSys, Credential, ReplyStatus},
    server::Limits,
};

use crate::rig::{
    DISCONNECT, DROP, ECHO, PANIC, PROGRAM, WHO, Wire, bare, bare_as, call, eventually, fragment, marked,
    opaque, serve, word,
};

/// A call's header in words, AUTH_NONE twice.
fn header(words: [u32; 6]) -> Vec<u8> {
    let tail = [0, 0, 0, 0];
    words.iter().chain(&tail).flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn wrong_calls_get_the_protocols_own_error() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    let mut ask = |record: &[u8]| {
        wire.send(&marked(record));
        let (xid, status, results) = wire.reply();
        assert_eq!(xid, 5);
        assert!(results.is_empty() || status == ReplyStatus::Success);
        status
    };
    assert_eq!(ask(&header([5, 0, 2, PROGRAM, 3, 0])), ReplyStatus::Success, "NULL");
    assert_eq!(ask(&header([5, 0, 2, PROGRAM + 1, 3, 0])), ReplyStatus::ProgUnavail);
    for version in [1, 4, u32::MAX] {
        let status = ReplyStatus::ProgMismatch { low: 2, high: 3 };
        assert_eq!(ask(&header([5, 0, 2, PROGRAM, version, 0])), status);
    }
    for procedure in [99, u32::MAX] {
        assert_eq!(ask(&header([5, 0, 2, PROGRAM, 3, procedure])), ReplyStatus::ProcUnavail);
    }
    for version in [0, 1, 3, u32::MAX] {
        let status = ReplyStatus::RpcMismatch { low: 2, high: 2 };
        assert_eq!(ask(&header([5, 0, version, PROGRAM, 3, 0])), status);
    }
    assert_eq!(ask(&bare(5, ECHO, &[])), ReplyStatus::GarbageArgs, "no arguments");
    assert_eq!(ask(&bare(5, ECHO, &word(u32::MAX))), ReplyStatus::GarbageArgs, "a length that lies");
    assert_eq!(ask(&bare(5, PANIC, &[])), ReplyStatus::SystemErr);
    assert_eq!(ask(&bare(5, WHO, &[])), ReplyStatus::AuthError(AuthStat::TooWeak), "as the program says");
    assert_eq!(ask(&bare(5, ECHO, &opaque(b"still there"))), ReplyStatus::Success);
}

#[test]
fn credentials() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    for uid in [0, 1000, u32::MAX] {
        let sys = AuthSys { uid, machine_name: b"m".to_vec(), gids: vec![1; 16], ..AuthSys::default() };
        wire.send(&marked(&bare_as(uid, WHO, &Credential::Sys(sys), &[])));
        assert_eq!(wire.results(), (uid, word(uid)));
    }
    let mut refused = |flavor: u32, body: &[u8], verifier: u32| {
        let mut record: Vec<u8> =
            [9, 0, 2, PROGRAM, 3, WHO, flavor].iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
        record.extend(opaque(body));
        record.extend(word(verifier));
        record.extend(word(0));
        wire.send(&marked(&record));
        let (_, status, _) = wire.reply();
        status
    };
    let bad = ReplyStatus::AuthError(AuthStat::BadCred);
    assert_eq!(refused(6, &[0; 20], 0), bad, "RPCSEC_GSS");
    assert_eq!(refused(7, &[], 0), bad, "TLS");
    assert_eq!(refused(0xdead_beef, &[0; 400], 0), bad, "nobody's flavour");
    assert_eq!(refused(1, &[0; 12], 0), bad, "AUTH_SYS, truncated");
    assert_eq!(refused(1, &[0; 24], 0), bad, "AUTH_SYS and something behind it");
    assert_eq!(refused(1, &[0xff; 400], 0), bad, "AUTH_SYS with a name of 4 GiB");
    assert_eq!(refused(0, &[], 1), ReplyStatus::AuthError(AuthStat::BadVerf), "a verifier");
}

#[test]
fn a_record_that_is_no_call_closes_the_connection() {
    let (server, program, address) = serve(Limits::default());
    let reply = header([5, 1, 0, 0, 0, 0]);
    let overlong: Vec<u8> =
        [5, 0, 2, PROGRAM, 3, 0, 1, 404].iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
    let overlong = [overlong, vec![0; 500]].concat();
    let mut bad = vec![
        marked(&reply),
        marked(&header([5, 2, 2, PROGRAM, 3, 0])),
        marked(&overlong),
        marked(&[]),
        vec![0xff; 4],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        ((Limits::default().max_record as u32 + 1) | 0x8000_0000).to_be_bytes().to_vec(),
        fragment(&[], false).repeat(1000),
        [fragment(&vec![0; 900_000], false), fragment(&vec![0; 900_000], false)].concat(),
    ];
    let whole = header([5, 0, 2, PROGRAM, 3, 0]);
    bad.extend((0..whole.len()).step_by(4).map(|cut| marked(&whole[..cut])));
    let count = bad.len();
    let mut good = Wire::to(address);
    for bytes in bad {
        let mut wire = Wire::to(address);
        // The server may have closed before everything is sent.
        let _ = std::io::Write::write_all(&mut wire.0, &bytes);
        wire.assert_closed();
    }
    program.wait_for_closed(count);
    good.send(&call(1, ECHO, &opaque(b"unhurt")));
    assert_eq!(good.results(), (1, opaque(b"unhurt")));
    assert_eq!(server.totals().broken, count as u64);
    assert_eq!(server.totals().receive_memory, 0);
}

#[test]
fn calls_before_a_broken_mark_are_answered() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    wire.send(&[call(1, 0, &[]), vec![0xff; 8]].concat());
    assert_eq!(wire.results(), (1, vec![]));
    wire.assert_closed();
}

#[test]
fn a_dropped_call_is_not_answered_and_others_are() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    wire.send(&[call(1, DROP, &[]), call(2, ECHO, &opaque(b"x")), call(3, DROP, &[])].concat());
    assert_eq!(wire.results(), (2, opaque(b"x")));
    wire.send(&call(4, 0, &[]));
    assert_eq!(wire.results(), (4, vec![]));
    // A client that waits for the answer on this connection would wait forever.
    wire.send(&[call(5, 0, &[]), call(6, DISCONNECT, &[]), call(7, 0, &[])].concat());
    assert_eq!(wire.results(), (5, vec![]));
    wire.assert_closed();
}

#[test]
fn a_client_that_disconnects_within_a_call_leaks_nothing() {
    let (server, program, address) = serve(Limits::default());
    for cut in [1, 4, 20, 5000, 70_000, 500_000] {
        let bytes = call(1, ECHO, &opaque(&vec![0; 800_000]));
        let mut wire = Wire::to(address);
        wire.send(&bytes[..cut]);
    }
    program.wait_for_closed(6);
    eventually("nothing left", || server.connections().is_empty() && server.totals().receive_memory == 0);
}
