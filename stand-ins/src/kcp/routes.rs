//! From a request line and a caller to what is done with it: kcp's routing and authorization table. Pure.

use super::answer::Answer;
use super::auth::Caller;
use super::health::Probe;
use hyper::Method;

/// A request for API objects, as Kubernetes reads a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resource {
    pub verb: &'static str,
    pub group: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The health list, or one check of it.
    Health {
        probe: Probe,
        check: Option<String>,
    },
    Answer(Box<Answer>),
    /// The shards of the root workspace: the one object kcp has and the backend has not.
    Shards {
        name: String,
    },
    Forward(Forward),
}

/// What the backend is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forward {
    pub path: String,
    /// Annotated on single objects.
    pub cluster: String,
    pub shape: Shape,
    /// A logical cluster nobody wrote to: the right kind of list, but nothing in it.
    pub nothing: bool,
}

/// What kind of answer a forwarded request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not about objects: discovery, version, metrics.
    Page,
    Object,
    Watch,
    /// A list, or the status of a deletion.
    Other,
}

/// What a logical cluster's name stands for.
#[derive(Debug, PartialEq, Eq)]
enum Cluster {
    Root,
    SystemAdmin,
    Every,
    /// A one-part name: exists as soon as somebody asks, and is empty.
    Blank,
    Missing,
    Invalid,
}

impl Cluster {
    fn of(name: &str) -> Self {
        let part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        };
        match name {
            "root" => Self::Root,
            "system:admin" => Self::SystemAdmin,
            "*" => Self::Every,
            _ if !name.split(':').all(part) => Self::Invalid,
            _ if name.starts_with("system:") || !name.contains(':') => Self::Blank,
            _ => Self::Missing,
        }
    }
}

pub(super) fn decide(method: &Method, path: &str, query: &str, caller: &Caller) -> Decision {
    let (name, rest) = split_cluster(path);
    let cluster = name.as_deref().map(Cluster::of);
    let name = name.unwrap_or_default();
    match cluster {
        Some(Cluster::Invalid) => return answer(Answer::invalid_cluster(&name)),
        Some(Cluster::Missing) => return answer(Answer::workspace_not_found(&name)),
        _ => {}
    }
    let health = Probe::of(rest);
    if let Some((probe, None)) = health {
        return Decision::Health { probe, check: None };
    }
    let resource = Resource::parse(method, rest, query);
    let allowed = match caller {
        Caller::ShardAdmin => true,
        Caller::KcpAdmin => matches!(cluster, None | Some(Cluster::Root)),
        Caller::Anonymous | Caller::Stranger(_) => false,
    };
    let Some(resource) = resource else {
        if !allowed {
            let verb = method.as_str().to_ascii_lowercase();
            return answer(Answer::forbidden_path(caller.user(), &verb, rest));
        }
        return match health {
            Some((probe, Some(check))) => Decision::Health { probe, check: Some(check.to_owned()) },
            _ if rest.starts_with("/services/") => answer(Answer::page_not_found()),
            _ => Decision::Forward(Forward {
                path: rest.to_owned(),
                cluster: name,
                shape: Shape::Page,
                nothing: false,
            }),
        };
    };
    if !allowed {
        return answer(Answer::forbidden(caller.user(), &resource));
    }
    let reads = matches!(resource.verb, "get" | "list" | "watch");
    match cluster {
        None => return answer(Answer::no_cluster()),
        Some(Cluster::Blank) if resource.verb == "get" => return answer(Answer::not_found(&resource)),
        Some(Cluster::Blank | Cluster::Every) if !reads => {
            return answer(Answer::forbidden(caller.user(), &resource));
        }
        _ => {}
    }
    if resource.group == "core.kcp.io" && resource.resource == "shards" {
        return match resource.verb {
            "get" | "list" if cluster == Some(Cluster::Root) => Decision::Shards { name: resource.name },
            _ => answer(Answer::page_not_found()),
        };
    }
    Decision::Forward(Forward {
        path: rest.to_owned(),
        cluster: name,
        shape: match resource.verb {
            "get" | "create" | "update" | "patch" => Shape::Object,
            "watch" => Shape::Watch,
            _ => Shape::Other,
        },
        nothing: cluster == Some(Cluster::Blank),
    })
}

fn answer(answer: Answer) -> Decision {
    Decision::Answer(Box::new(answer))
}

/// `/clusters/<name>/rest` to name and `/rest`; any other path is its own rest.
fn split_cluster(path: &str) -> (Option<String>, &str) {
    let Some(after) = path.strip_prefix("/clusters/") else { return (None, path) };
    let (name, rest) = after.find('/').map_or((after, "/"), |slash| after.split_at(slash));
    (Some(name.replace("%3A", ":").replace("%3a", ":").replace("%2A", "*")), rest)
}

