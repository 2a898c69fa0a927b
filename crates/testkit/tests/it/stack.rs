//! The program `stack`, as `make up` and `make down` use it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use dropgate_testkit::http;

fn stack(args: &[&str], folder: &Path) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_stack"))
        .args(args)
        .arg("--folder")
        .arg(folder)
        .output()?;
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() {
        bail!(
            "stack {args:?} ended with {}: {said}{errors}",
            output.status
        );
    }
    Ok(said)
}

/// Stops the stack when the test ends, however it ends.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = stack(&["down"], self.0);
    }
}

#[test]
fn what_comes_up_serves_and_goes_down_whole() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let down = Down(folder.path());
    let said = stack(&["up"], folder.path())?;
    let admin_ports: Vec<u16> = said
        .lines()
        .filter_map(|line| line.split_once("admin http://127.0.0.1:")?.1.parse().ok())
        .collect();
    assert_eq!(admin_ports.len(), 2, "{said}");
    for &port in &admin_ports {
        assert_eq!(http::get(port, "/readyz")?.status, 200);
    }
    let again = stack(&["up"], folder.path())?;
    assert!(again.contains("already"), "{again}");
    let record = std::fs::read_to_string(folder.path().join("stack.json"))?;
    let record: serde_json::Value = serde_json::from_str(&record)?;
    let pid = record["pid"].as_u64().context("a pid")?;

    drop(down);
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists());
    for port in admin_ports {
        assert!(
            http::get(port, "/livez").is_err(),
            "a gateway outlived its stack"
        );
    }
    assert!(stack(&["down"], folder.path())?.contains("no stack"));
    Ok(())
}
