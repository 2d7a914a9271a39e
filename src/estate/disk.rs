//! How much disk each cluster takes up: measured rarely, off the arbiter, and never longer than a bound on the files it has.
//!
//! The daemon runs [`HostEstate::keep_measuring`] for its whole life; the control API asks for what was found last. Beyond a cap a
//! cluster is remarked on, and nothing is done about it: what is deleted or stopped is an operator's choice.

use super::{HostEstate, Inner};
use crate::files;
use berth_actors::status::{Disk, Holding};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A database grows by megabytes an hour: who looks again is told of it within minutes.
const LOOK: Duration = Duration::from_mins(10);
/// What starts with the daemon comes first.
const FIRST_LOOK: Duration = Duration::from_secs(20);
/// A cluster has some 1500 files. A thousand times as many are looked at within a second or two, and that is enough of it.
const MOST: u64 = 1_000_000;
/// `st_blocks` counts in these, whatever the file system's own are.
const BLOCK: u64 = 512;

/// What was found when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    found: Found,
    at: Instant,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Found {
    bytes: u64,
    is_partial: bool,
}

impl HostEstate {
    /// Never returns. One cluster after the other: nobody waits for it.
    pub async fn keep_measuring(self) {
        let mut wait = FIRST_LOOK;
        loop {
            tokio::time::sleep(wait).await;
            wait = LOOK;
            let clusters: Vec<String> =
                self.0.known.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
            for cluster in clusters {
                let measured = self.off_thread(move |inner| inner.measure_disk(&cluster));
                if let Err(reason) = measured.await {
                    tracing::debug!(%reason, "the disk of a cluster was not measured");
                }
            }
        }
    }
}

impl Inner {
    /// Blocking.
    fn measure_disk(&self, cluster: &str) -> io::Result<()> {
        let found = measure(&self.layout.cluster(cluster), MOST)?;
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        let before = disks.insert(cluster.to_owned(), Measured { found, at: Instant::now() });
        let is_over = |found: Found| self.tenant_disk.is_some_and(|cap| found.bytes > cap);
        if is_over(found) && !before.is_some_and(|before| is_over(before.found)) {
            tracing::warn!(cluster, bytes = found.bytes, "it takes up more disk than [tenants] disk");
        }
        Ok(())
    }

    /// Of every cluster there is, with what is remarkable about them.
    pub(super) fn holdings(&self) -> (BTreeMap<String, Holding>, Vec<String>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|cluster, _| known.contains_key(cluster));
        let (mut holdings, mut remarks) = (BTreeMap::new(), Vec::new());
        for (cluster, known) in &*known {
            let disk = disks.get(cluster).map(|Measured { found, at }| Disk {
                bytes: found.bytes,
                is_partial: found.is_partial,
                measured_ago_ms: u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX),
            });
            remarks.extend(disk.and_then(|disk| remark(cluster, disk, self.tenant_disk)));
            if known.owned.waits {
                remarks.push(format!(
                    "{cluster} still runs under the account that all share: `berth cluster stop {cluster}`, restart the daemon, \
                     `berth cluster start {cluster}`, and it has a uid of its own"
                ));
            }
            holdings.insert(cluster.clone(), Holding { uid: known.owned.own_uid(), disk });
        }
        (holdings, remarks)
    }
}

fn remark(cluster: &str, disk: Disk, cap: Option<u64>) -> Option<String> {
    let cap = cap.filter(|cap| disk.bytes > *cap)?;
    let at_least = if disk.is_partial { " at least" } else { "" };
    Some(format!(
        "{cluster} takes up{at_least} {} MiB of disk, more than the {} MiB of [tenants] disk",
        disk.bytes >> 20,
        cap >> 20
    ))
}

/// Looks at `most` entries at most. Who works in there creates and removes files meanwhile: what is gone counts for nothing.
fn measure(top: &Path, most: u64) -> io::Result<Found> {
    let (mut found, mut seen) = (Found::default(), 0);
    let mut pending = vec![top.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries = match files::list(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir != top => continue,
            Err(error) => return Err(error),
        };
        for entry in entries.filter_map(Result::ok) {
            if seen == most {
                return Ok(Found { is_partial: true, ..found });
            }
            seen += 1;
            // Of a link itself, not of what it points to.
            let Ok(meta) = entry.metadata() else { continue };
            found.bytes += meta.blocks() * BLOCK;
            if meta.is_dir() {
                pending.push(dir.join(entry.file_name()));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn all_below_counts_with_what_it_takes_up_and_links_lead_nowhere() {
        let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        assert_eq!(measure(dir.path(), 10).unwrap(), Found::default());
        fs::create_dir(dir.path().join("below")).unwrap();
        let files = [dir.path().join("a"), dir.path().join("below/b"), elsewhere.path().join("c")];
        for path in &files {
            crate::files::write_atomic(path, &vec![7; 100_000], None).unwrap();
        }
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        let found = measure(dir.path(), 10).unwrap();
        assert!((200_000..290_000).contains(&found.bytes) && !found.is_partial, "{found:?}");
    }

    #[test]
    fn a_walk_ends_at_its_bound_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        for file in 0..5 {
            fs::File::create(dir.path().join(file.to_string())).unwrap();
        }
        assert!(measure(dir.path(), 4).unwrap().is_partial);
        assert!(!measure(dir.path(), 5).unwrap().is_partial);
        assert!(measure(&dir.path().join("gone"), 5).is_err());
    }

    #[test]
    fn a_cluster_beyond_the_cap_is_remarked_on() {
        let disk = |bytes, is_partial| Disk { bytes, is_partial, measured_ago_ms: 0 };
        assert_eq!(remark("demo", disk(64 << 20, false), None), None);
        assert_eq!(remark("demo", disk(64 << 20, false), Some(64 << 20)), None);
        let text = remark("demo", disk(65 << 20, true), Some(64 << 20)).unwrap();
        assert!(text.starts_with("demo takes up at least 65 MiB of disk, more than the 64 MiB"), "{text}");
    }
}
