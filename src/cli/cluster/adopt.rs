//! `berth cluster adopt`: shows the plan, takes the operator's word for it, and sends it back with the plan's digest.

use super::{CliError, Named, shown, terminal};
use crate::control::Client;
use berth_actors::data_adoption::{AdoptionPlan, Consent};
use clap::Args;
use std::fmt::Write;

#[derive(Debug, Args)]
pub struct Adopt {
    #[command(flatten)]
    cluster: Named,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Take over data that carry another cluster's identity (its uid), or none (`unclaimed`)
    #[arg(long, value_name = "UID")]
    take_over: Option<String>,
}

pub(super) async fn run(client: &Client, args: &Adopt) -> Result<(), CliError> {
    let name = &args.cluster.name;
    let plan = client.plan_adoption(name).await?;
    terminal::remark(&render(name, &plan))?;
    if let (Some(theirs), None) = (&plan.take_over, &args.take_over) {
        return Err(CliError::Usage(format!(
            "the data of {name} are not its own: to take them over all the same, say --take-over {theirs}"
        )));
    }
    if !args.yes {
        confirm(name)?;
    }
    let consent = Consent { plan: plan.digest, take_over: args.take_over.clone() };
    shown(client, name, client.adopt(name, &consent)).await?;
    Ok(terminal::say(&format!("the data of {name} are adopted, and it is ready"))?)
}

fn render(name: &str, plan: &AdoptionPlan) -> String {
    let mut text = format!("Adopting the data of {name}\n");
    for (title, lines) in [
        ("What differs:", &plan.differs),
        ("What changes:", &plan.changes),
        ("Be sure of this:", &plan.beware),
    ] {
        // Into a String: cannot fail.
        let _ = writeln!(text, "{title}");
        for line in lines {
            let _ = writeln!(text, "  - {}", terminal::harmless(line));
        }
    }
    text.pop();
    text
}

fn confirm(name: &str) -> Result<(), CliError> {
    match terminal::ask(&format!("Adopt the data of {name}? There is no way back. Type its name:"))? {
        Some(answer) if answer == *name => Ok(()),
        Some(_) => Err(CliError::Usage(format!("{name} was not adopted: that is not its name"))),
        None => Err(CliError::Usage(format!("to adopt {name} without a terminal to ask on, say --yes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_differs_what_changes_and_what_to_be_sure_of() {
        let plan = AdoptionPlan {
            differs: vec!["CopiedDataDir: it was there, \x1b[2Jit is here".to_owned()],
            changes: vec!["identity.json: to epoch 2".to_owned(), "nothing else".to_owned()],
            beware: vec!["no other copy runs".to_owned()],
            take_over: None,
            digest: "d".to_owned(),
        };
        assert_eq!(
            render("demo", &plan),
            "Adopting the data of demo\n\
             What differs:\n  - CopiedDataDir: it was there, it is here\n\
             What changes:\n  - identity.json: to epoch 2\n  - nothing else\n\
             Be sure of this:\n  - no other copy runs"
        );
    }
}
