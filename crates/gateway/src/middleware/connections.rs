//! A cap on connections that answers instead of not accepting.
//!
//! A server that stops accepting at its cap lets the kernel's queue fill, and clients time out
//! in connect without knowing why. So every connection is accepted; those above the cap get 503
//! and are closed.

use crate::error::Problem;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use dropgate_domain::code::Code;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the connections of one server. Clones count the same.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    open: AtomicUsize,
    max: usize,
    shown: Gauge,
    refused: Counter,
}

impl Connections {
    /// At most `max` connections are served at once.
    #[must_use]
    pub fn new(max: usize, registry: &mut Registry) -> Self {
        let (shown, refused) = (Gauge::default(), Counter::default());
        registry.register(
            "dropgate_http_connections",
            "Open connections",
            shown.clone(),
        );
        registry.register(
            "dropgate_http_connections_refused",
            "Connections above the cap, answered 503 and closed",
            refused.clone(),
        );
        Self(Arc::new(Inner {
            open: AtomicUsize::new(0),
            max,
            shown,
            refused,
        }))
    }

    /// The server's `on_connect`: counts the connection for as long as it is open.
    pub fn on_connect(&self) -> impl Fn(&dyn Any, &mut Extensions) + Send + Sync + 'static + use<> {
        let connections = self.clone();
        move |_, data| {
            data.insert(connections.enter());
        }
    }

    fn enter(&self) -> Connection {
        let before = self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.shown.inc();
        let above_cap = before >= self.0.max;
        if above_cap {
            self.0.refused.inc();
        }
        Connection {
            of: self.clone(),
            above_cap,
        }
    }
}

/// An open connection.
#[derive(Debug)]
struct Connection {
    of: Connections,
    above_cap: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.of.0.open.fetch_sub(1, Ordering::Relaxed);
        self.of.0.shown.dec();
    }
}

/// Answers 503 on a connection above the cap, and closes it. To be run within the edge, which
/// writes the answer.
///
/// # Errors
/// Those of the handler.
pub async fn refuse_above_cap<B: MessageBody + 'static>(
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    let above_cap = req.conn_data::<Connection>().is_some_and(|c| c.above_cap);
    if above_cap {
        let problem = Problem::new(Code::Overloaded).close();
        return Ok(req.error_response(problem).map_into_right_body());
    }
    Ok(next.call(req).await?.map_into_left_body())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_above_the_cap_are_told_so_and_give_their_place_back() {
        let mut registry = Registry::default();
        let connections = Connections::new(2, &mut registry);
        let one = connections.enter();
        let two = connections.enter();
        let three = connections.enter();
        assert!(!one.above_cap && !two.above_cap && three.above_cap);
        assert_eq!(connections.0.shown.get(), 3);
        drop(three);
        drop(one);
        assert!(!connections.enter().above_cap);
        assert_eq!(connections.0.shown.get(), 1);
        assert_eq!(connections.0.refused.get(), 1);
    }
}
