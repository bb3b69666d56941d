//! A process without a descriptor left. A test of its own, for the limit is the process's.

extern crate samehost_store as store;

mod common;

use common::{Export, local, root, root_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FILES: usize = 60;

#[test]
fn what_is_kept_for_later_gives_way_to_the_call_at_hand() {
    let export = Export::new();
    local(|| {
        for number in 0..FILES {
            std::fs::write(export.path(&format!("f{number}")), "data").expect("writes");
        }
    });
    // As it may come when something else in the process, or on the host, has taken what was the caches'.
    let store = export.open_with(|options| {
        options.limits = store::DescriptorLimits { nodes: 4096, data: 4096, preserved: 4096 }
    });
    let acting = store.as_user(&root()).expect("acts");
    let dir = root_of(&acting, &store);
    let enough = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..enough }).expect("sets");
    let mut held = Vec::new();
    for number in 0..FILES {
        // A file costs two descriptors: there are more files than descriptors.
        let node = acting.lookup(&dir, format!("f{number}").as_bytes()).expect("finds");
        let mut buffer = [0; 4];
        acting.read(&node, 0, &mut buffer).expect("reads");
        assert_eq!(&buffer, b"data");
        if number % 10 == 0 {
            held.push(node);
        }
    }
    for node in &held {
        acting.read(node, 0, &mut [0; 4]).expect("what is in use stays");
    }
    setrlimit(Resource::Nofile, enough).expect("sets");
}
