//! Attacks on the state of other NFSv4 clients: by other users, and by a remote root who knows names and even
//! ids.

mod common;

use std::os::unix::fs::PermissionsExt as _;

use common::v4::{Done, NFS_OK, Ops, PUTFH, Session, channel, compound, get};
use common::{Client, Scratch, encoded};
use proto::nfs4::*;
use samehost_server::Server;
use xdr::{Array, Encode, Opaque};

/// The server believes the credentials of local processes, as those of other hosts.
const REMOTE: &str = "*(rw,insecure,no_root_squash,async,local_peers=trust)";

/// A user of this host whose own client sends any credential.
const STRANGER: u32 = 54_321;

/// The owners of files that no other user has permissions for.
const USER: (u32, u32) = (500, 501);

fn stranger(server: &Server) -> Client {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            sys::credentials::set_fsuid(STRANGER).unwrap();
            Client::new(server)
        });
        connecting.join().unwrap()
    })
}

fn alone(wire: &mut Client, minor: u32, operation: Operation, args: &impl Encode) -> Done {
    compound(wire, minor, &Ops::new().op(operation, args))
}

fn create_session(clientid: u64, sequence: u32) -> CreateSession4Args<'static> {
    CreateSession4Args {
        clientid,
        sequence,
        flags: 0,
        fore_chan_attrs: channel(),
        back_chan_attrs: channel(),
        cb_program: 0x4000_0000,
        sec_parms: Array(vec![CallbackSecParms4::None]),
    }
}

const fn exchange_id(owner: &[u8], verifier: [u8; 8]) -> ExchangeId4Args<'_> {
    ExchangeId4Args {
        clientowner: ClientOwner4 { verifier, ownerid: Opaque(owner) },
        flags: EXCHGID_USE_NON_PNFS,
        state_protect: StateProtect4A::None,
        client_impl_id: Array(vec![]),
    }
}

fn setclientid(id: &[u8], verifier: [u8; 8]) -> Setclientid4Args<'_> {
    Setclientid4Args {
        client: NfsClientId4 { verifier, id: Opaque(id) },
        cb_program: 0x4000_0000,
        cb_location: Netaddr4 { netid: Opaque(b"tcp"), addr: Opaque(b"127.0.0.1.0.0") },
        callback_ident: 0,
    }
}

/// A client of 4.0, confirmed.
fn version_0(wire: &mut Client, id: &[u8], verifier: [u8; 8]) -> u64 {
    let done = alone(wire, 0, Operation::Setclientid, &setclientid(id, verifier));
    let Setclientid4ResOk { clientid, setclientid_confirm } = get(done.after(&[]).1);
    let confirm = SetclientidConfirm4Args { clientid, setclientid_confirm };
    assert_eq!(alone(wire, 0, Operation::SetclientidConfirm, &confirm).status, NFS_OK);
    clientid
}

fn walk(to: &std::path::Path) -> (Ops, Vec<(Operation, usize)>) {
    let parts = to.to_str().unwrap().split('/').filter(|part| !part.is_empty());
    let start = (Ops::new().op(Operation::Putrootfh, &()), vec![(Operation::Putrootfh, 0)]);
    parts.fold(start, |(ops, mut before), part| {
        before.push((Operation::Lookup, 0));
        (ops.op(Operation::Lookup, &Name4Args { name: Opaque(part.as_bytes()) }), before)
    })
}

/// With the id of another client.
#[test]
fn knowing_a_client_id_and_session_id_gives_no_access() {
    let scratch = Scratch::new();
    let server = scratch.serve(REMOTE);
    let mut victim = Session::callable(&server, 1, b"victim");
    victim.reclaim_complete();
    for mut wire in
        [stranger(&server).with_user(1000, 1000, &[]), Client::new(&server).with_user(1000, 1000, &[])]
    {
        let mut refused = |ops: Ops, status: Nfsstat4| {
            assert_eq!(compound(&mut wire, 1, &ops).status, status as u32);
        };
        for sequence in [1, 2] {
            let args = create_session(victim.clientid, sequence);
            refused(Ops::new().op(Operation::CreateSession, &args), Nfsstat4::ClidInuse);
        }
        let dir = ChannelDirFromClient4::ForeOrBoth;
        let bind = BindConnToSession4Args { sessionid: victim.id, dir, use_conn_in_rdma_mode: false };
        refused(Ops::new().op(Operation::BindConnToSession, &bind), Nfsstat4::WrongCred);
        let destroy = DestroySession4Args { sessionid: victim.id };
        refused(Ops::new().op(Operation::DestroySession, &destroy), Nfsstat4::WrongCred);
        let destroy = Clientid4Args { clientid: victim.clientid };
        refused(Ops::new().op(Operation::DestroyClientid, &destroy), Nfsstat4::WrongCred);
    }
    let ops = victim.sequence(false);
    assert_eq!(victim.run(&ops).status, NFS_OK);
}

