//! What a Redis says of itself.

/// What INFO says that matters to a sale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// `redis_version`.
    pub version: String,
    /// `role`: master or slave.
    pub role: String,
    /// `maxmemory_policy`.
    pub maxmemory_policy: String,
}

/// The oldest release whose behaviour this crate knows: permissions are checked inside scripts,
/// and the script cache is never replicated.
const MAJOR_MIN: u32 = 7;

impl ServerFacts {
    /// Reads the reply of INFO. What it does not say stays empty, and is a problem.
    pub(crate) fn from_info(info: &str) -> Self {
        let field = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
            info.lines().find_map(value).unwrap_or_default()
        };
        Self {
            version: field("redis_version"),
            role: field("role"),
            maxmemory_policy: field("maxmemory_policy"),
        }
    }

    /// Why no sale must run here, each with what to do about it. Empty: none.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
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

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\n# Memory\r\n\
                        maxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\n";

    #[test]
    fn a_master_that_never_evicts_has_no_problems() {
        let facts = ServerFacts::from_info(INFO);
        assert_eq!(facts.version, "7.0.15");
        assert_eq!(facts.problems(), Vec::<String>::new());
    }

    #[test]
    fn every_problem_is_named() {
        let info = INFO
            .replace("7.0.15", "6.2.7")
            .replace("noeviction", "allkeys-lru")
            .replace("master", "slave");
        let problems = ServerFacts::from_info(&info).problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[2].contains("allkeys-lru"), "{problems:?}");
    }

    #[test]
    fn what_is_not_said_is_a_problem() {
        assert_eq!(ServerFacts::from_info("").problems().len(), 3);
    }
}
