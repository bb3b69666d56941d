//! The order of the workspace's crates: the permitted dependencies between them.
//!
//! A crate may use only crates before it in the list. Crates of the client's side and of the server's side
//! share those of the ground floor only.

use super::files;
use super::findings::Findings;
use super::metadata::packages;
use Floor::{Client, Ground, Server, Top};
use serde_json::Value;
use std::path::Path;

/// A crate's position in the drawing of ARCHITECTURE.md.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Floor {
    /// For both sides.
    Ground,
    /// The server's side.
    Server,
    /// The client's side.
    Client,
    /// The command, which may use all crates.
    Top,
}

/// The crates; each may use those before it.
const HOUSE: &[(&str, Floor)] = &[
    ("sys", Ground),
    ("fairness", Ground),
    ("lock-ranges", Ground),
    ("user-ids", Ground),
    ("xdr-derive", Ground),
    ("xdr", Ground),
    ("rpc", Ground),
    ("proto", Ground),
    ("acl", Ground),
    ("exports", Server),
    ("io", Ground),
    ("store", Server),
    ("state", Server),
    ("cluster", Server),
    ("rados", Server),
    ("recovery", Server),
    ("lane", Ground),
    ("control", Ground),
    ("server", Server),
    ("client-state", Client),
    ("client", Client),
    ("mount", Client),
    ("samehost", Top),
];

/// Dependencies that the order permits and that a crate must not have all the same.
const KNOWS_NOT: &[(&str, &[&str], &str)] = &[
    ("fairness", &["sys"], "counts, and touches nothing"),
    ("lock-ranges", &["sys", "fairness"], "pure functions"),
    ("proto", &["rpc", "sys", "user-ids"], "wire types have no behaviour"),
    ("acl", &["fairness", "lock-ranges", "user-ids", "rpc"], "pure functions"),
    ("exports", &["xdr", "rpc", "proto"], "pure functions"),
    ("io", &["xdr", "rpc", "proto"], "moves bytes, knows no protocol"),
    ("store", &["xdr", "rpc", "proto", "exports"], "a filesystem, knows no protocol"),
    (
        "state",
        &["sys", "user-ids", "xdr", "rpc", "proto", "exports", "io", "store"],
        "decides, and touches nothing",
    ),
    (
        "client-state",
        &["sys", "user-ids", "xdr", "rpc", "proto", "io", "lane", "control"],
        "decides, and touches nothing",
    ),
    ("rados", &["user-ids", "xdr", "rpc", "proto", "exports", "io", "store", "state"], "objects only"),
    (
        "cluster",
        &["sys", "user-ids", "xdr", "rpc", "proto", "exports", "io", "store", "state"],
        "decides, and touches nothing",
    ),
    (
        "recovery",
        &["xdr", "rpc", "proto", "exports", "io", "store", "state"],
        "stable storage, knows no protocol",
    ),
    ("lane", &["rpc", "proto"], "knows files and credentials, not NFS"),
    ("control", &["xdr", "rpc", "proto", "io"], "an exchange of JSON"),
];

/// Dependencies that only a crate's tests may have.
const TESTED_WITH: &[(&str, &str, &str)] = &[
    ("client-state", "state", "a client's state meets the server's in a test"),
    ("client", "server", "the tests of a client need a server"),
    ("mount", "server", "the tests of a mount need a server"),
];

/// Checks the dependencies of every crate in `crates/`.
pub fn check(metadata: &Value) -> Findings {
    let mut found = Findings::default();
    for package in packages(metadata).iter().filter(|package| package["source"].is_null()) {
        let manifest = Path::new(text(&package["manifest_path"]));
        let path = manifest.strip_prefix(files::root()).unwrap_or(manifest).to_string_lossy().into_owned();
        // tests/ and bench/ may use all crates.
        let Some(room) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let manifest = std::fs::read_to_string(manifest).unwrap_or_else(|e| panic!("{path}: {e}"));
        // sys has the same lints, except the one against `unsafe`.
        if room != "sys" && !manifest.contains("[lints]\nworkspace = true") {
            found.add(&path, 1, "the manifest doesn't inherit the workspace's lints");
        }
        if package_name(room) != text(&package["name"]) {
            found.add(&path, 1, &format!("the package of {room} is called {}", package_name(room)));
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(used) = dependency["path"].as_str() else { continue };
            let used = Path::new(used).file_name().unwrap_or_default().to_string_lossy();
            let excused = dependency["kind"] == "dev"
                && TESTED_WITH.iter().any(|(tested, with, _)| *tested == room && *with == used);
            if let (false, Err(why)) = (excused, may_use(room, &used)) {
                found.add(&path, line_of(&manifest, &used), &why);
            }
        }
    }
    found
}

fn package_name(room: &str) -> String {
    if room == "samehost" { room.to_owned() } else { format!("samehost-{room}") }
}

/// Whether the crate `user` may use the crate `used`, or why not.
fn may_use(user: &str, used: &str) -> Result<(), String> {
    let place = |name: &str| {
        let place = HOUSE.iter().position(|(room, _)| *room == name);
        place.ok_or_else(|| format!("{name} isn't in the order of crates"))
    };
    let (high, low) = (place(user)?, place(used)?);
    if low >= high {
        return Err(format!("{user} must not use {used}: it comes before it in the order"));
    }
    let (above, below) = (HOUSE[high].1, HOUSE[low].1);
    if below != Ground && below != above && above != Top {
        return Err(format!("{user} must not use {used}: the two sides meet on the ground floor only"));
    }
    match KNOWS_NOT.iter().find(|(room, others, _)| *room == user && others.contains(&used)) {
        Some((_, _, why)) => Err(format!("{user} must not use {used}: {why}")),
        None => Ok(()),
    }
}

/// The line of a dependency in a manifest, from 1.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let stands =
        |line: &str| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(stands).map_or(1, |line| line + 1)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[test]
fn permitted_and_forbidden_dependencies() {
    assert!(may_use("server", "store").is_ok() && may_use("client", "lane").is_ok());
    assert!(may_use("samehost", "server").is_ok() && may_use("samehost", "client").is_ok());
    for (user, used) in [
        ("client", "server"),
        ("client", "exports"),
        ("client", "store"),
        ("mount", "server"),
        ("lane", "store"),
        ("lane", "rpc"),
        ("xdr", "rpc"),
        ("proto", "rpc"),
        ("sys", "sys"),
        ("attic", "sys"),
        ("server", "attic"),
    ] {
        assert!(may_use(user, used).is_err(), "{user} -> {used}");
    }
}
