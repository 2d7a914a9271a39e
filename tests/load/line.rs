//! One HTTP connection to the front, made anew when it ends, and one request on it. Like any client it sends a request again
//! that was never written, and no other.

use super::classes::Protocol;
use super::target::Target;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server that says nothing for so long has lost the request: a kcp that was killed is back before.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked, without where.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: Method,
    /// Path and query.
    pub path: String,
    pub json: String,
    /// Pieces the body is sent in, with this pause between them.
    pub pieces: usize,
    pub pause: Duration,
    /// Asks a stand-in to take its time.
    pub delay_ms: u64,
    /// Bytes of the answer that are read before each rest of 20 ms; 0: as fast as it comes.
    pub read_at_once: usize,
}

impl Ask {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        let (path, json, pause) = (path.into(), String::new(), Duration::ZERO);
        Self { method, path, json, pieces: 1, pause, delay_ms: 0, read_at_once: 0 }
    }

    fn request(&self, target: &Target, protocol: Protocol) -> Request<Body> {
        let kind =
            if self.method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder()
            .method(&self.method)
            .uri(match protocol {
                Protocol::H1 => self.path.clone(),
                Protocol::H2 => format!("https://{}{}", target.front, self.path),
            })
            .header("content-type", kind)
            .header("authorization", format!("Bearer {}", target.token));
        if protocol == Protocol::H1 {
            request = request.header("host", target.front.to_string());
        }
        if self.delay_ms > 0 {
            request = request.header("kcp-stand-in-delay", self.delay_ms);
        }
        request.body(self.body()).unwrap()
    }

    fn body(&self) -> Body {
        let bytes = Bytes::from(self.json.clone());
        if self.pieces <= 1 {
            return Full::new(bytes).boxed_unsync();
        }
        let (length, pause) = (bytes.len().div_ceil(self.pieces).max(1), self.pause);
        let pieces: Vec<Bytes> = bytes.chunks(length).map(Bytes::copy_from_slice).collect();
        let paced = futures::stream::iter(pieces).then(move |piece| async move {
            sleep(pause).await;
            Ok(Frame::data(piece))
        });
        StreamBody::new(paced).boxed_unsync()
    }
}

enum Link {
    H1(http1::SendRequest<Body>),
    H2(http2::SendRequest<Body>),
}

impl Link {
    async fn open(target: &Target, protocol: Protocol) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("connect: {error}");
        Ok(match protocol {
            Protocol::H1 => {
                let stream = TokioIo::new(target.connect(b"http/1.1").await.map_err(|e| failed(&e))?);
                let (sender, driver) = http1::handshake(stream).await.map_err(|e| failed(&e))?;
                tokio::spawn(driver);
                Self::H1(sender)
            }
            Protocol::H2 => {
                let stream = TokioIo::new(target.connect(b"h2").await.map_err(|e| failed(&e))?);
                let made = http2::handshake(TokioExecutor::new(), stream).await;
                let (sender, driver) = made.map_err(|e| failed(&e))?;
                tokio::spawn(driver);
                Self::H2(sender)
            }
        })
    }

    /// Usable for one more request.
    async fn ready(&mut self) -> bool {
        match self {
            Self::H1(sender) => sender.ready().await.is_ok(),
            Self::H2(sender) => sender.ready().await.is_ok(),
        }
    }

    async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        match self {
            Self::H1(sender) => sender.try_send_request(request).await,
            Self::H2(sender) => sender.try_send_request(request).await,
        }
    }
}

/// The connection of one class.
pub struct Line {
    target: Arc<Target>,
    protocol: Protocol,
    /// HTTP/2 senders are cloned out of it, an HTTP/1.1 one is taken.
    link: Mutex<Option<Link>>,
    pub opened: AtomicU64,
}

impl Line {
    pub fn new(target: Arc<Target>, protocol: Protocol) -> Self {
        Self { target, protocol, link: Mutex::default(), opened: AtomicU64::new(0) }
    }

    pub async fn close(&self) {
        *self.link.lock().await = None;
    }

    async fn link(&self) -> Result<Link, String> {
        let mut kept = self.link.lock().await;
        if let Some(mut link) = kept.take()
            && link.ready().await
        {
            if let Link::H2(sender) = &link {
                *kept = Some(Link::H2(sender.clone()));
            }
            return Ok(link);
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        let link = Link::open(&self.target, self.protocol).await?;
        if let Link::H2(sender) = &link {
            *kept = Some(Link::H2(sender.clone()));
        }
        Ok(link)
    }

    /// The head of the answer, with what has to be given back when it was read.
    async fn head(&self, ask: &Ask) -> Result<(Response<Incoming>, Link), String> {
        let mut request = ask.request(&self.target, self.protocol);
        loop {
            let mut link = self.link().await?;
            match link.send(request).await {
                Ok(answer) => return Ok((answer, link)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(chain(&error.into_error())),
                },
            }
        }
    }

    /// The head of a good answer whose body goes on, as a watch's does.
    pub async fn open(&self, ask: &Ask) -> Result<Response<Incoming>, String> {
        let (answer, _) = timeout(PATIENCE, self.head(ask)).await.map_err(|_| "no answer".to_owned())??;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(format!("status {}", answer.status().as_u16()))
    }

    /// A whole good answer, or why there is none. A status other than success begins with its number.
    pub async fn ask(&self, ask: &Ask) -> Result<Bytes, String> {
        let exchange = async {
            let (answer, link) = self.head(ask).await?;
            let status = answer.status();
            let bytes = read(answer.into_body(), ask.read_at_once).await?;
            if self.protocol == Protocol::H1 {
                *self.link.lock().await = Some(link);
            }
            if status.is_success() {
                return Ok(bytes);
            }
            let said = String::from_utf8_lossy(&bytes).chars().take(200).collect::<String>();
            Err(format!("{}: {said}", status.as_u16()))
        };
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("no answer".to_owned()))
    }
}

async fn read(mut body: Incoming, at_once: usize) -> Result<Bytes, String> {
    let (mut whole, mut since_rest) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("body: {}", chain(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        since_rest += data.len();
        whole.extend_from_slice(&data);
        if at_once > 0 && since_rest >= at_once {
            since_rest = 0;
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(whole.into())
}

/// An error and everything behind it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
