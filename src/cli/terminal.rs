//! The terminal: plain writes that tell of a closed pipe instead of panicking, and colours only where someone sees them.

use std::io::{self, IsTerminal, Write};

/// Writes to standard output at once: whoever reads a pipe wants it now.
pub(super) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// One line to standard output.
pub(super) fn say(line: &str) -> io::Result<()> {
    write(format!("{line}\n").as_bytes())
}

/// One line to standard error: remarks that are no part of the result.
pub(super) fn remark(line: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{line}")
}

/// Asks on the terminal; `None` when there is nobody to ask. Blocking.
pub(super) fn ask(question: &str) -> io::Result<Option<String>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    write!(io::stderr(), "{question} ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(Some(answer.trim().to_owned()))
}

/// How text may look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
}

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    /// On its way.
    Busy,
    Bad,
    /// Of less weight.
    Faint,
    Strong,
}

impl Style {
    pub const PLAIN: Self = Self { colour: false };

    /// Colours on a terminal, unless NO_COLOR is set to anything (no-color.org).
    pub fn of(stream: &impl IsTerminal) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: stream.is_terminal() && !forbidden }
    }

    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Busy => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Text of a component without its colours and control characters: a log line must not steer the operator's terminal.
pub(super) fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\x1b' && characters.next_if_eq(&'[').is_some() {
            // A control sequence ends with the first byte of this range (ECMA-48).
            while characters.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
        } else if character.is_control() && character != '\t' {
            clean.push('\u{fffd}');
        } else {
            clean.push(character);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_loses_its_colours_and_cannot_steer_the_terminal() {
        assert_eq!(harmless("\x1b[36mINFO\x1b[0m[0000] käse\tok"), "INFO[0000] käse\tok");
        assert_eq!(harmless("a\x1b[2J\x1b[Hb"), "ab");
        assert_eq!(harmless("a\x1b]0;title\x07\r\n"), "a\u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(harmless("cut \x1b[3"), "cut ");
    }

    #[test]
    fn plain_text_has_no_colours() {
        assert_eq!(Style::PLAIN.paint(Tone::Bad, "x"), "x");
        assert_eq!(Style { colour: true }.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
