//! Quotas, told to NFSv4's clients: our server runs in a guest, for this machine's kernel may have no quotas,
//! on an ext4 that enforces them, and is asked from here.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use proto::nfs4::attributes::{QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED, SUPPORTED_ATTRS};
use proto::nfs4::{Bitmap4, COMPOUND, Operation, PROGRAM, VERSION};
use rpc::client::{Client, Options, Request};
use rpc::message::{AuthSys, Credential};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use samehost_tests::process::run_ok;
use samehost_tests::qemu::{self, Job};
use samehost_tests::{Netns, Scratch, need_root};
use xdr::{Decoder, Encoder};

const BOUND: Duration = Duration::from_secs(420);
const KIB: u64 = 1024;

/// `quota_avail_hard`, `quota_avail_soft` and `quota_used`, and whether `supported_attrs` says that they are
/// there.
type Told = ([Option<u64>; 3], [bool; 3]);

const QUOTA: [u32; 3] = [QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED];

/// GETATTR of a file below the root of all exports, over 4.0.
async fn ask(uid: u32, gids: &[u32], path: &str) -> Told {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2049));
    let client = Client::connect(address, Options::default()).await.expect("the guest's server is there");
    let gid = gids[0];
    let user = AuthSys { stamp: 0, machine_name: b"host".to_vec(), uid, gid, gids: gids.to_vec() };
    let names: Vec<&str> = path.split('/').collect();
    let arguments = |to: &mut Encoder| {
        to.opaque(b"");
        to.u32(0);
        to.u32(names.len() as u32 + 2);
        to.u32(Operation::Putrootfh.number());
        for name in &names {
            to.u32(Operation::Lookup.number());
            to.opaque(name.as_bytes());
        }
        to.u32(Operation::Getattr.number());
        to.put(&Bitmap4::of(&[SUPPORTED_ATTRS, QUOTA[0], QUOTA[1], QUOTA[2]]));
    };
    let request = Request {
        program: PROGRAM,
        version: VERSION,
        procedure: COMPOUND,
        credential: &Credential::Sys(user),
        payload: Default::default(),
        receive: None,
    };
    let reply = client.call(request, arguments).await.expect("an answer");
    read(&reply.results, names.len()).unwrap_or_else(|error| panic!("{uid} {path}: {error}"))
}

fn read(results: &[u8], names: usize) -> Result<Told, xdr::Error> {
    let mut from = Decoder::new(results);
    assert_eq!(from.u32()?, 0, "it succeeds");
    from.opaque(0)?;
    for _ in 0..=names + 1 {
        // The number of results, or what the one before says; then the operation's number.
        from.u32()?;
        from.u32()?;
    }
    assert_eq!(from.u32()?, 0, "GETATTR succeeds");
    let there: Bitmap4 = from.get()?;
    let mut values = Decoder::new(from.opaque(1024)?);
    let supported: Bitmap4 = values.get()?;
    let mut told = [None; 3];
    for (value, number) in told.iter_mut().zip(QUOTA) {
        if there.contains(number) {
            *value = Some(values.u64()?);
        }
    }
    Ok((told, QUOTA.map(|number| supported.contains(number))))
}

/// Asks from inside the namespace.
fn told(netns: &Netns, uid: u32, gids: &[u32], path: &str) -> Told {
    let inside = File::open(netns.path()).expect("the namespace is there");
    let asked = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            use std::os::fd::AsFd as _;
            move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(ask(uid, gids, path))
        });
        thread.join()
    });
    asked.expect("an answer")
}