impl Resource {
    /// `None` for what is not about objects: discovery, health, version.
    fn parse(method: &Method, path: &str, query: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let _version = parts.next()?;
        let parts: Vec<&str> = parts.collect();
        let (namespace, object) = match parts.as_slice() {
            [] => return None,
            ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize"] => {
                (*namespace, parts.as_slice())
            }
            ["namespaces", namespace, object @ ..] => (*namespace, object),
            _ => ("", parts.as_slice()),
        };
        let at = |index: usize| object.get(index).copied().unwrap_or_default();
        let name = at(1);
        let watch = query.split('&').any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"));
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET" | "HEAD", _) if watch => "watch",
            ("GET" | "HEAD", false) => "get",
            ("GET" | "HEAD", true) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", false) => "delete",
            ("DELETE", true) => "deletecollection",
            _ => "unknown",
        };
        Some(Self {
            verb,
            group,
            namespace: namespace.to_owned(),
            resource: at(0).to_owned(),
            name: name.to_owned(),
            subresource: at(2).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kcp-controllers";

    /// The decision in one word: a status code, or where the request goes.
    fn outcome(caller: &Caller, method: &str, url: &str) -> String {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        match decide(&method.parse().unwrap(), path, query, caller) {
            Decision::Health { check, .. } => {
                check.map_or("health".to_owned(), |check| format!("health {check}"))
            }
            Decision::Answer(answer) => answer.status.as_u16().to_string(),
            Decision::Shards { name } => format!("shards {name}"),
            Decision::Forward(Forward { nothing: true, .. }) => "empty".to_owned(),
            Decision::Forward(Forward { shape: Shape::Watch, .. }) => "watch".to_owned(),
            Decision::Forward(_) => "200".to_owned(),
        }
    }

    #[test]
    fn the_table_of_paths_and_callers() {
        let stranger = Caller::Stranger("system:serviceaccount:default:default".to_owned());
        let callers = [Caller::Anonymous, stranger, Caller::KcpAdmin, Caller::ShardAdmin];
        for (url, expected) in [
            ("/readyz", ["health"; 4]),
            ("/clusters/root/readyz?verbose", ["health"; 4]),
            ("/readyz/etcd", ["403", "403", "health etcd", "health etcd"]),
            ("/", ["403", "403", "200", "200"]),
            ("/metrics", ["403", "403", "200", "200"]),
            ("/version", ["403", "403", "200", "200"]),
            ("/clusters/root/version", ["403", "403", "200", "200"]),
            ("/clusters/root/api/v1/namespaces", ["403", "403", "200", "200"]),
            (
                "/clusters/root/api/v1/namespaces/default/configmaps?watch=true",
                ["403", "403", "watch", "watch"],
            ),
            ("/clusters/system:admin/api/v1/namespaces", ["403", "403", "403", "200"]),
            ("/clusters/system%3Aadmin/api/v1/namespaces", ["403", "403", "403", "200"]),
            ("/clusters/root:doesnotexist/api/v1/namespaces", ["404"; 4]),
            ("/clusters/nope/api/v1/namespaces", ["403", "403", "403", "empty"]),
            ("/clusters/nope/api/v1/namespaces/default", ["403", "403", "403", "404"]),
            ("/clusters/BAD_name/api/v1/namespaces", ["400"; 4]),
            ("/api/v1/namespaces", ["403", "403", "500", "500"]),
            ("/clusters/*/api/v1/namespaces", ["403", "403", "403", "200"]),
            (
                "/clusters/root/apis/core.kcp.io/v1alpha1/shards/root",
                ["403", "403", "shards root", "shards root"],
            ),
        ] {
            let seen = callers.each_ref().map(|caller| outcome(caller, "GET", url));
            assert_eq!(seen, expected, "{url}");
        }
    }

    #[test]
    fn the_lease_belongs_to_shard_admin() {
        let path = format!("/clusters/system:admin{LEASE}");
        assert_eq!(outcome(&Caller::ShardAdmin, "DELETE", &path), "200");
        let Decision::Answer(denied) = decide(&Method::GET, &path, "", &Caller::KcpAdmin) else { panic!() };
        let message = "leases.coordination.k8s.io \\\"kcp-controllers\\\" is forbidden: User \\\"kcp-admin\\\" cannot \
                       get resource \\\"leases\\\" in API group \\\"coordination.k8s.io\\\" in the namespace \
                       \\\"kube-system\\\": access denied";
        assert!(denied.body.contains(message), "{}", denied.body);
    }

    #[test]
    fn a_denied_list_reads_as_kcp_words_it() {
        let path = "/clusters/root/api/v1/namespaces";
        let Decision::Answer(denied) = decide(&Method::GET, path, "", &Caller::Anonymous) else { panic!() };
        assert!(denied.body.ends_with(
            "\"message\":\"namespaces is forbidden: User \\\"system:anonymous\\\" cannot list resource \
             \\\"namespaces\\\" in API group \\\"\\\" at the cluster scope: access denied\",\"reason\":\"Forbidden\",\
             \"details\":{\"kind\":\"namespaces\"},\"code\":403}\n"
        ));
    }

    #[test]
    fn nothing_can_be_written_where_nothing_exists() {
        let path = "/clusters/nope/api/v1/namespaces/default/configmaps";
        assert_eq!(outcome(&Caller::ShardAdmin, "POST", path), "403");
        assert_eq!(outcome(&Caller::ShardAdmin, "POST", &path.replace("nope", "*")), "403");
    }
}
