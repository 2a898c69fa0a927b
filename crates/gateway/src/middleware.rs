//! What happens to every request before and after its handler.

pub mod admin_key;
pub mod connections;
pub mod edge;
