//! Attacks on the resources that all NFSv4 clients share, by another user's process, beside an ordinary
//! client.

mod common;

use common::v4::{NFS_OK, Ops, Session, compound};
use common::{Client, Scratch};
use proto::nfs4::*;
use rustix::process::{Resource, Rlimit, setrlimit};
use samehost_server::Server;
use xdr::Opaque;

/// The server believes the credentials of local processes, as those of other hosts.
const REMOTE: &str = "*(rw,insecure,no_root_squash,async,local_peers=trust)";

fn stranger(server: &Server) -> Client {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            sys::credentials::set_fsuid(54_321).unwrap();
            Client::new(server)
        });
        connecting.join().unwrap()
    })
}

fn open(session: &mut Session, root: &[u8], name: &str) -> Result<(Stateid4, Vec<u8>), u32> {
    session.open(root, OpenClaim4::Null(Opaque(name.as_bytes())), false)
}

/// The limit of open files belongs to the process, so this file has one test.
#[test]
fn a_greedy_client_leaves_opens_locks_and_names_for_others() {
    let few = Some(1024);
    setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few }).unwrap();
    let scratch = Scratch::new();
    for number in 0..300 {
        std::fs::write(scratch.at(&number.to_string()), "").unwrap();
    }
    let server = scratch.serve(REMOTE);

    // Opens, with delegations while the server grants them.
    let mut greedy = Session::from(stranger(&server), 1, b"greedy");
    greedy.reclaim_complete();
    let root = greedy.walk(&scratch.export());
    let mut opened = Vec::new();
    let refused = (0..300).find_map(|number| match open(&mut greedy, &root, &number.to_string()) {
        Ok(open) => {
            opened.push(open);
            None
        }
        Err(status) => Some(status),
    });
    assert_eq!(refused, Some(Nfsstat4::Delay as u32));
    // An OPEN that is delayed has done nothing.
    let create = |session: &mut Session, name: &str, how: fn(Fattr4<'static>) -> Createhow4<'static>| {
        let attr_vals = Opaque(&[0; 8]);
        let attributes = Fattr4 { attrmask: Bitmap4::of(&[attributes::SIZE]), attr_vals };
        let args = Open4Args {
            seqid: 0,
            share_access: SHARE_ACCESS_BOTH,
            share_deny: 0,
            owner: StateOwner4 { clientid: session.clientid, owner: Opaque(b"opener") },
            openhow: Openflag4::Create(how(attributes)),
            claim: OpenClaim4::Null(Opaque(name.as_bytes())),
        };
        session.on(&root, Operation::Open, &args).0
    };
    for how in [Createhow4::Unchecked as fn(_) -> _, Createhow4::Guarded, |_| Createhow4::Exclusive([7; 8])] {
        assert_eq!(create(&mut greedy, "new", how), Nfsstat4::Delay as u32);
        assert!(!scratch.at("new").exists());
    }
    std::fs::write(scratch.at("299"), "data").unwrap();
    assert_eq!(create(&mut greedy, "299", Createhow4::Unchecked), Nfsstat4::Delay as u32);
    assert_eq!(std::fs::read(scratch.at("299")).unwrap(), b"data", "it isn't truncated");
    assert_eq!(create(&mut greedy, "0", Createhow4::Unchecked), NFS_OK, "this owner has it open already");
    assert!((40..=100).contains(&opened.len()), "{} of about 200", opened.len());
    // Lock owners on one file.
    let mut other = Session::from(stranger(&server), 1, b"greedy, too");
    other.reclaim_complete();
    assert_eq!(open(&mut other, &root, "0").map(drop), Ok(()), "the server has it open already");
    assert_eq!(open(&mut other, &root, "299").map(drop), Err(Nfsstat4::Delay as u32), "it is the same user");

    let mut modest = Session::new(&server, 2, b"modest");
    modest.reclaim_complete();
    for number in 270..290 {
        let (id, file) = open(&mut modest, &root, &number.to_string()).unwrap();
        modest.lock(&file, id, false).unwrap();
    }
    let _connections: Vec<_> = (0..20).map(|_| Client::new(&server)).collect();

    // Client names that are never confirmed.
    let mut wire = stranger(&server);
    for batch in 0..170_u32 {
        let ids: Vec<_> = (0..100).map(|number| (100 * batch + number).to_be_bytes()).collect();
        let ops = ids.iter().fold(Ops::new(), |ops, id| {
            let args = Setclientid4Args {
                client: NfsClientId4 { verifier: *b"verifier", id: Opaque(id) },
                cb_program: 0x4000_0000,
                cb_location: Netaddr4 { netid: Opaque(b"tcp"), addr: Opaque(b"127.0.0.1.0.0") },
                callback_ident: 0,
            };
            ops.op(Operation::Setclientid, &args)
        });
        let done = compound(&mut wire, 0, &ops);
        assert!(done.status == NFS_OK || done.status == Nfsstat4::Delay as u32, "{}", done.status);
    }
    Session::new(&server, 1, b"late").reclaim_complete();
    let ops = modest.sequence(false);
    assert_eq!(modest.run(&ops).status, NFS_OK);
}
