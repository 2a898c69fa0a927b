//! Whether the generator itself is fast enough: a run's latencies are the
//! server's only while the generator has room.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::crew;
use crate::plan::{Mode, Plan};
use crate::probe::Found;
use crate::static_target::StaticTarget;
use crate::user::Users;

/// How much more than the run's rate the generator must reach by itself.
const TIMES_MIN: f64 = 1.5;

/// What the generator reaches against a static handler on this machine.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Headroom {
    /// Claims a second in a closed loop against the static handler, which runs
    /// on the same processors.
    pub top_per_second: f64,
    /// The same, over the rate of the run.
    pub times_the_rate: f64,
}

impl std::fmt::Display for Headroom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.0}/s against a static handler, {:.1} x the rate",
            self.top_per_second, self.times_the_rate
        )
    }
}

impl Headroom {
    /// Measures it with the threads and connections of the run.
    ///
    /// # Errors
    /// When it is too small for the rate, or cannot be measured.
    pub fn measure(
        plan: &Plan,
        users: &Arc<Users>,
        rate: f64,
        time: Duration,
    ) -> anyhow::Result<Self> {
        let target = StaticTarget::start()?;
        let probe = Arc::new(Plan {
            targets: vec![Arc::new(target.base_url().parse()?)],
            mode: Mode::Probe { time },
            ..plan.clone()
        });
        let found = Found::of(&probe, &crew::drive(&probe, users, None, || {})?, time);
        anyhow::ensure!(
            found.is_clean(),
            "the static handler was not answered well: {found:?}"
        );
        let headroom = Self {
            top_per_second: found.claims_per_second,
            times_the_rate: found.claims_per_second / rate,
        };
        anyhow::ensure!(
            headroom.times_the_rate >= TIMES_MIN,
            "the generator is too slow for this rate: {headroom}, {TIMES_MIN} x needed; \
             lower the --rate, or use more --threads where there are idle processors"
        );
        Ok(headroom)
    }
}
