//! Runs the fuzz targets on every input of the kept corpus with the stable compiler.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn no_corpus_input_panics() {
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
    assert!(failed.is_empty(), "inputs on which a target panicked:\n{}", failed.join("\n"));
}

#[test]
fn no_truncated_corpus_input_panics() {
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
