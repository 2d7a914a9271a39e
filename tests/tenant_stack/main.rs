//! A tenant's blueprints on the real components, without the tree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; it prints what each step took; its processes end with it"
)]

mod host;
mod traps;

use berth::log_line;
use berth::policy::Policies;
use berth::tenant::dsn::Database;
use berth::tenant::kine::{Endpoint, Kine};
use berth::tenant::postgres::databases;
use berth::tenant::{kine, kube_controller_manager, openbao, postgres, stack};
use berth_actors::host::{Context, GateError, WaitNote};
use berth_actors::spec::Step;
use host::{Agreeable, Life, Place};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SECRET: &str = "never-in-clear-text";

/// As long as the default says that a gate may stay shut.
const RIDE_THROUGH: Duration = Duration::from_secs(15);

fn steps(place: &Place) -> Vec<Step> {
    stack::steps(&place.tenant, Arc::new(Agreeable), None, &Policies::default())
}

fn step<'a>(steps: &'a [Step], name: &str) -> &'a Step {
    steps.iter().find(|step| step.component == name).unwrap()
}

async fn admin(place: &Place) -> Client {
    let text = std::fs::read_to_string(place.tenant.kubeconfig()).unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap())
        .unwrap()
}

#[tokio::test]
async fn a_tenant_starts_stops_and_starts_again_with_its_data() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let plugins = Path::new("/usr/libexec/kubernetes");
    let was_there = plugins.exists();
    let lives = host::start(&steps).await;
    assert_eq!(plugins.exists(), was_there, "the controller manager stays in its directory");

    let client = admin(&place).await;
    let names: Vec<_> = Api::<Namespace>::all(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert!(names.iter().any(|name| name == "kube-system"), "{names:?}");
    let mut secret = Secret::default();
    secret.metadata.name = Some("s1".to_owned());
    secret.string_data = Some([("password".to_owned(), SECRET.to_owned())].into());
    let secrets = Api::<Secret>::namespaced(client, "default");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let stored = stored(&place, "/registry/secrets/default/s1").await;
    assert!(stored.starts_with(b"k8s:enc:secretbox:v1:k1:"), "{:?}", &stored[..24]);
    no_secret_on_any_command_line(&place, &lives);
    only_the_owner_can_read(&place.tenant.seat().data);

    let ends = host::stop(&steps, lives).await;
    let codes: Vec<_> = ends.iter().map(|end| (end.code(), end.signal())).collect();
    let clean = (Some(0), None);
    assert_eq!(codes, [(None, Some(15)), clean, clean, clean, clean]);

    let mut lives = host::start(&steps).await;
    let secrets = Api::<Secret>::namespaced(admin(&place).await, "default");
    let data = secrets.get("s1").await.unwrap().data.unwrap();
    assert_eq!(data["password"].0, SECRET.as_bytes());

    // A killed postgres comes back under them; each gate opens again without a restart.
    host::kill(&mut lives[0]).await;
    // kine logs key and value of a write that fails.
    secret.metadata.name = Some("s2".to_owned());
    let creation = PostParams::default();
    let unwritten = secrets.create(&creation, &secret);
    assert!(!matches!(tokio::time::timeout(RIDE_THROUGH, unwritten).await, Ok(Ok(_))));
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m2".to_owned());
    map.data = Some([("key".to_owned(), SECRET.to_owned())].into());
    let maps = Api::<ConfigMap>::namespaced(admin(&place).await, "default");
    let unwritten = maps.create(&creation, &map);
    assert!(!matches!(tokio::time::timeout(RIDE_THROUGH, unwritten).await, Ok(Ok(_))));
    let kines_words = std::fs::read_to_string(&lives[2].running.log).unwrap();
    assert!(
        kines_words.contains("/registry/secrets/default/s2"),
        "it says which write failed:\n{kines_words}"
    );
    no_secret_in_any_log(&place.tenant.seat().logs);
    let at = std::time::Instant::now();
    for (step, life) in steps.iter().zip(&mut lives) {
        if step.component == postgres::NAME {
            *life = host::spawn(&step.component, &*step.blueprint, &Context::default()).await;
        }
        host::ready(&*step.blueprint, life, RIDE_THROUGH).await.unwrap();
        println!("{:24} after postgres was killed {:>10.2?}", step.component, at.elapsed());
    }
    host::stop(&steps, lives).await;
}

/// In clear, or as the API server's bodies and etcd's tools show it.
fn no_secret_in_any_log(logs: &Path) {
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(SECRET);
    for entry in std::fs::read_dir(logs).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        for secret in [SECRET, &encoded] {
            assert!(!text.contains(secret), "a sealed value is in {}", path.display());
        }
    }
}

