//! A [`TreeStatus`] as a tree of text: what runs, since when, what it waits for, why it failed. Pure; `status`, `live` and
//! the cluster commands print what it returns.

mod canary;
mod front;
mod handover;
mod rows;
#[cfg(test)]
mod tests;
mod upkeep;

use super::health::{active_slot, is_ready};
use super::terminal::{Style, Tone, harmless};
use super::words;
use berth_actors::status::{ChainState, ChainStatus, ChildStatus, FrontStatus, Holding, TreeStatus};
use rows::Columns;
use std::fmt::Write;

/// A line, the remarks under it, and what hangs below.
#[derive(Debug, Default)]
struct Branch {
    line: String,
    remarks: Vec<String>,
    below: Vec<Branch>,
}

/// The whole tree, each line ended by a newline.
pub fn render(status: &TreeStatus, style: Style) -> String {
    let chains: Vec<_> = status.store.iter().chain(&status.slots).chain(&status.tenants).collect();
    let services = services(status);
    let columns = Columns::of(&chains.into_iter().chain(&services).collect::<Vec<_>>());
    let mut below = Vec::new();
    if status.front != FrontStatus::default() {
        let told = status.handover.as_ref().is_some_and(|handover| handover.drain.is_some());
        below.push(front::branch(&status.front, told, &columns, style));
    }
    for chain in status.store.iter().chain(&status.slots) {
        let active = active_slot(status).is_some_and(|active| active.name == chain.name);
        below.push(branch(chain, active, &columns, style));
    }
    below.extend(
        status
            .canary
            .iter()
            .map(|canary| Branch { line: canary::line(canary, &columns, style), ..Branch::default() }),
    );
    below.extend(status.upkeep.iter().flat_map(|upkeep| upkeep::branches(upkeep, &columns, style)));
    below.extend(status.handover.as_ref().map(|handover| handover::branch(handover, &columns, style)));
    below.extend(status.tenants.iter().map(|tenant| {
        let mut branch = branch(tenant, false, &columns, style);
        branch.line.push_str(&held(status.holdings.get(&tenant.name)));
        branch
    }));
    below.extend(services.iter().map(|service| {
        let troubled = is_troubled(service);
        rows::branch(&service.children[0], troubled, &columns, style)
    }));
    let line = format!("{}  {}", style.paint(Tone::Strong, "berth"), summary(status));
    let remarks = status.strays.iter().chain(&status.remarks).map(|stray| harmless(stray)).collect();
    draw(&Branch { line, remarks, below }, style)
}

/// One chain by itself.
pub fn render_chain(chain: &ChainStatus, style: Style) -> String {
    render_tenant(chain, None, style)
}

/// The same of a cluster, with what the host keeps for it.
pub fn render_tenant(chain: &ChainStatus, holding: Option<&Holding>, style: Style) -> String {
    let mut branch = branch(chain, false, &Columns::of(&[chain]), style);
    branch.line.push_str(&held(holding));
    draw(&branch, style)
}

fn held(holding: Option<&Holding>) -> String {
    let Some(Holding { uid, disk }) = holding else { return String::new() };
    let mut text = String::new();
    if let Some(uid) = uid {
        let _infallible = write!(text, ", uid {uid}");
    }
    if let Some(disk) = disk {
        let at_least = if disk.is_partial { "at least " } else { "" };
        let _infallible = write!(text, ", {at_least}{} MiB on disk", disk.bytes >> 20);
    }
    text
}

/// A service is one process: its row has the service's name, and no branch of its own.
fn services(status: &TreeStatus) -> Vec<ChainStatus> {
    let single = |service: &ChainStatus| {
        let child = service.children.first()?;
        let child = ChildStatus { name: service.name.clone(), ..child.clone() };
        Some(ChainStatus { children: vec![child], ..service.clone() })
    };
    status.services.iter().filter_map(single).collect()
}

fn is_troubled(chain: &ChainStatus) -> bool {
    matches!(chain.state, ChainState::Degraded | ChainState::Refused)
}

fn summary(status: &TreeStatus) -> String {
    if !status.services.is_empty() {
        let ready = status.services.iter().filter(|service| is_ready(service)).count();
        return format!("{ready} of {} services ready", status.services.len());
    }
    let kcp = match (status.active_slot, status.slots.is_empty()) {
        (_, true) => "no kcp".to_owned(),
        (Some(slot), false) => format!("kcp in slot {slot}"),
        (None, false) => "kcp in no slot".to_owned(),
    };
    let ready = status.tenants.iter().filter(|tenant| is_ready(tenant)).count();
    match status.tenants.len() {
        0 => format!("{kcp}, no clusters"),
        1 => format!("{kcp}, {ready} of 1 cluster ready"),
        all => format!("{kcp}, {ready} of {all} clusters ready"),
    }
}

fn branch(chain: &ChainStatus, active: bool, columns: &Columns, style: Style) -> Branch {
    let (tone, state) = words::of(chain);
    let mut line = format!("{}{}", columns.head(&chain.name, style), style.paint(tone, state));
    if let Some(since) = &chain.paused {
        let _ = write!(line, " since {}", harmless(since));
    }
    if active {
        line.push_str(", active");
    }
    if let Some(reason) = &chain.reason {
        let _ = write!(line, ": {}", harmless(reason));
    }
    let troubled = is_troubled(chain);
    // A chain that is down says all there is to say in its own line.
    let below = match chain.state {
        ChainState::Down => Vec::new(),
        _ => chain.children.iter().map(|child| rows::branch(child, troubled, columns, style)).collect(),
    };
    Branch { line, remarks: Vec::new(), below }
}

fn draw(root: &Branch, style: Style) -> String {
    let mut text = format!("{}\n", root.line.trim_end());
    draw_below(root, "", style, &mut text);
    text
}

fn draw_below(branch: &Branch, indent: &str, style: Style, text: &mut String) {
    for remark in &branch.remarks {
        let stem = if branch.below.is_empty() { "   " } else { "│  " };
        let _ = writeln!(
            text,
            "{}",
            format!("{}  {remark}", style.paint(Tone::Faint, &format!("{indent}{stem}"))).trim_end()
        );
    }
    let last = branch.below.len().saturating_sub(1);
    for (index, child) in branch.below.iter().enumerate() {
        let (arm, stem) = if index == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let arm = style.paint(Tone::Faint, &format!("{indent}{arm}"));
        let _ = writeln!(text, "{arm}{}", child.line.trim_end());
        draw_below(child, &format!("{indent}{stem}"), style, text);
    }
}
