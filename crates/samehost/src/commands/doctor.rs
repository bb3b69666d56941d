//! `doctor`: which data paths this host can have, and what to change for the better ones.

use serde::Serialize;

use crate::cli::{DoctorArgs, Global};
use crate::doctor::{DataPath, Facts, Finding, Level, Side, findings, obstacles};
use crate::exit::{CommandResult, Exit, Stop};
use crate::output::Output;

/// What `--json` writes.
#[derive(Serialize)]
struct DoctorJson<'a> {
    kernel: &'a str,
    uid: u32,
    data_paths: Vec<DataPathJson<'a>>,
    findings: &'a [Finding],
}

/// A data path, for `--json`.
#[derive(Serialize)]
struct DataPathJson<'a> {
    name: DataPath,
    side: Side,
    available: bool,
    obstacles: Vec<&'a str>,
}

/// Looks at this host, and prints what it can have and what it lacks.
pub fn doctor(global: &Global, args: &DoctorArgs) -> CommandResult {
    let facts = Facts::gather(&global.run_dir, &args.directories);
    let mut findings = findings(&facts);
    findings.retain(|finding| args.side.is_none_or(|side| side == finding.side));
    let sides =
        [Side::Server, Side::Mount].into_iter().filter(|side| args.side.is_none_or(|only| only == *side));
    let mut output = Output::stdout();
    if args.json {
        let paths = DataPath::ALL.into_iter().filter(|path| sides.clone().any(|side| side == path.side()));
        output.json(&DoctorJson {
            kernel: &facts.kernel.release,
            uid: facts.uid,
            data_paths: paths
                .map(|path| {
                    let obstacles = obstacles(path, &findings);
                    DataPathJson { name: path, side: path.side(), available: obstacles.is_empty(), obstacles }
                })
                .collect(),
            findings: &findings,
        })?;
    } else {
        output.line(format!("Linux {}, as user {}", facts.kernel.release, facts.uid))?;
        for side in sides {
            show_paths(&mut output, side, &findings)?;
        }
        for finding in &findings {
            show(&mut output, finding)?;
        }
        if findings.is_empty() {
            output.line("")?;
            output.line("nothing to improve")?;
        }
    }
    output.flush()?;
    let has_problem = findings.iter().any(|finding| finding.level == Level::Problem);
    Ok(if has_problem { Exit::Failed } else { Exit::Done })
}

fn show_paths(output: &mut Output, side: Side, findings: &[Finding]) -> Result<(), Stop> {
    output.line("")?;
    output.line(match side {
        Side::Server => "a server started like this gives",
        Side::Mount => "a mount started like this uses",
    })?;
    for path in DataPath::ALL.into_iter().filter(|path| path.side() == side) {
        let obstacles = obstacles(path, findings);
        output.line(match obstacles.is_empty() {
            true => format!("  yes  {}", path.words()),
            false => format!("  no   {}: see {}", path.words(), obstacles.join(", ")),
        })?;
    }
    Ok(())
}

fn show(output: &mut Output, finding: &Finding) -> Result<(), Stop> {
    let level = match finding.level {
        Level::Problem => "problem",
        Level::Advice => "advice",
        Level::Note => "note",
    };
    output.line("")?;
    output.line(format!("{level}: {}: {}", finding.subject, finding.what))?;
    output.line(format!("  why:  {}", finding.why))?;
    output.line(format!("  next: {}", finding.next))
}
