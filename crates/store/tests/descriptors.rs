//! A process without free descriptors. In a test binary of its own, because the limit applies to the process.

extern crate samehost_store as store;

mod common;

use common::{Export, local, root, root_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FILES: usize = 60;

#[test]
fn caches_release_descriptors_for_a_call() {
    let export = Export::new();
    local(|| {
        for number in 0..FILES {
            std::fs::write(export.path(&format!("f{number}")), "data").expect("writes");
        }
    });
    // More than the limit: other code in the process may have taken the caches' share.
    let store = export.open_with(|options| {
        options.limits = store::DescriptorLimits { nodes: 4096, data: 4096, preserved: 4096 }
    });
    let context = store.as_user(&root()).expect("acts");
    let dir = root_of(&context, &store);
    let enough = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..enough }).expect("sets");
    let mut held = Vec::new();
    for number in 0..FILES {
        // A file costs two descriptors, so there are more files than descriptors.
        let node = context.lookup(&dir, format!("f{number}").as_bytes()).expect("finds");
        let mut buffer = [0; 4];
        context.read(&node, 0, &mut buffer).expect("reads");
        assert_eq!(&buffer, b"data");
        if number % 10 == 0 {
            held.push(node);
        }
    }
    for node in &held {
        context.read(node, 0, &mut [0; 4]).expect("nodes in use stay open");
    }
    setrlimit(Resource::Nofile, enough).expect("sets");
}
