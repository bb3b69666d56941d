//! The quota attributes of NFSv4: our server runs in a guest, because this machine's kernel may lack quotas,
//! on an ext4 with quotas, and the client runs on this machine.

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

const GUEST_TIMEOUT: Duration = Duration::from_secs(420);
const KIB: u64 = 1024;

/// `quota_avail_hard`, `quota_avail_soft` and `quota_used`, and whether each is in `supported_attrs`.
type QuotaAttributes = ([Option<u64>; 3], [bool; 3]);

const QUOTA: [u32; 3] = [QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED];

/// GETATTR of a file below NFSv4's root, over 4.0.
async fn getattr(uid: u32, gids: &[u32], path: &str) -> QuotaAttributes {
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
        trailer: Default::default(),
        receive: None,
    };
    let reply = client.call(request, arguments).await.expect("a reply");
    decode(&reply.results, names.len()).unwrap_or_else(|error| panic!("{uid} {path}: {error}"))
}

fn decode(results: &[u8], names: usize) -> Result<QuotaAttributes, xdr::Error> {
    let mut from = Decoder::new(results);
    assert_eq!(from.u32()?, 0, "it succeeds");
    from.opaque(0)?;
    for _ in 0..=names + 1 {
        // The number of results, or the status of the previous one; then the operation's number.
        from.u32()?;
        from.u32()?;
    }
    assert_eq!(from.u32()?, 0, "GETATTR succeeds");
    let present: Bitmap4 = from.get()?;
    let mut values = Decoder::new(from.opaque(1024)?);
    let supported: Bitmap4 = values.get()?;
    let mut quota = [None; 3];
    for (value, number) in quota.iter_mut().zip(QUOTA) {
        if present.contains(number) {
            *value = Some(values.u64()?);
        }
    }
    Ok((quota, QUOTA.map(|number| supported.contains(number))))
}

/// Runs [`getattr`] inside the namespace.
fn getattr_inside(netns: &Netns, uid: u32, gids: &[u32], path: &str) -> QuotaAttributes {
    let inside = File::open(netns.path()).expect("the namespace is there");
    let attributes = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            use std::os::fd::AsFd as _;
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(inside.as_fd(), network).expect("root is permitted");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(getattr(uid, gids, path))
        });
        thread.join()
    });
    attributes.expect("a reply")
}

#[test]
fn getattr_returns_the_remaining_quota() {
    need_root();
    let scratch = Scratch::new();
    let disk = scratch.join("disk");
    File::create(&disk).and_then(|file| file.set_len(32 << 20)).expect("own directory");
    let quotas = ["-q", "-O", "quota", "-E", "quotatype=usrquota:grpquota"];
    run_ok(Command::new("mkfs.ext4").args(quotas).arg(&disk));
    let netns = Netns::new("quota");
    // User 1000 has a hard limit of 400 KiB and a soft limit of 200; group 300 has a hard limit of 100. There
    // are no other limits.
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
    let none: QuotaAttributes = ([None; 3], [false; 3]);
    let all = |hard: u64, soft: u64, used: u64| -> QuotaAttributes {
        ([hard * KIB, soft * KIB, used * KIB].map(Some), [true; 3])
    };
    let ask = |uid, gids: &[u32], path| getattr_inside(&netns, uid, gids, path);
    let report = qemu::boot_server(&job, &disk, &netns, GUEST_TIMEOUT, |request| {
        match request {
            "quotas" => {
                // 64 and 32 KiB are in use; ext4's blocks have 1 or 4 KiB, of which these are multiples.
                assert_eq!(ask(1000, &[1000], "srv/file"), all(304, 104, 96));
                assert_eq!(ask(1000, &[1000], "srv"), all(304, 104, 96), "for new files of the user");
                assert_eq!(ask(0, &[0], "srv/file"), all(304, 104, 96), "root sees every quota");
                assert_eq!(ask(1001, &[1001], "srv/file"), none, "another user's quota");
                assert_eq!(ask(1001, &[1001], "srv/other"), none, "a user without a limit");
                assert_eq!(ask(0, &[0], "srv"), none);
                // The owner's remaining quota is larger than the group's.
                assert_eq!(ask(1000, &[1000, 300], "srv/groups"), all(68, 68, 32));
                assert_eq!(ask(1001, &[300], "srv/groups"), all(68, 68, 32));
                assert_eq!(ask(1001, &[300], "srv"), all(68, 68, 32));
            }
            "beyond" => assert_eq!(ask(1000, &[1000], "srv/file"), all(68, 0, 332)),
            // Mounted without the options that enforce the limits.
            "off" => assert_eq!(ask(1000, &[1000], "srv/file"), none),
            other => panic!("{other}?"),
        }
        "ok".to_owned()
    });
    report.assert_passed(7);
}
