//! The operators' command: serve, sale, reconcile, token, log.
