//! The command line as a user types it, and its exit codes against a served socket.

use super::*;
use crate::control::tests::Harness;
use crate::layout::Layout;
use berth_actors::data_adoption::AdoptionPlan;
use berth_actors::handover::Side;
use berth_actors::identity::SlotName;
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::{HandoverHistory, HandoverOutcome, HandoverPlan};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_command_tree_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_documented_command_line_parses() {
    for line in [
        "berth up",
        "berth up --config /etc/berth.toml --state /s --run-dir /r",
        "berth dev",
        "berth dev --front 127.0.0.1:0 --kcp /k --k3s /k --postgres /p --openbao /b --kine /k --ccm /c --tenant web",
        "berth dev --kube-apiserver /a --kube-controller-manager /m",
        "berth down",
        "berth status --json --check",
        "berth --state /s status --watch",
        "berth metrics",
        "berth events -f",
        "berth logs slot-a",
        "berth logs demo kine -f -n 5",
        "berth logs demo -f -n 5 --component kine",
        "berth cluster create demo",
        "berth cluster delete demo --yes",
        "berth cluster list --json",
        "berth cluster status demo",
        "berth cluster start demo",
        "berth cluster stop demo",
        "berth cluster restart demo",
        "berth cluster retry demo",
        "berth cluster adopt demo --yes --take-over 0b1c-2d3e",
        "berth retry kcp-store",
        "berth cluster logs demo kine --follow",
        "berth cluster kubeconfig demo -o demo.kubeconfig",
        "berth node add demo n1 n2.rack",
        "berth node remove demo n1",
        "berth node list demo",
        "berth kcp handover",
        "berth kcp handover --dry-run",
        "berth kcp history -n 3 --json",
        "berth kcp kubeconfig",
        "berth kcp upgrade --version v0.34.0 --allow-downgrade",
        "berth kcp upgrade --path ./kcp",
        "berth kcp rotate-certs --now",
        "berth kcp kubeconfig -o kcp.kubeconfig",
        "berth config show --config /etc/berth.toml",
        "berth doctor --config /etc/berth.toml",
        "berth assets list --json --config /etc/berth.toml",
        "berth assets import a.whl b.whl",
        "berth assets import kcp --component kcp --version v1 --sha256 0000000000000000000000000000000000000000000000000000000000000000",
        "berth assets add kcp --version v1 --from https://a/k --ca /c --member bin/kcp --sha256 0000000000000000000000000000000000000000000000000000000000000000",
        "berth assets pack",
        "berth assets pack kine kube-apiserver",
        "berth assets verify --repair",
        "berth assets gc --dry-run",
        "berth completions bash",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn wrong_usage_ends_with_the_usage_code() {
    for line in [
        "berth",
        "berth explode",
        "berth cluster create Demo",
        "berth cluster create slot-a",
        "berth cluster create ../x",
        "berth dev --tenant kcp-store",
        "berth dev --front localhost",
        "berth node add demo",
        "berth logs demo kine -n -1",
        "berth logs demo kine --component kcp",
        "berth status --watch --json",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), Exit::Usage as i32, "{line}");
    }
}

/// Runs a command against the daemon of `harness`.
async fn exit(harness: &Harness, line: &str) -> Exit {
    let Verb::Client(verb) = parse(line).unwrap().verb else { panic!("{line} is not for the client") };
    let dir = Some(harness.dir.path().to_owned());
    let place = Place { state: dir.clone(), run_dir: dir };
    execute(&place, verb).await.unwrap_or_else(|error| error.exit())
}

#[actix::test]
async fn each_outcome_has_its_exit_code() {
    let harness = Harness::start(|command| match command {
        Command::Status => Ok(Reply::Status(Box::new(fixture::troubled()))),
        Command::CreateTenant { .. } => Err(Refusal::AlreadyExists("it exists".to_owned())),
        Command::StopTenant { .. } => Err(Refusal::NotFound("no such cluster".to_owned())),
        Command::RetryTenant { .. } => Err(Refusal::Failed("it did not work".to_owned())),
        Command::Handover { .. } => {
            let outcome = HandoverOutcome::RolledBack("slot a was not ready".to_owned());
            Ok(Reply::Handover(Box::new(fixture::handover(outcome, &[]))))
        }
        Command::PlanHandover { wish } => Ok(Reply::Plan(Box::new(HandoverPlan {
            from: SlotName::A,
            to: SlotName::B,
            wish: wish.clone(),
            old: Side::default(),
            new: Side::default(),
            address: None,
            refusals: vec!["slot a is not ready".to_owned()],
            warnings: Vec::new(),
            expected: None,
        }))),
        Command::HandoverHistory => Ok(Reply::History(HandoverHistory::default())),
        _ => Ok(Reply::Done),
    });
    for (line, wanted) in [
        ("berth status", Exit::Ok),
        ("berth status --json", Exit::Ok),
        ("berth status --check", Exit::NotReady),
        ("berth cluster list", Exit::Ok),
        ("berth cluster start demo", Exit::Ok),
        ("berth cluster create demo", Exit::Refused),
        ("berth cluster stop demo", Exit::NotFound),
        ("berth cluster retry demo", Exit::Failed),
        ("berth retry slot-a", Exit::Failed),
        ("berth cluster status demo", Exit::Ok),
        ("berth cluster status nobody", Exit::NotFound),
        ("berth cluster kubeconfig nobody", Exit::NotFound),
        ("berth cluster delete demo --yes", Exit::Ok),
        ("berth node add demo n1 n2", Exit::Ok),
        ("berth node remove demo n3", Exit::NotFound),
        ("berth kcp handover", Exit::Failed),
        ("berth kcp handover --dry-run", Exit::Refused),
        ("berth kcp history", Exit::Ok),
        ("berth logs demo kine", Exit::NotFound),
        ("berth logs demo", Exit::Ok),
        ("berth logs nobody", Exit::NotFound),
        ("berth events", Exit::Ok),
        ("berth down", Exit::Ok),
    ] {
        assert_eq!(exit(&harness, line).await, wanted, "{line}");
    }
    harness.shutdown().await;
    assert_eq!(exit(&harness, "berth status").await, Exit::NoDaemon);
    assert_eq!(exit(&harness, "berth down").await, Exit::NoDaemon);
    assert_eq!(exit(&harness, "berth logs demo kine").await, Exit::NoDaemon, "nothing was ever written");
}

