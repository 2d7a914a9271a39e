//! stderr in klog's format: `I1130 21:19:59.583765    7182 secure_serving.go:214] text`. The daemon reads these lines.

use std::io::Write;
use time::OffsetDateTime;

/// One line of severity info, as from `source` (kcp's own file and line, part of what a reader may match).
pub(super) fn info(source: &str, text: &str) {
    line('I', source, text);
}

pub(super) fn error(source: &str, text: &str) {
    line('E', source, text);
}

fn line(severity: char, source: &str, text: &str) {
    raw(&render(severity, crate::clock::now(), std::process::id(), source, text));
}

/// Text as it is. A stderr that cannot be written to has nobody to tell.
pub(super) fn raw(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn render(severity: char, at: OffsetDateTime, pid: u32, source: &str, text: &str) -> String {
    format!(
        "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {pid:>7} {source}] {text}\n",
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_line_looks_like_klog() {
        let at = datetime!(2026-11-30 21:19:59.583765 UTC);
        let line = render('I', at, 7182, "secure_serving.go:214", "Serving securely on 127.0.0.1:35865");
        assert_eq!(
            line,
            "I1130 21:19:59.583765    7182 secure_serving.go:214] Serving securely on 127.0.0.1:35865\n"
        );
    }
}
