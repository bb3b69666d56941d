//! Access control lists of other servers. Of the kernel's through mounts by NFSv4.2 and 3: getfacl(1) and
//! setfacl(1) as in a local directory, nfs4_getfacl(1) and nfs4_setfacl(1), inheritance, chmod(2), and who
//! may do what. Of nfs-ganesha: that there are none.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use samehost_tests::ganesha::Ganesha;
use samehost_tests::knfsd::Knfsd;
use samehost_tests::process::run_within;
use samehost_tests::{Mount, Netns, Scratch, need_root, run_ok};

/// The guest is slow on a busy machine.
const GUEST_TIMEOUT: Duration = Duration::from_secs(180);

/// The longest time for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Even on a slow machine no attributes expire while calls are counted.
const OPTIONS: &str = "lane=off,acregmin=600,acregmax=600,acdirmin=600,acdirmax=600";

/// Steps that print the same on a mount and in a local directory. The umask is 0, because by NFSv3 it applies
/// under a default list, too.
const STEPS: [(&str, &str); 9] = [
    ("no list", "touch f; chmod 640 f; getfacl -cn f; ls -l f | cut -c1-11"),
    ("set", "setfacl -m u:1234:rw,g:77:r f; getfacl -cn f; stat -c %a f; ls -l f | cut -c1-11"),
    ("remove an entry", "setfacl -x u:1234 f; getfacl -cn f; stat -c %a f"),
    ("remove the list", "setfacl -b f; getfacl -cn f; stat -c %a f; ls -l f | cut -c1-11"),
    ("a list that is a mode", "setfacl --set u::rwx,g::r-x,o::r-x f; getfacl -cn f; stat -c %a f"),
    (
        "a directory",
        "mkdir d; setfacl -m u:1234:rwx,d:u:1234:rwx,d:g:77:rx,d:o::- d; getfacl -cn d; stat -c %a d",
    ),
    ("inheritance", "mkdir d/s; touch d/f; chmod 770 d/s d/f; getfacl -cn d/s d/f; stat -c %a d/s d/f"),
    ("chmod", "touch c; setfacl -m u:1234:rw,g::r c; chmod 606 c; chmod 666 c; getfacl -cn c; stat -c %a c"),
    ("only a default list", "mkdir e; setfacl -d -m g:5:rx e; getfacl -cn e; mkdir e/s; getfacl -cn e/s"),
];

/// Without its default list a directory's files inherit nothing.
const REMOVE: &str = "mkdir r; setfacl -m u:7:rx,d:u:7:rwx r; setfacl -k r && touch r/f && getfacl -cn r r/f";

/// With permissions that the mask takes away. NFSv4's lists have no mask: they show what is effective.
const MASKED: &str = "touch m; setfacl -m u:1234:rw,g::r m; chmod 640 m; getfacl -cn m; stat -c %a m";

/// Where the server has the mount's directory.
const EXPORT: &str = "/srv/directory";

/// What a shell script prints in a directory, errors included.
fn said(directory: &Path, script: &str) -> String {
    let script = format!("exec 2>&1; export LC_ALL=C; umask 0; cd {}; {script}", directory.display());
    let output = run_within(Command::new("sh").args(["-c", &script]), STEP_TIMEOUT);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn calls(mount: &Mount) -> u64 {
    let status = mount.status().expect("the mount answers");
    status["wire"]["round_trips"].as_u64().expect("a number")
}

/// Whether the server's filesystem has this entry in a file's list.
fn has_entry(knfsd: &mut Knfsd<'_>, file: &Path, entry: &str) -> bool {
    knfsd.succeeds(&format!("getfacl -cn {EXPORT}/{} | tr '\\t' ' ' | grep -q '^{entry}'", file.display()))
}

/// The steps, on a mount and in a local directory.
fn compare(knfsd: &mut Knfsd<'_>, mount: &Mount, version: &str, scratch: &Scratch) {
    let (own, plain) = (mount.join(version), scratch.mkdir(&format!("plain-{version}")));
    fs::create_dir(&own).expect("a directory");
    for (step, script) in STEPS {
        assert_eq!(said(&own, script), said(&plain, script), "{version}: {step}");
    }
    let (masked, real) = (said(&own, MASKED), said(&plain, MASKED));
    assert!(real.contains("#effective:r--"), "{real}");
    if version == "3" {
        assert_eq!(masked, real);
    } else {
        assert!(masked.contains("user:1234:r--\n") && masked.ends_with("640\n"), "{masked}");
    }
    let removed = said(&own, REMOVE);
    if version == "3" || !removed.contains("not permitted") {
        assert_eq!(removed, said(&plain, REMOVE), "{version}");
    } else {
        // knfsd keeps it.
        println!("{version}: the default list can't be removed");
        assert!(has_entry(knfsd, Path::new("4.2/r"), "default:user:7:rwx"));
    }
    let own = Path::new(version);
    assert!(has_entry(knfsd, &own.join("d/f"), "user:1234:rwx"), "{version}: inherited");
    assert!(has_entry(knfsd, &own.join("c"), "user:1234:rw-"), "{version}");
    // chmod(2) has changed the mask only.
    assert!(has_entry(knfsd, &own.join("m"), "user:1234:rw- *#effective:r--"), "{version}");
}

/// The server decides by the list, and a changed one counts at once.
fn who_may_read(mount: &Mount, version: &str) {
    let own = mount.join(version);
    let reads = |uid: u32, file: &str| {
        let id = uid.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "cat"]).arg(own.join(file));
        run_within(&mut command, STEP_TIMEOUT).status.success()
    };
    let script = "echo secret >s; chmod 600 s; setfacl -m u:1000:r s; mkdir x; echo inside >x/f; chmod 755 x";
    assert_eq!(said(&own, script), "", "{version}");
    assert!(reads(1000, "s") && !reads(4321, "s"), "{version}");
    // Names that the kernel has cached are no way around a list.
    (0..3).for_each(|_| assert!(reads(4321, "x/f"), "{version}"));
    assert_eq!(said(&own, "setfacl -b s; setfacl -m u:4321:- x"), "", "{version}");
    assert!(!reads(1000, "s"), "{version}: without the list");
    assert!(!reads(4321, "x/f") && reads(1000, "x/f"), "{version}");
}

