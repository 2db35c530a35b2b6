//! A small blocking HTTP client for tests, which shows the bytes as they came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a test waits for bytes before it fails.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Header lines of one request.
pub type Headers<'a> = &'a [(&'a str, &'a str)];

/// One reply.
#[derive(Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Reason phrase.
    pub reason: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
}

impl Reply {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Talks to one server, with a fresh connection per request.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    authorization: Option<String>,
}

impl Client {
    /// A client without a login.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            authorization: None,
        }
    }

    /// The same client with a Basic login.
    pub fn with_basic(&self, name: &str, password: &str) -> Self {
        use base64::Engine;
        let token = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        Self {
            address: self.address,
            authorization: Some(format!("Basic {token}")),
        }
    }

    /// Sends a request and reads the whole reply.
    pub fn send(&self, method: &str, target: &str, headers: Headers<'_>, body: Option<&[u8]>) -> Reply {
        self.open(method, target, headers, body).finish()
    }

    /// Sends a request and reads the head of the reply.
    pub fn open(&self, method: &str, target: &str, headers: Headers<'_>, body: Option<&[u8]>) -> Open {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        stream
            .set_read_timeout(Some(READ_TIMEOUT))
            .expect("a timeout can be set");
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.address);
        if let Some(authorization) = &self.authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("Connection: close\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        stream.write_all(&bytes).expect("the request can be sent");
        Open::read_head(stream, method == "HEAD")
    }

    /// GET.
    pub fn get(&self, target: &str) -> Reply {
        self.send("GET", target, &[], None)
    }

    /// GET with `Accept: application/json`.
    pub fn get_json(&self, target: &str) -> Reply {
        self.send("GET", target, &[("Accept", "application/json")], None)
    }

    /// PUT with a body.
    pub fn put(&self, target: &str, body: &str) -> Reply {
        self.send(
            "PUT",
            target,
            &[("Content-Type", "application/json")],
            Some(body.as_bytes()),
        )
    }

    /// POST with a JSON body.
    pub fn post(&self, target: &str, body: &str) -> Reply {
        self.send(
            "POST",
            target,
            &[("Content-Type", "application/json")],
            Some(body.as_bytes()),
        )
    }

    /// DELETE.
    pub fn delete(&self, target: &str) -> Reply {
        self.send("DELETE", target, &[], None)
    }
}

/// A reply whose head has been read.
#[derive(Debug)]
pub struct Open {
    /// Head so far; the body is empty.
    pub reply: Reply,
    reader: BufReader<TcpStream>,
    head_only: bool,
}

impl Open {
    fn read_head(stream: TcpStream, head_only: bool) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status line");
        let mut parts = line.trim_end().splitn(3, ' ').skip(1);
        let status = parts
            .next()
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("status line {line:?}"));
        let reason = parts.next().unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header line");
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Self {
            reply: Reply {
                status,
                reason,
                headers,
                body: Vec::new(),
            },
            reader,
            head_only,
        }
    }

    /// The next chunk of a chunked body; `None` at its end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a chunk size");
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).expect("a whole chunk");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// Reads the rest.
    pub fn finish(mut self) -> Reply {
        if self.head_only || matches!(self.reply.status, 204 | 304) {
            return self.reply;
        }
        if self.reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                self.reply.body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = self
            .reply
            .header("content-length")
            .and_then(|text| text.parse().ok())
        {
            let mut body = vec![0; length];
            self.reader.read_exact(&mut body).expect("a whole body");
            self.reply.body = body;
        } else {
            self.reader
                .read_to_end(&mut self.reply.body)
                .expect("a body up to the end");
        }
        self.reply
    }
}
