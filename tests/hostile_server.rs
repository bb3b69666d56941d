//! Clients of an NFS server with invalid directories: listings that never end, and a directory that contains
//! itself. The commands and a mount end with an error that names the directory.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use proto::mount3;
use proto::nfs3::{self, Fattr3, Ftype3, Nfsstat3, Nfstime3, Outcome, PostOpAttr, Procedure, Specdata3};
use rpc::server::{CallError, ProgramFn, Reply, Server};
use samehost_tests::process::run_within;
use samehost_tests::samehost::binary;
use samehost_tests::{Scratch, need_root};
use xdr::{Array, Decoder, Encoder, List, Opaque};

/// Exceeded only by a command that never ends.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A handle is the name of its directory.
type Handle = Vec<u8>;

/// MOUNT: the handle of a path is its last component.
fn mount(args: &mut Decoder<'_>, reply: &mut Reply) -> Result<(), CallError> {
    let path: mount3::Dirpath<'_> = args.get()?;
    let name = path.0.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty());
    let fhandle = Opaque(name.unwrap_or(b"top"));
    reply
        .encoder()
        .put(&mount3::Mountres3::Ok(mount3::Mountres3Ok { fhandle, auth_flavors: Array(vec![1]) }));
    Ok(())
}

fn attributes(handle: &[u8]) -> Fattr3 {
    // "again" is its own parent directory.
    let fileid = match handle {
        b"top" => 1,
        b"inside-itself" | b"again" => 2,
        other => 3 + other.len() as u64,
    };
    let time = Nfstime3 { seconds: 1_000_000, nseconds: 0 };
    Fattr3 {
        kind: Ftype3::Dir,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 4096,
        rdev: Specdata3::default(),
        fsid: 1,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// The page after a cookie, of names with their cookies, and whether it is the last one.
fn page(directory: &[u8], cookie: u64) -> (Vec<(String, u64)>, bool) {
    let names = |from: u64, to: u64| (from..=to).map(|number| (format!("name-{number}"), number)).collect();
    match directory {
        b"top" => {
            let all = ["in-a-circle", "in-a-long-circle", "back-in-the-page", "inside-itself"];
            let entries = all.iter().zip(1..).map(|(name, cookie)| ((*name).to_owned(), cookie));
            (entries.skip(cookie as usize).collect(), true)
        }
        // After cookie 4 it continues with 1.
        b"in-a-circle" if cookie == 4 => (names(1, 2), false),
        b"in-a-circle" => (names(cookie + 1, cookie + 2), false),
        // A hundred pages; the last one continues in the middle.
        b"in-a-long-circle" if cookie == 200 => (names(71, 72), false),
        b"in-a-long-circle" => (names(cookie + 1, cookie + 2), false),
        // The last cookie of every page is the one of its first entry.
        b"back-in-the-page" => {
            (vec![("one".to_owned(), 1), ("two".to_owned(), 2), ("three".to_owned(), 1)], false)
        }
        b"inside-itself" | b"again" if cookie == 0 => (vec![("again".to_owned(), 1)], true),
        _ => (vec![], true),
    }
}

fn answer(procedure: Procedure, args: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), CallError> {
    fn ok<T: xdr::Encode>(to: &mut Encoder, body: T) {
        to.put(&Outcome::<_, PostOpAttr>::Ok(body));
    }
    let handle: Handle = match procedure {
        Procedure::Null => return Ok(()),
        _ => args.get::<nfs3::NfsFh3<'_>>()?.0.to_vec(),
    };
    let own = Some(attributes(&handle));
    match procedure {
        Procedure::Getattr => to.put(&Outcome::<_, ()>::Ok(attributes(&handle))),
        Procedure::Access => {
            let access = args.get()?;
            ok(to, nfs3::Access3ResOk { obj_attributes: own, access });
        }
        Procedure::Lookup => {
            let name: nfs3::Filename3<'_> = args.get()?;
            ok(
                to,
                nfs3::Lookup3ResOk {
                    object: Opaque(name.0),
                    obj_attributes: Some(attributes(name.0)),
                    dir_attributes: own,
                },
            );
        }
        Procedure::Readdir => {
            let cookie = args.get()?;
            let (entries, eof) = page(&handle, cookie);
            let entries = entries.iter().map(|(name, cookie)| nfs3::Entry3 {
                fileid: attributes(name.as_bytes()).fileid,
                name: Opaque(name.as_bytes()),
                cookie: *cookie,
            });
            let list = nfs3::Dirlist3 { entries: List(entries.collect()), eof };
            let head = nfs3::ReaddirHead { dir_attributes: own, cookieverf: [0; 8] };
            ok(to, nfs3::Readdir3ResOk { head, reply: list });
        }
        Procedure::Fsinfo => ok(
            to,
            nfs3::Fsinfo3ResOk {
                obj_attributes: own,
                rtmax: 1 << 20,
                rtpref: 1 << 20,
                rtmult: 1,
                wtmax: 1 << 20,
                wtpref: 1 << 20,
                wtmult: 1,
                dtpref: 32 << 10,
                maxfilesize: u64::MAX >> 1,
                time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
                properties: 0,
            },
        ),
        Procedure::Pathconf => ok(
            to,
            nfs3::Pathconf3ResOk {
                obj_attributes: own,
                linkmax: 1,
                name_max: 255,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            },
        ),
        // READDIRPLUS isn't supported, so that clients list by READDIR.
        _ => to.put(&Outcome::<(), PostOpAttr>::Fail(Nfsstat3::Notsupp, None)),
    }
    Ok(())
}

fn serve() -> (Server, u16) {
    let server = Server::builder()
        .program(Arc::new(ProgramFn::new(mount3::PROGRAM, 3..=3, |_, _, args, reply| mount(args, reply))))
        .program(Arc::new(ProgramFn::new(nfs3::PROGRAM, 3..=3, |_, procedure, args, reply| {
            let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
            answer(procedure, args, reply.encoder())
        })))
        .bind(([127, 0, 0, 1], 0).into())
        .start()
        .expect("a server");
    let port = server.local_addrs()[0].port();
    (server, port)
}

fn samehost(run_dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    run_within(command.args(args).env("SAMEHOST_RUN_DIR", run_dir), COMMAND_TIMEOUT)
}

fn all_output(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const LOOPING_LISTINGS: [&str; 3] = ["in-a-circle", "in-a-long-circle", "back-in-the-page"];

#[test]
fn a_listing_with_repeating_cookies_fails() {
    need_root();
    let (_server, port) = serve();
    let scratch = Scratch::new();
    let (run_dir, mnt) = (scratch.mkdir("run"), scratch.mkdir("mnt"));
    let url = |name: &str| format!("nfs://127.0.0.1:{port}/{name}");
    for name in LOOPING_LISTINGS {
        for words in [&["ls"][..], &["rm", "-r"]] {
            let mut args = words.to_vec();
            let url = url(name);
            args.push(&url);
            let output = samehost(&run_dir, &args);
            let said = all_output(&output);
            assert!(!output.status.success() && said.contains(name) && said.contains("listing"), "{said}");
        }
    }
    let mounted = samehost(&run_dir, &["mount", &url(""), mnt.to_str().expect("a path")]);
    assert!(mounted.status.success(), "{}", all_output(&mounted));
    for name in LOOPING_LISTINGS {
        let output = run_within(Command::new("ls").arg(mnt.join(name)), COMMAND_TIMEOUT);
        let said = all_output(&output);
        // ls(1) names the directory; the mount's log has the reason.
        assert!(!output.status.success() && said.contains(name), "{said}");
    }
    // The directory above can still be listed.
    let output = run_within(Command::new("ls").arg(&mnt), COMMAND_TIMEOUT);
    let said = all_output(&output);
    assert!(output.status.success() && said.contains("inside-itself"), "{said}");
    run_within(Command::new("umount").args(["--force", "--lazy"]).arg(&mnt), COMMAND_TIMEOUT);
}

#[test]
fn a_directory_that_contains_itself_is_entered_once() {
    let (_server, port) = serve();
    let scratch = Scratch::new();
    let (run_dir, copy) = (scratch.mkdir("run"), scratch.join("copy"));
    let url = format!("nfs://127.0.0.1:{port}/inside-itself");
    let output = samehost(&run_dir, &["cp", "-r", &url, copy.to_str().expect("a path")]);
    let words = all_output(&output);
    assert!(!output.status.success() && words.contains("inside-itself/again"), "{words}");
    assert!(words.contains("inside itself"), "{words}");
    let entered: Vec<_> = std::fs::read_dir(&copy).expect("what was copied").collect();
    assert!(entered.is_empty(), "{entered:?}");
    let output = samehost(&run_dir, &["ls", "-R", &url]);
    let words = all_output(&output);
    assert!(!output.status.success() && words.contains("inside itself"), "{words}");
    assert_eq!(words.matches("inside-itself/again").count(), 1, "{words}");
    let output = samehost(&run_dir, &["rm", "-r", &url]);
    let words = all_output(&output);
    assert!(!output.status.success() && words.contains("inside itself"), "{words}");
}
