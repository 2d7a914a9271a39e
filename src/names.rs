//! What things may be called. Every name from outside becomes part of a path, so it is checked here before anyone joins it
//! to one: by the control API, by the command line, which refuses early, and by the tenant and the controller themselves.

use berth_actors::identity::SlotName;
use berth_actors::root::STORE;

/// Leaves room in a socket path of the run directory, and in the names Kubernetes builds from it (N4).
const LONGEST_CLUSTER: usize = 40;
/// RFC 1123: one label.
const LONGEST_LABEL: usize = 63;
/// RFC 1123: a subdomain; the limit of a Node's name.
const LONGEST_NODE: usize = 253;

/// Why a name cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error(
        "{what} {name:?} is not a name: use at most {longest} of a-z, 0-9 and '-', beginning and ending with a letter or digit"
    )]
    Form { what: &'static str, name: String, longest: usize },
    #[error(
        "node {name:?} is not a name: use at most {LONGEST_NODE} of a-z, 0-9, '-' and '.', each part beginning and ending with a letter or digit"
    )]
    Node { name: String },
    #[error("{name:?} is a chain of kcp itself, no cluster can have that name; choose another")]
    Reserved { name: String },
}

/// A tenant cluster's name. Chains share one namespace in logs and sockets, so kcp's own are taken.
pub fn cluster(name: &str) -> Result<String, BadName> {
    if is_kcp_chain(name) {
        return Err(BadName::Reserved { name: name.to_owned() });
    }
    label("cluster", name, LONGEST_CLUSTER)
}

/// A chain of the tree: a cluster, a slot or the kcp store.
pub fn chain(name: &str) -> Result<String, BadName> {
    label("chain", name, LONGEST_CLUSTER)
}

/// A plain service: a chain of its own.
pub fn service(name: &str) -> Result<String, BadName> {
    label("service", name, LONGEST_CLUSTER)
}

pub fn component(name: &str) -> Result<String, BadName> {
    label("component", name, LONGEST_LABEL)
}

/// A Node's name as the API server takes it: labels joined by dots.
pub fn node(name: &str) -> Result<String, BadName> {
    if name.len() <= LONGEST_NODE && name.split('.').all(is_label) {
        return Ok(name.to_owned());
    }
    Err(BadName::Node { name: name.to_owned() })
}

/// Whether `name` is one of kcp's own chains.
pub fn is_kcp_chain(name: &str) -> bool {
    [STORE, SlotName::A.chain(), SlotName::B.chain()].contains(&name)
}

/// One label, as Kubernetes takes it for a label's value.
pub fn is_label(text: &str) -> bool {
    let alphanumeric = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|c| alphanumeric(c) || *c == b'-')
        && bytes.len() <= LONGEST_LABEL
}

fn label(what: &'static str, name: &str, longest: usize) -> Result<String, BadName> {
    if name.len() <= longest && is_label(name) {
        return Ok(name.to_owned());
    }
    Err(BadName::Form { what, name: name.to_owned(), longest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_name_is_a_label_of_at_most_forty_characters() {
        for good in ["demo", "a", "0", "a-b-9", &"x".repeat(40)] {
            assert_eq!(cluster(good).unwrap(), good);
        }
        let long = "x".repeat(41);
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "..", "a/b", "ä", "a\n", &long] {
            let error = cluster(bad).unwrap_err().to_string();
            assert!(error.contains("cluster") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_chains_of_kcp_are_no_cluster_names() {
        for taken in ["kcp-store", "slot-a", "slot-b"] {
            assert_eq!(cluster(taken), Err(BadName::Reserved { name: taken.to_owned() }));
            assert_eq!(chain(taken).unwrap(), taken);
        }
    }

    #[test]
    fn a_node_name_may_have_dots_but_no_path() {
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        for good in ["n1", "worker-1.rack2.example", "0", longest.as_str()] {
            assert_eq!(node(good).unwrap(), good);
        }
        let (too_long, long_part) = (format!("{longest}x"), "a".repeat(64));
        for bad in
            ["", ".", "..", "a..b", "a/b", "a.", "-n", "n-", "A", "a b", "ü", "a_b", &too_long, &long_part]
        {
            let error = node(bad).unwrap_err().to_string();
            assert!(error.contains("node") && !error.contains('\n'), "{error}");
        }
    }
}
