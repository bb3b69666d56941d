//! Checks of the source tree: the order of the crates, `unsafe` in crate `sys` only, a header for each
//! module, bounds of queues, unfinished work, line lengths, names, and the licences of dependencies.
//!
//! A finding names its file and line. The code must be changed then. The lists here have the few exceptions,
//! each with its reason.

#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/findings.rs"]
mod findings;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/metadata.rs"]
mod metadata;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/plan.rs"]
mod plan;
#[path = "tidy/sources.rs"]
mod sources;

use findings::Findings;
use sources::{Source, Token};
use std::collections::{BTreeMap, BTreeSet};

/// The longest line, in characters.
const MAX_COLUMNS: usize = 110;

/// Constructors and types of queues without a bound. `takes_no_bound` finds `channel()` of the standard
/// library's `mpsc`.
const UNBOUNDED: &[&str] =
    &["unbounded", "unbounded_channel", "UnboundedSender", "UnboundedReceiver", "SegQueue", "sync_unbounded"];

/// Permitted uses of [`UNBOUNDED`]: file, name, and what bounds the queue instead.
const BOUNDED_OTHERWISE: &[(&str, &str, &str)] = &[];

/// Type names that are idiomatic in every crate.
const SHARED_TYPE_NAMES: &[&str] = &["Error"];

#[test]
fn crates_depend_on_permitted_crates_only() {
    plan::check(metadata::read()).assert_none("dependencies against the plan (ARCHITECTURE.md, the house)");
}

#[test]
fn licences_are_permitted() {
    licences::check(metadata::read()).assert_none("licences that deny.toml doesn't allow");
}

#[test]
fn unsafe_code_is_in_sys_only() {
    let mut found = Findings::default();
    for source in sources::all().iter().filter(|source| !source.path.starts_with("crates/sys/")) {
        for token in source.tokens.iter().filter(|t| t.text == "unsafe" || t.text == "unsafe_code") {
            found.add(&source.path, token.line, "`unsafe` outside crates/sys");
        }
    }
    found.assert_none("unsafe code");
}

#[test]
fn every_module_has_a_header() {
    let mut found = Findings::default();
    for source in sources::all() {
        let header: Vec<_> = source.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        if header.is_empty() {
            found.add(&source.path, 1, "the file doesn't begin with a `//!` header");
        } else if header[0].trim().is_empty() {
            found.add(&source.path, 1, "the `//!` header is empty");
        }
    }
    found.assert_none("modules without a header");
}

#[test]
fn queues_have_bounds() {
    let mut found = Findings::default();
    // A test bounds its queues by what it sends.
    for source in sources::all().iter().filter(|s| s.path.starts_with("crates/") && s.path.contains("/src/"))
    {
        for (at, token) in source.tokens.iter().enumerate() {
            let name = token.text.as_str();
            let unbounded =
                UNBOUNDED.contains(&name) || (name == "channel" && takes_no_bound(&source.tokens, at));
            let excused =
                BOUNDED_OTHERWISE.iter().any(|(path, what, _)| *path == source.path && *what == name);
            if unbounded && !excused {
                found.add(&source.path, token.line, &format!("`{name}` has no bound"));
            }
        }
    }
    for (path, what, reason) in BOUNDED_OTHERWISE {
        let used = |source: &Source| source.path == *path && source.tokens.iter().any(|t| t.text == *what);
        if !sources::all().iter().any(used) {
            found.add("tests/tidy.rs", 1, &format!("{what} in {path} is excused ({reason}) but not there"));
        }
    }
    found.assert_none("unbounded queues");
}

/// Whether the `channel` at `at` is called without arguments: the standard library's unbounded one. Tokio's
/// `oneshot::channel()` has room for one value.
fn takes_no_bound(tokens: &[Token], at: usize) -> bool {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.text == text);
    if at > 0 && (is(at - 1, ".") || is(at - 1, "fn")) || at > 2 && is(at - 3, "oneshot") {
        return false;
    }
    let mut next = at + 1;
    if is(next, ":") && is(next + 1, ":") && is(next + 2, "<") {
        next += 3;
        let mut depth = 1;
        while depth > 0 && next < tokens.len() {
            depth += i32::from(is(next, "<")) - i32::from(is(next, ">") && !is(next - 1, "-"));
            next += 1;
        }
    }
    is(next, "(") && is(next + 1, ")")
}

