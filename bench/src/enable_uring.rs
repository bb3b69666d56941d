//! The switch of FUSE over io_uring, a parameter of the kernel's module: on while the value exists, and as it
//! was before afterwards, also if this process is killed.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The parameter, `Y` or `N`; kernels before 6.14 have none.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Sets the parameter, and puts the old value back when its standard input ends.
const SCRIPT: &str =
    "trap '' INT TERM HUP; echo Y >\"$0\" && echo set; read -r line; printf '%s\\n' \"$1\" >\"$0\"";

/// FUSE over io_uring, switched on.
pub struct EnableUring(Option<Child>);

impl EnableUring {
    /// Whether the kernel has it.
    pub fn exists() -> bool {
        Path::new(PARAMETER).exists()
    }

    /// Switches it on, if the kernel has it.
    ///
    /// # Errors
    /// If the parameter can't be set.
    pub fn new() -> Result<Self> {
        let Ok(old) = fs::read_to_string(PARAMETER) else { return Ok(Self(None)) };
        let old = old.trim();
        if old == "Y" {
            return Ok(Self(None));
        }
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, PARAMETER, old]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut switch = Self(Some(command.spawn().context("a shell")?));
        let mut said = String::new();
        let output = switch.0.as_mut().and_then(|child| child.stdout.as_mut()).context("a pipe")?;
        output.take(4).read_to_string(&mut said)?;
        ensure!(said == "set\n", "{PARAMETER} can't be set");
        Ok(switch)
    }
}

impl Drop for EnableUring {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
