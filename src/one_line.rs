//! Other people's words inside a line of ours.
//!
//! Whoever puts a parser's message, a component's log line or an answer's reason into an error passes it through here: a
//! key of a file or a client's text may hold line breaks and control sequences, and an error is one line of the log.

use std::fmt::Display;

/// `text` with every control character written as its escape.
pub(crate) fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    let mut line = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_or_steer_a_line_is_escaped_and_the_rest_is_kept() {
        assert_eq!(one_line("unknown field `a\nb`, käse"), "unknown field `a\\nb`, käse");
        assert_eq!(one_line("\x1b[2J\u{85}"), "\\u{1b}[2J\\u{85}");
    }
}
