//! Files that `make install` and the packages install: units, manual pages, versions. `make test-packages`
//! tries a whole package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_tests::samehost::binary;
use samehost_tests::{Scratch, run, run_ok};

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

#[test]
fn systemd_accepts_the_units() {
    let scratch = Scratch::new();
    for unit in ["samehost.service", "samehost-mount@.service"] {
        let text = fs::read_to_string(packaging().join("systemd").join(unit)).expect("the unit");
        let installed = text.replace("/usr/bin/samehost", &binary().display().to_string());
        assert_ne!(installed, text, "{unit} doesn't start the command");
        fs::write(scratch.join(unit), installed).expect("own directory");
    }
    for unit in ["samehost.service", "samehost-mount@mnt-data.service"] {
        let mut verify = Command::new("systemd-analyze");
        let output = run(verify.args(["verify", "--man=no"]).arg(scratch.join(unit)));
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        // Complaints about other units of this machine aren't ours.
        let ours = complaints.lines().filter(|line| line.contains("samehost"));
        assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new(), "{unit}");
    }
}

#[test]
fn manual_pages_have_no_errors() {
    let scratch = Scratch::new();
    run_ok(Command::new(binary()).arg("man").arg(scratch.path()));
    let pages = fs::read_dir(scratch.path()).expect("own directory");
    let pages: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    for name in ["samehost.1", "samehost.toml.5", "samehost-exports.5", "mount.samehost.8"] {
        assert!(pages.iter().any(|page| page.ends_with(name)), "{name}: {pages:?}");
    }
    run_ok(Command::new("mandoc").args(["-T", "lint", "-W", "error"]).args(&pages));
}

#[test]
fn packages_have_the_version_of_the_workspace() {
    let changelog = fs::read_to_string(packaging().join("debian/changelog")).expect("the changelog");
    let version = format!("samehost ({}) ", env!("CARGO_PKG_VERSION"));
    assert!(changelog.starts_with(&version), "{version}: {changelog}");
    let spec = fs::read_to_string(packaging().join("rpm/samehost.spec")).expect("the RPM spec");
    let version = concat!("\nVersion:        ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(spec.contains(version), "{version}: {spec}");
}