/// As root: ids near the attacker's own belong to no client.
#[test]
fn ids_cannot_be_guessed_from_others() {
    let scratch = Scratch::new();
    let server = scratch.serve(REMOTE);
    let _before = Session::new(&server, 1, b"before");
    let own = Session::from(stranger(&server), 1, b"own");
    let _after = Session::new(&server, 1, b"after");
    let mut wire = stranger(&server);
    for near in 1..=200_u64 {
        for clientid in [own.clientid.wrapping_add(near), own.clientid.wrapping_sub(near)] {
            let done = alone(&mut wire, 1, Operation::CreateSession, &create_session(clientid, 1));
            assert_eq!(done.status, Nfsstat4::StaleClientid as u32);
        }
    }
}

/// EXCHANGE_ID and SETCLIENTID with another client's name and a new verifier, as root: from the client itself
/// that is a restart, which ends its state.
#[test]
fn taking_a_clients_name_neither_ends_it_nor_keeps_it_out() {
    let scratch = Scratch::new();
    std::fs::write(scratch.at("f"), "").unwrap();
    let server = scratch.serve(REMOTE);
    let mut victim = Session::new(&server, 1, b"victim");
    victim.reclaim_complete();
    let root = victim.walk(&scratch.export());
    let (open, _, file) = victim
        .open_with(&root, OpenClaim4::Null(Opaque(b"f")), false, SHARE_ACCESS_BOTH, SHARE_DENY_BOTH)
        .unwrap();
    let mut old = Client::new(&server);
    let old_id = version_0(&mut old, b"old victim", *b"verifier");

    let mut wire = stranger(&server);
    let done = alone(&mut wire, 1, Operation::ExchangeId, &exchange_id(b"victim", *b"another!"));
    let exchanged: ExchangeId4ResOk<'_> = get(done.after(&[]).1);
    let args = create_session(exchanged.clientid, exchanged.sequenceid);
    assert_eq!(alone(&mut wire, 1, Operation::CreateSession, &args).status, NFS_OK);
    version_0(&mut wire, b"old victim", *b"another!");
    // The attacker takes a name before its owner comes.
    alone(&mut wire, 1, Operation::ExchangeId, &exchange_id(b"late", *b"another!"));

    let read = Read4Args { stateid: open, offset: 0, count: 10 };
    assert_eq!(victim.on(&file, Operation::Read, &read).0, NFS_OK, "its open file stays open");
    let renew = Clientid4Args { clientid: old_id };
    assert_eq!(alone(&mut old, 0, Operation::Renew, &renew).status, NFS_OK);
    Session::new(&server, 1, b"late").reclaim_complete();
}