async fn stored(place: &Place, key: &str) -> Vec<u8> {
    let client = databases::connect(&place.tenant.seat().sockets, "kine", "kine").await.unwrap();
    let newest = "SELECT value FROM kine WHERE name = $1 ORDER BY id DESC LIMIT 1";
    client.query_one(newest, &[&key]).await.unwrap().get(0)
}

fn no_secret_on_any_command_line(place: &Place, lives: &[Life]) {
    let data = &place.tenant.seat().data;
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let encryption: serde_json::Value = serde_json::from_str(&read(place.tenant.pki().encryption())).unwrap();
    let key = &encryption["resources"][0]["providers"][0]["secretbox"]["keys"][0]["secret"];
    let secrets =
        [read(data.join("bao/ops-password")), key.as_str().unwrap().to_owned(), "postgres://".to_owned()];
    for life in lives {
        let live = read(format!("/proc/{}/cmdline", life.running.identity.pid).into());
        for secret in &secrets {
            assert!(!live.contains(secret) && !life.spec.args.join(" ").contains(secret), "{}", life.name);
        }
    }
}

fn only_the_owner_can_read(path: &Path) {
    let metadata = path.symlink_metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            only_the_owner_can_read(&entry.unwrap().path());
        }
    }
}

#[tokio::test]
async fn a_vault_killed_in_its_initialisation_is_made_anew() {
    for moment in ["security barrier initialized", "beginning post-unseal configuration", "successful mount"]
    {
        let place = Place::new("demo");
        let steps = steps(&place);
        let mut lives = host::start(&steps[..1]).await;
        let bao = step(&steps, openbao::NAME);
        let mut torn = host::spawn(openbao::NAME, &*bao.blueprint, &Context::default()).await;
        let line =
            log_line::wait_for(&torn.running.log, torn.running.log_offset, |line| line.contains(moment));
        tokio::time::timeout(Duration::from_secs(10), line).await.unwrap().unwrap();
        host::kill(&mut torn).await;
        let client = databases::connect(&place.tenant.seat().sockets, "bao", "bao").await.unwrap();
        let rows: i64 = client.query_one("SELECT count(*) FROM openbao_kv_store", &[]).await.unwrap().get(0);
        println!("killed at {moment:?} with {rows} rows written");
        assert!(rows > 0);
        let mut life = host::spawn(openbao::NAME, &*bao.blueprint, &Context::default()).await;
        host::ready(&*bao.blueprint, &mut life, bao.start_deadline).await.unwrap();

        // From now on it has a life of its own, and its first password is not handed out again.
        host::end(&mut life, bao.stop).await;
        let mut again = host::spawn(openbao::NAME, &*bao.blueprint, &Context::default()).await;
        assert!(!again.spec.env.contains_key("INITIAL_OPS_PASSWORD"));
        host::ready(&*bao.blueprint, &mut again, bao.start_deadline).await.unwrap();
        lives.push(again);
        host::stop(&steps, lives).await;
    }
}

#[tokio::test]
async fn a_foreign_seal_key_is_fatal_and_leaves_the_vault_alone() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..2]).await;
    let bao = step(&steps, openbao::NAME);
    host::end(&mut lives.pop().unwrap(), bao.stop).await;
    let key = place.tenant.seat().data.join("bao/unseal.key");
    let ours = std::fs::read(&key).unwrap();
    place.write(&key, &[7; 32]);
    let mut life = host::spawn(openbao::NAME, &*bao.blueprint, &Context::default()).await;
    let gate = host::ready(&*bao.blueprint, &mut life, bao.start_deadline).await;
    assert!(matches!(&gate, Err(GateError::Fatal(reason)) if reason.contains("seal key")), "{gate:?}");
    host::end(&mut life, bao.stop).await;

    place.write(&key, &ours);
    let mut life = host::spawn(openbao::NAME, &*bao.blueprint, &Context::default()).await;
    host::ready(&*bao.blueprint, &mut life, bao.start_deadline).await.unwrap();
    lives.push(life);
    host::stop(&steps, lives).await;
}

