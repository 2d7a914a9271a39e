//! Which clients there are. One row is one client program as a user runs it: its protocol, what it asks, and how often.

use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// hyper, the client under kube-rs.
    Rust,
    /// net/http, the client under client-go.
    Go,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    H1,
    H2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Asks {
    Get,
    Post,
    /// Everything of some megabytes.
    List,
    Watch,
    /// The same list, read slowly, so that much of it is on its way for seconds.
    SlowRead,
    /// What the server takes most of a second for.
    SlowAnswer,
    /// A body sent in pieces, and sent back.
    Upload,
    /// As much as an API server takes, nearly all of it white space: the answer is small.
    LargeUpload,
    /// Its own direction is closed before the answer comes.
    HalfClosed,
    /// kube-rs: writes, and reads back what it wrote.
    KubeRs,
    /// Removes what the others were told is written.
    Delete,
}

#[derive(Debug, Clone, Serialize)]
pub struct Class {
    pub name: String,
    #[serde(skip)]
    pub by: By,
    pub protocol: Protocol,
    pub asks: Asks,
    /// Requests at a time; on HTTP/2 they share one connection.
    pub streams: usize,
    /// From one request to the next; 0: a closed loop.
    pub period_ms: u64,
    /// A connection for each request.
    pub fresh: bool,
}

impl Class {
    /// Many requests in flight on one connection: what layer 4 alone cannot end without a race.
    pub fn multiplexes(&self) -> bool {
        self.protocol == Protocol::H2 && self.streams > 1 && self.asks != Asks::Delete
    }

    /// Takes its time by itself: no latency of a drain is to be read from it.
    pub fn is_slow(&self) -> bool {
        matches!(
            self.asks,
            Asks::SlowRead | Asks::SlowAnswer | Asks::Upload | Asks::LargeUpload | Asks::Watch
        )
    }

    /// Each request is work, not only a wait.
    pub fn is_costly(&self) -> bool {
        let large = matches!(self.asks, Asks::List | Asks::SlowRead | Asks::Upload | Asks::LargeUpload);
        self.fresh || large || self.asks == Asks::Post
    }

    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }
}

/// Every class. `own_slots`: the servers are stand-ins that were told to be patient with half-closed clients.
pub fn all(own_slots: bool) -> Vec<Class> {
    use Asks::{
        Delete, Get, HalfClosed, KubeRs, LargeUpload, List, Post, SlowAnswer, SlowRead, Upload, Watch,
    };
    use By::{Go, Rust};
    use Protocol::{H1, H2};
    let class = |by: By, name: &str, protocol, asks, streams, period_ms| {
        let language = if by == Rust { "rust" } else { "go" };
        Class { name: format!("{language} {name}"), by, protocol, asks, streams, period_ms, fresh: false }
    };
    let mut classes = Vec::new();
    for by in [Rust, Go] {
        classes.extend([
            class(by, "h1 get each 50 ms", H1, Get, 1, 50),
            class(by, "h1 post each 200 ms", H1, Post, 1, 200),
            class(by, "h1 get loop", H1, Get, 1, 0),
            class(by, "h1 post loop", H1, Post, 1, 0),
            class(by, "h2 get each 50 ms", H2, Get, 1, 50),
            class(by, "h2 get loop", H2, Get, 1, 0),
            class(by, "h2 post loop", H2, Post, 1, 0),
            class(by, "h2 20 get loops", H2, Get, 20, 0),
            class(by, "h2 4 post loops", H2, Post, 4, 0),
            Class { fresh: true, ..class(by, "new connection each 20 ms", H1, Get, 1, 20) },
            class(by, "h1 watch", H1, Watch, 1, 0),
            class(by, "h2 watch", H2, Watch, 1, 0),
            class(by, "h1 large list", H1, List, 1, 500),
            class(by, "h2 large list", H2, List, 1, 500),
            class(by, "h1 slow answer", H1, SlowAnswer, 1, 0),
            class(by, "h2 slow answer", H2, SlowAnswer, 1, 0),
            class(by, "h1 slow reader", H1, SlowRead, 1, 500),
            class(by, "h2 slow reader", H2, SlowRead, 1, 500),
            class(by, "h1 upload", H1, Upload, 1, 500),
            class(by, "h2 upload", H2, Upload, 1, 500),
            class(by, "h1 large upload", H1, LargeUpload, 1, 500),
            class(by, "h2 large upload", H2, LargeUpload, 1, 500),
        ]);
    }
    classes.extend([
        class(Rust, "kube-rs write and read", H1, KubeRs, 1, 200),
        class(Rust, "h1 delete", H1, Delete, 2, 0),
        class(Rust, "h2 delete", H2, Delete, 1, 0),
    ]);
    if own_slots {
        classes.push(class(Rust, "h1 half-closed", H1, HalfClosed, 1, 300));
    }
    classes
}