#[test]
fn lines_are_short_enough_to_read() {
    let mut found = Findings::default();
    let files = files::all();
    let is_long = |line: &str| line.chars().count() > MAX_COLUMNS;
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        for (number, line) in String::from_utf8_lossy(&file.bytes).lines().enumerate() {
            // Each row of a rustdoc table is one line.
            if is_long(line)
                && !line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|')
            {
                found.add(&file.path, number + 1, "longer than 110 columns");
            }
        }
    }
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let mut is_fenced = false;
        for (number, line) in String::from_utf8_lossy(&file.bytes).lines().enumerate() {
            is_fenced ^= line.trim_start().starts_with("```");
            let is_verbatim = is_fenced || line.starts_with("    ") || line.trim_start().starts_with('|');
            if is_long(line) && !is_verbatim {
                found.add(&file.path, number + 1, "longer than 110 columns");
            }
        }
    }
    found.assert_none("long lines");
}

#[test]
fn pictures_are_those_that_their_script_draws() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/pictures");
    let output = std::process::Command::new(script).arg("--check").output().expect("Python 3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn type_names_are_not_shared_by_three_crates() {
    let mut crates_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources::all() {
        let Some((name, "src", _)) = split_path(&source.path) else { continue };
        for pair in source.tokens.windows(2) {
            if matches!(pair[0].text.as_str(), "struct" | "enum" | "trait") {
                crates_of.entry(&pair[1].text).or_default().insert(name);
            }
        }
    }
    let mut found = Findings::default();
    for (name, crates) in crates_of {
        if crates.len() >= 3 && !SHARED_TYPE_NAMES.contains(&name) {
            found.add("crates", 1, &format!("`{name}` is a type in {crates:?}: qualify it"));
        }
    }
    found.assert_none("type names without a qualifier");
}

/// The crate, the folder in it, and the rest of a path below `crates/`.
fn split_path(path: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let (folder, rest) = rest.split_once('/')?;
    Some((name, folder, rest))
}

#[test]
fn names_in_the_documents_exist() {
    names::check().assert_none("names in the documents");
}

#[test]
fn nothing_is_left_unfinished() {
    let unfinished: &[(&[&str], &str)] = &[
        (&["todo", "!"], "`todo!`"),
        (&["unimplemented", "!"], "`unimplemented!`"),
        (&["dbg", "!"], "`dbg!`"),
        (&["#", "[", "ignore"], "a test that is `#[ignore]`d"),
    ];
    let mut found = Findings::default();
    for source in sources::all() {
        for (words, what) in unfinished {
            for window in source.tokens.windows(words.len()) {
                if window.iter().map(|token| token.text.as_str()).eq(words.iter().copied()) {
                    found.add(&source.path, window[0].line, what);
                }
            }
        }
    }
    found.assert_none("unfinished work");
}

#[test]
fn no_private_paths_or_names() {
    // In halves, so that this file isn't a finding.
    let names = [concat!("/wo", "rk/"), concat!(".lib", "rary"), concat!("/tmp/", "plan")];
    let mut found = Findings::default();
    for file in files::all() {
        let text = String::from_utf8_lossy(&file.bytes);
        for (number, line) in text.lines().enumerate() {
            for name in names {
                let mut hits = line.match_indices(name).map(|(at, _)| line[..at].chars().next_back());
                // Behind a letter or the like, it is part of a longer path.
                if hits.any(|before| !before.is_some_and(|c| c.is_alphanumeric() || "._-}*".contains(c))) {
                    found.add(&file.path, number + 1, &format!("names `{name}`"));
                }
            }
        }
    }
    found.assert_none("names of a private place");
}

#[test]
fn the_checks_find_violations() {
    let source = Source::lex(
        "x.rs",
        "//! unsafe todo!()\n\"unsafe\"; // unsafe\nmpsc::channel::<Vec<fn() -> u8>>(); \
         mpsc::channel(5);\nfn channel() {}\noneshot::channel()",
    );
    assert!(source.tokens.iter().all(|token| token.text != "unsafe" && token.text != "todo"));
    let calls = source.tokens.iter().enumerate().filter(|(_, token)| token.text == "channel");
    let lines: Vec<_> = calls.map(|(at, token)| (token.line, takes_no_bound(&source.tokens, at))).collect();
    assert_eq!(lines, [(3, true), (3, false), (4, false), (5, false)]);
}
