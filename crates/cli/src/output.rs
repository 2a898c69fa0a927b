//! What a command prints: results on standard output, complaints on standard error.

use std::io::{self, Write};

/// One text and a newline on standard output. Whoever closed it wants no more: no error.
pub fn line(text: &str) -> io::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// One text on standard error, under the command's name.
pub fn complain(text: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "dropgate: {text}")
}

/// One text on standard error that is no complaint: what is being done.
pub fn note(text: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "{text}")
}
