//! Licences: `deny.toml` must allow the licence of every dependency.

use super::files;
use super::findings::Findings;
use super::metadata::packages;
use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

/// Checks all packages, those of the workspace included.
pub fn check(metadata: &Value) -> Findings {
    let allowed = allowed();
    let mut found = Findings::default();
    for package in packages(metadata) {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let Some(licence) = package["license"].as_str() else {
            found.add("Cargo.lock", 1, &format!("{name} doesn't say its licence"));
            continue;
        };
        match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(terms) if terms.evaluate(|one| allowed.iter().any(|licensee| licensee.satisfies(one))) => {}
            Ok(_) => found.add("Cargo.lock", 1, &format!("{name} is under {licence}")),
            Err(e) => found.add("Cargo.lock", 1, &format!("{name}'s licence can't be read: {e}")),
        }
    }
    found
}

/// The list `allow` of `deny.toml`'s section `[licenses]`: strings, one on a line.
fn allowed() -> Vec<Licensee> {
    let path = files::root().join("deny.toml");
    let deny = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = deny.lines().skip_while(|line| *line != "[licenses]").skip_while(|line| *line != "allow = [");
    let list: Vec<_> = lines
        .skip(1)
        .take_while(|line| *line != "]")
        .map(|line| line.trim().trim_matches([',', '"']))
        .map(|one| Licensee::parse(one).unwrap_or_else(|e| panic!("deny.toml: {e}")))
        .collect();
    assert!(!list.is_empty(), "deny.toml: no `allow` in [licenses]");
    list
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}
