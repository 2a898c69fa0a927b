//! Where the traffic goes: a base URL whose host is this machine, and nothing
//! else. A load generator that can be pointed at somebody else's server is a
//! weapon, so the check is here, in the only type that a connection is made
//! from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;

/// A gateway's base URL, checked to be on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where connections are made to.
    pub addr: SocketAddr,
    /// The `Host` header of every request.
    pub host: HeaderValue,
    /// The URL as given, without a trailing slash: how reports name the target.
    pub base: String,
    prefix: String,
}

/// Why a base URL cannot be a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadTarget {
    /// It is not an absolute `http://host:port[/prefix]` URL.
    NotAUrl(String),
    /// It names another machine.
    NotLoopback(String),
}

impl std::fmt::Display for BadTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAUrl(why) => write!(f, "not a base URL like http://127.0.0.1:8080: {why}"),
            Self::NotLoopback(host) => write!(
                f,
                "`{host}` is not this machine: load goes to loopback only \
                 (127.0.0.0/8, [::1] or localhost)"
            ),
        }
    }
}

impl std::error::Error for BadTarget {}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let base = text.trim_end_matches('/');
        let uri: Uri = base
            .parse()
            .map_err(|error| BadTarget::NotAUrl(format!("{error}")))?;
        if uri.scheme_str() != Some("http") {
            return Err(BadTarget::NotAUrl("the scheme must be http".to_owned()));
        }
        if uri.query().is_some() {
            return Err(BadTarget::NotAUrl("it has a query".to_owned()));
        }
        let authority = uri
            .authority()
            .ok_or_else(|| BadTarget::NotAUrl("it has no host".to_owned()))?;
        if authority.as_str().contains('@') {
            return Err(BadTarget::NotAUrl("it has user info".to_owned()));
        }
        let ip = loopback(authority.host())?;
        let host = HeaderValue::from_str(authority.as_str())
            .map_err(|error| BadTarget::NotAUrl(format!("{error}")))?;
        Ok(Self {
            addr: SocketAddr::new(ip, authority.port_u16().unwrap_or(80)),
            host,
            base: base.to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// The loopback address that a URL's host names. Names other than `localhost`
/// are refused rather than resolved: an answer of DNS can change in mid-run.
fn loopback(host: &str) -> Result<IpAddr, BadTarget> {
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .ok()
        .filter(IpAddr::is_loopback)
        .ok_or_else(|| BadTarget::NotLoopback(host.to_owned()))
}

impl Target {
    /// The path of the URL itself.
    ///
    /// # Errors
    /// When it cannot stand in a request.
    pub fn path(&self) -> Result<Uri, hyper::http::uri::InvalidUri> {
        match self.prefix.as_str() {
            "" => "/".parse(),
            prefix => prefix.parse(),
        }
    }

    /// The path of a sale's claims on this target.
    ///
    /// # Errors
    /// When the sale's id cannot stand in a path.
    pub fn claims(&self, sale: &str) -> Result<Uri, hyper::http::uri::InvalidUri> {
        format!("{}/v1/sales/{sale}/claims", self.prefix).parse()
    }
}

/// The path that a `Location` header points to, when it may be followed: an
/// absolute path, or a whole URL that names one of `targets`. Any target
/// answers for any claim, so only the path counts.
#[must_use]
pub fn followable(location: &str, targets: &[Arc<Target>]) -> Option<Uri> {
    let uri: Uri = location.parse().ok()?;
    match uri.authority() {
        None if location.starts_with('/') => Some(uri),
        None => None,
        Some(authority) => {
            let ours = targets
                .iter()
                .any(|target| target.host.as_bytes() == authority.as_str().as_bytes());
            (ours && uri.scheme_str() == Some("http"))
                .then(|| uri.path_and_query()?.as_str().parse().ok())?
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_hosts_are_taken() {
        assert_eq!(
            target("http://127.0.0.1:8080/").addr,
            "127.0.0.1:8080".parse().unwrap()
        );
        assert_eq!(
            target("http://127.9.8.7:1").addr,
            "127.9.8.7:1".parse().unwrap()
        );
        assert_eq!(target("http://[::1]:9").addr, "[::1]:9".parse().unwrap());
        assert_eq!(
            target("http://localhost").addr,
            "127.0.0.1:80".parse().unwrap()
        );
    }

    #[test]
    fn any_other_host_is_refused() {
        for url in [
            "http://10.0.0.1:80",
            "http://example.org",
            "http://127.0.0.1.example.org",
            "http://localhost.example.org:8080",
            "http://0.0.0.0:80",
            "http://[2001:db8::1]:80",
            "http://[::ffff:10.0.0.1]:80",
        ] {
            assert!(
                matches!(url.parse::<Target>(), Err(BadTarget::NotLoopback(_))),
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_not_a_plain_http_base_is_refused() {
        for url in [
            "https://127.0.0.1",
            "127.0.0.1:80",
            "/x",
            "",
            "http://u@127.0.0.1",
            "http://127.0.0.1/?a=b",
        ] {
            assert!(
                matches!(url.parse::<Target>(), Err(BadTarget::NotAUrl(_))),
                "{url}"
            );
        }
    }

    #[test]
    fn a_prefix_stays_in_the_path() {
        let claims = target("http://127.0.0.1:8080/shop/").claims("s1").unwrap();
        assert_eq!(claims.path(), "/shop/v1/sales/s1/claims");
    }

    #[test]
    fn a_location_leads_to_our_targets_only() {
        let targets = [
            Arc::new(target("http://127.0.0.1:8080")),
            Arc::new(target("http://127.0.0.1:8081")),
        ];
        let path = |location| followable(location, &targets).map(|uri| uri.to_string());
        assert_eq!(path("/v1/x?y=1").as_deref(), Some("/v1/x?y=1"));
        assert_eq!(path("http://127.0.0.1:8081/v1/x").as_deref(), Some("/v1/x"));
        assert_eq!(path("http://127.0.0.1:9999/v1/x"), None);
        assert_eq!(path("http://example.org/v1/x"), None);
        assert_eq!(path("relative"), None);
    }
}
