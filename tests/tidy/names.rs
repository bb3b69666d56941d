//! Names in documents: the files, folders, modules, types and tests that the documents name exist.
//!
//! The check covers links, words that begin with a folder of the repository, and code in backquotes that
//! looks like a Rust file, a Rust path or a type's name. The end of a path suffices for a file.

use super::files::{self, File};
use super::findings::Findings;
use super::sources::{self, Source};
use std::collections::{BTreeSet, HashMap};

/// Folders of the repository: a word that begins with one of them is a path.
const FOLDERS: &[&str] = &["bench/", "crates/", "docs/", "fuzz/", "scripts/", "tests/"];
/// Paths that builds and tests create.
const MADE: &[&str] = &["fuzz/artifacts"];
/// Names of other programs' settings.
const FOREIGN: &[&str] = &["DirectoryOrCreate", "TimeoutStopSec"];
/// Documents about the past, which may contain former names.
const HISTORY: &[&str] = &["CHANGELOG.md"];

/// The names that the repository has.
struct Names {
    /// Files and folders.
    paths: BTreeSet<String>,
    /// The identifiers of each Rust file.
    identifiers: HashMap<&'static str, BTreeSet<&'static str>>,
}

impl Names {
    fn read(all: &[File]) -> Self {
        let mut paths = BTreeSet::new();
        for file in all {
            let ends = file.path.match_indices('/').map(|(at, _)| at).chain([file.path.len()]);
            paths.extend(ends.map(|end| file.path[..end].to_owned()));
        }
        let identifiers = |source: &'static Source| {
            (source.path.as_str(), source.tokens.iter().map(|token| token.text.as_str()).collect())
        };
        Self { paths, identifiers: sources::all().iter().map(identifiers).collect() }
    }

    /// Whether a file or folder has this path, or one that ends with it.
    fn has_path(&self, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        MADE.contains(&name) || self.paths.iter().any(|path| ends_with(path, name))
    }

    /// Whether a Rust file whose path begins with `folder` and ends with `file` has the identifier.
    fn has_identifier(&self, folder: &str, file: &str, name: &str) -> bool {
        let looked_at = |path: &str| path.starts_with(folder) && (file.is_empty() || ends_with(path, file));
        self.identifiers.iter().any(|(path, names)| looked_at(path) && names.contains(name))
    }

    /// The problem with `text`, code in backquotes.
    fn check_code(&self, text: &str) -> Option<String> {
        let (file, item) = text.split_once(".rs::").unwrap_or((text.trim_end_matches(".rs"), ""));
        if text.contains(".rs") {
            let file = format!("{file}.rs");
            if !file.chars().all(|c| c.is_alphanumeric() || "_-/.".contains(c)) {
                return None;
            }
            return match (self.has_path(&file), item) {
                (false, _) => Some(format!("no file `{file}`")),
                (true, "") => None,
                (true, item) if self.has_identifier("", &file, item) => None,
                (true, item) => Some(format!("no `{item}` in `{file}`")),
            };
        }
        let mut segments = text.split("::").flat_map(|one| one.trim_matches(['{', '}']).split(','));
        let is_identifier =
            |one: &str| !one.is_empty() && one.chars().all(|c| c.is_alphanumeric() || c == '_');
        let is_path = text.contains("::") && segments.clone().all(is_identifier);
        if FOREIGN.contains(&text) || !is_path && !is_type_name(text) {
            return None;
        }
        let own = text.split("::").next().map(|name| format!("crates/{}/", name.replace('_', "-")));
        let own = own.filter(|folder| is_path && self.has_path(folder)).unwrap_or_default();
        if !own.is_empty() {
            segments.next();
        }
        let missing = segments.find(|name| !self.has_identifier(&own, "", name))?;
        Some(format!("`{text}`: no `{missing}`"))
    }
}

/// Whether it has at least two words, each a capital followed by small letters.
fn is_type_name(text: &str) -> bool {
    let capitals = text.chars().filter(char::is_ascii_uppercase).count();
    let has_words = text.as_bytes().windows(2).all(|pair| !pair.iter().all(u8::is_ascii_uppercase));
    capitals > 1
        && has_words
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphabetic())
}

fn ends_with(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// Checks every document.
pub fn check() -> Findings {
    let all = files::all();
    let names = Names::read(&all);
    let mut found = Findings::default();
    let documents = all.iter().filter(|file| file.path.ends_with(".md") && !HISTORY.contains(&&*file.path));
    for document in documents {
        let text = String::from_utf8_lossy(&document.bytes);
        let mut is_fenced = false;
        for (number, line) in text.lines().enumerate() {
            is_fenced ^= line.trim_start().starts_with("```");
            if is_fenced || line.starts_with("    ") {
                continue;
            }
            for wrong in check_line(&names, &document.path, line) {
                found.add(&document.path, number + 1, &wrong);
            }
        }
    }
    found
}

fn check_line(names: &Names, document: &str, line: &str) -> Vec<String> {
    let code = line.split('`').skip(1).step_by(2);
    let mut wrong: Vec<_> = code.filter_map(|text| names.check_code(text)).collect();
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let target = link.split('#').next().unwrap_or("");
        if !target.is_empty() && !link.contains("://") && !names.paths.contains(&resolve(folder, target)) {
            wrong.push(format!("no file {target} to link to"));
        }
    }
    for word in line.split(|c: char| !(c.is_alphanumeric() || "_-/.".contains(c))) {
        let word = word.trim_end_matches(['.', '/']);
        if FOLDERS.iter().any(|folder| word.starts_with(folder)) && !names.has_path(word) {
            wrong.push(format!("no file {word}"));
        }
    }
    wrong
}

/// A link's path from the root.
fn resolve(folder: &str, target: &str) -> String {
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.join("/")
}

#[test]
fn names_that_are_gone_are_found() {
    let paths =
        ["docs", "docs/a.md", "crates", "crates/client", "crates/client/src", "crates/client/src/url.rs"];
    let names = Names {
        paths: paths.map(str::to_owned).into(),
        identifiers: [("crates/client/src/url.rs", ["UrlError", "unescape"].into())].into(),
    };
    let wrong = |line: &str| check_line(&names, "docs/a.md", line).len();
    for right in [
        "`url.rs`, `client/src/url.rs`, `url.rs::unescape`",
        "`UrlError`, `client::UrlError`, `client::{UrlError,unescape}`",
        "[a](a.md#part), [b](../crates/client/), [c](https://example.org/c.md), crates/client/src.",
        "`READ`, `--soft`, `/etc/exports`, `nfs://host/path`, `Opened`",
    ] {
        assert_eq!(wrong(right), 0, "{right}");
    }
    for gone in [
        "`gone.rs`",
        "`client/url.rs`",
        "`url.rs::gone`",
        "`GoneType`",
        "`client::gone`",
        "`client::UrlError::Gone`",
        "[a](b.md)",
        "see crates/server, which is gone",
        "docs/b.md",
    ] {
        assert_eq!(wrong(gone), 1, "{gone}");
    }
}
