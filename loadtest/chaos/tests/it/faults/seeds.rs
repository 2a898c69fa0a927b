//! A few seeds of the suite, on one installation.

use anyhow::{Result, ensure};
use dropgate_chaos::suite::Suite;

use super::folder;

/// Between them: writes lost by a promotion after a kill and after a pause, by a way there and
/// back, and beneath a gateway that cannot see the log; all data lost.
const SEEDS: [u64; 3] = [4, 8, 10];

#[test]
fn three_seeds_of_faults_break_no_promise() -> Result<()> {
    let folder = folder()?;
    let suite = Suite {
        seeds: SEEDS.to_vec(),
        out: folder.path().to_owned(),
        keep: false,
        weakness: None,
    };
    let report = suite.run(&mut |line| println!("{line}"))?;
    if !report.holds() {
        println!("kept: {}", folder.keep().display());
    }
    ensure!(report.holds(), "{report:?}");
    Ok(())
}
