//! `static-target`: a server that answers every request with "sold out", to
//! measure the load generator with. Prints its base URL and serves until it is
//! ended.

use std::io::Write as _;

use clap::Parser;

/// Answers every request with 409 sold_out, on loopback.
#[derive(Debug, Parser)]
struct Args {
    /// Port to listen on; 0 is any free one
    #[arg(long, default_value_t = 0)]
    port: u16,

    /// Threads that serve
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    dropgate_loadtest::limits::Have::raised()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::from(args.threads))
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = dropgate_loadtest::static_target::listen(args.port)?;
        let base = format!("http://{}", listener.local_addr()?);
        writeln!(std::io::stdout().lock(), "{base}")?;
        dropgate_loadtest::static_target::serve(listener).await;
        Ok(())
    })
}
