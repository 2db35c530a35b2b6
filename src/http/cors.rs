//! Cross-origin requests: preflights, and the headers of ordinary replies.

/// Request headers that need no listing.
const HEADERS_ALWAYS: &[&str] = &[
    "accept",
    "accept-language",
    "authorization",
    "content-length",
    "content-range",
    "content-type",
    "destination",
    "expires",
    "if-match",
    "last-modified",
    "origin",
    "pragma",
    "x-couch-full-commit",
    "x-couch-id",
    "x-couch-persist",
    "x-couchdb-www-authenticate",
    "x-http-method-override",
    "x-requested-with",
    "x-couchdb-vhost-path",
];

/// Response headers that are named when the reply has them; `content-type` always is.
const HEADERS_SIMPLE: &[&str] = &[
    "cache-control",
    "content-language",
    "expires",
    "last-modified",
    "pragma",
];

/// Response headers of ours that are exposed unless others are listed.
const HEADERS_EXPOSED: &[&str] = &[
    "accept-ranges",
    "etag",
    "server",
    "x-couch-request-id",
    "x-couch-update-newrev",
    "x-couchdb-body-time",
];

/// Methods that are permitted when none are listed.
const METHODS_DEFAULT: &[&str] = &[
    "CONNECT", "COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE",
];

/// The `[cors]` section, read once per change of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsPolicy {
    /// `[chttpd] enable_cors`
    pub enabled: bool,
    /// `origins`: exact origins, or one `*`.
    pub origins: Vec<String>,
    /// `credentials`
    pub credentials: bool,
    /// `headers`, lower case.
    pub headers: Vec<String>,
    /// `methods`; empty means the default.
    pub methods: Vec<String>,
    /// `exposed_headers`; empty means the default.
    pub exposed_headers: Vec<String>,
    /// `max_age` in seconds.
    pub max_age: u64,
}

impl Default for CorsPolicy {
    fn default() -> Self {
        Self {
            enabled: false,
            origins: Vec::new(),
            credentials: false,
            headers: Vec::new(),
            methods: Vec::new(),
            exposed_headers: Vec::new(),
            max_age: 600,
        }
    }
}

/// What a preflight gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preflight {
    /// 204 with these headers.
    Granted(Vec<(&'static str, String)>),
    /// 204 without any, which a browser reads as a refusal; the text goes to the log.
    Refused(String),
}

impl CorsPolicy {
    /// Whether `origin` may talk to us.
    pub fn allows(&self, origin: &str) -> bool {
        self.enabled
            && self
                .origins
                .iter()
                .any(|allowed| allowed == "*" || allowed == origin)
    }

    /// Answers `OPTIONS` with `Origin` and `Access-Control-Request-Method`.
    pub fn preflight(&self, origin: &str, method: &str, requested_headers: Option<&str>) -> Preflight {
        if !self.allows(origin) {
            return Preflight::Refused(format!("origin {origin} is not allowed"));
        }
        let methods: Vec<&str> = if self.methods.is_empty() {
            METHODS_DEFAULT.to_vec()
        } else {
            self.methods.iter().map(String::as_str).collect()
        };
        if !methods.contains(&method) {
            return Preflight::Refused(format!("method {method} is not allowed"));
        }
        let requested = requested_headers.unwrap_or_default();
        let wanted = requested
            .split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty());
        for name in wanted {
            let allowed = HEADERS_ALWAYS.contains(&name.as_str()) || self.headers.contains(&name);
            if !allowed {
                return Preflight::Refused(format!("header {name} is not allowed"));
            }
        }
        let mut headers = vec![
            ("Access-Control-Allow-Origin", origin.to_owned()),
            ("Access-Control-Max-Age", self.max_age.to_string()),
            ("Access-Control-Allow-Methods", methods.join(", ")),
        ];
        if requested_headers.is_some() {
            headers.push(("Access-Control-Allow-Headers", requested.to_owned()));
        }
        if self.credentials {
            headers.push(("Access-Control-Allow-Credentials", "true".to_owned()));
        }
        Preflight::Granted(headers)
    }

    /// The headers that an ordinary reply to `origin` carries, error replies included. `has` says which headers the
    /// reply already has.
    pub fn reply_headers(&self, origin: &str, has: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        if !self.allows(origin) {
            return Vec::new();
        }
        let mut exposed = vec!["content-type"];
        exposed.extend(HEADERS_SIMPLE.iter().copied().filter(|name| has(name)));
        if self.exposed_headers.is_empty() {
            exposed.extend(HEADERS_EXPOSED);
        } else {
            exposed.extend(self.exposed_headers.iter().map(String::as_str));
        }
        let mut headers = vec![("Access-Control-Allow-Origin", origin.to_owned())];
        if self.credentials {
            headers.push(("Access-Control-Allow-Credentials", "true".to_owned()));
        }
        headers.push(("Access-Control-Expose-Headers", exposed.join(", ")));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(origins: &str) -> CorsPolicy {
        let origins = origins.split(", ").map(str::to_owned).collect();
        CorsPolicy {
            enabled: true,
            origins,
            credentials: true,
            ..CorsPolicy::default()
        }
    }

    #[test]
    fn a_granted_preflight_echoes_origin_and_headers() {
        let policy = policy("app://obsidian.md, capacitor://localhost");
        let answer = policy.preflight("app://obsidian.md", "PUT", Some("authorization,Content-Type"));
        let Preflight::Granted(headers) = answer else {
            panic!("refused: {answer:?}")
        };
        assert!(headers.contains(&("Access-Control-Allow-Origin", "app://obsidian.md".to_owned())));
        assert!(headers.contains(&(
            "Access-Control-Allow-Headers",
            "authorization,Content-Type".to_owned()
        )));
        assert!(headers.contains(&("Access-Control-Allow-Credentials", "true".to_owned())));
    }

    #[test]
    fn a_refusal_names_its_cause() {
        let policy = policy("http://a");
        let refused = |answer| matches!(answer, Preflight::Refused(text) if !text.is_empty());
        assert!(refused(policy.preflight("http://a/", "GET", None)));
        assert!(refused(policy.preflight("http://A", "GET", None)));
        assert!(refused(policy.preflight("http://a", "PATCH", None)));
        let answer = policy.preflight("http://a", "GET", Some("x-unlisted"));
        assert_eq!(
            answer,
            Preflight::Refused("header x-unlisted is not allowed".to_owned())
        );
        assert!(refused(CorsPolicy::default().preflight("http://a", "GET", None)));
    }

    #[test]
    fn replies_echo_the_origin_even_for_any() {
        let headers = policy("*").reply_headers("http://x", |name| name == "cache-control");
        assert_eq!(headers[0], ("Access-Control-Allow-Origin", "http://x".to_owned()));
        let exposed = "content-type, cache-control, accept-ranges, etag, server, x-couch-request-id, \
                       x-couch-update-newrev, x-couchdb-body-time";
        assert_eq!(headers[2], ("Access-Control-Expose-Headers", exposed.to_owned()));
        assert!(policy("http://y").reply_headers("http://x", |_| true).is_empty());
    }
}
