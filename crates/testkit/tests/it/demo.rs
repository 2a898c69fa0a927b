//! `stack demo`, as `make demo` uses it, with a smaller crowd.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const STOCK: u64 = 50;

fn demo(args: &[&str], out: &Path) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_stack"))
        .args(["demo", "--stock", &STOCK.to_string(), "--out"])
        .arg(out)
        .args(args)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("the demo ended with {}: {said}\n{errors}", output.status);
    }
    Ok(said)
}

fn json(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).with_context(|| file.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

/// What programs read of a demo, by the names that they know.
fn check_reports(out: &Path, attempts: u64) -> Result<()> {
    let load = json(&out.join("load.json"))?;
    for (name, expected) in [
        ("attempts", attempts),
        ("won", STOCK),
        ("distinct_winners", STOCK),
        ("pending", 0),
        ("errors", 0),
    ] {
        assert_eq!(load[name], expected, "{name} in {load:#}");
    }
    assert!(load["repeats"].as_u64().is_some_and(|repeats| repeats > 0));
    assert!(load["sold_out"].as_u64().is_some_and(|count| count > 0));
    for outcome in ["won", "sold_out"] {
        for quantile in ["p50", "p95", "p99", "max"] {
            let value = &load["latency_ms"][outcome][quantile];
            assert!(value.is_f64(), "{outcome} {quantile}: {value}");
        }
    }
    let peaks = load["peak_rss_bytes"].as_object().context("by process")?;
    assert!(
        peaks.len() >= 3 && peaks.values().all(Value::is_u64),
        "{peaks:?}"
    );
    let reconcile = json(&out.join("reconcile.json"))?;
    assert_eq!(reconcile["holds"], true);
    assert_eq!(reconcile["orders"], STOCK);
    let promises = reconcile["promises"].as_array().context("promises")?;
    assert!(promises.iter().all(|promise| promise["name"].is_string()));
    assert!(promises.iter().any(|promise| promise["holds"] == true));
    assert_eq!(json(&out.join("oracle.json"))?["holds"], true);
    Ok(())
}

#[test]
fn the_embedded_demo_sells_every_unit_once() -> Result<()> {
    let out = tempfile::tempdir()?;
    let said = demo(&["--users", "1000", "--rate", "200"], out.path())?;
    assert!(said.contains("every promise holds"), "{said}");
    check_reports(out.path(), 1_100)
}

#[test]
fn the_full_demo_sells_every_unit_once() -> Result<()> {
    let out = tempfile::tempdir()?;
    let args = ["--stack", "full", "--users", "1000", "--rate", "200"];
    let said = demo(&args, out.path())?;
    for process in ["gateway-1", "gateway-2", "order-writer"] {
        assert!(said.contains(process), "{said}");
    }
    check_reports(out.path(), 1_100)
}

#[test]
fn a_spike_sells_every_unit_once() -> Result<()> {
    let out = tempfile::tempdir()?;
    demo(&["--spike", "500"], out.path())?;
    check_reports(out.path(), 550)
}
