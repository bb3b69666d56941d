//! Our client against a server nobody here wrote: nfs-ganesha, whose MOUNT is on another port that rpcbind knows.

use std::fs;
use std::process::Command;

use samehost_tests::ganesha::Ganesha;
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;
use samehost_tests::{Netns, Scratch, need_root, run, run_ok};

#[test]
fn every_command_on_ganesha() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("og");
    let ganesha = Ganesha::start(&netns, &export);
    let empty = scratch.mkdir("empty");
    let url = format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, export.display());
    let samehost = |words: &[&str]| -> Command {
        let mut command = ganesha.command(binary());
        command.args(words).arg("--run-dir").arg(&empty);
        command
    };
    let at = |name: &str| format!("{url}/{name}");

    // A tree in and out.
    let tree = scratch.mkdir("tree");
    fs::create_dir_all(tree.join("a/b")).expect("own directory");
    fs::write(tree.join("empty"), "").expect("own directory");
    fs::write(tree.join("a/large"), pattern(5, 5_000_003)).expect("own directory");
    for i in 0..200 {
        fs::write(tree.join(format!("a/b/small{i}")), pattern(i, i as usize * 7)).expect("own directory");
    }
    std::os::unix::fs::symlink("large", tree.join("a/link")).expect("own directory");
    let back = scratch.join("back");
    run_ok(&mut samehost(&["cp", "-r", &tree.display().to_string(), &at("tree")]));
    run_ok(&mut samehost(&["cp", "-r", &at("tree"), &back.display().to_string()]));
    run_ok(Command::new("diff").arg("-r").arg("--no-dereference").arg(&tree).arg(&back));
    run_ok(Command::new("diff").arg("-r").arg("--no-dereference").arg(&tree).arg(export.join("tree")));

    assert_eq!(run_ok(&mut samehost(&["ls", &at("tree/a/b")])).lines().count(), 200);
    run_ok(&mut samehost(&["mkdir", &at("made")]));
    run_ok(&mut samehost(&["mv", &at("tree/a/large"), &at("made/moved")]));
    assert!(run_ok(&mut samehost(&["stat", &at("made/moved")])).contains("5000003"));
    let cat = run(&mut samehost(&["cat", &at("made/moved")]));
    assert!(cat.status.success() && cat.stdout == pattern(5, 5_000_003), "what cat gave differs");
    run_ok(&mut samehost(&["df", &url]));
    run_ok(&mut samehost(&["rm", "-r", &at("tree"), &at("made")]));
    assert_eq!(fs::read_dir(&export).expect("own directory").count(), 0, "entries left");

    // There is no lane, it says why, and who insists is told with an exit code.
    let probe = run(&mut samehost(&["probe", &url]));
    assert_eq!(probe.status.code(), Some(3), "{probe:?}");
    assert!(String::from_utf8_lossy(&probe.stdout).contains("local: no"), "{probe:?}");
    let missing = run(&mut samehost(&["cat", &at("nothing")]));
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
}
