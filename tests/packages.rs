//! The published form of the crates: cargo makes a package of each, without a warning, and each has its
//! licences, its readme and registry dependencies only.
//!
//! The packages are made from one another, as cargo publishes several at once. `make package` also compiles
//! each from its package.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use samehost_tests::{Scratch, run, run_ok, workspace};
use serde_json::Value;

/// The packages that are not published: tests and benchmarks.
const PRIVATE: [&str; 2] = ["samehost-tests", "samehost-bench"];

#[test]
fn every_crate_can_be_published() {
    let scratch = Scratch::new();
    let target = scratch.path().join("target");
    let mut command = Command::new(env!("CARGO"));
    // Without network access: the build has cached the registry's index. The tests may run on a changed tree.
    command.args(["package", "--workspace", "--no-verify", "--offline", "--allow-dirty"]);
    command.args(PRIVATE.iter().flat_map(|name| ["--exclude", name]));
    command.arg("--target-dir").arg(&target).current_dir(workspace());
    let output = run(&mut command);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(!printed.contains("warning:"), "{printed}");

    for package in published() {
        let name = format!("{}-{}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
        check(&target.join("package").join(format!("{name}.crate")), &name);
    }
}

/// The workspace's packages that may be published.
fn published() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]);
    let output = run_ok(command.current_dir(workspace()));
    let metadata: Value = serde_json::from_str(&output).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    let (published, private): (Vec<_>, Vec<_>) =
        packages.into_iter().partition(|package| package["publish"].is_null());
    let private: BTreeSet<_> = private.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(private, PRIVATE.into(), "the packages with `publish = false`");
    published
}

/// Checks the files and the normalised manifest of a package.
fn check(package: &Path, name: &str) {
    let listed = run_ok(Command::new("tar").arg("-tzf").arg(package));
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.lock"] {
        let path = format!("{name}/{file}");
        assert!(listed.lines().any(|line| line == path), "{name} has no {file}:\n{listed}");
    }
    let manifest = run_ok(Command::new("tar").arg("-xzOf").arg(package).arg(format!("{name}/Cargo.toml")));
    let has_key = |key: &str| manifest.lines().any(|line| line.starts_with(&format!("{key} = ")));
    for key in ["description", "license", "readme", "repository", "rust-version"] {
        assert!(has_key(key), "{name} has no {key}:\n{manifest}");
    }
    // Below a dependency's header there is a version, and no path of this workspace.
    let is_dependency =
        |section: &&str| section.lines().next().is_some_and(|it| it.contains("dependencies."));
    for section in manifest.split("\n[").skip(1).filter(is_dependency) {
        assert!(section.contains("\nversion = "), "{name}: a dependency without a version:\n{section}");
        assert!(!section.contains("\npath = "), "{name}: a dependency by path:\n{section}");
    }
}
