//! `probe`: whether a lane comes up, and if not, why not; and the version of NFS.

use client::{LaneMode, LaneReport};
use serde::Serialize;

use crate::cli::{Global, ProbeArgs};
use crate::connect::Connector;
use crate::exit::{CommandResult, Exit, Failure};
use crate::human;
use crate::output::Output;

/// What `--json` writes.
#[derive(Serialize)]
struct ProbeJson<'a> {
    url: String,
    version: String,
    local: bool,
    instance: Option<&'a str>,
    through: Option<&'a str>,
    reasons: &'a [String],
    tree: bool,
    tree_refusal: Option<&'a str>,
}

/// Connects, tries to get a lane, and reports the result.
pub async fn probe(global: &Global, args: ProbeArgs) -> CommandResult {
    if args.session.options.lane == LaneMode::Off {
        return Err(Failure::usage("--lane off", "leaves nothing to probe")
            .next("leave the option out")
            .into());
    }
    let mut connector = Connector::new(global, &args.session);
    // Without a lane a probe shows the report instead of an error.
    connector.options_mut().lane = LaneMode::Auto;
    let url = &args.target.url;
    let session = connector.session(url).await?;
    let report = session.probe().await;
    let version = session.version().to_string();
    let mut output = Output::stdout();
    if args.json {
        output.json(&ProbeJson {
            url: url.to_string(),
            version,
            local: report.local,
            instance: report.instance.as_deref(),
            through: report.through.as_deref(),
            reasons: &report.reasons,
            tree: report.tree,
            tree_refusal: report.tree_refusal.as_deref(),
        })?;
    } else {
        for line in words(&report) {
            output.line(line)?;
        }
        output.line(format!("version over the wire: NFSv{version}"))?;
    }
    output.flush()?;
    connector.close().await;
    Ok(if report.local { Exit::Done } else { Exit::NotLocal })
}

/// A lane report as text: `local: yes, lane through ..., instance ...` and a line about names, or `local: no`
/// and a line for each reason.
pub fn words(report: &LaneReport) -> Vec<String> {
    if report.local {
        let through = report.through.as_deref().unwrap_or("an unnamed rendezvous");
        let instance = report.instance.as_deref().unwrap_or("unknown");
        let lane =
            format!("local: yes, lane through {}, instance {instance}", human::name(through.as_bytes()));
        let names = match &report.tree_refusal {
            _ if report.tree => "names and attributes: local".to_owned(),
            None => "names and attributes: by calls to the server".to_owned(),
            Some(reason) => {
                format!("names and attributes: by calls to the server ({})", human::name(reason.as_bytes()))
            }
        };
        return vec![lane, names];
    }
    let mut lines = vec!["local: no".to_owned()];
    lines.extend(report.reasons.iter().map(|reason| format!("  {}", human::name(reason.as_bytes()))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_begins_with_yes_or_no() {
        let mut report = LaneReport::default();
        report.local = true;
        report.instance = Some("ab".into());
        report.through = Some("/run/samehost/ab.lane".into());
        report.tree_refusal = Some("the export gives no trees".into());
        assert_eq!(
            words(&report),
            [
                "local: yes, lane through /run/samehost/ab.lane, instance ab",
                "names and attributes: by calls to the server (the export gives no trees)"
            ]
        );
        (report.tree, report.tree_refusal) = (true, None);
        assert_eq!(words(&report)[1], "names and attributes: local");
        report = LaneReport::default();
        report.reasons = vec!["no process listens".into()];
        assert_eq!(words(&report), ["local: no", "  no process listens"]);
    }
}
