//! Ways in which the real components surprise a supervisor, each as it was met (docs/components/traps.md).

use super::host::{self, Life, Place};
use super::{RIDE_THROUGH, admin, step, steps};
use berth::tenant::dsn::Database;
use berth::tenant::kine::{Endpoint, Kine};
use berth::tenant::{kine, kube_apiserver, openbao, postgres, stack};
use berth_actors::host::{Context, GateError, PrepareError, WaitNote};
use berth_actors::spec::{Signal, Step, StopPlan};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, WatchParams};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

fn plan_of(steps: &[Step], name: &str) -> StopPlan {
    step(steps, name).stop
}

#[tokio::test]
async fn a_kube_apiserver_whose_kine_is_dead_ends_on_the_second_term_and_is_not_killed() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..4]).await;
    let mut server = lives.pop().unwrap();
    assert_eq!(server.name, kube_apiserver::NAME);
    host::kill(&mut lives.pop().unwrap()).await;
    let (status, asked) = host::end_by_plan(&mut server, plan_of(&steps, kube_apiserver::NAME)).await;
    assert_eq!((status.code(), status.signal(), asked), (Some(1), None, 2));
    host::stop(&steps, lives).await;
}

/// Its default is to wait for watches as long as for requests: 60 s.
#[tokio::test]
async fn one_open_watch_does_not_hold_up_the_stop_of_a_kube_apiserver() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..4]).await;
    let namespaces: Api<Namespace> = Api::all(admin(&place).await);
    let mut watch = Box::pin(namespaces.watch(&WatchParams::default(), "0").await.unwrap());
    watch.next().await.unwrap().unwrap();
    let mut server = lives.pop().unwrap();
    let status = host::end(&mut server, plan_of(&steps, kube_apiserver::NAME)).await;
    assert_eq!(status.code(), Some(0));
    let ended = async { while watch.next().await.is_some_and(|event| event.is_ok()) {} };
    tokio::time::timeout(RIDE_THROUGH, ended).await.expect("the watch ends with it");
    host::stop(&steps, lives).await;
}

/// Its health page stays at 200.
#[tokio::test]
async fn a_vault_without_its_database_is_not_ready_again_before_it_lets_its_operator_in() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..2]).await;
    let blueprint = &*step(&steps, openbao::NAME).blueprint;
    host::end(&mut lives[0], steps[0].stop).await;
    let (running, note) = (lives[1].running.clone(), WaitNote::default());
    let mut gate = Box::pin(blueprint.ready(&running, &note));
    while !note.get().contains("ops login with 500") {
        tokio::select! {
            opened = &mut gate => panic!("it opened without a database: {opened:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    lives[0] = host::spawn(postgres::NAME, &*steps[0].blueprint, &Context::default()).await;
    tokio::time::timeout(RIDE_THROUGH, gate).await.expect("the database is back").unwrap();
    host::stop(&steps, lives).await;
}

/// The other places at which its first start can be cut off: with its database dropped and not made again, with a request of
/// its initialisation refused, and with a login that worked before anybody wrote that down.
#[tokio::test]
async fn a_vault_whose_first_start_was_cut_off_anywhere_is_made_anew() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..1]).await;
    let bao = step(&steps, openbao::NAME);
    let blueprint = &*bao.blueprint;
    let sockets = place.tenant.seat().sockets.clone();
    let prepare = || async { blueprint.prepare(&Context::default(), &WaitNote::default()).await.unwrap() };

    prepare().await;
    let root = postgres::databases::connect(&sockets, "postgres", "postgres").await.unwrap();
    root.batch_execute("DROP DATABASE bao WITH (FORCE)").await.unwrap();
    let mut spec = prepare().await;
    assert!(spec.start_env.remove("INITIAL_OPS_PASSWORD").is_some());
    let log = spec.output.clone();
    let began = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let mut refused = host::launch(openbao::NAME, blueprint, spec).await;
    let status = tokio::time::timeout(RIDE_THROUGH, refused.child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(1), "{}", host::log_tail(&log));
    assert!(std::fs::metadata(&log).unwrap().len() > began);

    let mut unmarked = host::spawn(openbao::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut unmarked, bao.start_deadline).await.unwrap();
    host::kill(&mut unmarked).await;
    std::fs::remove_file(place.tenant.seat().data.join("bao/initialised")).unwrap();

    let mut life = host::spawn(openbao::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut life, bao.start_deadline).await.unwrap();
    lives.push(life);
    host::stop(&steps, lives).await;
}

