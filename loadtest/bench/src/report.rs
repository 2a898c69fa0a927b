//! Medians, spreads, ratios.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use std::time::Duration;

/// The figures of all rounds, in microseconds.
#[derive(Default)]
pub struct Rounds {
    redis: Vec<f64>,
    log: Vec<f64>,
    whole: Vec<f64>,
    ratio: Vec<f64>,
    cpu: Vec<f64>,
    minimal: Vec<f64>,
    cpu_ratio: Vec<f64>,
}

impl Rounds {
    /// Adds a round: the times of the parts and of the whole, and the CPU of a win.
    pub fn push(
        &mut self,
        redis: Vec<Duration>,
        log: Vec<Duration>,
        whole: Vec<Duration>,
        cpu: f64,
        minimal: f64,
    ) {
        let p50 = |times: Vec<Duration>| {
            median(
                &times
                    .iter()
                    .map(|time| time.as_secs_f64() * 1e6)
                    .collect::<Vec<_>>(),
            )
        };
        let (redis, log, whole) = (p50(redis), p50(log), p50(whole));
        self.redis.push(redis);
        self.log.push(log);
        self.whole.push(whole);
        self.ratio.push(whole / (redis + log));
        self.cpu.push(cpu);
        self.minimal.push(minimal);
        self.cpu_ratio.push(cpu / minimal);
    }

    /// The median, over the rounds, of the whole's p50 against the sum of the parts' p50.
    pub fn latency_ratio(&self) -> f64 {
        median(&self.ratio)
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The table of all figures: median over the rounds, lowest and highest.
pub fn table(rounds: &Rounds) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["", "median", "lowest", "highest", "unit"]);
    let mut row = |name: &str, values: &[f64], unit: &str, digits: usize| {
        let values = sorted(values);
        let show = |value: Option<&f64>| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
        table.add_row([
            name.to_owned(),
            format!("{:.digits$}", median(&values)),
            show(values.first()),
            show(values.last()),
            unit.to_owned(),
        ]);
    };
    row("script in Redis, p50", &rounds.redis, "µs", 0);
    row("publication to own tail, p50", &rounds.log, "µs", 0);
    row("win at the gateway, p50", &rounds.whole, "µs", 0);
    row("  against the sum of its parts", &rounds.ratio, "×", 2);
    row("CPU a win, gateway, 64 in flight", &rounds.cpu, "µs", 1);
    row("CPU a win, minimal handler", &rounds.minimal, "µs", 1);
    row("  gateway against minimal", &rounds.cpu_ratio, "×", 2);
    table
}

/// The machine, in a line.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{model}, {cores} cores, Linux {}, load {}",
        kernel.trim(),
        load.split(' ').next().unwrap_or("?")
    )
}
