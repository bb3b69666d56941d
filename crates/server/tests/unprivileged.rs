//! Started by an ordinary user: the server serves that user's files, everybody is that user, handles survive a
//! restart, and it says at start what it can't do.

mod common;

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;

use common::{Client, Scratch, sys};
use proto::nfs3::{Nfsstat3, Outcome, Procedure, Sattr3, Setattr3Args};
use xdr::Opaque;

/// Some user who owns nothing here.
const USER: u32 = 12_345;

#[test]
fn an_ordinary_user_serves_his_own_files() {
    if rustix::process::geteuid().is_root() {
        // As that user, in a process of its own, from a copy that he can execute.
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let copy = place.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let status = std::process::Command::new(copy)
            .args(["--exact", "an_ordinary_user_serves_his_own_files", "--nocapture"])
            .env("TMPDIR", place.path())
            .env("HOME", place.path())
            .current_dir("/")
            .uid(USER)
            .gid(USER)
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let me = rustix::process::geteuid().as_raw();
    let scratch = Scratch::new();
    let serve = || scratch.serve("*(rw,insecure,no_root_squash)");
    let server = serve();
    let notices = server.notices();
    assert!(notices.iter().any(|notice| notice.contains("the server's own user")), "{notices:?}");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let mut made = Vec::new();
    for (name, credential) in
        [("a", sys(0, 0, &[])), ("b", sys(77, 77, &[])), ("c", rpc::message::Credential::None)]
    {
        client.credential = credential;
        let file = client.create(&root, name).unwrap();
        assert!(matches!(client.write(&file, 0, name.as_bytes()), Outcome::Ok(_)));
        assert_eq!(std::fs::metadata(scratch.at(name)).unwrap().uid(), me);
        made.push((name, file));
    }
    client.credential = sys(0, 0, &[]);
    let args = Setattr3Args {
        object: Opaque(&made[0].1),
        new_attributes: Sattr3 { uid: Some(0), ..Sattr3::default() },
        guard: None,
    };
    assert_eq!(client.nfs(Procedure::Setattr, &args).status(), Nfsstat3::Perm as u32, "nobody becomes root");
    server.stop();
    let server = serve();
    let mut client = Client::new(&server);
    for (name, file) in &made {
        assert_eq!(client.read(file, 0, 10), Ok((name.as_bytes().to_vec(), true)), "{name} after a restart");
    }
    std::fs::remove_file(scratch.at("b")).unwrap();
    assert_eq!(client.read(&made[1].1, 0, 10), Err(Nfsstat3::Stale));
}