#[tokio::test]
async fn a_seal_key_of_another_length_is_named_before_the_start() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..2]).await;
    host::end(&mut lives.pop().unwrap(), plan_of(&steps, openbao::NAME)).await;
    place.write(&place.tenant.seat().data.join("bao/unseal.key"), &[7; 16]);
    let blueprint = &*step(&steps, openbao::NAME).blueprint;
    let error = blueprint.prepare(&Context::default(), &WaitNote::default()).await.unwrap_err();
    assert!(matches!(&error, PrepareError::Fatal(reason) if reason.contains("unseal.key")), "{error}");
    host::stop(&steps, lives).await;
}

/// To OpenBao it is a warning, and it runs without the setting.
#[tokio::test]
async fn a_mistyped_setting_of_the_vault_ends_its_start() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let lives = host::start(&steps[..1]).await;
    let blueprint = &*step(&steps, openbao::NAME).blueprint;
    let spec = blueprint.prepare(&Context::default(), &WaitNote::default()).await.unwrap();
    let config = place.tenant.seat().data.join("bao/bao.hcl");
    let mistyped = std::fs::read_to_string(&config).unwrap() + "\ndisable_clusterin = true\n";
    place.write(&config, mistyped.as_bytes());
    let mut vault = host::launch(openbao::NAME, blueprint, spec).await;
    let gate = host::ready(blueprint, &mut vault, RIDE_THROUGH).await;
    assert!(
        matches!(&gate, Err(GateError::Fatal(reason)) if reason.contains("disable_clusterin")),
        "{gate:?}"
    );
    host::end(&mut vault, plan_of(&steps, openbao::NAME)).await;
    host::stop(&steps, lives).await;
}

/// Its port is bound long before: a connection is no readiness.
#[tokio::test]
async fn a_kube_apiserver_that_waits_for_its_store_ends_on_the_second_term() {
    let place = Place::new("demo");
    let steps = steps(&place);
    // Only for what its preparation needs.
    let lives = host::start(&steps[..2]).await;
    let blueprint = &*step(&steps, kube_apiserver::NAME).blueprint;
    let mut server = host::spawn(kube_apiserver::NAME, blueprint, &Context::default()).await;
    let mut turn = tokio::time::interval(Duration::from_millis(20));
    while tokio::net::TcpStream::connect(("127.0.0.1", place.tenant.port())).await.is_err() {
        turn.tick().await;
    }
    let (status, asked) = host::end_by_plan(&mut server, plan_of(&steps, kube_apiserver::NAME)).await;
    assert_eq!((status.signal(), asked), (None, 2), "{status}");
    host::stop(&steps, lives).await;
}

#[tokio::test]
async fn of_two_kines_that_make_an_empty_database_the_loser_works_when_started_again() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let lives = host::start(&steps[..1]).await;
    let deadline = step(&steps, kine::NAME).start_deadline;
    let kine = |socket: &str| Kine {
        seat: place.tenant.seat().clone(),
        program: place.tenant.components().kine.clone(),
        store: place.tenant.seat().sockets.clone(),
        database: Database::named("kine"),
        endpoint: Endpoint::Socket(place.tenant.seat().sockets.join(socket)),
    };
    let kines = [kine("one.sock"), kine("two.sock")];
    let context = Context::default();
    let (mut one, mut two) =
        tokio::join!(host::spawn("one", &kines[0], &context), host::spawn("two", &kines[1], &context));
    let (first, second) =
        tokio::join!(host::ready(&kines[0], &mut one, deadline), host::ready(&kines[1], &mut two, deadline));
    assert!(first.is_ok() || second.is_ok(), "one of them makes it: {first:?} {second:?}");
    for ((gate, life), kine) in [(first, &mut one), (second, &mut two)].into_iter().zip(&kines) {
        if gate.is_err() {
            *life = host::spawn(&life.name.clone(), kine, &context).await;
            host::ready(kine, life, deadline).await.unwrap();
        }
    }
    for mut life in [one, two] {
        host::end(&mut life, plan_of(&steps, kine::NAME)).await;
    }
    host::stop(&steps, lives).await;
}

