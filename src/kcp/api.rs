//! What a handover asks of kcp: the leader lease, a canary across both slots, and the staging of a slot.
//!
//! Every request goes to one address (a slot, or the front), as shard-admin, trusting exactly the shared certificate. The
//! set is read anew for each question, so a renewed one is used at once.

use crate::fault;
use crate::https::HttpsError;
use crate::kcp::KcpConfig;
use crate::kcp::authority;
use crate::kcp::canary::{self, CanaryError};
use crate::kcp::defaults::REQUEST_DEADLINE;
use crate::kcp::election::Election;
use crate::kcp::material::{CERTIFICATE, Material};
use crate::kcp::paths::SlotPaths;
use crate::kcp::pulse;
use crate::kcp::ready::publish;
use crate::kcp::renewal::{Places, RenewalError};
use crate::kcp::session::{Reply, Session, Unexpected};
use crate::kcp::shared::{Shared, SharedError};
use crate::kcp::watch::Watch;
use crate::kcp::{trust, upgrade, version};
use crate::off_thread::off_thread;
use async_trait::async_trait;
use berth_actors::handover::{Side, Wish};
use berth_actors::host::{Changes, Findings, KcpApi, Lease, NoPulse};
use berth_actors::identity::SlotName;
use futures::stream;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::timeout;

const LEASE_NAME: &str = "kcp-controllers";
const LEASE: &str =
    "/clusters/system:admin/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kcp-controllers";
const LEASES: &str = "/clusters/system:admin/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                      ?watch=true&fieldSelector=metadata.name%3Dkcp-controllers";

/// Talks to kcp for the handover.
#[derive(Debug, Clone)]
pub struct KcpClient {
    config: KcpConfig,
    shared: Shared,
}

/// Why kcp could not be asked, or gave no answer to go by.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(transparent)]
    Https(#[from] HttpsError),
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
    #[error("kcp at {0} answered with something that is not a Lease")]
    NotALease(SocketAddr),
    #[error(transparent)]
    Canary(#[from] CanaryError),
}

impl KcpClient {
    pub fn new(config: KcpConfig) -> Self {
        let shared = Shared::new(config.layout.kcp_shared());
        Self { config, shared }
    }

    async fn material(&self) -> Result<Material, SharedError> {
        let (shared, places) = (self.shared.clone(), Places::new(&self.config.layout));
        off_thread(move || {
            let set = shared.require()?;
            Ok(set.trusting(trust::bundle(&places, crate::clock::now())?))
        })
        .await
    }

    /// Has `slot` start from what `wish` asks for. Blocking.
    fn stage_for(&self, slot: SlotName, wish: &Wish) -> Result<(), String> {
        let (paths, places) = (SlotPaths::new(&self.config.layout, slot), Places::new(&self.config.layout));
        let text = |error: RenewalError| error.to_string();
        crate::files::private_dir(&paths.dir, self.config.owner).map_err(|error| error.to_string())?;
        match wish {
            Wish::RotateCertificates => places.renew(slot, crate::clock::now()).map_err(text)?,
            Wish::Plain | Wish::Upgrade { .. } => places.discard(slot).map_err(text)?,
        }
        fault::point("set-renewed");
        places.set_of(slot).stage(&paths.root, self.config.owner).map_err(|error| error.to_string())?;
        self.publish()?;
        upgrade::stage(&self.config, slot, wish)?;
        fault::point("slot-staged");
        Ok(())
    }

    /// Clients' kubeconfig, where it is to be another. Blocking.
    fn publish(&self) -> Result<(), String> {
        let set = self.shared.require().map_err(|error| error.to_string())?;
        let KcpConfig { layout, front_port, .. } = &self.config;
        publish(&Places::new(layout), *front_port, &self.config.consumer_kubeconfig(), set.token())
            .map_err(|error| error.to_string())
    }

    /// Makes the authority that the next certificate is signed by, and has clients trust it; whether it was there. Blocking.
    pub fn prepare_rotation(&self) -> Result<bool, String> {
        let places = Places::new(&self.config.layout);
        let prepared = authority::prepare(&places.authority, crate::clock::now());
        let was_there = prepared.map_err(|error| error.to_string())?;
        self.publish()?;
        Ok(was_there)
    }

    async fn get_lease(&self, through: SocketAddr) -> Result<Option<Lease>, ApiError> {
        let session = Session::new(&self.material().await?, through)?;
        let reply = session.send(Method::GET, LEASE, None).await?;
        if reply.status == StatusCode::OK {
            return parse_lease(&reply.body).map(Some).ok_or(ApiError::NotALease(through));
        }
        if is_gone(&reply) { Ok(None) } else { Err(reply.unexpected().into()) }
    }

    async fn remove_lease(&self, through: SocketAddr, lease: &Lease) -> Result<bool, ApiError> {
        let session = Session::new(&self.material().await?, through)?;
        let options = json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": { "uid": lease.uid, "resourceVersion": lease.resource_version },
        });
        let reply = session.send(Method::DELETE, LEASE, Some(&options)).await?;
        match reply.status {
            StatusCode::CONFLICT => Ok(false),
            status if status.is_success() || is_gone(&reply) => Ok(true),
            _ => Err(reply.unexpected().into()),
        }
    }

    async fn run_canary(&self, old: SocketAddr, new: SocketAddr) -> Result<(), ApiError> {
        let set = self.material().await?;
        // In a task of its own: a caller that gives up does not take the clean-up with it.
        let canary = tokio::spawn(async move { canary::run(&set, old, new).await });
        match canary.await {
            Ok(outcome) => Ok(outcome?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => futures::future::pending().await,
            },
        }
    }
}

