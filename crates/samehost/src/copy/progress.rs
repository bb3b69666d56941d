//! The progress bar of a copy.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error: bytes, rate, time left, files. It is invisible if standard error isn't a
/// terminal.
#[derive(Clone)]
pub struct Progress {
    bars: MultiProgress,
    bar: ProgressBar,
}

impl Progress {
    /// A bar, or an invisible one.
    pub fn new(quiet: bool) -> Self {
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(15) };
        let bars = MultiProgress::with_draw_target(target);
        let bar = bars.add(ProgressBar::new(0));
        let template = "{msg:20!} {wide_bar} {binary_bytes:>10}/{binary_total_bytes:<10} \
                        {binary_bytes_per_sec:>12} {eta:>4}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bars, bar }
    }

    /// The bars, for output that has to suspend them.
    pub fn bars(&self) -> MultiProgress {
        self.bars.clone()
    }

    /// The walk found a file of `size` bytes.
    pub fn found(&self, size: u64) {
        self.bar.inc_length(size);
    }

    /// Bytes were copied.
    pub fn bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// The number of files that are done.
    pub fn files(&self, done: u64) {
        self.bar.set_message(crate::human::count(done, "file"));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
