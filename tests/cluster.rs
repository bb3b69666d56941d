//! Several servers of one CephFS, with Debian's Ceph.
//!
//! The cluster is that of `tests/ceph/run`, by the environment variable `SAMEHOST_TEST_CEPH`: `make
//! test-cluster` sets it. Without it the tests say so and pass.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};
use std::time::Instant;

use rustix::io::Errno;
use samehost_tests::process::run;
use samehost_tests::samehost::binary;
use samehost_tests::{Scratch, TIMEOUT};
use serde_json::Value;

/// The Ceph configuration, if there is a cluster.
fn ceph() -> Option<String> {
    let configuration = std::env::var("SAMEHOST_TEST_CEPH").ok();
    if configuration.is_none() {
        eprintln!("skipped: no Ceph here (SAMEHOST_TEST_CEPH); `make test-cluster` starts one");
    }
    configuration
}

/// The grace database in a namespace of its own, by our command and by nfs-ganesha's tool.
struct Grace<'a> {
    ceph: &'a str,
    namespace: &'a str,
}

impl Grace<'_> {
    fn samehost(&self, words: &[&str]) -> Output {
        let address = format!("rados://cephfs.a.meta/{}", self.namespace);
        let mut command = Command::new(binary());
        run(command.arg("cluster").args(words).args(["--cluster", &address, "--ceph-conf", self.ceph]))
    }

    /// Ceph's part of the tool aborts now and then ("std::out_of_range", "map::at"), also when all is done:
    /// then it is executed again, and may find its node added or removed already.
    fn ganesha(&self, words: &[&str]) -> String {
        const DONE_ALREADY: [i32; 2] = [Errno::EXIST.raw_os_error(), Errno::NOKEY.raw_os_error()];
        let mut command = Command::new("ganesha-rados-grace");
        command.args(["--cephconf", self.ceph, "--pool", "cephfs.a.meta", "--ns", self.namespace]);
        command.args(words);
        let (begun, mut is_repeated) = (Instant::now(), false);
        loop {
            let output = run(&mut command);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_done = DONE_ALREADY.iter().any(|errno| said.trim() == format!("Failure: -{errno}"));
            if output.status.success() || is_repeated && is_done {
                return String::from_utf8(output.stdout).unwrap();
            }
            is_repeated = output.status.signal().is_some() && begun.elapsed() < TIMEOUT;
            assert!(is_repeated, "{command:?}: {said}");
        }
    }

    fn status(&self) -> Value {
        let output = self.samehost(&["status", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The nodes with their flags, by our command.
    fn nodes(&self) -> Vec<(String, bool, bool)> {
        let status = self.status();
        let node = |node: &Value| {
            let flag = |name: &str| node[name].as_bool().unwrap();
            (node["name"].as_str().unwrap().to_owned(), flag("needs_grace"), flag("enforces"))
        };
        status["nodes"].as_array().unwrap().iter().map(node).collect()
    }
}

#[test]
fn ganeshas_tool_and_ours_show_and_change_one_database() {
    let Some(ceph) = ceph() else { return };
    let grace = Grace { ceph: &ceph, namespace: "tool" };
    let missing = grace.samehost(&["status"]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1), "{said}");
    assert!(said.contains("object grace") && said.contains("samehost cluster add NODE"), "{said}");
    assert!(grace.samehost(&["add", "a", "b"]).status.success());
    let shown = grace.ganesha(&["dump"]);
    assert!(shown.contains("cur=1 rec=0") && shown.contains("a\t E") && shown.contains("b\t E"), "{shown}");
    // What ganesha's tool changes is seen.
    grace.ganesha(&["add", "c"]);
    grace.ganesha(&["noenforce", "a"]);
    let node = |name: &str, needs, enforces| (name.to_owned(), needs, enforces);
    assert_eq!(grace.nodes(), [node("a", false, false), node("b", false, true), node("c", false, true)]);
    grace.ganesha(&["start", "c"]);
    assert_eq!((&grace.status()["epoch"], &grace.status()["recovery_epoch"]), (&2.into(), &1.into()));
    assert_eq!(grace.nodes()[2], node("c", true, true));
    let shown = String::from_utf8(grace.samehost(&["status"]).stdout).unwrap();
    assert!(shown.contains("epoch 2, in grace; clients of epoch 1 may reclaim"), "{shown}");
    assert!(shown.contains("c     NE     its clients may reclaim"), "{shown}");
    // And what ours refuses and changes is seen by ganesha's.
    let refused = grace.samehost(&["remove", "c"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("may have clients"), "{refused:?}");
    assert_eq!(grace.samehost(&["add", "d", "a"]).status.code(), Some(1), "neither is added");
    assert!(!grace.ganesha(&["dump"]).contains("d\t"));
    assert!(grace.samehost(&["remove", "b"]).status.success());
    assert!(!grace.ganesha(&["dump"]).contains("b\t"));
    grace.ganesha(&["enforce", "a"]);
    grace.ganesha(&["lift", "c"]);
    assert_eq!(grace.status()["recovery_epoch"], Value::Null);
}

#[test]
fn a_cluster_that_cannot_be_reached_is_an_error_with_a_next_step() {
    let Some(ceph) = ceph() else { return };
    let run = |words: &[&str]| {
        let output = run(Command::new(binary()).args(["cluster", "status"]).args(words));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&[]);
    assert!(code == Some(2) && said.contains("--cluster rados://POOL/NAMESPACE"), "{said}");
    let (code, said) = run(&["--cluster", "rados://nopool/n", "--ceph-conf", &ceph]);
    assert!(code == Some(4) && said.contains("ceph osd pool ls"), "{said}");
    let user = ["--cluster", "rados://cephfs.a.meta/n", "--ceph-conf", &ceph, "--ceph-user", "nobody"];
    let (code, said) = run(&user);
    assert!(code == Some(4) && said.contains("there is no key of client.nobody"), "{said}");

    // A monitor that doesn't answer, and no librados.
    let scratch = Scratch::new();
    let nowhere = scratch.join("ceph.conf");
    std::fs::write(&nowhere, "[global]\nmon_host = v2:10.91.200.1:3300/0\nauth_client_required = none\n")
        .unwrap();
    let address = ["--cluster", "rados://cephfs.a.meta/n", "--ceph-conf"];
    let (code, said) = run(&[&address[..], &[nowhere.to_str().unwrap()]].concat());
    assert!(code == Some(4) && said.contains("monitors") && said.contains("ceph -s"), "{said}");
    let hide = "library=$(ldconfig -p | sed -n 's/.*librados.so.2 .*=> //p' | head -n 1); \
                mount --bind /dev/null $library && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide, "sh"]).arg(binary()).args(["cluster", "status"]);
    let output = samehost_tests::process::run(command.args(address).arg(&ceph));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && said.contains("librados2"), "{said}");
}

#[test]
fn the_servers_configuration_file_names_the_cluster() {
    let Some(ceph) = ceph() else { return };
    let scratch = Scratch::new();
    let file = scratch.join("samehost.toml");
    let text =
        format!("threads = 4\ncluster = 'rados://cephfs.a.meta/file'\nceph-conf = '{ceph}'\nnode = 'b'\n");
    std::fs::write(&file, text).unwrap();
    let run = |words: &[&str]| {
        let output = run(Command::new(binary()).arg("cluster").args(words).arg("--config").arg(&file));
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        (output.status.code(), said)
    };
    assert_eq!(run(&["add", "b"]), (Some(0), String::new()));
    let (code, shown) = run(&["status"]);
    assert!(
        code == Some(0) && shown.contains("rados://cephfs.a.meta/file: epoch 1, not in grace"),
        "{shown}"
    );
    // Refusals name the node, the reason and the next step.
    for (words, reason, next) in [
        (&["add", "b"][..], "b is a node of the cluster already", "samehost cluster status"),
        (&["remove", "c"], "c isn't a node of the cluster", "samehost cluster status"),
        (&["drain", "b", "--to", "b"], "b can't be drained to itself", ""),
        (&["add", "x/y"], "\"x/y\" can't be the name of a node", "a name has no comma, slash"),
    ] {
        let (code, said) = run(words);
        assert!(code == Some(1) && said.contains(reason) && said.contains(next), "{words:?}: {said}");
    }
}