/// NFSv4's form of a list.
fn by_nfs4_acl_tools(knfsd: &mut Knfsd<'_>, mount: &Mount) {
    let own = mount.join("4.2");
    let run = |script: &str| said(&own, &format!("{script}; echo status $?"));
    assert!(run("touch n; chmod 640 n; nfs4_getfacl n").contains("A::OWNER@:rw"));
    assert_eq!(run("nfs4_setfacl -a A::1234:RWX n"), "status 0\n");
    assert!(has_entry(knfsd, Path::new("4.2/n"), "user:1234:rwx"));
    assert!(run("getfacl -cn n").contains("user:1234:rwx"), "the same list in the other form");
    assert_eq!(run("setfacl -m u:55:r n"), "status 0\n");
    assert!(run("nfs4_getfacl n").contains("A::55:r"));
    assert_eq!(run("mkdir i; nfs4_setfacl -a A:fdg:77:RX i; touch i/new"), "status 0\n");
    assert!(has_entry(knfsd, Path::new("4.2/i/new"), "group:77:r-x"));
    assert_eq!(run("nfs4_getfacl n | grep -v '^#\\|::55:' | nfs4_setfacl -S - n"), "status 0\n");
    assert!(
        !has_entry(knfsd, Path::new("4.2/n"), "user:55:") && run("getfacl -cn n").contains("user:1234:rwx")
    );
    assert!(!run("setpriv --reuid=4321 --clear-groups nfs4_setfacl -a A::77:r n").ends_with(" 0\n"));
}

/// By NFSv4 the listing brings the lists. That of more files has a second page, because the one that is
/// requested by the open is short.
fn calls_of_ls(knfsd: &mut Knfsd<'_>, mount: &Mount) {
    let mut ls = |files: u32| {
        let make = format!("mkdir many-{files} && cd many-{files} && for i in $(seq {files}); do >f$i; done");
        knfsd.run(&format!("cd {EXPORT} && {make} && setfacl -m u:7:r f7"));
        let before = calls(mount);
        assert_eq!(said(mount.path(), &format!("ls -l many-{files} | grep -c '+'")), "1\n");
        calls(mount) - before
    };
    let (few, many) = (ls(20), ls(300));
    println!("ls -l: {few} calls for 20 files, {many} for 300");
    assert!(many <= few + 1);
}

#[test]
fn lists_of_knfsd_are_those_of_a_local_directory() {
    need_root();
    // With access control lists, on every machine.
    let scratch = Scratch::in_memory();
    let netns = Netns::new("acls");
    Knfsd::with(&netns, GUEST_TIMEOUT, |knfsd| {
        for version in ["4.2", "3"] {
            let mount = Mount::unmounted_with(&scratch.mkdir(&format!("empty-{version}")));
            run_ok(&mut netns.inside(&mount.command(Knfsd::URL, &format!("{OPTIONS},vers={version}"))));
            compare(knfsd, &mount, version, &scratch);
            who_may_read(&mount, version);
            if version == "4.2" {
                by_nfs4_acl_tools(knfsd, &mount);
                calls_of_ls(knfsd, &mount);
            }
            mount.unmount();
        }
    });
}

/// nfs-ganesha 4.3 can't decode SETACL with an empty list, and its filesystem module for local filesystems
/// (FSAL_VFS) has no lists. Later versions refuse them, or have them.
#[test]
fn ganesha_refuses_lists_at_once_or_has_them() {
    need_root();
    let scratch = Scratch::in_memory();
    let (export, netns) = (scratch.mkdir("export"), Netns::new("gacls"));
    let _ganesha = Ganesha::start(&netns, &export);
    let mount = Mount::unmounted_with(&scratch.mkdir("empty"));
    let url = format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, export.display());
    run_ok(&mut netns.inside(&mount.command(&url, &format!("{OPTIONS},vers=3"))));
    let set = said(mount.path(), "touch f; chmod 640 f; setfacl -m u:1234:rw f && echo set");
    let list = said(mount.path(), "getfacl -cn f");
    println!("{set}{list}");
    if set == "set\n" {
        assert!(list.contains("user:1234:rw-"), "{list}");
    } else {
        assert_eq!(set, "setfacl: f: Operation not supported\n");
        assert_eq!(list, "user::rw-\ngroup::r--\nother::---\n\n");
    }
    mount.unmount();
}
