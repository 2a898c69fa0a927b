//! Ports for servers: free, below 22,000, and kept.
//!
//! The kernel gives outgoing connections ephemeral ports from 32,768 up, so a server's port below
//! that is never taken by somebody's client; below 22,000 leaves room for a Redis cluster's bus at
//! the port plus 10,000. A port is reserved with a locked file for as long as its [`Port`] lives,
//! so that a server which is killed and started again finds it free, whatever other tests do.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

const FIRST: u32 = 11_000;
const COUNT: u32 = 10_900;

/// A reserved TCP port of the loopback interface. Dropping it gives it back.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: Flock<File>,
}

impl Port {
    /// Reserves a port on which nobody listens.
    ///
    /// # Errors
    /// When the folder of locks cannot be made, or no port is free.
    pub fn reserve() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join("dropgate-testkit-ports");
        // Everybody on the machine may reserve, so the folder is everybody's, like /tmp itself.
        match std::fs::DirBuilder::new().mode(0o1777).create(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(e).with_context(|| format!("making {}", folder.display()));
            }
            _ => {}
        }
        let start = std::process::id().wrapping_mul(131);
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + start.wrapping_add(step.wrapping_mul(7)) % COUNT;
            let number = u16::try_from(number).context("a port below 22,000 has 16 bits")?;
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o666)
                .open(folder.join(number.to_string()));
            let Ok(file) = file else { continue };
            let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
                continue;
            };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self {
                    number,
                    _lock: lock,
                });
            }
        }
        bail!("no free port between {FIRST} and {}", FIRST + COUNT)
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}
