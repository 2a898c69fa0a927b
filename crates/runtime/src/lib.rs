//! What every service does alike: config, logs, health, admin port, ordered shutdown.