#[async_trait]
impl KcpApi for KcpClient {
    async fn lease(&self, through: SocketAddr) -> Result<Option<Lease>, String> {
        self.get_lease(through).await.map_err(|error| error.to_string())
    }

    async fn lease_changes(&self, through: SocketAddr) -> Result<Changes, String> {
        let set = self.material().await.map_err(|error| error.to_string())?;
        let watch = timeout(REQUEST_DEADLINE, Watch::open(&set, through, LEASES)).await;
        let watch = watch
            .map_err(|_| format!("kcp at {through} opened no watch within {} s", REQUEST_DEADLINE.as_secs()))?
            .map_err(|error| error.to_string())?;
        let next = |mut watch: Watch| async {
            let event = watch.next().await.ok()??;
            (event.kind != "ERROR").then_some(((), watch))
        };
        Ok(Box::pin(stream::unfold(watch, next)))
    }

    async fn delete_lease(&self, through: SocketAddr, lease: &Lease) -> Result<bool, String> {
        let removed = self.remove_lease(through, lease).await;
        fault::point("lease-deleted");
        removed.map_err(|error| error.to_string())
    }

    async fn leader_identity(&self, slot: SlotName) -> Result<Option<String>, String> {
        let path = SlotPaths::new(&self.config.layout, slot).election;
        off_thread(move || Election::identity(&path)).await
    }

    async fn canary(&self, old: SocketAddr, new: SocketAddr) -> Result<(), String> {
        self.run_canary(old, new).await.map_err(|error| error.to_string())
    }

    async fn pulse(&self, address: SocketAddr, deadline: Duration) -> Result<Duration, NoPulse> {
        let set = self.material().await.map_err(|error| NoPulse::Unasked(error.to_string()))?;
        pulse::run(&set, address, deadline).await
    }

    async fn stage(&self, slot: SlotName, wish: &Wish) -> Result<(), String> {
        let (this, wish) = (self.clone(), wish.clone());
        off_thread(move || this.stage_for(slot, &wish))
            .await
            .map_err(|error| format!("{}: {error}", slot.chain()))
    }

    async fn promote(&self, slot: SlotName) -> Result<(), String> {
        let this = self.clone();
        off_thread(move || {
            let places = Places::new(&this.config.layout);
            places.promote(slot).map_err(|error| error.to_string())?;
            fault::point("set-promoted");
            this.config.releases.promote(slot)?;
            fault::point("release-promoted");
            this.publish()
        })
        .await
        .map_err(|error| format!("{}: {error}", slot.chain()))
    }

    async fn side(&self, slot: SlotName) -> Side {
        let certificate = SlotPaths::new(&self.config.layout, slot).root.join(CERTIFICATE);
        let digest = off_thread(move || crate::files::read_optional(&certificate)).await;
        let digest = digest.ok().flatten().map(|bytes| hex::encode(Sha256::digest(bytes)));
        let program = self.config.program_of(slot);
        Side {
            version: version::of(&program, self.config.owner).await,
            program: Some(program.path),
            certificate: digest,
            process: None,
        }
    }

    async fn examine(&self, _slot: SlotName, wish: &Wish) -> Findings {
        let shared = self.shared.clone();
        let set = off_thread(move || shared.require()).await;
        let mut findings = Findings::default();
        match set {
            Ok(set) => findings.warnings.extend(expiry(&set, crate::clock::now())),
            Err(error) => findings.refusals.push(error.to_string()),
        }
        if let Wish::Upgrade { program, allow_downgrade, .. } = wish {
            findings.refusals.extend(upgrade::examine(&self.config, program, *allow_downgrade).await.err());
        }
        findings
    }
}

/// How long before its end a certificate is spoken of: a quarter of its year is left then.
const EXPIRES_SOON: time::Duration = time::Duration::days(90);