/// What a kine of an earlier life left at its path is removed before the start; the path is the chain's own.
#[tokio::test]
async fn a_socket_file_that_a_killed_kine_left_does_not_stop_the_next_one() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut lives = host::start(&steps[..3]).await;
    let socket = place.tenant.seat().sockets.join("kine.sock");
    host::kill(&mut lives[2]).await;
    assert!(socket.exists());
    let blueprint = &*step(&steps, kine::NAME).blueprint;
    lives[2] = host::spawn(kine::NAME, blueprint, &Context::default()).await;
    host::ready(blueprint, &mut lives[2], RIDE_THROUGH).await.unwrap();
    host::stop(&steps, lives).await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn postgres_stops_with_sessions_open_and_recovers_within_its_deadline() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let step = step(&steps, postgres::NAME);
    assert_eq!(step.stop.signal, Signal::Int, "it waits for sessions for ever on SIGTERM");
    assert!(step.start_deadline >= Duration::from_secs(30));
    let mut life = host::start(&steps[..1]).await.remove(0);
    assert!(life.spec.args.contains(&"recovery_init_sync_method=syncfs".to_owned()));
    let session =
        postgres::databases::connect(&place.tenant.seat().sockets, "postgres", "postgres").await.unwrap();
    let status = host::end(&mut life, step.stop).await;
    assert_eq!(status.code(), Some(0));
    assert!(session.is_closed() || session.batch_execute("SELECT 1").await.is_err());
}

/// Kernel objects that outlive processes and files: System V segments and what lies in /dev/shm, of this data directory's
/// account.
fn shared_memory() -> BTreeSet<String> {
    let posix = std::fs::read_dir("/dev/shm").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.starts_with("PostgreSQL.").then_some(name)
    });
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let system_v =
        table.lines().skip(1).filter_map(|line| Some(format!("shmid {}", line.split_whitespace().nth(1)?)));
    posix.chain(system_v).collect()
}

/// The System V segment that the postmaster of `data` noted, and that it is there.
fn segment_of(data: &Path) -> String {
    let lock = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let id = lock.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    format!("shmid {id}")
}

/// Its segments in /dev/shm, from the memory it has mapped.
fn mapped(life: &Life) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", life.running.identity.pid)).unwrap();
    maps.lines().filter_map(|line| Some(line.split("/dev/shm/").nth(1)?.to_owned())).collect()
}

#[tokio::test]
async fn a_killed_postgres_that_is_deleted_gives_its_shared_memory_back() {
    let place = Place::new("demo");
    let steps = steps(&place);
    let mut life = host::start(&steps[..1]).await.remove(0);
    let store = stack::postgres_of(&place.tenant);
    let mut its_own = mapped(&life);
    its_own.insert(segment_of(&store.data));
    assert!(its_own.len() > 1, "{its_own:?}");
    host::kill(&mut life).await;
    assert!(its_own.is_subset(&shared_memory()), "a kill leaks it");
    store.give_back_memory().await.unwrap();
    assert_eq!(its_own.intersection(&shared_memory()).collect::<Vec<_>>(), [""; 0]);
    store.give_back_memory().await.expect("there is nothing left to do");

    // The directory is as good as before.
    let life = host::start(&steps[..1]).await.remove(0);
    host::stop(&steps, vec![life]).await;
    store.give_back_memory().await.expect("it ended in order");
}
