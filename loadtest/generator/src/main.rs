//! `dropgate-loadtest`: see `--help` and `loadtest/README.md`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use dropgate_loadtest::args::Args;

fn main() -> ExitCode {
    match dropgate_loadtest::run(Args::parse()) {
        Ok(ending) => ending.into(),
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to tell when stderr is closed too.
            let _ = writeln!(stderr, "error: {error:#}");
            ExitCode::from(2)
        }
    }
}
