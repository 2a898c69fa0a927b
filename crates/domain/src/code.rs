//! The one table of error codes.
