//! The fuzzer's kept corpus, fed to the same code by the stable compiler: what once was found, or looks like
//! what would be, is tried with every change.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn every_input_of_the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut failed = Vec::new();
    for (name, target) in targets::TARGETS {
        let folder = corpus.join(name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut inputs: Vec<_> = entries.map(|entry| entry.expect("the corpus can be read").path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for input in inputs {
            let bytes = fs::read(&input).unwrap_or_else(|e| panic!("{}: {e}", input.display()));
            if catch_unwind(|| target(&bytes)).is_err() {
                failed.push(input.display().to_string());
            }
        }
    }
    assert!(failed.is_empty(), "inputs that aren't survived:\n{}", failed.join("\n"));
}

#[test]
fn every_input_cut_short_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in targets::TARGETS {
        for entry in fs::read_dir(corpus.join(name)).expect("the corpus can be read") {
            let bytes =
                fs::read(entry.expect("the corpus can be read").path()).expect("an input can be read");
            for end in 0..bytes.len().min(512) {
                target(&bytes[..end]);
            }
        }
    }
}