#[tokio::test]
async fn postgres_starts_over_whatever_a_killed_postmaster_left() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let blueprint = &*step(&steps, postgres::NAME).blueprint;
    let deadline = Duration::from_secs(30);
    let pid_file = place.tenant.seat().data.join("pg/postmaster.pid");
    let sockets = place.tenant.seat().sockets.clone();
    let mut life = host::start(&steps[..1]).await.remove(0);

    // Its pid now belongs to a stranger of the same account.
    host::kill(&mut life).await;
    let mut stranger = std::process::Command::new("/bin/cat");
    stranger.stdin(std::process::Stdio::piped());
    if let Some(user) = place.tenant.accounts().owner {
        stranger.uid(user.uid).gid(user.gid);
    }
    let mut stranger = stranger.spawn().unwrap();
    let mut text = std::fs::read_to_string(&pid_file).unwrap();
    text.replace_range(..text.find('\n').unwrap(), &stranger.id().to_string());
    place.write(&pid_file, text.as_bytes());
    place.write(&sockets.join(".s.PGSQL.5432.lock"), text.as_bytes());
    let mut life = host::spawn(postgres::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut life, deadline).await.unwrap();
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();

    // A backend too busy to notice holds the shared memory.
    let client = databases::connect(&sockets, "postgres", "postgres").await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let busy =
        tokio::spawn(
            async move { client.batch_execute("SELECT count(*) FROM generate_series(1, 1e11)").await },
        );
    let activity = databases::connect(&sockets, "postgres", "postgres").await.unwrap();
    let is_busy = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active'";
    while activity.query_opt(is_busy, &[&pid]).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    host::kill(&mut life).await;
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let mut life = host::spawn(postgres::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut life, deadline).await.unwrap();
    busy.await.unwrap().unwrap_err();

    // A disk that was full, and a restore that was too generous.
    host::kill(&mut life).await;
    place.write(&pid_file, b"");
    let generous = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(pid_file.parent().unwrap(), generous).unwrap();
    let mut life = host::spawn(postgres::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut life, deadline).await.unwrap();

    // Two of one directory: the second is not even spawned.
    let refused = blueprint.prepare(&Context::default(), &WaitNote::default()).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("postmaster {}", life.running.identity.pid)), "{refused}");
    host::stop(&steps, vec![life]).await;
}

#[tokio::test]
async fn a_kine_on_tcp_keeps_its_port_and_says_what_postgres_refuses() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let lives = host::start(&steps[..1]).await;
    let plan = step(&steps, kine::NAME).stop;
    let deadline = Duration::from_secs(30);
    let mut slot = Kine {
        seat: place.tenant.seat().clone(),
        program: place.tenant.components().kine.clone(),
        store: place.tenant.seat().sockets.clone(),
        database: Database::named("kine"),
        endpoint: Endpoint::Loopback,
    };
    let mut life = host::spawn(kine::NAME, &slot, &Context::default()).await;
    host::ready(&slot, &mut life, deadline).await.unwrap();
    let address = life.running.address;
    host::end(&mut life, plan).await;
    let context = Context { previous_address: address, ..Context::default() };
    let mut life = host::spawn(kine::NAME, &slot, &context).await;
    host::ready(&slot, &mut life, deadline).await.unwrap();
    assert_eq!(life.running.address, address);
    host::end(&mut life, plan).await;

    slot.endpoint = Endpoint::Socket(place.tenant.seat().sockets.join("other.sock"));
    slot.database.name = "nowhere".to_owned();
    let mut life = host::spawn(kine::NAME, &slot, &Context::default()).await;
    let gate = host::ready(&slot, &mut life, deadline).await;
    assert!(matches!(&gate, Err(GateError::Fatal(reason)) if reason.contains("3D000")), "{gate:?}");
    // It tries for ever, and is deaf to the first SIGTERM meanwhile.
    let (status, asked) = host::end_by_plan(&mut life, plan).await;
    assert_eq!((status.code(), asked), (Some(1), 2));
    host::stop(&steps, lives).await;
}

/// Postgres was restarted under it: its word from the start says nothing about now.
#[tokio::test]
async fn a_kine_without_its_database_is_not_ready_again_before_it_can_read() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..1]).await;
    let blueprint = &*step(&steps, kine::NAME).blueprint;
    let deadline = Duration::from_secs(30);
    let mut life = host::spawn(kine::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut life, deadline).await.unwrap();
    host::ready(blueprint, &mut life, deadline).await.expect("asked again, it says the same");

    host::end(&mut lives[0], steps[0].stop).await;
    let (running, note) = (life.running.clone(), WaitNote::default());
    let mut gate = Box::pin(blueprint.ready(&running, &note));
    while !note.get().contains("cannot read its database") {
        tokio::select! {
            opened = &mut gate => panic!("it opened without a database: {opened:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    lives[0] = host::spawn(postgres::NAME, &*steps[0].blueprint, &Context::default()).await;
    tokio::time::timeout(deadline, gate).await.expect("the database is back").unwrap();
    lives.push(life);
    host::stop(&steps, lives).await;
}

#[tokio::test]
async fn the_chain_has_its_guard_and_restarts_no_more_than_it_must() {
    use berth_actors::spec::{Reaction, Role, Seam};
    let place = Place::new("demo");
    let steps = steps(&place);
    let apiserver = steps.iter().find(|step| step.role == Role::Kubernetes).unwrap();
    assert!(matches!(apiserver.seam, Seam::Guarded(_)));
    let controllers = step(&steps, kube_controller_manager::NAME);
    assert_eq!(controllers.reaction_to(&apiserver.component), Reaction::Restart);
    assert!(matches!(controllers.reaction_to(postgres::NAME), Reaction::RideThrough(_)));
    assert!(matches!(apiserver.reaction_to(kine::NAME), Reaction::RideThrough(_)));
}
