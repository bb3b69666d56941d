//! By NFSv4.2 new files get the permissions of local ones: the umask applies unless their directory has a
//! default access control list (RFC 8275).

mod support;

use std::fs;
use std::path::Path;

use client::Version;
use samehost_mount::MountOptions;
use support::{Served, TRANSPORTS, shell_as};

/// Makes files of every kind, one of them exclusively.
const SCRIPT: &str = "umask $UMASK && cd $AT && : >file && sh -c 'set -C; : >exclusive' && \
    mkdir directory && mkfifo fifo && ln -s file link && \
    python3 -c 'import os; os.mknod(\"node\", 0o100666)'";

/// The modes and lists of the files that the script makes.
fn permissions(directory: &Path) -> String {
    let list = "stat -c '%n %a' * && getfacl --numeric file exclusive directory fifo node";
    let (said, ok) = shell_as(0, 0, "", &format!("cd {} && {list}", directory.display()));
    assert!(ok, "{said}");
    said
}

#[test]
fn new_files_have_the_permissions_of_local_ones() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let mounted = served.mount_by(Version::V4_2, transport, MountOptions::default());
        for (number, umask) in ["000", "022", "077"].into_iter().enumerate() {
            for list in [false, true] {
                let name = format!("{transport:?}-{number}-{list}");
                let (ours, local) =
                    (served.export().join(&name), served.export().join(format!("local-{name}")));
                for directory in [&ours, &local] {
                    fs::create_dir(directory).unwrap();
                    if list {
                        let entries = "u::rwx,u:1234:rwx,g::r-x,o::---";
                        let set = format!("setfacl -d -m {entries} {}", directory.display());
                        assert!(shell_as(0, 0, "", &set).1);
                    }
                }
                for at in [&mounted.path(&name), &local] {
                    let script = format!("UMASK={umask}; AT={}; {SCRIPT}", at.display());
                    let (said, ok) = shell_as(0, 0, "", &script);
                    assert!(ok, "{said}");
                }
                assert_eq!(permissions(&ours), permissions(&local), "{name}");
            }
        }
    }
}
