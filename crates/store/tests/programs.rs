//! Programs: a program written over NFS can be executed on the server, and writing to a running one fails at
//! once.

extern crate samehost_store as store;

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Export, local, root_of, user};
use io::Stability;
use rustix::io::Errno;
use store::{CreateHow, Error, SetAttributes, Wcc};

/// Whether this process has the file open for writing. (Executing it would also show that, but not reliably:
/// another test's child may have a copy of the descriptor between fork and exec.)
fn open_for_writing(path: &Path) -> bool {
    let path = path.canonicalize().expect("there");
    std::fs::read_dir("/proc/self/fd").expect("mounted").flatten().any(|entry| {
        let name = entry.file_name();
        // Through a mount clone the link shows the path below the clone's root.
        let same = std::fs::read_link(entry.path()).is_ok_and(|link| link.file_name() == path.file_name());
        let info = Path::new("/proc/self/fdinfo").join(name);
        let flags = std::fs::read_to_string(info).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
        same && flags & 0o3 != 0
    })
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn wcc() -> Wcc {
    Wcc::default()
}

#[test]
fn a_closed_program_is_executable() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let make = |name: &str, bits: u32| {
        context.create(&dir, name.as_bytes(), &CreateHow::Guarded(mode(bits)), &mut wcc()).expect("creates")
    };
    // WRITE, COMMIT.
    let node = make("committed-program", 0o755);
    context.write(&node, 0, b"#!/bin/sh\n", Stability::Unstable, &mut wcc()).expect("writes");
    context.commit(&node, 0, 0, &mut wcc()).expect("commits");
    assert!(!open_for_writing(&export.path("committed-program")));
    {
        let _held = std::fs::OpenOptions::new().write(true).open(export.path("committed-program"));
        assert!(open_for_writing(&export.path("committed-program")), "open_for_writing works");
    }
    // A stable WRITE.
    let node = make("stable-program", 0o755);
    context.write(&node, 0, b"#!/bin/sh\n", Stability::FileSync, &mut wcc()).expect("writes");
    assert!(!open_for_writing(&export.path("stable-program")));
    // Made executable afterwards, as compilers do.
    let node = make("later-program", 0o644);
    context.write(&node, 0, b"#!/bin/sh\n", Stability::Unstable, &mut wcc()).expect("writes");
    context.commit(&node, 0, 0, &mut wcc()).expect("commits");
    context.set_attributes(&node, &mode(0o755), None, &mut wcc()).expect("chmod");
    assert!(!open_for_writing(&export.path("later-program")));
}

/// Without a COMMIT (that of an `async` export doesn't reach the store) the reaper closes it.
#[test]
fn an_uncommitted_idle_program_is_closed() {
    let export = Export::new();
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let dir = root_of(&context, &store);
    let how = CreateHow::Guarded(mode(0o755));
    let node = context.create(&dir, b"idle-program", &how, &mut wcc()).expect("creates");
    context.write(&node, 0, b"#!/bin/sh\n", Stability::Unstable, &mut wcc()).expect("writes");
    // The descriptor of an ordinary file would stay open for 45 s.
    let deadline = Instant::now() + Duration::from_secs(30);
    while open_for_writing(&export.path("idle-program")) {
        assert!(Instant::now() < deadline, "it is still open for writing");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn writing_to_a_running_program_fails_at_once() {
    let export = Export::at("/tmp".as_ref());
    local(|| {
        std::fs::copy("/bin/sleep", export.path("runs")).expect("copies");
        std::fs::set_permissions(export.path("runs"), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    });
    // A child of another test, forked while the copy was open, may have it for a moment.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut child = loop {
        match std::process::Command::new(export.path("runs")).arg("600").spawn() {
            Ok(child) => break child,
            Err(error) => assert!(Instant::now() < deadline, "it can't be started: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let store = export.open();
    let context = store.as_user(&user(1000)).expect("acts");
    let node = context.lookup(&root_of(&context, &store), b"runs").expect("there");
    let busy = Error::Io(Errno::TXTBSY);
    let verifier = store.verifier();
    let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let wrote = context.write(&node, 0, b"x", Stability::Unstable, &mut wcc());
    let cut = context.set_attributes(&node, &size, None, &mut wcc());
    let committed = context.commit(&node, 0, 0, &mut wcc());
    local(|| {
        child.kill().expect("ours");
        child.wait().expect("ours");
    });
    assert_eq!(wrote.err(), Some(busy));
    assert_eq!(cut, Err(busy));
    assert_eq!(committed, Ok(()), "data from before the start can be committed");
    assert_eq!(store.verifier(), verifier, "nothing was lost");
}
