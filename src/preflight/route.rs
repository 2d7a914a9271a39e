//! Whether the host has a default route: kcp and kube-apiserver look for one in the same two files.

/// Reads `/proc/net/route` and `/proc/net/ipv6_route`: a usable route to everywhere, in either family.
pub(super) fn has_default(v4: &str, v6: &str) -> bool {
    // linux/route.h. A rejecting route says that there is none; every IPv6 host has one on lo.
    const UP: u32 = 0x1;
    const REJECT: u32 = 0x200;
    let usable = |flags: &str| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & (UP | REJECT) == UP);
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let v4 = v4.lines().map(fields).any(|route| {
        matches!(&route[..], [_, destination, _, flags, _, _, _, mask, ..]
            if destination == "00000000" && mask == "00000000" && usable(flags))
    });
    let v6 = v6.lines().map(fields).any(|route| {
        matches!(&route[..], [destination, length, _, _, _, _, _, _, flags, ..]
            if length == "00" && destination.bytes().all(|digit| digit == b'0') && usable(flags))
    });
    v4 || v6
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4_HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    const V4_DEFAULT: &str = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
    const V4_SUBNET: &str = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    const V4_UNREACHABLE: &str = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n";
    const V6_REJECT: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
    const V6_DEFAULT: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0\n";

    #[test]
    fn a_default_route_of_either_family_is_enough() {
        let table = |rows: &[&str]| [&[V4_HEADER], rows].concat().concat();
        assert!(has_default(&table(&[V4_SUBNET, V4_DEFAULT]), V6_REJECT));
        assert!(has_default(&table(&[V4_SUBNET]), &[V6_REJECT, V6_DEFAULT].concat()));
        assert!(!has_default(&table(&[V4_SUBNET, V4_UNREACHABLE]), V6_REJECT));
        assert!(!has_default("", ""));
    }
}
