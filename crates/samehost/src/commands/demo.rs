//! `demo`: a server and a client at work in a scratch directory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use client::Url;

use super::probe;
use crate::cli::{DemoArgs, Global, Operand, Remote, SessionArgs};
use crate::connect::Connector;
use crate::copy::{Copied, Progress, TreeCopyOptions, copy_all};
use crate::demo::{Child, compare, generate, real};
use crate::exit::{CommandResult, Exit, Failure, Stop};
use crate::human;
use crate::measure::{Suite, measure};
use crate::output::{Output, Reporter};

/// The size of the measured file in MiB. It is smaller than in `bench`, because on a slow disk a demo
/// shouldn't take a minute.
const DEFAULT_SIZE: u32 = 32;

/// Runs the demo, and removes the scratch directory in any case.
pub async fn demo(global: &Global, args: DemoArgs) -> CommandResult {
    let base = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = tempfile::Builder::new().prefix("samehost-demo-").tempdir_in(&base).map_err(|error| {
        Failure::new(base.display().to_string(), error).next("choose another place with --scratch")
    })?;
    let shown = tokio::select! {
        shown = show(global, &args, scratch.path()) => shown,
        _ = tokio::signal::ctrl_c() => Err(Failure::new("demo", "interrupted").into()),
    };
    let path = scratch.path().to_path_buf();
    if let Err(error) = scratch.close() {
        tracing::warn!(%error, "{} stays behind", path.display());
    }
    shown
}

async fn show(global: &Global, args: &DemoArgs, scratch: &Path) -> CommandResult {
    let mut output = Output::stdout();
    let export = scratch.join("export");
    for directory in [&export, &scratch.join("out")] {
        std::fs::create_dir(directory)
            .map_err(|error| Failure::new(directory.display().to_string(), error))?;
    }
    let mut server = Child::start(&export, scratch)?;
    print_line(&mut output, format!("A server: process {}", server.id()))?;
    print_line(&mut output, format!("  {}", server.ready))?;
    for status in server::status::query(&scratch.join("run")).unwrap_or_default() {
        for notice in status.notices {
            print_line(&mut output, format!("  note: {}", human::name(notice.as_bytes())))?;
        }
    }

    let defaults = SessionArgs::default();
    let global = Global { run_dir: scratch.join("run"), ..global.clone() };
    let connector = Connector::new(&global, &defaults);
    let url = url(&export, server.port)?;
    let session = connector.session(&url).await?;
    // A later probe may have found a lane that the first one missed.
    let report = session.probe().await;
    print_line(&mut output, format!("The handshake with {url}"))?;
    for words in probe::words(&report) {
        print_line(&mut output, format!("  {words}"))?;
    }
    if !report.local {
        return Ok(Exit::NotLocal);
    }

    let trees = trees(args, scratch)?;
    copies(&mut output, &connector, &url, scratch, &trees).await?;
    print_wire_calls(&mut output, &global)?;

    print_line(&mut output, "Reads and writes side by side: a plain file, the lane, the wire".to_owned())?;
    let (mut lane, mut wire) = (Connector::new(&global, &defaults), Connector::new(&global, &defaults));
    let suite = Suite {
        lane: Some(&mut lane),
        wire: &mut wire,
        url: &url,
        raw: Some(scratch.join("out")),
        load: &args.load,
        size: u64::from(args.load.size.unwrap_or(DEFAULT_SIZE)) << 20,
    };
    let report = measure(suite).await?;
    for line in report.lines() {
        print_line(&mut output, format!("  {line}"))?;
    }
    for connector in [lane, wire, connector] {
        connector.close().await;
    }
    server.stop();
    Ok(Exit::Done)
}

/// Writes and flushes a line, because a person watches.
fn print_line(output: &mut Output, text: String) -> Result<(), Stop> {
    output.line(text)?;
    output.flush()
}

