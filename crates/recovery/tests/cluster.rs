//! The state that the servers of a cluster share, in a real cluster.
//!
//! The cluster is that of `tests/ceph/run`, by the environment variable `SAMEHOST_TEST_CEPH`: `make
//! test-cluster` sets it. Without it the tests say so and pass.

use std::time::Duration;

use fairness::Peer;
use rados::{Guard, ObjectChange, ObjectNamespace, Reason, Settings};
use samehost_recovery::{
    ClientRecord, ClusterRecords, GraceDatabase, RecordHolder, RecoveryStore as _, cluster_handle_key,
};

/// How long Ceph may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A fresh namespace of the test cluster, if there is one.
fn objects(name: &str) -> Option<ObjectNamespace> {
    let Some(configuration) = std::env::var_os("SAMEHOST_TEST_CEPH") else {
        eprintln!("skipped: no Ceph here (SAMEHOST_TEST_CEPH); `make test-cluster` starts one");
        return None;
    };
    let settings = Settings {
        address: format!("rados://cephfs.a.meta/{name}").parse().unwrap(),
        user: "admin".to_owned(),
        configuration: Some(configuration.into()),
        timeout: TIMEOUT,
    };
    Some(ObjectNamespace::connect(&settings).unwrap())
}

#[test]
fn changes_of_the_grace_database_are_guarded_and_announced() {
    let Some(objects) = objects("database") else { return };
    let grace = GraceDatabase::new(objects);
    assert_eq!(grace.read().unwrap_err().reason(), Some(Reason::Missing));
    assert_eq!(grace.update(false, |old| old.add("a")).unwrap_err().reason(), Some(Reason::Missing));
    grace.update(true, |old| old.add("a")).unwrap();
    let watch = grace.watch().unwrap();
    let first = grace.read().unwrap();
    let new = first.database.add("b").unwrap().resume("a", "client.1").unwrap();
    let version = grace.write(first.version, &first.database, &new).unwrap();
    watch.wait(TIMEOUT).unwrap();
    let second = grace.read().unwrap();
    assert_eq!((second.version, &second.database), (version, &new));
    assert_eq!(second.database.notes["a"].sessions, ["client.1"]);
    let late = grace.write(first.version, &first.database, &new).unwrap_err();
    assert_eq!(late.reason(), Some(Reason::Changed));
    // Attributes and keys that the new content lacks are removed.
    let gone = second.database.stop("a").unwrap().remove("a").unwrap();
    grace.write(version, &second.database, &gone).unwrap();
    assert_eq!(grace.read().unwrap().database, gone);
    // Two processes that change it at once: both changes are made.
    std::thread::scope(|scope| {
        for node in ["c", "d", "e", "f"] {
            let grace = &grace;
            scope.spawn(move || grace.update(false, |old| old.add(node)).unwrap());
        }
    });
    let nodes: Vec<_> = grace.read().unwrap().database.nodes.into_keys().collect();
    assert_eq!(nodes, ["b", "c", "d", "e", "f"]);
}

fn holder(host: u8) -> RecordHolder {
    RecordHolder { peer: Peer::V4([192, 0, 2, host]), principal: "uid 0".to_owned() }
}

fn record(instance: &[u8]) -> ClientRecord {
    ClientRecord { instance: instance.to_vec(), holder: Some(holder(1)) }
}

#[test]
fn clients_are_recorded_by_epoch() {
    let Some(objects) = objects("records") else { return };
    let records = ClusterRecords::new(objects.clone(), "a");
    assert!(records.find("a", 9).unwrap().is_none());
    assert!(records.add_client(&record(b"\0\0\0\0\0\0\0\x01early")).is_err(), "there is no epoch yet");
    records.set_lease(Duration::from_secs(90)).unwrap();
    let (one, two) = (record(b"\0\0\0\0\0\0\0\x01one"), record(b"\0\0\0\0\0\0\0\x02t/w\xff"));
    let moved = ClientRecord { holder: Some(holder(9)), ..one.clone() };
    records.open(5, false).unwrap();
    for client in [&one, &two, &two, &moved] {
        records.add_client(client).unwrap();
    }
    let found = records.find("a", 9).unwrap().unwrap();
    let mut clients = found.recovered.clients;
    clients.sort_by(|a, b| a.instance.cmp(&b.instance));
    assert_eq!((found.epoch, clients), (5, vec![moved, two.clone()]));
    assert_eq!(found.recovered.lease, Some(Duration::from_secs(90)));
    records.remove_client(&one.instance).unwrap();
    // The next epoch begins with the clients that are left.
    records.open(6, true).unwrap();
    let next = ClusterRecords::new(objects.clone(), "a");
    assert_eq!(next.find("a", 6).unwrap().unwrap().recovered.clients, std::slice::from_ref(&two));
    assert_eq!(next.find("a", 5).unwrap().unwrap().epoch, 5);
    // Until the last epoch's records are removed, a client loses both.
    records.remove_client(&two.instance).unwrap();
    assert!(next.find("a", 5).unwrap().unwrap().recovered.clients.is_empty());
    records.add_client(&two).unwrap();
    records.remove("a", 5).unwrap();
    records.remove_client(&one.instance).unwrap();
    assert!(next.find("a", 5).unwrap().is_none(), "it is not created again");
    assert!(next.find("b", 6).unwrap().is_none());
    // nfs-ganesha's records and other damage are reported.
    let foreign: [(&[u8], &[u8]); 1] = [(b"4711", b"10.0.0.1-(4:host)")];
    let change = ObjectChange { set: &foreign, ..ObjectChange::default() };
    objects.change("rec-0000000000000006:a", Guard::None, change).unwrap();
    let found = next.find("a", 6).unwrap().unwrap().recovered;
    assert_eq!((found.clients.len(), found.damaged.len()), (1, 1));
    assert!(found.damaged[0].contains("rec-0000000000000006:a, key 4711"), "{:?}", found.damaged);
    next.remove("a", 6).unwrap();
    assert!(next.find("a", 6).unwrap().is_none());
}

#[test]
fn the_handle_key_is_made_once() {
    let Some(objects) = objects("key") else { return };
    let keys: Vec<_> = std::thread::scope(|scope| {
        let make = || scope.spawn(|| cluster_handle_key(&objects).unwrap());
        let threads: Vec<_> = (0..4).map(|_| make()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0] && *key != [0; 16]));
    let short = ObjectChange { data: Some(&[1; 15]), ..ObjectChange::default() };
    objects.change("samehost-handle-key", Guard::None, short).unwrap();
    let error = cluster_handle_key(&objects).unwrap_err().to_string();
    assert!(error.contains("object samehost-handle-key") && error.contains("16 bytes"), "{error}");
}
