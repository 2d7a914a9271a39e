//! Whether this process may take on the uids that clusters are leased: in a container, few are known.

use std::ops::Range;

/// Whether each of `range` is an id of this user namespace, for users and for groups. Blocking.
pub fn are_mapped(range: &Range<u32>) -> bool {
    let map = |path: &str| crate::files::trusted::text(path).unwrap_or_default();
    covers(&map("/proc/self/uid_map"), range) && covers(&map("/proc/self/gid_map"), range)
}

/// `map`: lines of first id inside, first id outside, count. A kernel without user namespaces has none.
fn covers(map: &str, range: &Range<u32>) -> bool {
    let mut numbers = map.split_whitespace().map(str::parse::<u64>);
    let mut parts = Vec::new();
    while let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
        (numbers.next(), numbers.next(), numbers.next())
    {
        parts.push((first, first.saturating_add(count)));
    }
    parts.sort_unstable();
    let (mut next, end) = (u64::from(range.start), u64::from(range.end));
    for (first, last) in &parts {
        if *first <= next && next < *last {
            next = *last;
        }
    }
    parts.is_empty() || next >= end || range.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_mapped_when_the_parts_of_the_map_leave_no_hole_in_it() {
        let host = "         0          0 4294967295\n";
        assert!(covers(host, &(2_100_000_000..2_140_000_000)));
        let container = "0 1000 1\n1 100000 65536\n";
        assert!(covers(container, &(1000..65_537)) && covers(container, &(0..2)));
        assert!(!covers(container, &(1000..65_538)) && !covers(container, &(70_000..70_001)));
        assert!(!covers("0 0 10\n20 20 10\n", &(5..25)), "there is a hole");
        assert!(covers(container, &(70_000..70_000)) && covers("", &(1..9)));
    }
}
