//! Exports to netgroups: innetgr(3) finds a client's host in /etc/netgroup, also in a group inside another.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use samehost_tests::samehost::reachable_binary;
use samehost_tests::{Daemon, Scratch, need_root, run, wait_for};

#[test]
fn hosts_of_a_netgroup_are_admitted_and_others_are_not() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    fs::write(export.join("file"), "data").expect("own directory");
    let exports = scratch.join("exports");
    let write = |group: &str| {
        let line = format!("{} @{group}(rw,insecure,no_root_squash)\n", export.display());
        fs::write(&exports, line).expect("own directory");
    };
    write("all");
    for (name, text) in [
        ("hosts", "127.0.0.1 client.example\n"),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nnetgroup: files\n"),
        (
            "netgroup",
            "inner (client.example,,)\nall (elsewhere.example,,) inner\nothers (elsewhere.example,,)\n",
        ),
    ] {
        fs::write(scratch.join(name), text).expect("own directory");
    }
    let samehost = reachable_binary(&scratch);
    let directory = scratch.path().display();
    let script = format!(
        "set -e; cp -a /etc {directory}/etc; cd {directory}; cp hosts nsswitch.conf netgroup etc; mount \
         --bind etc /etc; exec {} serve --listen 127.0.0.1:0 --no-rpcbind --run-dir run --state-dir state \
         --exports exports",
        samehost.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let server = Daemon::start("the server", &mut command, &scratch.join("log")).expect("it starts");
    let address = server.served_address();
    let is_admitted = || {
        let url = format!("nfs://{address}{}/file", export.display());
        let output = run(Command::new(&samehost).args(["cat", "--soft", "--lane", "off", &url]));
        output.status.success() && output.stdout == b"data"
    };
    assert!(is_admitted(), "{}", server.log());
    write("others");
    server.signal(Signal::HUP);
    wait_for("the new exports", || (!is_admitted()).then_some(()));
    wait_for("the reason", || server.log().contains("not exported to this client").then_some(()));
}
