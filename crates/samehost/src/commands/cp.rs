//! `cp`: copies files and trees to, from and between servers.

use crate::cli::{CpArgs, Global};
use crate::connect::Connector;
use crate::copy::{Progress, TreeCopyOptions, copy_all};
use crate::descriptors;
use crate::exit::CommandResult;
use crate::output::Reporter;

/// Copies all sources.
pub async fn cp(global: &Global, args: CpArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let progress = Progress::new(args.quiet);
    let reporter = Reporter::new(progress.bars());
    let options = TreeCopyOptions {
        recursive: args.recursive,
        preserve: args.preserve,
        commit: !args.no_commit,
        files: descriptors::copies(args.files.into()),
    };
    let copied = copy_all(&connector, &args.operands, options, &reporter, &progress).await;
    progress.finish();
    tracing::info!(?copied, "copied");
    copied?;
    connector.close().await;
    Ok(reporter.exit())
}
