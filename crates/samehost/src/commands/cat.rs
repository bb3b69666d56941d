//! `cat`: files to standard output, with many reads in flight.

use client::{File, OpenOptions, Url};
use futures_util::{StreamExt, stream};

use crate::cli::{CatArgs, Global};
use crate::connect::{Connector, failure};
use crate::exit::{Ended, Stop};
use crate::output::{Output, Reporter};

/// Reads in flight.
const WINDOW: usize = 8;

/// The largest read, whatever the server would like: it bounds what is in memory, together with [`WINDOW`].
const LARGEST: u32 = 1 << 20;

/// Writes every target to standard output.
pub async fn cat(global: &Global, args: CatArgs) -> Ended {
    let connector = Connector::new(global, &args.road);
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
    let say = |error| failure(url, error);
    let file = session.open(session.target(), &OpenOptions::reading()).await.map_err(say)?;
    let size = file.attributes().await.map_err(say)?.size;
    let chunk = session.sizes().read_preferred.clamp(4096, LARGEST) as usize;
    let read = |offset| {
        let file = file.clone();
        async move { chunk_at(&file, offset, chunk).await }
    };
    let mut chunks = stream::iter((0..size).step_by(chunk)).map(read).buffered(WINDOW);
    let mut offset = 0;
    while let Some(bytes) = chunks.next().await {
        let bytes = bytes.map_err(say)?;
        output.bytes(&bytes)?;
        offset += bytes.len() as u64;
        if bytes.len() < chunk {
            break; // the end, or a file that became shorter meanwhile
        }
    }
    drop(chunks);
    // What was appended since the size was asked for.
    loop {
        let bytes = chunk_at(&file, offset, chunk).await.map_err(say)?;
        if bytes.is_empty() {
            break;
        }
        output.bytes(&bytes)?;
        offset += bytes.len() as u64;
    }
    file.close().await.map_err(say)?;
    Ok(())
}

async fn chunk_at(file: &File, offset: u64, chunk: usize) -> client::Result<Vec<u8>> {
    file.read_into(Vec::new(), offset, chunk).await
}
