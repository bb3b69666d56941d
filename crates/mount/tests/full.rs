//! A full filesystem over the lane: write(2) returns a short count first and then the error, as on a local
//! disk. `write_behind` tests the wire.

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use support::{Served, SmallFilesystem, Transport};

/// The results of write(2)s of 2 MiB until one fails, and the size of the file after that.
fn fill(path: &Path) -> (Vec<Result<usize, Option<i32>>>, u64) {
    let (mut file, data, mut said) = (File::create(path).unwrap(), vec![7; 2 << 20], Vec::new());
    while !matches!(said.last(), Some(Err(_))) {
        said.push(file.write(&data).map_err(|error| error.raw_os_error()));
    }
    let size = file.metadata().unwrap().len();
    drop(file);
    fs::remove_file(path).unwrap();
    (said, size)
}

#[test]
fn a_partial_write_returns_its_count_before_the_error() {
    let mut served = Served::start();
    let export = served.export();
    // The kernel's WRITEs carry 1 MiB: the third one fits in part.
    let _small = SmallFilesystem::mount(&export);
    served.restart();
    let raw = fill(&export.join("file"));
    assert!(raw.1 > 2 << 20 && raw.0.last() == Some(&Err(Some(28))), "{raw:?}");
    for transport in [Transport::Passed, Transport::Served] {
        let mounted = served.mount(transport);
        assert_eq!(fill(&mounted.path("file")), raw, "{transport:?}");
    }
}
