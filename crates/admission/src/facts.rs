//! What a Redis says of itself.

use crate::config::Topology;

/// What INFO says that matters to a sale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// `redis_version`.
    pub version: String,
    /// `role`: master or slave.
    pub role: String,
    /// `maxmemory_policy`.
    pub maxmemory_policy: String,
    /// `redis_mode`: standalone, cluster or sentinel.
    pub mode: String,
    /// `run_id`: another one after every start.
    pub run_id: String,
    /// What the configuration takes it for.
    pub topology: Topology,
}

/// The oldest release whose behaviour this crate knows: permissions are checked inside scripts,
/// and the script cache is never replicated.
const MAJOR_MIN: u32 = 7;

impl ServerFacts {
    /// Reads the reply of INFO. What it does not say stays empty, and is a problem.
    pub(crate) fn from_info(info: &str, topology: Topology) -> Self {
        let field = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
            info.lines().find_map(value).unwrap_or_default()
        };
        Self {
            version: field("redis_version"),
            role: field("role"),
            maxmemory_policy: field("maxmemory_policy"),
            mode: field("redis_mode"),
            run_id: field("run_id"),
            topology,
        }
    }

    /// Why no sale must run here, each with what to do about it. Empty: none.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let expected = match self.topology {
            Topology::Single | Topology::Sentinel => "standalone",
            Topology::Cluster => "cluster",
        };
        if self.mode != expected {
            let instead = match self.mode.as_str() {
                "cluster" => "set redis.topology to cluster, or calls go to the wrong master",
                "sentinel" => "set redis.topology to sentinel, and redis.nodes to the sentinels",
                _ => "set redis.topology to single or sentinel",
            };
            problems.push(format!(
                "redis runs as {:?}, and the configuration says {expected}; {instead}",
                self.mode
            ));
            // A sentinel has nothing of what follows.
            if self.mode == "sentinel" {
                return problems;
            }
        }
        let major = self.version.split('.').next().unwrap_or("");
        if major.parse().is_ok_and(|major: u32| major < MAJOR_MIN) || major.is_empty() {
            problems.push(format!(
                "redis is version {:?}; {MAJOR_MIN}.0 or later is needed",
                self.version
            ));
        }
        if self.role != "master" {
            problems.push(format!(
                "redis has the role {:?}; claims need the master",
                self.role
            ));
        }
        if self.maxmemory_policy != "noeviction" {
            problems.push(format!(
                "redis evicts keys (maxmemory-policy {:?}); set it to noeviction, or a sale's \
                 keys may vanish while it runs",
                self.maxmemory_policy
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:af\r\n# Memory\r\n\
                        maxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\n";

    #[test]
    fn a_master_that_never_evicts_has_no_problems() {
        let facts = ServerFacts::from_info(INFO, Topology::Single);
        assert_eq!(facts.version, "7.0.15");
        assert_eq!(facts.problems(), Vec::<String>::new());
    }

    #[test]
    fn every_problem_is_named() {
        let info = INFO
            .replace("7.0.15", "6.2.7")
            .replace("noeviction", "allkeys-lru")
            .replace("master", "slave");
        let problems = ServerFacts::from_info(&info, Topology::Single).problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[2].contains("allkeys-lru"), "{problems:?}");
    }

    #[test]
    fn what_is_not_said_is_a_problem() {
        assert_eq!(
            ServerFacts::from_info("", Topology::Single)
                .problems()
                .len(),
            4
        );
    }

    #[test]
    fn a_server_that_is_not_what_the_configuration_says_is_refused() {
        let problems = |mode: &str, topology| {
            let info = INFO.replace("standalone", mode);
            ServerFacts::from_info(&info, topology).problems()
        };
        assert_eq!(problems("cluster", Topology::Cluster), [""; 0]);
        assert_eq!(problems("standalone", Topology::Sentinel), [""; 0]);
        for (mode, topology, say) in [
            ("cluster", Topology::Single, "topology to cluster"),
            ("cluster", Topology::Sentinel, "topology to cluster"),
            ("sentinel", Topology::Single, "topology to sentinel"),
            ("standalone", Topology::Cluster, "topology to single"),
        ] {
            let problems = problems(mode, topology);
            assert!(
                problems.len() == 1 && problems[0].contains(say),
                "{problems:?}"
            );
        }
    }
}
