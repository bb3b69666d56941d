//! Repeats one operation on a store, for counting its system calls and timing it:
//! `strace -f -c target/release/examples/syscalls read 100000 1000 /dev/shm`.

extern crate samehost_store as store;

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use store::{CreateHow, HandleKey, Identity, SetAttributes, Store, StoreOptions, Wcc, WriteVerifier};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "read".into());
    let count: u32 = arguments.next().as_deref().unwrap_or("100000").parse()?;
    let uid: u32 = arguments.next().as_deref().unwrap_or("1000").parse()?;
    let place = arguments.next().unwrap_or_else(|| "/dev/shm".into());

    rustix::process::umask(rustix::fs::Mode::empty());
    let dir = tempfile::tempdir_in(place)?;
    rustix::fs::chmod(dir.path(), rustix::fs::Mode::from_raw_mode(0o777))?;
    let store = Store::open(StoreOptions {
        path: dir.path().to_owned(),
        export_id: 1,
        key: HandleKey::new([1; 16]),
        read_only: false,
        subtree_check: false,
        verifier: Arc::new(WriteVerifier::new()),
        limits: store::DescriptorLimits::default(),
        reserved_name: None,
    })?;
    let handle = {
        let context = store.as_user(&Identity { uid: 2000, gid: 2000, groups: vec![] })?;
        let root = context.node(store.root().as_bytes())?;
        let open_to_all = SetAttributes { mode: Some(0o666), ..SetAttributes::default() };
        let node = context.create(&root, b"file", &CreateHow::Unchecked(open_to_all), &mut Wcc::default())?;
        context.write(&node, 0, &[7; 65536], io::Stability::Unstable, &mut Wcc::default())?;
        *node.handle()
    };
    let identity = Identity { uid, gid: uid, groups: vec![1, 2, 3] };
    let mut buffer = [0; 4096];
    let started = Instant::now();
    for index in 0..count {
        let context = store.as_user(&identity)?;
        let offset = u64::from(index % 16) * 4096;
        match what.as_str() {
            "lookup" => {
                let root = context.node(store.root().as_bytes())?;
                context.lookup(&root, b"file")?;
            }
            "write" => {
                let node = context.node(handle.as_bytes())?;
                context.write(&node, offset, &buffer, io::Stability::Unstable, &mut Wcc::default())?;
            }
            "read" => {
                let node = context.node(handle.as_bytes())?;
                context.read(&node, offset, &mut buffer)?;
            }
            other => return Err(format!("read, write or lookup, not {other}").into()),
        }
    }
    let each = started.elapsed().as_nanos() / u128::from(count.max(1));
    store::restore_process_ids();
    println!("{what} as uid {uid}: {each} ns each");
    Ok(())
}
