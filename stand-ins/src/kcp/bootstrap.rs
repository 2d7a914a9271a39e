//! From the first answer to ready: the backend, its namespaces, the first look at the lease. Or the hang on the way.
//!
//! Only an answer tells that the backend serves, its socket accepts long before: so these two waits ask again and again.

use super::args::Options;
use super::election::{self, Place};
use super::health::Progress;
use super::klog;
use super::state::State;
use super::upstream::Upstream;
use hyper::{Method, StatusCode};
use serde_json::json;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two tries to reach the backend.
const BACKEND_POLL: Duration = Duration::from_millis(50);
/// One try.
const BACKEND_TRY: Duration = Duration::from_secs(2);
/// A hung start complains for the first time now, and then each `HANG_COMPLAINS_EVERY`.
const HANG_COMPLAINS_AFTER: Duration = Duration::from_secs(10);
const HANG_COMPLAINS_EVERY: Duration = Duration::from_secs(20);

/// When this process began, and not before when it may be ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub began: Instant,
    pub ready_at: Instant,
}

/// Resolves with the backend's first answer, whatever it says.
pub(super) async fn answering(upstream: &Upstream) {
    while !matches!(tokio::time::timeout(BACKEND_TRY, upstream.get("/readyz")).await, Ok(Ok(_))) {
        tokio::time::sleep(BACKEND_POLL).await;
    }
}

/// Never resolves: it campaigns for the lease as long as the process lives.
pub(super) async fn bring_up(
    state: &State,
    options: &Options,
    address: SocketAddr,
    times: Times,
) -> Infallible {
    let place = Place { namespace: options.election_namespace.clone(), name: options.election_name.clone() };
    while !matches!(
        tokio::time::timeout(BACKEND_TRY, state.upstream.get("/readyz")).await,
        Ok(Ok((StatusCode::OK, _)))
    ) {
        if times.began.elapsed() > HANG_COMPLAINS_AFTER && backend_hangs(state) {
            state.hung.store(true, Ordering::Relaxed);
            break;
        }
        tokio::time::sleep(BACKEND_POLL).await;
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace}});
    // The backend makes it too, a little later: a conflict is as good. Anything else the election will complain about.
    let create = state.upstream.call(Method::POST, "/api/v1/namespaces", Some(&namespace));
    let _ = tokio::time::timeout(BACKEND_TRY, create).await;
    state.progress.send_replace(Progress::Bootstrapped);
    if state.hung() {
        return complain(&hostname(), address, times.began).await;
    }
    let looked = watch::Sender::new(!options.leader_election);
    let mut first_look = looked.subscribe();
    let election = async {
        if options.leader_election {
            let identity = format!("{}_{}", hostname(), uuid::Uuid::new_v4());
            election::run(state, &place, identity, &looked).await;
        }
    };
    let ready = async {
        let _ = first_look.wait_for(|looked| *looked).await;
        tokio::time::sleep_until(times.ready_at).await;
        state.progress.send_replace(Progress::Ready);
    };
    tokio::join!(election, ready);
    std::future::pending().await
}

/// A kube-apiserver on a kine that is written to all the while can hang in its start as kcp does, and says so in the same words.
fn backend_hangs(state: &State) -> bool {
    let log = crate::own_files::text(&state.backend_log).unwrap_or_default();
    log.contains("error deleting old lease") && log.contains("not yet ready to handle request")
}

/// What the log of a hung start says, for ever.
async fn complain(hostname: &str, address: SocketAddr, began: Instant) -> Infallible {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port());
    let lease = format!("leases/apiserver-{}", hex::encode(hostname));
    tokio::time::sleep_until(began + HANG_COMPLAINS_AFTER).await;
    klog::error(
        "controller.go:116",
        &format!(
            "\"error deleting old lease\" err=\"Delete \\\"https://{address}/clusters/system:admin/apis/\
             coordination.k8s.io/v1/namespaces/kube-system/{lease}\\\": context deadline exceeded\""
        ),
    );
    loop {
        klog::error(
            "controller.go:195",
            &format!(
                "\"Failed to update lease\" err=\"{lease} is forbidden: not yet ready to handle request\""
            ),
        );
        tokio::time::sleep(HANG_COMPLAINS_EVERY).await;
    }
}

fn hostname() -> String {
    let name = crate::own_files::text("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
