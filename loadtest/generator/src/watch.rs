//! The peak memory of processes, as the kernel counts it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use procfs::process::Process;

use crate::args::WatchPid;

/// The generator's own name in the report.
const OWN: &str = "loadtest";

/// Watches processes, and this one.
///
/// The kernel's high-water mark needs no sampling, but is gone with its
/// process; the last sample stays. A number that the kernel gives to another
/// process later is not mistaken for the old one: each is held open.
#[derive(Debug)]
pub struct Watch {
    processes: Vec<(String, Process)>,
    peaks: BTreeMap<String, Option<u64>>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// When a process does not exist.
    pub fn new(pids: &[WatchPid]) -> anyhow::Result<Self> {
        let mut processes = vec![(OWN.to_owned(), Process::myself()?)];
        for WatchPid { name, pid } in pids {
            let process = Process::new(*pid)
                .with_context(|| format!("--watch-pid {name}={pid}: no such process"))?;
            processes.push((name.clone(), process));
        }
        let peaks = processes
            .iter()
            .map(|(name, _)| (name.clone(), None))
            .collect();
        let mut watch = Self { processes, peaks };
        watch.sample();
        Ok(watch)
    }

    /// Reads the marks of those that still run.
    pub fn sample(&mut self) {
        for (name, process) in &self.processes {
            let mark = process.status().ok().and_then(|status| status.vmhwm);
            if let (Some(peak), Some(kib)) = (self.peaks.get_mut(name), mark) {
                *peak = (*peak).max(Some(kib * 1024));
            }
        }
    }

    /// Peak resident memory in bytes by name; `None` is unknown.
    #[must_use]
    pub fn peaks(&self) -> &BTreeMap<String, Option<u64>> {
        &self.peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_peak_and_a_missing_one_is_an_error() {
        let watch = Watch::new(&[]).unwrap();
        assert!(watch.peaks()[OWN].is_some_and(|peak| peak > 100_000));
        let missing = WatchPid {
            name: "gone".to_owned(),
            pid: i32::MAX,
        };
        let error = Watch::new(&[missing]).unwrap_err().to_string();
        assert!(error.contains("gone=2147483647"), "{error}");
    }

    #[test]
    fn a_process_that_ended_keeps_its_last_peak() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = WatchPid {
            name: "sleep".to_owned(),
            pid: i32::try_from(child.id()).unwrap(),
        };
        let mut watch = Watch::new(&[pid]).unwrap();
        let before = watch.peaks()["sleep"];
        child.kill().unwrap();
        child.wait().unwrap();
        watch.sample();
        assert!(before.is_some());
        assert!(watch.peaks()["sleep"] >= before);
    }
}
