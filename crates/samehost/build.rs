//! How the command is linked: with its code in pages of its own in the file, too. perf(1) finds the place of
//! a USDT probe in the file by the distance between two sections in memory, which is right only if the
//! distance is the same in the file; lld and mold don't see to that by themselves.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,separate-code");
}
