//! What a starting kcp says in its log and nowhere else: the name it campaigns for the lease under, and the one complaint
//! that goes with a hung start. Reads on from where it stopped; never rewrites anything.

use crate::log_line::NewLines;
use std::path::Path;

/// The log of one process, from its first line on.
#[derive(Debug)]
pub(crate) struct StartLog {
    lines: NewLines,
    /// `<hostname>_<uuid>`, new in every process.
    pub identity: Option<String>,
    /// `error deleting old lease`: seen 10 s into every start that hung.
    pub lease_complaint: bool,
}

impl StartLog {
    /// `offset`: how much had been written to the log before the process wrote to it.
    pub(crate) fn new(path: &Path, offset: u64) -> Self {
        Self { lines: NewLines::after(path, offset), identity: None, lease_complaint: false }
    }

    /// Reads the whole lines that were added. Blocking. A log that is absent, or cannot be read, has said nothing.
    pub(crate) fn read_on(&mut self) {
        loop {
            match self.lines.written() {
                Ok(Some(lines)) => lines.iter().for_each(|line| self.hear(line)),
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a starting kcp is not heard"),
            }
        }
    }

    pub(super) fn hear(&mut self, line: &str) {
        if line.contains("starting leader election") {
            if let Some(identity) = field(line, "identity") {
                self.identity = Some(identity.to_owned());
            }
        } else if line.contains("error deleting old lease") {
            self.lease_complaint = true;
        }
    }
}

/// The value of ` name="value"` in a klog line.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const ELECTION: &str = "I1130 21:25:28.201000    7182 server.go:847] \"(re-)starting leader election\" \
        component=\"kcp\" identity=\"vm_b692717b-f044-41e8-ae37-81e33f85c24c\" namespace=\"kube-system\" name=\"kcp-controllers\"\n";
    const COMPLAINT: &str = "E1130 21:25:38.201000    7182 controller.go:116] \"error deleting old lease\" \
        err=\"Delete \\\"https://127.0.0.1:4711/clusters/system:admin/...\\\": context deadline exceeded\"\n";

    fn append(path: &Path, text: &str) {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_of_an_earlier_process_are_not_this_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kcp.log");
        append(&path, &ELECTION.replace("b692717b", "00000000"));
        append(&path, COMPLAINT);
        let mut log = StartLog::new(&path, std::fs::metadata(&path).unwrap().len());
        log.read_on();
        assert_eq!((log.identity.clone(), log.lease_complaint), (None, false));

        append(&path, ELECTION);
        append(&path, COMPLAINT);
        log.read_on();
        assert_eq!(log.identity.as_deref(), Some("vm_b692717b-f044-41e8-ae37-81e33f85c24c"));
        assert!(log.lease_complaint);
    }

    #[test]
    fn a_line_is_read_once_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kcp.log");
        let mut log = StartLog::new(&path, 0);
        log.read_on();
        let (head, tail) = ELECTION.split_at(90);
        append(&path, head);
        log.read_on();
        assert_eq!(log.identity, None);
        append(&path, tail);
        log.read_on();
        assert!(log.identity.is_some());
    }

    #[test]
    fn a_rotated_log_is_read_from_its_new_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kcp.log");
        append(&path, ELECTION);
        let mut log = StartLog::new(&path, 1 << 30);
        log.read_on();
        assert!(log.identity.is_some());
    }

    #[test]
    fn a_line_about_another_leader_names_nobody() {
        let mut log = StartLog::new(Path::new("kcp.log"), 0);
        log.hear("I1130 21:25:28.2 7182 server.go:874] \"leader is someone else\" leader=\"vm_1\"\n");
        log.hear("I1130 21:25:28.2 7182 server.go:847] \"(re-)starting leader election\" identity=\"\"\n");
        assert_eq!(log.identity, None);
    }
}