/// 4.0 has no sessions: an owner's retransmission is answered from memory, handle included, without a check
/// of the directories above the file.
#[test]
fn a_retransmission_of_another_principal_is_not_answered() {
    let scratch = Scratch::new();
    let private = scratch.at("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::write(private.join("f"), "").unwrap();
    for path in [&private, &private.join("f")] {
        std::os::unix::fs::chown(path, Some(USER.0), Some(USER.0)).unwrap();
    }
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    let server = scratch.serve(REMOTE);
    let mut wire = Client::new(&server);
    let clientid = version_0(&mut wire, b"me", *b"verifier");
    wire.credential = common::sys(USER.0, USER.0, &[]);
    let open = Open4Args {
        seqid: 1,
        share_access: SHARE_ACCESS_BOTH,
        share_deny: 0,
        owner: StateOwner4 { clientid, owner: Opaque(b"opener") },
        openhow: Openflag4::Nocreate,
        claim: OpenClaim4::Null(Opaque(b"f")),
    };
    let (ops, mut before) = walk(&private);
    let opened = compound(&mut wire, 0, &ops.op(Operation::Open, &open).op(Operation::Getfh, &()));
    let body: Open4ResOk<'_> = get(opened.after(&before).1);
    before.push((Operation::Open, encoded(&body).len()));
    let file = get::<NfsFh4<'_>>(opened.after(&before).1).0.to_vec();
    let on_file = || Ops::new().op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) });
    let confirm = OpenConfirm4Args { open_stateid: body.stateid, seqid: 2 };
    let done = compound(&mut wire, 0, &on_file().op(Operation::OpenConfirm, &confirm));
    let open_stateid: Stateid4 = get(done.after(&[PUTFH]).1);
    let lock = Lock4Args {
        locktype: NfsLockType4::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: 3,
            open_stateid,
            lock_seqid: 1,
            lock_owner: StateOwner4 { clientid, owner: Opaque(b"locker") },
        }),
    };
    let lock = on_file().op(Operation::Lock, &lock);
    let locked = compound(&mut wire, 0, &lock);
    let lock_stateid: Stateid4 = get(locked.after(&[PUTFH]).1);

    // The attacker knows the client's id, its owners, their sequence numbers and the state ids.
    let mut other = stranger(&server).with_user(USER.1, USER.1, &[]);
    let again = |seqid| {
        let args = Open4Args { seqid, claim: OpenClaim4::Null(Opaque(b"f")), ..open };
        walk(&scratch.export()).0.op(Operation::Open, &args).op(Operation::Getfh, &())
    };
    // The owner's last request was LOCK: a retransmission of its OPEN is too old.
    let done = compound(&mut other, 0, &again(3));
    assert_eq!(done.status, Nfsstat4::BadSeqid as u32);
    assert!(!done.bytes.windows(file.len()).any(|window| window == file), "no handle");
    assert_eq!(compound(&mut other, 0, &lock).status, Nfsstat4::BadStateid as u32);
    let unlock = Locku4Args { locktype: NfsLockType4::Write, seqid: 2, lock_stateid, offset: 0, length: 10 };
    let close = Close4Args { seqid: 4, open_stateid };
    let downgrade =
        OpenDowngrade4Args { open_stateid, seqid: 4, share_access: SHARE_ACCESS_READ, share_deny: 0 };
    for ops in [
        on_file().op(Operation::Locku, &unlock),
        on_file().op(Operation::Close, &close),
        on_file().op(Operation::OpenDowngrade, &downgrade),
    ] {
        assert_eq!(compound(&mut other, 0, &ops).status, Nfsstat4::BadStateid as u32);
    }
    let renew = Ops::new().op(Operation::Renew, &Clientid4Args { clientid });
    assert_eq!(compound(&mut other, 0, &renew).status, Nfsstat4::Access as u32);
    let read = Read4Args { stateid: lock_stateid, offset: 0, count: 10 };
    std::fs::set_permissions(private.join("f"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let read = on_file().op(Operation::Read, &read);
    assert_eq!(
        compound(&mut other, 0, &read).status,
        Nfsstat4::Access as u32,
        "a state id gives no permission"
    );

    // The client itself gets the answer again, and still has its state.
    assert_eq!(compound(&mut wire, 0, &lock).bytes, locked.bytes);
    for ops in [renew, on_file().op(Operation::Locku, &unlock), on_file().op(Operation::Close, &close)] {
        assert_eq!(compound(&mut wire, 0, &ops).status, NFS_OK);
    }
}

/// NFS4ERR_DENIED names the lock's owner, but not by a client id with which others could pose as the client.
#[test]
fn a_denied_lock_does_not_reveal_another_clients_id() {
    let scratch = Scratch::new();
    std::fs::write(scratch.at("f"), "").unwrap();
    let server = scratch.serve(REMOTE);
    let [mut one, mut two] = [&b"one"[..], b"two"].map(|name| Session::new(&server, 1, name));
    for session in [&mut one, &mut two] {
        session.reclaim_complete();
    }
    let root = one.walk(&scratch.export());
    let (open, _, file) =
        one.open_with(&root, OpenClaim4::Null(Opaque(b"f")), false, SHARE_ACCESS_BOTH, 0).unwrap();
    one.lock(&file, open, false).unwrap();
    let mut ids = Vec::new();
    let test = |clientid| Lockt4Args {
        locktype: NfsLockType4::Write,
        offset: 0,
        length: 1,
        owner: StateOwner4 { clientid, owner: Opaque(b"another") },
    };
    for session in [&mut one, &mut two] {
        let (status, body) = session.on(&file, Operation::Lockt, &test(session.clientid));
        assert_eq!(status, Nfsstat4::Denied as u32);
        let denied: Lock4Denied<'_> = get(&body);
        assert_eq!(denied.owner.owner.0, b"locker");
        ids.push(denied.owner.clientid);
    }
    assert_eq!(ids, [one.clientid, 0]);
}
