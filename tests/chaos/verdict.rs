//! What must hold once a storm is over, seen from outside: processes, files, ports and data.

use super::args::Kind;
use super::line::{Place, ask};
use super::system::System;
use super::writers::Writer;
use berth::policy::{Policies, Supervised};
use berth_actors::spec::Reaction;
use berth_actors::status::{ChainState, ChainStatus, HandoverOutcome, TreeStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// `Err`: what is missing for everything that should run to be ready, by the daemon's own word. It may not have noticed yet
/// that one of the `killed` is dead.
pub fn arrived(system: &System, status: &TreeStatus, killed: &[i32]) -> Result<(), String> {
    let children =
        status.store.iter().chain(&status.slots).chain(&status.tenants).flat_map(|of| &of.children);
    for pid in children.filter_map(|child| Some(child.pid?.cast_signed())) {
        if killed.contains(&pid) {
            return Err(format!("pid {pid} was killed, and is still shown"));
        }
    }
    let is = |chain: &ChainStatus, wanted: ChainState| {
        let why = || format!("{} is {:?} ({:?}), not {wanted:?}", chain.name, chain.state, chain.reason);
        if chain.state == wanted { Ok(()) } else { Err(why()) }
    };
    is(status.store.as_ref().ok_or("there is no store")?, ChainState::Ready)?;
    let active = status.active_slot.ok_or("no slot is active")?;
    for slot in &status.slots {
        let wanted = if slot.name == active.chain() { ChainState::Ready } else { ChainState::Down };
        is(slot, wanted)?;
    }
    if status.front.target.as_ref().is_none_or(|target| target.slot != active) {
        return Err(format!("slot {active} is active, the front is on {:?}", status.front.target));
    }
    if status.handover.as_ref().is_some_and(|handover| handover.outcome == HandoverOutcome::Running) {
        return Err("a handover is under way".to_owned());
    }
    let records = system.records();
    let shown: BTreeSet<_> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let recorded: BTreeSet<_> = records.keys().map(String::as_str).collect();
    if shown != recorded {
        return Err(format!("the tree has {shown:?}, the files say {recorded:?}"));
    }
    for tenant in &status.tenants {
        let record = &records[&tenant.name];
        if record.erase {
            return Err(format!("{} is to be erased and is still there", tenant.name));
        }
        is(tenant, if record.run { ChainState::Ready } else { ChainState::Down })?;
    }
    Ok(())
}

/// Every process as the daemon shows it.
pub fn shown(status: &TreeStatus) -> Vec<Option<u32>> {
    let chains = status.store.iter().chain(&status.slots).chain(&status.tenants);
    chains.flat_map(|chain| &chain.children).map(|child| child.pid).collect()
}

/// Everything else: the daemon may say what it likes.
pub async fn holds(system: &System, status: &TreeStatus, writers: &[Writer]) -> Result<usize, String> {
    one_process_each(system, status)?;
    nobody_outlived_what_it_stands_on(system, status)?;
    no_leftover_files(system.layout.state())?;
    no_forgotten_directories(system)?;
    front_is_on_the_active_kcp(system, status).await?;
    let mut written = 0;
    for writer in writers {
        written += writer.check().await?;
    }
    Ok(written)
}

/// One life, one main process, the one that is shown; and nothing else carries the mark.
fn one_process_each(system: &System, status: &TreeStatus) -> Result<(), String> {
    let census = system.census();
    let mains = census.mains();
    let chains = status.store.iter().chain(&status.slots).chain(&status.tenants);
    let mut expected = BTreeMap::new();
    for chain in chains.filter(|chain| chain.state == ChainState::Ready) {
        for child in &chain.children {
            expected.insert(format!("{}/{}", chain.name, child.name), child.pid);
        }
    }
    for (component, pid) in &expected {
        let Some([main]) = mains.get(component.as_str()).map(Vec::as_slice) else {
            return Err(format!("{component} has not one process but {:?}", mains.get(component.as_str())));
        };
        if pid.map(u32::cast_signed) != Some(main.pid) {
            return Err(format!("{component} is shown as {pid:?} and is {main:?}"));
        }
        if census.tokens(component).len() != 1 {
            return Err(format!("{component} has processes of two lives: {:?}", census.0));
        }
    }
    match mains.keys().find(|component| !expected.contains_key(**component)) {
        None => Ok(()),
        Some(orphan) => Err(format!("{orphan} should not run, but {:?} does", mains[orphan])),
    }
}

/// Temporary files of a write that never ended. Components' own directories are theirs.
fn no_leftover_files(dir: &Path) -> Result<(), String> {
    for entry in fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if [".berth-", ".tmp", ".shared-"].iter().any(|prefix| name.starts_with(prefix)) {
            return Err(format!("{} was left half-written", path.display()));
        }
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && !["pg", "pg.new", "assets"].contains(&name.as_str()) {
            match no_leftover_files(&path) {
                Err(reason) if path.exists() => return Err(reason),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A cluster has a record and a directory, or neither; and a port only while it has a record.
fn no_forgotten_directories(system: &System) -> Result<(), String> {
    let records = system.records();
    let clusters = system.layout.clusters();
    for entry in fs::read_dir(&clusters).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !records.contains_key(&name) {
            return Err(format!("{} has no record", entry.path().display()));
        }
    }
    let ports = fs::read(system.layout.state().join("ports.json")).unwrap_or_else(|_| b"{}".to_vec());
    let ports: serde_json::Value =
        serde_json::from_slice(&ports).map_err(|error| format!("ports.json: {error}"))?;
    for (name, port) in ports["leases"].as_object().into_iter().flatten() {
        if !records.contains_key(name) {
            return Err(format!("port {port} is leased to {name}, which has no record"));
        }
    }
    Ok(())
}

async fn front_is_on_the_active_kcp(system: &System, status: &TreeStatus) -> Result<(), String> {
    let mains = system.census().identities();
    let serving: Vec<_> =
        ["slot-a/kcp", "slot-b/kcp"].iter().filter_map(|kcp| Some((*kcp, mains.get(*kcp)?.0))).collect();
    let [(kcp, pid)] = serving[..] else { return Err(format!("not one kcp but {serving:?}")) };
    if system.kind == Kind::StandIn {
        let answered = ask(&Place::Port(system.front), "whoami").await?;
        if answered != pid.to_string() {
            return Err(format!("{kcp} is pid {pid}, but pid {answered} answers behind the front"));
        }
    }
    let target = status.front.target.as_ref().map(|target| target.slot.chain());
    if target.is_some_and(|chain| !kcp.starts_with(chain)) {
        return Err(format!("the front is on {target:?}, and {kcp} runs"));
    }
    Ok(())
}

/// Whoever is not to outlive an earlier step of its chain is no older than that one is, whatever died in which order, the daemon
/// included. A slot's kine is killed with its store and may be back before it: when it was born proves nothing.
fn nobody_outlived_what_it_stands_on(system: &System, status: &TreeStatus) -> Result<(), String> {
    let born = system.census().identities();
    let mut pairs = Vec::new();
    for chain in status.store.iter().chain(&status.slots).chain(&status.tenants) {
        let of = |name: &str| format!("{}/{name}", chain.name);
        pairs.extend(not_to_be_outlived(system.kind).into_iter().map(|(first, then)| (of(first), of(then))));
    }
    for (first, then) in pairs {
        if let (Some((_, earlier)), Some((_, later))) = (born.get(&first), born.get(&then))
            && later < earlier
        {
            return Err(format!("{then} outlived {first}: born at {later} and {earlier}"));
        }
    }
    Ok(())
}

/// Steps of one chain, by what a later one says to an earlier one's death.
fn not_to_be_outlived(kind: Kind) -> Vec<(&'static str, &'static str)> {
    if kind == Kind::StandIn {
        return vec![("kube-apiserver", "kube-controller-manager")];
    }
    let policies = Policies::default();
    let mut pairs = Vec::new();
    for first in Supervised::ALL {
        for then in Supervised::ALL.into_iter().filter(|then| then.chain() == first.chain()) {
            if policies.life(then).reactions.get(first.component()) == Some(&Reaction::Restart) {
                pairs.push((first.component(), then.component()));
            }
        }
    }
    pairs
}

/// After a stop of everything: each chain ended in reverse, the tenants before the slots, the store last. Only stand-ins tell when
/// they end.
pub fn stopped_in_order(ends: &[String], before: &TreeStatus) -> Result<(), String> {
    let place = |chain: &ChainStatus, name: &str| {
        let full = format!("{}/{name}", chain.name);
        ends.iter().position(|end| *end == full)
    };
    let places = |chain: &ChainStatus| -> Vec<usize> {
        chain.children.iter().rev().filter_map(|child| place(chain, &child.name)).collect()
    };
    for chain in before.store.iter().chain(&before.slots).chain(&before.tenants) {
        if !places(chain).is_sorted() {
            return Err(format!("{} did not end in reverse order: {ends:?}", chain.name));
        }
    }
    let of = |chains: &[ChainStatus]| chains.iter().flat_map(places).collect::<Vec<_>>();
    let groups = [of(&before.tenants), of(&before.slots), of(before.store.as_slice())];
    let bounds = groups.iter().filter_map(|group| Some((*group.iter().min()?, *group.iter().max()?)));
    let in_turn = bounds.collect::<Vec<_>>().windows(2).all(|pair| pair[0].1 < pair[1].0);
    if in_turn {
        Ok(())
    } else {
        Err(format!("tenants, slots and store did not end in this order: {ends:?}"))
    }
}

/// After everything was started from nothing: each chain's processes were born in its order.
pub fn in_order(system: &System, status: &TreeStatus) -> Result<(), String> {
    let mains = system.census().identities();
    for chain in status.store.iter().chain(&status.slots).chain(&status.tenants) {
        let births: Vec<_> = chain
            .children
            .iter()
            .filter_map(|child| Some((&child.name, mains.get(&format!("{}/{}", chain.name, child.name))?.1)))
            .collect();
        if !births.is_sorted_by_key(|(_, birth)| *birth) {
            return Err(format!("{} did not start in order: {births:?}", chain.name));
        }
    }
    Ok(())
}
