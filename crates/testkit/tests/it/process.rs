use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use dropgate_testkit::{ProcessOptions, Ready};

const BOUND: Duration = Duration::from_secs(60);

fn sh(script: &str) -> ProcessOptions {
    ProcessOptions::program(Path::new("/bin/sh")).args(["-c", script])
}

#[test]
fn a_line_makes_it_ready_and_a_restart_waits_for_a_new_one() -> Result<()> {
    let mut process = sh("echo ready $$; exec sleep 1000")
        .ready(Ready::Line("ready".into()))
        .start()?;
    let first = process.pid();
    assert!(
        process
            .peak_rss_bytes()
            .is_some_and(|bytes| bytes > 100_000)
    );
    process.kill9()?;
    assert!(!process.alive());
    process.restart()?;
    let lines = process.output()?;
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains(&format!("ready {first}")), "{lines}");
    assert!(
        lines.contains(&format!("ready {}", process.pid())),
        "{lines}"
    );
    Ok(())
}

#[test]
fn a_process_that_ends_too_early_fails_with_its_output() {
    let error = sh("echo the reason; exit 3")
        .ready(Ready::Line("never".into()))
        .start()
        .unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("the reason") && text.contains('3'), "{text}");
}

#[test]
fn terminate_gives_the_exit_code_and_the_environment_arrives() -> Result<()> {
    let mut process = sh("trap 'exit 7' TERM; echo up $GIVEN; while :; do sleep 0.01; done")
        .env("GIVEN", "here")
        .ready(Ready::Line("up here".into()))
        .start()?;
    assert_eq!(process.terminate(BOUND)?, Some(7));
    Ok(())
}

#[test]
fn a_missing_binary_of_ours_says_how_to_build_it() {
    let error = ProcessOptions::of_ours("dropgate-nowhere").unwrap_err();
    assert!(error.to_string().contains("cargo build --workspace --bins"));
}