#[actix::test]
async fn an_adoption_is_agreed_to_in_so_many_words() {
    fn plan(take_over: Option<&str>) -> AdoptionPlan {
        AdoptionPlan {
            differs: vec!["IdentityMismatch".to_owned()],
            changes: Vec::new(),
            beware: Vec::new(),
            take_over: take_over.map(str::to_owned),
            digest: "d".to_owned(),
        }
    }
    let own = Harness::start(|command| match command {
        Command::PlanAdoption { name } if name == "fine" => {
            Err(Refusal::Conflict("it is not refused".to_owned()))
        }
        Command::PlanAdoption { .. } => Ok(Reply::Adoption(Box::new(plan(None)))),
        Command::Status => Ok(Reply::Status(Box::default())),
        Command::AdoptData { consent, .. } if consent.plan == "d" && consent.take_over.is_none() => {
            Ok(Reply::Done)
        }
        _ => Err(Refusal::Failed("that was not agreed to".to_owned())),
    });
    for (line, wanted) in [
        ("berth cluster adopt fine --yes", Exit::Refused),
        ("berth cluster adopt demo", Exit::Usage),
        ("berth cluster adopt demo --yes", Exit::Ok),
        ("berth cluster adopt demo --yes --take-over other", Exit::Failed),
    ] {
        assert_eq!(exit(&own, line).await, wanted, "{line}");
    }

    let strangers = Harness::start(|command| match command {
        Command::PlanAdoption { .. } => Ok(Reply::Adoption(Box::new(plan(Some("their-uid"))))),
        Command::Status => Ok(Reply::Status(Box::default())),
        Command::AdoptData { consent, .. } if consent.take_over.as_deref() == Some("their-uid") => {
            Ok(Reply::Done)
        }
        _ => Err(Refusal::Failed("that was not agreed to".to_owned())),
    });
    for (line, wanted) in [
        ("berth cluster adopt demo --yes", Exit::Usage),
        ("berth cluster adopt demo --yes --take-over their-uid", Exit::Ok),
    ] {
        assert_eq!(exit(&strangers, line).await, wanted, "{line}");
    }
}

#[actix::test]
async fn a_ready_tree_passes_the_check() {
    let harness = Harness::start(|_| Ok(Reply::Status(Box::default())));
    assert_eq!(exit(&harness, "berth status --check").await, Exit::Ok);
}

#[actix::test]
async fn a_kubeconfig_written_to_a_file_is_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let harness = Harness::start(|_| Ok(Reply::Done));
    let path = harness.dir.path().join("demo.kubeconfig");
    assert_eq!(
        exit(&harness, &format!("berth cluster kubeconfig demo -o {}", path.display())).await,
        Exit::Ok
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kind: Config\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[actix::test]
async fn a_bad_configuration_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("berth.toml");
    crate::files::write_atomic(&path, b"stat_dir = 1\n", None).unwrap();
    let verb = config::ConfigVerb::Show { config: Some(path) };
    let error = execute(&Place::default(), ClientVerb::Config(verb)).await.unwrap_err();
    assert_eq!(error.exit(), Exit::Usage);
}

#[actix::test]
async fn logs_are_read_from_their_files_when_no_daemon_answers() {
    let harness = Harness::start(|_| Ok(Reply::Done));
    harness.shutdown().await;
    let logs = Layout::new(harness.dir.path().to_owned(), None).logs("demo");
    crate::files::private_dir(&logs, None).unwrap();
    crate::files::write_atomic(&logs.join("kine.log"), b"one\n", None).unwrap();
    for (line, wanted) in [
        ("berth logs demo kine", Exit::Ok),
        ("berth logs demo --component kine", Exit::Ok),
        ("berth logs demo", Exit::Ok),
        ("berth cluster logs demo kine -n 1", Exit::Ok),
        ("berth logs demo kcp", Exit::NotFound),
        ("berth logs other", Exit::NoDaemon),
    ] {
        assert_eq!(exit(&harness, line).await, wanted, "{line}");
    }
}
