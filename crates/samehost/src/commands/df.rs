//! `df`: how full an exported filesystem is.

use client::{Follow, Url};
use serde::Serialize;

use crate::cli::{DfArgs, Global};
use crate::connect::{Connector, failure};
use crate::exit::{CommandResult, Failure};
use crate::human;
use crate::output::{Output, Reporter};
use crate::table::{Align, TextTable};

/// An element of `--json`'s array.
#[derive(Serialize)]
struct Space {
    url: String,
    total_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    total_files: u64,
    free_files: u64,
    available_files: u64,
}

/// Shows all targets.
pub async fn df(global: &Global, args: DfArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    let mut all = Vec::new();
    for target in &args.targets {
        match space(&connector, &target.url).await {
            Ok(space) => all.push(space),
            Err(failure) => reporter.report(&failure),
        }
    }
    let mut output = Output::stdout();
    if args.json {
        output.json(&all)?;
    } else if !all.is_empty() {
        for line in table(&all).lines(0) {
            output.line(line)?;
        }
    }
    output.flush()?;
    connector.close().await;
    Ok(reporter.exit())
}

async fn space(connector: &Connector, url: &Url) -> Result<Space, Failure> {
    let (session, found) = connector.find(url, Follow::Yes).await?;
    let stat = session.fs_stat(&found.handle).await.map_err(|error| failure(url, error))?;
    Ok(Space {
        url: url.to_string(),
        total_bytes: stat.total_bytes,
        free_bytes: stat.free_bytes,
        available_bytes: stat.available_bytes,
        total_files: stat.total_files,
        free_files: stat.free_files,
        available_files: stat.available_files,
    })
}

fn table(all: &[Space]) -> TextTable {
    let mut table = TextTable::new(&[
        ("export", Align::Left),
        ("size", Align::Right),
        ("used", Align::Right),
        ("available", Align::Right),
        ("use", Align::Right),
        ("files", Align::Right),
        ("files free", Align::Right),
    ]);
    for space in all {
        let used = space.total_bytes.saturating_sub(space.free_bytes);
        table.row([
            space.url.clone(),
            human::bytes(space.total_bytes),
            human::bytes(used),
            human::bytes(space.available_bytes),
            percent(used, used.saturating_add(space.available_bytes)),
            human::thousands(space.total_files),
            human::thousands(space.available_files),
        ]);
    }
    table
}

/// Rounded up, as df(1) does: a filesystem is full when it says 100%.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{}%", (u128::from(part) * 100).div_ceil(u128::from(whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up() {
        assert_eq!(percent(0, 10), "0%");
        assert_eq!(percent(1, 1000), "1%");
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
        assert_eq!(percent(0, 0), "-");
    }
}
