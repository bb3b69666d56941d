//! Cargo's metadata of the workspace and its dependencies.

use super::files;
use serde_json::Value;
use std::process::Command;
use std::sync::OnceLock;

/// `cargo metadata` for this host, without network access: the dependencies have been downloaded for the
/// build.
pub fn read() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let host = format!("{}-unknown-linux-{libc}", std::env::consts::ARCH);
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", &host])
            .current_dir(files::root())
            .output()
            .expect("cargo can be run");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
    })
}

/// The packages.
pub fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("cargo metadata has packages")
}
