//! The Linux kernel's own client in QEMU holding delegations, which a local process on the server and a client of NFSv3 have
//! recalled: what the guest has written and not sent is there when the host reads it, and what the host writes the guest sees.

use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Scratch, Serve, need_root};

const BOUND: Duration = Duration::from_secs(420);

#[test]
fn the_kernels_client_gives_delegations_back() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    for name in ["read", "third"] {
        fs::write(export.join(name), "old\n").expect("there is room");
    }
    let path = export.display().to_string();
    let server = Serve::new(format!("{path} *(rw,insecure,no_root_squash)")).start();
    // The file is opened twice: with the first open the client's callbacks may not be known to work yet.
    let plan = format!(
        "host() {{ echo \"HOST $*\" >/dev/console; read -r answer </dev/console; \
         [ \"$answer\" = ok ] && echo \"PASS host.$1.$2\" || echo \"FAIL host.$1.$2: $answer\"; }}\n\
         same() {{ [ \"$1\" = \"$2\" ] && echo \"PASS $3\" || echo \"FAIL $3: $1\"; }}\n\
         mount_v4 four {path} 1 rw && echo PASS mount.four\nmount_export three {path} rw && echo PASS mount.three\n\
         exec 3</mnt/four/read\nsame \"$(cat /mnt/four/read)\" old read.before\n\
         host append read\nsame \"$(tail -n 1 /mnt/four/read)\" new read.after\nexec 3<&-\n\
         echo kept >/mnt/four/written\nhost expect written\nsame \"$(cat /mnt/four/written)\" kept written.after\n\
         exec 3</mnt/four/third\nsame \"$(cat /mnt/four/third)\" old third.before\n\
         echo by-three >>/mnt/three/third && sync\nexec 3<&-\nsame \"$(tail -n 1 /mnt/four/third)\" by-three third.after\n\
         umount /mnt/four && umount /mnt/three && echo PASS umount\n"
    );
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 0, plan: &plan };
    let report = qemu::boot(&job, None, BOUND, |request| {
        let done = match request {
            "append read" => File::options()
                .append(true)
                .open(export.join("read"))
                .and_then(|mut file| file.write_all(b"new\n")),
            "expect written" => fs::read(export.join("written")).and_then(|found| {
                if found == b"kept\n" { Ok(()) } else { Err(std::io::Error::other(format!("{found:?}"))) }
            }),
            other => Err(std::io::Error::other(format!("{other}?"))),
        };
        done.map_or_else(|why| why.to_string(), |()| "ok".to_owned())
    });
    report.assert_passed(10);
    let returned = server.status().calls("wire", "NFS4.DELEGRETURN");
    assert!(returned >= 3, "{returned} delegations were returned");
}