#[test]
fn clients_are_told_what_quotas_leave() {
    need_root();
    let scratch = Scratch::new();
    let disk = scratch.join("disk");
    File::create(&disk).and_then(|file| file.set_len(32 << 20)).expect("own directory");
    let quotas = ["-q", "-O", "quota", "-E", "quotatype=usrquota:grpquota"];
    run_ok(Command::new("mkfs.ext4").args(quotas).arg(&disk));
    let netns = Netns::new("quota");
    // User 1000 may have 400 KiB, and should be warned at 200; group 300 may have 100, and nothing limits
    // anybody else.
    let plan = "must() { name=$1; shift; \"$@\" && echo \"PASS $name\" || echo \"FAIL $name\"; }\nlimit() { \
                must \"limit.$1.$2\" [ \"$(echo \"limit /dev/vda $*\" | holder /srv/limits)\" = ok ]; \
                }\nhost() { echo \"HOST $*\" >/dev/console; read -r answer </dev/console; must \"host.$1\" [ \
                \"$answer\" = ok ]; }\nserve() { mkdir -p /tmp/run /tmp/state; samehost serve --listen \
                0.0.0.0:2049 --no-rpcbind --run-dir /tmp/run --state-dir /tmp/state --export '/srv \
                *(rw,insecure,no_root_squash)' >/tmp/log 2>&1 & server=$!\nuntil grep -q ^ready: /tmp/log; \
                do kill -0 $server || { echo FAIL serve; cat /tmp/log; return; }; sleep 1; done; }\nmkdir \
                /srv && must mount mount -t ext4 -o usrquota,grpquota /dev/vda /srv && chmod 777 /srv\nlimit \
                u 1000 200 400\nlimit g 300 0 100\ndd if=/dev/zero of=/srv/file bs=1k count=64 2>/dev/null; \
                chown 1000:1000 /srv/file\ndd if=/dev/zero of=/srv/other bs=1k count=16 2>/dev/null; chown \
                1001:1001 /srv/other\ndd if=/dev/zero of=/srv/groups bs=1k count=32 2>/dev/null; chown \
                1000:300 /srv/groups; sync\nserve\nhost quotas\ndd if=/dev/zero of=/srv/file bs=1k count=300 \
                2>/dev/null; sync\nhost beyond\nkill -9 $server; wait $server; umount /srv && must unmounted \
                mount -t ext4 /dev/vda /srv\nserve\nhost off\n";
    let job = Job { nfs_port: 0, mount_port: 0, anon_uid: 0, plan };
    let none: Told = ([None; 3], [false; 3]);
    let all =
        |hard: u64, soft: u64, used: u64| ([hard * KIB, soft * KIB, used * KIB].map(Some), [true; 3]) as Told;
    let ask = |uid, gids: &[u32], path| told(&netns, uid, gids, path);
    let report = qemu::boot_server(&job, &disk, &netns, BOUND, |request| {
        match request {
            "quotas" => {
                // 64 and 32 KiB are taken; ext4's blocks are of 1 or 4 KiB, and these are multiples.
                assert_eq!(ask(1000, &[1000], "srv/file"), all(304, 104, 96));
                assert_eq!(ask(1000, &[1000], "srv"), all(304, 104, 96), "of what he makes there");
                assert_eq!(ask(0, &[0], "srv/file"), all(304, 104, 96), "root may know");
                assert_eq!(ask(1001, &[1001], "srv/file"), none, "it isn't his business");
                assert_eq!(ask(1001, &[1001], "srv/other"), none, "nothing limits him");
                assert_eq!(ask(0, &[0], "srv"), none);
                // The owner's is larger than the group's.
                assert_eq!(ask(1000, &[1000, 300], "srv/groups"), all(68, 68, 32));
                assert_eq!(ask(1001, &[300], "srv/groups"), all(68, 68, 32));
                assert_eq!(ask(1001, &[300], "srv"), all(68, 68, 32));
            }
            "beyond" => assert_eq!(ask(1000, &[1000], "srv/file"), all(68, 0, 332)),
            // Mounted without the options that enforce them: the limits are there, and nobody minds them.
            "off" => assert_eq!(ask(1000, &[1000], "srv/file"), none),
            other => panic!("{other}?"),
        }
        "ok".to_owned()
    });
    report.assert_passed(7);
}