fn url(export: &Path, port: u16) -> Result<Url, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let export =
        std::path::absolute(export).map_err(|error| Failure::new(export.display().to_string(), error))?;
    Ok(Url::new("127.0.0.1", Some(port), export.as_os_str().as_bytes()))
}

/// The trees to copy: the one on the command line, or a generated one and a part of a real one.
fn trees(args: &DemoArgs, scratch: &Path) -> Result<Vec<PathBuf>, Failure> {
    if let Some(tree) = &args.tree {
        let tree =
            std::fs::canonicalize(tree).map_err(|error| Failure::new(tree.display().to_string(), error))?;
        return Ok(vec![tree]);
    }
    let generated = scratch.join("generated tree");
    generate(&generated)?;
    let mut trees = real();
    trees.push(generated);
    Ok(trees)
}

/// Copies the trees in and out again, and compares the result with the original.
async fn copies(
    output: &mut Output,
    connector: &Connector,
    url: &Url,
    scratch: &Path,
    trees: &[PathBuf],
) -> Result<(), Stop> {
    let out = scratch.join("out");
    let remote = Operand::Remote(Remote { url: url.clone() });
    let mut operands: Vec<Operand> = trees.iter().cloned().map(Operand::Local).collect();
    operands.push(remote.clone());
    print_line(output, "A file tree in and out".to_owned())?;
    copy(output, "copied in ", connector, &operands).await?;
    copy(output, "copied out", connector, &[remote, Operand::Local(out.clone())]).await?;
    let begin = Instant::now();
    let mut same = 0;
    let exported = out.join("export");
    for tree in trees {
        let Some(name) = tree.file_name() else { continue };
        same += compare(tree, &exported.join(name))?;
    }
    let span = human::duration(begin.elapsed());
    print_line(
        output,
        format!("  compared    {} byte for byte in {span}: no difference", human::count(same, "file")),
    )
}

async fn copy(
    output: &mut Output,
    title: &str,
    connector: &Connector,
    operands: &[Operand],
) -> Result<(), Stop> {
    let progress = Progress::new(false);
    let reporter = Reporter::new(progress.bars());
    let options = TreeCopyOptions { recursive: true, preserve: false, commit: true, files: 16 };
    let begin = Instant::now();
    let copied = copy_all(connector, operands, options, &reporter, &progress).await;
    progress.finish();
    let Copied { files, directories, links, bytes } = copied?;
    if reporter.exit() != Exit::Done {
        return Err(Failure::new("demo", "a file couldn't be copied; see above").into());
    }
    let elapsed = begin.elapsed();
    let rate = human::bytes((bytes as f64 / elapsed.as_secs_f64().max(1e-3)) as u64);
    print_line(
        output,
        format!(
            "  {title}  {}, {}, {}, {} in {} ({rate}/s)",
            human::count(files, "file"),
            human::thousands(directories) + if directories == 1 { " directory" } else { " directories" },
            human::count(links, "link"),
            human::bytes(bytes),
            human::duration(elapsed)
        ),
    )
}

/// The server's own count of bytes over the wire.
fn print_wire_calls(output: &mut Output, global: &Global) -> Result<(), Stop> {
    let servers = server::status::query(&global.run_dir)
        .map_err(|error| Failure::new(global.run_dir.display().to_string(), error))?;
    for status in servers {
        let count = |name: &str| {
            let procedures = status.counters.get("wire");
            let found = procedures.and_then(|procedures| {
                procedures
                    .iter()
                    .find(|(procedure, _)| procedure.eq_ignore_ascii_case(name))
                    .map(|(_, count)| count.ops)
            });
            human::thousands(found.unwrap_or(0))
        };
        print_line(
            output,
            format!(
                "  the server  saw READ {}, WRITE {}, COMMIT {} on the wire, and granted {}",
                count("READ"),
                count("WRITE"),
                count("COMMIT"),
                human::count(status.grants.granted, "open file")
            ),
        )?;
    }
    Ok(())
}
