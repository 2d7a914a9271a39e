//! The kinds of values a key can have beyond TOML's own, as they are written and as they are meant.

use crate::logs::Limits;
use serde::Deserialize;
use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A length of time: `500ms`, `4s`, `2m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("{text:?} is no length of time: write it like \"500ms\", \"4s\", \"2m\" or \"1h\"");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(milliseconds).map(Duration::from_millis).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            milliseconds if milliseconds % 1000 != 0 => write!(f, "{milliseconds}ms"),
            milliseconds => write!(f, "{}s", milliseconds / 1000),
        }
    }
}

/// A length of time that is not none.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Span")]
pub(super) struct Positive(pub(super) Span);

impl TryFrom<Span> for Positive {
    type Error = &'static str;

    fn try_from(span: Span) -> Result<Self, &'static str> {
        if span.0.is_zero() { Err("0 is met by nobody: give it some time") } else { Ok(Self(span)) }
    }
}

/// How large a log may be: `512KiB`, `16MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct LogSize(pub u64);

impl FromStr for LogSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no size: write it like \"512KiB\", \"16MiB\" or \"1GiB\"");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let bytes: u64 = match unit {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        // No file system takes a larger file, and an offset has to stay far from the end of its numbers.
        let size = number.checked_mul(bytes).filter(|size| *size <= 1 << 43).ok_or_else(bad)?;
        if size < Limits::SMALLEST {
            return Err(format!("{text:?} is too small for a log: at least {}", Self(Limits::SMALLEST)));
        }
        Ok(Self(size))
    }
}

impl fmt::Display for LogSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = [(30, "GiB"), (20, "MiB")]
            .into_iter()
            .find(|(shift, _)| self.0.trailing_zeros() >= *shift)
            .map_or((self.0 >> 10, "KiB"), |(shift, unit)| (self.0 >> shift, unit));
        write!(f, "{number}{unit}")
    }
}

/// How much memory: `512MiB`, `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct MemorySize(pub u64);

/// Nothing that is supervised lives in less.
const SMALLEST_MEMORY: u64 = 16 << 20;

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no size: write it like \"512MiB\" or \"2GiB\"");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let bytes: u64 = match unit {
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        let size = number.checked_mul(bytes).filter(|size| *size <= 1 << 50).ok_or_else(bad)?;
        if size < SMALLEST_MEMORY {
            return Err(format!("{text:?} is too little to start in: at least {}", Self(SMALLEST_MEMORY)));
        }
        Ok(Self(size))
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.trailing_zeros() {
            30.. => write!(f, "{}GiB", self.0 >> 30),
            _ => write!(f, "{}MiB", self.0 >> 20),
        }
    }
}

/// How much of the CPUs, in hundredths of one: `50%`, `200%` for two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuShare(pub u32);

impl FromStr for CpuShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("{text:?} is no share of a CPU: write it like \"50%\", or \"200%\" for two CPUs");
        let number = text.strip_suffix('%').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let percent = number.and_then(|number| number.parse().ok()).ok_or_else(bad)?;
        // The kernel takes no quota below 1 ms in 100 ms, and no host has so many CPUs.
        if (1..=1_000_000).contains(&percent) { Ok(Self(percent)) } else { Err(bad()) }
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// Ports `first-last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    pub(super) const fn of(ports: &RangeInclusive<u16>) -> Self {
        Self { first: *ports.start(), last: *ports.end() }
    }

    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no range of ports: write it like \"16443-17442\"");
        let (first, last) = text.split_once('-').ok_or_else(bad)?;
        let port = |port: &str| port.parse().map(NonZeroU16::get).map_err(|_| bad());
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(format!("{text:?} is an empty range of ports: the first one comes first"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Two ports `[a, b]`, one for each slot of kcp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "[u16; 2]")]
pub struct SlotPorts {
    pub a: u16,
    pub b: u16,
}

impl TryFrom<[u16; 2]> for SlotPorts {
    type Error = &'static str;

    fn try_from([a, b]: [u16; 2]) -> Result<Self, &'static str> {
        match (a, b) {
            (0, _) | (_, 0) => Err("0 is no port: leave `ports` out, and the slots take free ones"),
            (a, b) if a == b => Err("both slots run during a handover: they need two different ports"),
            _ => Ok(Self { a, b }),
        }
    }
}

impl fmt::Display for SlotPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.a, self.b)
    }
}

/// A path that means the same in every directory: a daemon's working directory is nobody's business.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "PathBuf")]
pub(super) struct AbsolutePath(PathBuf);

impl TryFrom<PathBuf> for AbsolutePath {
    type Error = String;

    fn try_from(path: PathBuf) -> Result<Self, String> {
        if path.is_absolute() {
            return Ok(Self(path));
        }
        Err(format!("{:?} must be an absolute path", path.display().to_string()))
    }
}

impl From<AbsolutePath> for PathBuf {
    fn from(path: AbsolutePath) -> Self {
        path.0
    }
}

/// A number of connections: at least one, and no more than a process can have files open (fs.nr_open, 2^20 by default).
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct Connections(u32);

impl Connections {
    const MOST: u32 = 1 << 20;
}

impl TryFrom<u32> for Connections {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        if (1..=Self::MOST).contains(&count) {
            return Ok(Self(count));
        }
        Err(format!("must be from 1 to {}", Self::MOST))
    }
}

impl From<Connections> for usize {
    fn from(connections: Connections) -> Self {
        connections.0 as usize
    }
}

/// A count of at least one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u16")]
pub(super) struct Count(u16);

impl TryFrom<u16> for Count {
    type Error = &'static str;

    fn try_from(count: u16) -> Result<Self, &'static str> {
        if count == 0 { Err("must be at least 1") } else { Ok(Self(count)) }
    }
}

impl From<Count> for u16 {
    fn from(count: Count) -> Self {
        count.0
    }
}

macro_rules! from_string {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}
from_string!(Span, LogSize, MemorySize, CpuShare, PortRange);

/// A uid that is not root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct FirstUid(u32);

impl TryFrom<u32> for FirstUid {
    type Error = &'static str;

    fn try_from(uid: u32) -> Result<Self, &'static str> {
        if uid == 0 { Err("0 is root: clusters get other uids") } else { Ok(Self(uid)) }
    }
}

impl From<FirstUid> for u32 {
    fn from(FirstUid(uid): FirstUid) -> Self {
        uid
    }
}

/// How much disk: `512MiB`, `20GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct DiskSize(pub u64);

impl FromStr for DiskSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        MemorySize::from_str(text).map(|MemorySize(size)| Self(size))
    }
}

impl TryFrom<String> for DiskSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for DiskSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        MemorySize(self.0).fmt(f)
    }
}

/// How large a core dump may be: `0`, `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct CoreSize(pub u64);

impl TryFrom<String> for CoreSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(0));
        }
        text.parse().map(|MemorySize(size)| Self(size)).map_err(|reason| format!("{reason}; \"0\" is none"))
    }
}

impl fmt::Display for CoreSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { MemorySize(self.0).fmt(f) }
    }
}
