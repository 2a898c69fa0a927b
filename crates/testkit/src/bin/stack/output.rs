//! What a person reads.

use std::io::Write as _;

/// Prints a line. When nobody reads any more there is nobody left to tell.
pub fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}
