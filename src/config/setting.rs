//! A value that knows where it came from, so that `berth config show` can answer "why is it that?".

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Where an effective value was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it; the reason for the default.
    Default(&'static str),
    File {
        path: PathBuf,
        line: usize,
    },
    /// The flag, or its environment variable.
    CommandLine(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default(reason) => write!(f, "default: {reason}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::CommandLine(flag) => f.write_str(flag),
        }
    }
}

/// Dereferences to its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub source: Source,
}

impl<T> Setting<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { value: change(self.value), source: self.source }
    }
}

impl<T> Setting<Option<T>> {
    pub(super) fn require(self, default: Option<T>) -> Option<Setting<T>> {
        Some(Setting { value: self.value.or(default)?, source: self.source })
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// The file a value may come from.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) text: &'a str,
    pub(super) path: &'a Path,
}

impl Origin<'_> {
    pub(super) fn setting<T, F: Into<T>>(
        self,
        given: Option<Spanned<F>>,
        (default, reason): (T, &'static str),
    ) -> Setting<T> {
        match given {
            None => Setting { value: default, source: Source::Default(reason) },
            Some(given) => Setting { source: self.source(&given), value: given.into_inner().into() },
        }
    }

    pub(super) fn optional<T, F: Into<T>>(
        self,
        given: Option<Spanned<F>>,
        reason: &'static str,
    ) -> Setting<Option<T>> {
        match given {
            None => Setting { value: None, source: Source::Default(reason) },
            Some(given) => Setting { source: self.source(&given), value: Some(given.into_inner().into()) },
        }
    }

    fn source<T>(self, given: &Spanned<T>) -> Source {
        Source::File { path: self.path.to_owned(), line: line_of(self.text, given.span().start) }
    }
}

/// Lines are counted from one.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
