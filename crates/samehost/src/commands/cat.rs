//! `cat`: writes files to standard output, with several reads in flight.

use client::{File, Follow, OpenOptions, Url};
use futures_util::{StreamExt, stream};

use crate::cli::{CatArgs, Global};
use crate::connect::{Connector, failure, names_directory};
use crate::exit::{CommandResult, Stop};
use crate::output::{Output, Reporter};

/// Reads in flight.
const MAX_IN_FLIGHT: usize = 8;

/// Bytes of the largest read, whatever the server prefers. With [`MAX_IN_FLIGHT`] it bounds the memory.
const MAX_READ: u32 = 1 << 20;

/// Writes every target to standard output.
pub async fn cat(global: &Global, args: CatArgs) -> CommandResult {
    let connector = Connector::new(global, &args.session);
    let reporter = Reporter::new(indicatif::MultiProgress::new());
    let mut output = Output::stdout();
    for target in &args.targets {
        if let Err(stop) = one(&connector, &target.url, &mut output).await {
            output.flush()?;
            reporter.take(stop)?;
        }
    }
    output.flush()?;
    connector.close().await;
    Ok(reporter.exit())
}

async fn one(connector: &Connector, url: &Url, output: &mut Output) -> Result<(), Stop> {
    let session = connector.session(url).await?;
    if names_directory(url) {
        connector.find(url, Follow::Yes).await?;
    }
    let to_failure = |error| failure(url, error);
    let file = session.open(session.target(), &OpenOptions::reading()).await.map_err(to_failure)?;
    let size = file.attributes().await.map_err(to_failure)?.size;
    let chunk = session.sizes().read_preferred.clamp(4096, MAX_READ) as usize;
    let read = |offset| {
        let file = file.clone();
        async move { chunk_at(&file, offset, chunk).await }
    };
    let mut chunks = stream::iter((0..size).step_by(chunk)).map(read).buffered(MAX_IN_FLIGHT);
    let mut offset = 0;
    while let Some(bytes) = chunks.next().await {
        let bytes = bytes.map_err(to_failure)?;
        output.bytes(&bytes)?;
        offset += bytes.len() as u64;
        if bytes.len() < chunk {
            break; // the end, or the file was truncated meanwhile
        }
    }
    drop(chunks);
    // Data that was appended since the size was fetched.
    loop {
        let bytes = chunk_at(&file, offset, chunk).await.map_err(to_failure)?;
        if bytes.is_empty() {
            break;
        }
        output.bytes(&bytes)?;
        offset += bytes.len() as u64;
    }
    file.close().await.map_err(to_failure)?;
    Ok(())
}

async fn chunk_at(file: &File, offset: u64, chunk: usize) -> client::Result<Vec<u8>> {
    file.read_into(Vec::new(), offset, chunk).await
}