fn expiry(set: &Material, now: OffsetDateTime) -> Option<String> {
    let ends = set.expires()?;
    let days = (ends - now).whole_days();
    let date = ends.date();
    if ends <= now {
        return Some(format!("the certificate both slots serve with has expired on {date}"));
    }
    (ends - now < EXPIRES_SOON).then(|| {
        format!("the certificate both slots serve with expires on {date}, in {days} days, and a handover does not renew it")
    })
}

/// A 404 that is about the lease itself: one about the path or the workspace means that we asked the wrong server.
fn is_gone(reply: &Reply) -> bool {
    reply.status == StatusCode::NOT_FOUND && reply.error().details.name == LEASE_NAME
}

pub(super) fn parse_lease(body: &[u8]) -> Option<Lease> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        uid: String,
        resource_version: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        /// Empty while nobody holds it.
        holder_identity: String,
    }
    let Object { metadata, spec } = serde_json::from_slice(body).ok()?;
    Some(Lease {
        holder: spec.holder_identity,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::Program;
    use crate::kcp::Releases;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::test_server::{Answer, TestServer};
    use crate::layout::Layout;
    use futures::StreamExt;
    use futures::channel::mpsc::unbounded;
    use std::sync::{Arc, Mutex};

    const HELD: &str = r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"kcp-controllers","namespace":"kube-system","uid":"31211798-c18a-4d4b-aab1-4b86e495fdb7","resourceVersion":"562","creationTimestamp":"2026-11-30T21:25:31Z","annotations":{"kcp.io/cluster":"system:admin"},"managedFields":[{"manager":"kcp","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-11-30T21:26:11Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:acquireTime":{},"f:holderIdentity":{},"f:leaseDurationSeconds":{},"f:leaseTransitions":{},"f:renewTime":{}}}}]},"spec":{"holderIdentity":"vm_b692717b-f044-41e8-ae37-81e33f85c24c","leaseDurationSeconds":60,"acquireTime":"2026-11-30T21:25:30.712027Z","renewTime":"2026-11-30T21:26:11.957027Z","leaseTransitions":0}}"#;
    const GONE: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"leases.coordination.k8s.io \"kcp-controllers\" not found","reason":"NotFound","details":{"name":"kcp-controllers","group":"coordination.k8s.io","kind":"leases"},"code":404}"#;
    const NO_WORKSPACE: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"workspaces.tenancy.kcp.io \"system:admin\" not found","reason":"NotFound","details":{"name":"system:admin","group":"tenancy.kcp.io","kind":"workspaces"},"code":404}"#;
    const MOVED: &str = r#"{"kind":"Status","status":"Failure","message":"Operation cannot be fulfilled on Lease: the UID in the precondition does not match","reason":"Conflict","code":409}"#;
    const STOPPING: &str = r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}"#;

    struct Estate {
        state: tempfile::TempDir,
        set: Fixture,
    }

    impl Estate {
        fn new() -> Self {
            let estate = Self { state: tempfile::tempdir().unwrap(), set: Fixture::new() };
            estate.set.write(&estate.state.path().join("kcp/shared"));
            estate
        }

        fn client(&self) -> KcpClient {
            let layout = Layout::new(self.state.path().to_owned(), None);
            KcpClient::new(KcpConfig {
                layout: layout.clone(),
                program: Program::real("/opt/kcp"),
                kube_apiserver: "/opt/kube-apiserver".into(),
                stand_in_knobs: std::collections::BTreeMap::new(),
                front_port: 6443,
                shutdown_delay: Duration::ZERO,
                ports: None,
                releases: Releases::open(&layout).unwrap(),
                goaway_chance: crate::kcp::defaults::GOAWAY_CHANCE,
                owner: None,
            })
        }
    }

    fn lease() -> Lease {
        Lease {
            holder: "vm_b692717b-f044-41e8-ae37-81e33f85c24c".into(),
            uid: "31211798-c18a-4d4b-aab1-4b86e495fdb7".into(),
            resource_version: "562".into(),
        }
    }

    #[tokio::test]
    async fn the_lease_is_read_as_shard_admin() {
        let estate = Estate::new();
        let bearer = format!("Bearer {}", estate.set.shard_admin);
        let server = TestServer::start(&estate.set, move |asked| {
            let right = asked.path == LEASE && asked.authorization.as_deref() == Some(&bearer);
            if right { Answer::text(200, HELD) } else { Answer::text(401, "") }
        })
        .await;
        assert_eq!(estate.client().lease(server.address).await, Ok(Some(lease())));
    }

    #[tokio::test]
    async fn only_a_404_about_the_lease_means_that_there_is_none() {
        let estate = Estate::new();
        for (status, body, expected) in [
            (404, GONE, Ok(None)),
            (
                404,
                NO_WORKSPACE,
                Err("HTTP 404 Not Found: workspaces.tenancy.kcp.io \"system:admin\" not found"),
            ),
            (404, "404 page not found", Err("HTTP 404 Not Found: no reason given")),
            (504, STOPPING, Err("HTTP 504 Gateway Timeout: Timeout: request did not complete")),
            (200, "{}", Err("is not a Lease")),
        ] {
            let server = TestServer::start(&estate.set, move |_| Answer::text(status, body)).await;
            match (estate.client().lease(server.address).await, expected) {
                (Ok(seen), Ok(none)) => assert_eq!(seen, none),
                (Err(said), Err(words)) => assert!(said.contains(words), "{said}"),
                (seen, _) => panic!("HTTP {status} {body}: {seen:?}"),
            }
        }
    }

    #[tokio::test]
    async fn exactly_the_lease_that_was_seen_is_deleted() {
        let estate = Estate::new();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let record = sent.clone();
        let server = TestServer::start(&estate.set, move |asked| {
            record.lock().unwrap().push((asked.method, asked.path, asked.body));
            Answer::text(200, r#"{"kind":"Status","status":"Success"}"#)
        })
        .await;
        assert_eq!(estate.client().delete_lease(server.address, &lease()).await, Ok(true));
        let (method, path, body) = sent.lock().unwrap().pop().unwrap();
        assert_eq!((method, path.as_str()), (Method::DELETE, LEASE));
        let options: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            options["preconditions"],
            json!({ "uid": "31211798-c18a-4d4b-aab1-4b86e495fdb7", "resourceVersion": "562" })
        );
    }

    #[tokio::test]
    async fn a_lease_that_is_gone_or_another_ones_needs_no_deleting() {
        let estate = Estate::new();
        for (status, body, deleted) in [
            (404, GONE, Some(true)),
            (409, MOVED, Some(false)),
            (404, NO_WORKSPACE, None),
            (403, "", None),
            (504, STOPPING, None),
        ] {
            let server = TestServer::start(&estate.set, move |_| Answer::text(status, body)).await;
            let seen = estate.client().delete_lease(server.address, &lease()).await;
            assert_eq!(seen.clone().ok(), deleted, "HTTP {status} {body}: {seen:?}");
        }
    }

    #[tokio::test]
    async fn each_change_of_the_lease_is_told_until_the_watch_ends_or_reports_an_error() {
        let estate = Estate::new();
        let event = |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{HELD}}}\n");
        for (kinds, told) in [(vec!["ADDED", "MODIFIED"], 2), (vec!["ADDED", "ERROR", "MODIFIED"], 1)] {
            let (events, feed) = unbounded();
            for kind in &kinds {
                events.unbounded_send(event(kind)).unwrap();
            }
            drop(events);
            let feed = Mutex::new(Some(feed));
            let server = TestServer::start(&estate.set, move |asked| {
                assert_eq!(asked.path, LEASES);
                Answer::chunks(feed.lock().unwrap().take().unwrap())
            })
            .await;
            let changes = estate.client().lease_changes(server.address).await.unwrap();
            assert_eq!(changes.count().await, told, "{kinds:?}");
        }
        let server = TestServer::start(&estate.set, |_| Answer::text(403, "")).await;
        let said = estate.client().lease_changes(server.address).await.err().unwrap();
        assert!(said.contains("HTTP 403"), "{said}");
    }

    #[tokio::test]
    async fn a_server_with_another_certificate_is_not_trusted() {
        let estate = Estate::new();
        let server = TestServer::start(&Fixture::new(), |_| Answer::text(200, HELD)).await;
        let said = estate.client().lease(server.address).await.unwrap_err();
        assert!(said.contains("certificate"), "{said}");
        assert!(!said.contains(&estate.set.shard_admin));
    }

    #[tokio::test]
    async fn a_slot_is_staged_and_named_when_it_cannot_be() {
        let estate = Estate::new();
        estate.client().stage(SlotName::B, &Wish::Plain).await.unwrap();
        let root = estate.state.path().join("kcp/slot-b/root");
        assert_eq!(Material::read(&root).unwrap().token().expose(), estate.set.shard_admin);

        std::fs::remove_file(estate.state.path().join("kcp/shared/sa.key")).unwrap();
        let said = estate.client().stage(SlotName::A, &Wish::Plain).await.unwrap_err();
        assert!(said.starts_with("slot-a: ") && said.contains("kcp/shared/sa.key is missing"), "{said}");
        assert_eq!(estate.client().leader_identity(SlotName::A).await, Ok(None));
    }
}
