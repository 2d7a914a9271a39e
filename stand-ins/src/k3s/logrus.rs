//! stderr in logrus' format, as k3s writes it where there is no terminal: `time="..." level=info msg="..."`.

use std::io::Write;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub(super) fn info(text: &str) {
    write(&line("info", crate::clock::now(), text));
}

pub(super) fn fatal(text: &str) {
    write(&line("fatal", crate::clock::now(), text));
}

/// A stderr that cannot be written to has nobody to tell.
fn write(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn line(level: &str, at: OffsetDateTime, text: &str) -> String {
    let time = at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default();
    format!("time=\"{time}\" level={level} msg={text:?}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_line_looks_like_logrus() {
        let at = datetime!(2026-11-30 21:19:59.583765 UTC);
        assert_eq!(
            line("fatal", at, "flag provided but not defined: -x"),
            "time=\"2026-11-30T21:19:59Z\" level=fatal msg=\"flag provided but not defined: -x\"\n"
        );
    }
}
