//! Small files: open, read and close thousands of uncached files, over the lane, over the wire, and on the
//! filesystem itself.
//!
//! The files are opened in the order of their names, as with a shell's `*`; the directory is listed before.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use client::blocking::Session;
use client::{OpenOptions, Options, Url, Version};
use samehost_tests::scratch::pattern;
use samehost_tests::{Serve, Server};

use crate::data_paths::json_of;
use crate::figure::{Figure, Table, microseconds, ratio};
use crate::{Effort, drop_caches};

/// Number of files.
const FILES: usize = 5000;
/// Size of a file.
const SIZE: usize = 4096;

/// The child process that reads them.
#[derive(Debug, Args)]
pub struct Reader {
    /// A URL; without the other two arguments a directory.
    place: String,
    #[arg(long, requires = "run_dir")]
    lane: Option<String>,
    #[arg(long)]
    run_dir: Option<PathBuf>,
}

impl Reader {
    /// Opens, reads and closes every file in turn, and prints time and round trips per file.
    pub fn run(self) -> Result<()> {
        let (elapsed, trips) = match (self.lane, self.run_dir) {
            (Some(lane), Some(run_dir)) => through_the_client(&self.place.parse()?, &lane, run_dir)?,
            _ => (on_the_filesystem(Path::new(&self.place))?, 0),
        };
        println!(
            "{}",
            serde_json::json!({
                "microseconds_per_file": elapsed.as_secs_f64() * 1e6 / FILES as f64,
                "round_trips_per_file": trips as f64 / FILES as f64,
            })
        );
        Ok(())
    }
}

fn on_the_filesystem(place: &Path) -> Result<Duration> {
    let mut names =
        std::fs::read_dir(place)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort();
    ensure!(names.len() == FILES, "{} files in {}", names.len(), place.display());
    let mut buffer = vec![0; SIZE];
    let start = Instant::now();
    for name in &names {
        let count = File::open(place.join(name))?.read_at(&mut buffer, 0)?;
        ensure!(count == SIZE, "{count} bytes");
    }
    Ok(start.elapsed())
}

/// The duration and the round trips.
fn through_the_client(url: &Url, lane: &str, run_dir: PathBuf) -> Result<(Duration, u64)> {
    let lane = lane.parse().map_err(anyhow::Error::msg)?;
    let session = Session::connect(url, Options::new().version(Version::V3).lane(lane).run_dir(run_dir))?;
    let inner = session.session();
    let mut buffer = vec![0; SIZE];
    let (elapsed, before, after) = session.run(async {
        let directory = inner.walk(inner.target(), client::Follow::Yes).await?;
        let listed = inner.read_dir(&directory.handle, client::Plus::None).collect().await?;
        let mut names: Vec<Vec<u8>> = listed.into_iter().map(|entry| entry.name).collect();
        names.sort();
        ensure!(names.len() == FILES, "{} files", names.len());
        let before = inner.counters();
        let start = Instant::now();
        for name in &names {
            let file = inner.open_at(&directory.handle, name, &OpenOptions::reading()).await?;
            let count = file.read_at(&mut buffer, 0).await?;
            file.close().await?;
            ensure!(count == SIZE, "{count} bytes");
        }
        Ok((start.elapsed(), before, inner.counters()))
    })?;
    let trips =
        after.wire.round_trips + after.lane.round_trips - before.wire.round_trips - before.lane.round_trips;
    Ok((elapsed, trips))
}

fn name(i: usize) -> String {
    format!("file-{i:05}")
}

/// One table: pinned to one processor, and unpinned.
pub fn measure(effort: &Effort, kind: &str, place: &Path) -> Result<Table> {
    let export = place.join("small");
    std::fs::create_dir(&export)?;
    for i in 0..FILES {
        std::fs::write(export.join(name(i)), pattern(i as u64, SIZE))?;
    }
    let mut rows = Vec::new();
    for (title, prefix) in [("pinned (taskset -c 1)", &["taskset", "-c", "1"][..]), ("unpinned", &[])] {
        let mut server = Serve::openly(&export).through(prefix.iter().copied()).start();
        let mut figures = [Figure::default(), Figure::default(), Figure::default()];
        let mut trips = [Figure::default(), Figure::default(), Figure::default()];
        for _ in 0..effort.runs {
            for (i, lane) in [Some("required"), Some("off"), None].into_iter().enumerate() {
                // The caches of kernel and server are empty.
                let _ = server.stop();
                drop_caches()?;
                server.restart();
                let run = read_all(&server, &export, lane, prefix)?;
                let number = |key: &str| run[key].as_f64().context("a number");
                figures[i].add(number("microseconds_per_file")?);
                trips[i].add(number("round_trips_per_file")?);
            }
        }
        rows.push(vec![
            title.to_owned(),
            figures[0].show(microseconds),
            figures[1].show(microseconds),
            figures[2].show(microseconds),
            format!("{:.2}", trips[0].median()),
            format!("{:.2}", trips[1].median()),
            ratio(&figures[1], &figures[0]),
        ]);
    }
    Ok(Table {
        title: format!("Small files on {kind}"),
        description: format!(
            "List a directory; then open, read and close its {FILES} files of 4 KiB one after another by \
             name, through the library and (raw) without it; before each run the server is restarted and the \
             kernel's caches are dropped. Time a file; pinned means server and client on one processor. The \
             goal is 2 for the lane's gain, the aim 3."
        ),
        head: vec!["", "lane", "wire", "raw", "round trips, lane", "round trips, wire", "gain"],
        rows,
    })
}

fn read_all(
    server: &Server,
    export: &Path,
    lane: Option<&str>,
    prefix: &[&str],
) -> Result<serde_json::Value> {
    let own = std::env::current_exe()?;
    let mut command = match prefix.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(own);
            command
        }
        None => Command::new(own),
    };
    match lane {
        Some(lane) => {
            let url = server.url(export);
            command.args(["small-files", &url, "--lane", lane]).arg("--run-dir").arg(server.run_dir());
        }
        None => drop(command.arg("small-files").arg(export)),
    }
    json_of(&mut command)
}
