//! The lanes of a log.

use std::fmt;

use dropgate_domain::PartitionId;

use crate::error::LogError;

/// One totally ordered sequence of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The index of sales: the one partition of `dropgate-sales`.
    Index,
    /// A partition of `dropgate-claims`.
    Claims(PartitionId),
}

impl Lane {
    /// The lane's partition in its topic.
    #[must_use]
    pub fn partition(self) -> PartitionId {
        match self {
            Self::Index => PartitionId(0),
            Self::Claims(partition) => partition,
        }
    }

    /// The lane, if a log with this many claims partitions has it.
    pub(crate) fn checked(self, partitions: u32) -> Result<Self, LogError> {
        match self {
            Self::Claims(PartitionId(partition)) if partition >= partitions => {
                Err(LogError::UnknownLane {
                    lane: self,
                    partitions,
                })
            }
            _ => Ok(self),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => f.write_str("the index of sales"),
            Self::Claims(partition) => write!(f, "claims partition {partition}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lanes_that_the_log_has_are_known() {
        assert!(Lane::Index.checked(1).is_ok());
        assert!(Lane::Claims(PartitionId(3)).checked(4).is_ok());
        let error = Lane::Claims(PartitionId(4)).checked(4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no claims partition 4: the log has 4 claims partitions"
        );
    }
}
