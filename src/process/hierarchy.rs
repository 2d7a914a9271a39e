//! Where cgroup v2 is on this host, and where in it the daemon is.
//!
//! Called by [`super::cgroup`]. The parsing is pure and takes what the kernel may write: mount points with spaces, several
//! mounts of one hierarchy, a hybrid host that has v2 beside v1, a container that sees a part. Creates nothing.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The daemon's own cgroup as a directory: with a delegated systemd unit, the one place where it may create others. One
/// for each mount of the hierarchy that shows it; the mount points themselves where none does (a container's view).
pub(super) fn own_cgroups() -> io::Result<Vec<PathBuf>> {
    let membership = crate::files::trusted::bytes("/proc/self/cgroup")?;
    Ok(within(&crate::files::trusted::bytes("/proc/self/mountinfo")?, &membership))
}

/// The same of the text of both files.
pub(super) fn within(mountinfo: &[u8], membership: &[u8]) -> Vec<PathBuf> {
    let own = membership.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    let own = path(own.unwrap_or(b"/"));
    let mounts: Vec<Mount> = mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect();
    let inside: Vec<PathBuf> = mounts.iter().filter_map(|mount| mount.shows(&own)).collect();
    if inside.is_empty() { mounts.into_iter().map(|mount| mount.point).collect() } else { inside }
}

/// One mount of cgroup v2.
struct Mount {
    /// What of the hierarchy it shows.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// A line of proc_pid_mountinfo(5): `id parent device root point options [tags] - type source options`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, point) = (unescaped(fields.nth(3)?), unescaped(fields.next()?));
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (kind == b"cgroup2").then(|| Self { root: path(&root), point: path(&point) })
    }

    fn shows(&self, own: &Path) -> Option<PathBuf> {
        let below = own.strip_prefix(&self.root).ok()?;
        // A membership outside of the reader's cgroup namespace begins with `/..`.
        let is_inside = below.components().all(|part| matches!(part, Component::Normal(_)));
        // Joining nothing would add a slash.
        is_inside.then(|| self.point.components().chain(below.components()).collect())
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescaped(mut field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    while let Some((byte, rest)) = field.split_first() {
        match (byte, octal(rest)) {
            (b'\\', Some(escaped)) => {
                bytes.push(escaped);
                field = &rest[3..];
            }
            _ => {
                bytes.push(*byte);
                field = rest;
            }
        }
    }
    bytes
}

fn octal(text: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(text.get(..3)?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(())?;
    u8::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/memory rw shared:7 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 master:1 - cgroup2 cgroup2 rw\n";
    const UNIT: &str = "0::/system.slice/berth.service\n";

    fn places(mountinfo: &str, membership: &str) -> Vec<String> {
        let places = within(mountinfo.as_bytes(), membership.as_bytes());
        places.iter().map(|place| place.display().to_string()).collect()
    }

    #[test]
    fn the_own_cgroup_is_found_on_a_unified_and_on_a_hybrid_host() {
        assert_eq!(places(UNIFIED, UNIT), ["/sys/fs/cgroup/system.slice/berth.service"]);
        assert_eq!(places(UNIFIED, "0::/\n"), ["/sys/fs/cgroup"]);
        let both = "9:name=systemd:/\n4:memory:/x\n0::/user.slice\n";
        assert_eq!(places(HYBRID, both), ["/sys/fs/cgroup/unified/user.slice"]);
        assert_eq!(places(HYBRID, "4:memory:/x\n"), ["/sys/fs/cgroup/unified"], "a kernel that does not say");
    }

    #[test]
    fn it_is_found_wherever_else_the_hierarchy_is_mounted() {
        let odd = "50 1 0:22 / /my\\040cgroups\\134x rw - cgroup2 none rw\n";
        assert_eq!(places(odd, UNIT), ["/my cgroups\\x/system.slice/berth.service"]);
        let part = "50 1 0:22 /system.slice /cg rw - cgroup2 none rw\n";
        assert_eq!(places(part, UNIT), ["/cg/berth.service"]);
        assert_eq!(
            places(&format!("{UNIFIED}{part}"), UNIT),
            ["/sys/fs/cgroup/system.slice/berth.service", "/cg/berth.service"]
        );
        assert_eq!(places(&format!("{UNIFIED}{part}"), "0::/user.slice\n"), ["/sys/fs/cgroup/user.slice"]);
    }

    #[test]
    fn a_membership_that_no_mount_shows_leaves_the_mount_points() {
        let part = "50 1 0:22 /user.slice /cg rw - cgroup2 none rw\n";
        assert_eq!(places(part, UNIT), ["/cg"]);
        assert_eq!(places(UNIFIED, "0::/../outside\n"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn a_host_without_it_has_no_place_and_torn_lines_are_passed_over() {
        let v1 = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        for mountinfo in ["", v1, "24 1 0:22 / /sys/fs/cgroup rw -\n", "cgroup2\n"] {
            assert_eq!(places(mountinfo, UNIT), [""; 0], "{mountinfo}");
        }
        let not_utf8 = [b"60 1 8:1 / /mnt/\xff rw - ext4 /dev/sda rw\n", UNIFIED.as_bytes()].concat();
        assert_eq!(within(&not_utf8, UNIT.as_bytes()).len(), 1);
    }
}
