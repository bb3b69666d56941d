//! Objects, guards and watches in a real cluster, and what happens without one.
//!
//! The cluster is that of `tests/ceph/run`, by the environment variable `SAMEHOST_TEST_CEPH`: `make
//! test-cluster` sets it. Without it, or without librados, the tests say so and pass.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use samehost_rados::{Error, Guard, ObjectChange, ObjectNamespace, Reason, Settings};

/// How long to wait for a condition.
const CONDITION: Duration = Duration::from_secs(60);

fn settings(namespace: &str, configuration: Option<PathBuf>, timeout: Duration) -> Settings {
    let address = format!("rados://cephfs.a.meta/{namespace}").parse().unwrap();
    Settings { address, user: "admin".to_owned(), configuration, timeout }
}

fn has_librados() -> bool {
    let loaded = sys::librados::load();
    if let Err(error) = &loaded {
        eprintln!("skipped: no librados here ({error:?}); `scripts/setup cluster` installs it");
    }
    loaded.is_ok()
}

/// A fresh namespace of the test cluster, if there is one.
fn namespace(name: &str) -> Option<ObjectNamespace> {
    let Some(configuration) = std::env::var_os("SAMEHOST_TEST_CEPH") else {
        eprintln!("skipped: no Ceph here (SAMEHOST_TEST_CEPH); `make test-cluster` starts one");
        return None;
    };
    Some(ObjectNamespace::connect(&settings(name, Some(configuration.into()), CONDITION)).unwrap())
}

/// Set in the process of an abandoned connection.
const ABANDONS: &str = "SAMEHOST_TEST_RADOS_ABANDONS";

/// An abandoned connection leaves threads of librados behind. The exit handlers of a process destroy what
/// they use, so it is made in a process of its own that ends without them.
#[test]
fn what_is_missing_is_named() {
    if !has_librados() {
        return;
    }
    if std::env::var_os(ABANDONS).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let this = ["--exact", "what_is_missing_is_named", "--nocapture"];
        assert!(command.args(this).env(ABANDONS, "yes").status().unwrap().success());
        return;
    }
    let missing = PathBuf::from("/nonexistent/ceph.conf");
    let error = ObjectNamespace::connect(&settings("n", Some(missing), CONDITION)).unwrap_err();
    assert!(matches!(error, Error::Connect { step: "read the configuration", .. }), "{error}");
    assert!(error.to_string().contains("copy a Ceph configuration to /nonexistent/ceph.conf"), "{error}");
    // A monitor that accepts connections and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let configuration = directory.path().join("ceph.conf");
    let monitor = silent.local_addr().unwrap();
    let text =
        format!("[global]\nmon_host = v2:{monitor}/0\nkeyring = /nonexistent\nauth_client_required = none\n");
    std::fs::write(&configuration, text).unwrap();
    let begun = Instant::now();
    let timeout = Duration::from_secs(1);
    let error = ObjectNamespace::connect(&settings("n", Some(configuration), timeout)).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() < CONDITION, "it gives up in time");
    assert!(error.to_string().contains("no answer within 1 s"), "{error}");
    sys::librados::exit_with_librados(0);
}

#[test]
fn objects_are_read_and_changed_under_guards() {
    let Some(namespace) = namespace("objects") else { return };
    let reason = |result: Result<u64, samehost_rados::ObjectError>| result.unwrap_err().reason;
    let object = "object";
    let missing = namespace.read(object).unwrap_err();
    assert_eq!(missing.reason, Reason::Missing);
    assert_eq!(
        missing.to_string(),
        "rados://cephfs.a.meta/objects: can't read object object: there is no such object"
    );
    let change = ObjectChange { data: Some(b"data"), set: &[(b"key", b"value")], ..ObjectChange::default() };
    let first = namespace.change(object, Guard::Absent, change).unwrap();
    assert_eq!(reason(namespace.change(object, Guard::Absent, change)), Reason::Exists);
    let read = namespace.read(object).unwrap();
    assert_eq!((read.version, read.data.as_slice()), (first, &b"data"[..]));
    assert_eq!(read.omap, [(b"key".to_vec(), b"value".to_vec())]);
    let change = ObjectChange {
        remove: &[b"key"],
        set: &[(b"b", b"\0"), (b"a", b"")],
        set_attributes: &[(c"name", b"v\0w"), (c"other", b"")],
        ..ObjectChange::default()
    };
    let second = namespace.change(object, Guard::Version(first), change).unwrap();
    assert_eq!(reason(namespace.change(object, Guard::Version(first), change)), Reason::Changed);
    assert_eq!(reason(namespace.change(object, Guard::Version(second + 9), change)), Reason::Changed);
    let read = namespace.read(object).unwrap();
    assert_eq!((read.version, read.data.as_slice()), (second, &b"data"[..]));
    assert_eq!(read.omap, [(b"a".to_vec(), vec![]), (b"b".to_vec(), vec![0])]);
    let mut attributes = read.attributes;
    attributes.sort();
    assert_eq!(attributes, [(b"name".to_vec(), b"v\0w".to_vec()), (b"other".to_vec(), vec![])]);
    let change =
        ObjectChange { clear: true, remove_attributes: &[c"name", c"other"], ..ObjectChange::default() };
    namespace.change(object, Guard::None, change).unwrap();
    let read = namespace.read(object).unwrap();
    assert!(read.omap.is_empty() && read.attributes.is_empty());
    // An omap of several pages.
    let keys: Vec<_> = (0..2500_u32).map(|key| key.to_be_bytes().map(|byte| byte | 0x40)).collect();
    let set: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"x"[..])).collect();
    namespace.change(object, Guard::None, ObjectChange { set: &set, ..ObjectChange::default() }).unwrap();
    let unique: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(namespace.read(object).unwrap().omap.len(), unique.len());
    namespace.remove(object).unwrap();
    assert_eq!(namespace.remove(object).unwrap_err().reason, Reason::Missing);
    assert!(namespace.instance_id() > 0);
    assert!(namespace.addresses().unwrap().contains("10.91.0.1"), "{:?}", namespace.addresses());
}

#[test]
fn a_change_is_heard_of() {
    let Some(writer) = namespace("watches") else { return };
    let reader = namespace("watches").unwrap();
    assert_eq!(reader.watch("object").unwrap_err().reason, Reason::Missing);
    writer.change("object", Guard::Absent, ObjectChange::default()).unwrap();
    let watch = reader.watch("object").unwrap();
    let begun = Instant::now();
    writer.notify("object").unwrap();
    watch.wait(CONDITION).unwrap();
    assert!(begun.elapsed() < CONDITION, "the notification ends the wait");
    watch.waker().wake();
    watch.wait(CONDITION).unwrap();
    assert!(begun.elapsed() < CONDITION, "so does the waker");
    watch.wait(Duration::from_millis(1)).unwrap();
    // The watch outlives other handles, and its connection ends with it.
    drop(reader);
    writer.notify("object").unwrap();
    watch.wait(CONDITION).unwrap();
    assert!(begun.elapsed() < CONDITION);
}
