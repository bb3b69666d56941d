//! `bench`: measures reads and writes over the lane and over the wire.

use client::LaneMode;

use crate::cli::{BenchArgs, Global};
use crate::connect::Connector;
use crate::exit::CommandResult;
use crate::measure::{Suite, measure};
use crate::output::Output;

/// The size of the scratch file in MiB.
const DEFAULT_SIZE: u32 = 64;

/// Measures and prints the result.
pub async fn bench(global: &Global, args: BenchArgs) -> CommandResult {
    let mut lane =
        (args.session.options.lane != LaneMode::Off).then(|| Connector::new(global, &args.session));
    let mut wire = Connector::new(global, &args.session);
    let suite = Suite {
        lane: lane.as_mut(),
        wire: &mut wire,
        url: &args.target.url,
        raw: args.raw.clone(),
        load: &args.load,
        size: u64::from(args.load.size.unwrap_or(DEFAULT_SIZE)) << 20,
    };
    let report = measure(suite).await?;
    let mut output = Output::stdout();
    if args.json {
        output.json(&report)?;
    } else {
        for line in report.lines() {
            output.line(line)?;
        }
        if !report.local {
            output.line("local: no")?;
            for reason in &report.reasons {
                output.line(format!("  {reason}"))?;
            }
        }
    }
    output.flush()?;
    for connector in [lane, Some(wire)].into_iter().flatten() {
        connector.close().await;
    }
    Ok(crate::exit::Exit::Done)
}
