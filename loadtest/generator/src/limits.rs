//! The machine's limits, checked before the first click: a run that dies of
//! too few file descriptors in its third minute measured nothing.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors for everything but connections: standard streams, epoll, timers,
/// files, `/proc`.
const SPARE_FILES: u64 = 64;
/// How many of the connections that come at once must fit the listen queue
/// together. Measured: 10,000 at once overflowed 128 and fitted 2,048, because
/// the server accepts while they come.
const SPIKE_PER_BACKLOG: u64 = 5;

/// What a run needs.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Connections open at once.
    pub connections: u64,
    /// Source addresses they are spread over.
    pub sources: u64,
    /// Targets they are spread over.
    pub targets: u64,
    /// Whether they all come in the same instant.
    pub at_once: bool,
}

/// What the machine has.
#[derive(Debug, Clone, Copy)]
pub struct Have {
    /// `RLIMIT_NOFILE`, the soft one.
    pub open_files: u64,
    /// Ports in `net.ipv4.ip_local_port_range`.
    pub ports: u64,
    /// `net.core.somaxconn`.
    pub listen_queue: u64,
}

impl Have {
    /// Raises the soft limit of open files to the hard one, and reads all limits.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn raised() -> anyhow::Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let open_files = if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
            hard
        } else {
            soft
        };
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
        let mut ends = range.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(low)), Some(Ok(high))) = (ends.next(), ends.next()) else {
            anyhow::bail!("ip_local_port_range reads `{}`", range.trim());
        };
        let listen_queue = fs::read_to_string("/proc/sys/net/core/somaxconn")?;
        Ok(Self {
            open_files,
            ports: (high + 1).saturating_sub(low),
            listen_queue: listen_queue.trim().parse()?,
        })
    }
}

/// Every limit that is too small for the run, with what to do about it.
#[must_use]
pub fn too_small(need: Need, have: Have) -> Vec<String> {
    let mut problems = Vec::new();
    let files = need.connections + SPARE_FILES;
    if have.open_files < files {
        problems.push(format!(
            "open files: {} allowed, {files} needed ({} connections and {SPARE_FILES} others); \
             raise it with `ulimit -Hn {files}` as root, or use fewer --connections",
            have.open_files, need.connections
        ));
    }
    // The kernel shares a source port between targets (the 4-tuple counts), but
    // connections may all go to one target when the others are down.
    let ports = have.ports * need.sources;
    if ports < need.connections {
        problems.push(format!(
            "ports: {} in ip_local_port_range x {} source addresses = {ports}, {} needed; \
             use more --sources or widen net.ipv4.ip_local_port_range",
            have.ports, need.sources, need.connections
        ));
    }
    let backlog = need
        .connections
        .div_ceil(SPIKE_PER_BACKLOG)
        .div_ceil(need.targets.max(1));
    if need.at_once && have.listen_queue < backlog {
        problems.push(format!(
            "listen queue: net.core.somaxconn is {}, {backlog} needed for {} connections at once; \
             raise it with `sysctl net.core.somaxconn={backlog}` and restart the server",
            have.listen_queue, need.connections
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAVE: Have = Have {
        open_files: 20_000,
        ports: 28_232,
        listen_queue: 4096,
    };
    const NEED: Need = Need {
        connections: 10_000,
        sources: 8,
        targets: 1,
        at_once: true,
    };

    #[test]
    fn a_machine_with_room_has_no_problem() {
        assert_eq!(too_small(NEED, HAVE), Vec::<String>::new());
    }

    #[test]
    fn each_limit_that_is_too_small_is_named() {
        for (need, have, named) in [
            (
                NEED,
                Have {
                    open_files: 10_063,
                    ..HAVE
                },
                "open files",
            ),
            (
                NEED,
                Have {
                    ports: 1249,
                    ..HAVE
                },
                "ports",
            ),
            (
                NEED,
                Have {
                    listen_queue: 1999,
                    ..HAVE
                },
                "listen queue",
            ),
        ] {
            let problems = too_small(need, have);
            assert!(
                problems.len() == 1 && problems[0].starts_with(named),
                "{problems:?}"
            );
        }
        let nothing = Have {
            open_files: 1,
            ports: 1,
            listen_queue: 1,
        };
        assert_eq!(too_small(NEED, nothing).len(), 3);
    }

    #[test]
    fn the_listen_queue_matters_to_spikes_only_and_is_shared_by_targets() {
        let small = Have {
            listen_queue: 1000,
            ..HAVE
        };
        let paced = Need {
            at_once: false,
            ..NEED
        };
        assert_eq!(too_small(paced, small), Vec::<String>::new());
        let two = Need { targets: 2, ..NEED };
        assert_eq!(too_small(two, small), Vec::<String>::new());
    }

    #[test]
    fn this_machine_tells_its_limits() {
        let have = Have::raised().unwrap();
        assert!(have.open_files > 0 && have.ports > 0 && have.listen_queue > 0);
    }
}
