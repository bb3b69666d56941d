//! Linker flags: the code has pages of its own in the file, too. perf(1) computes a USDT probe's file offset
//! from the distance of two sections in memory, which must be the same in the file; lld and mold don't ensure
//! that by default.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,separate-code");
}
