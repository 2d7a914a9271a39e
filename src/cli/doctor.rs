//! `berth doctor`: what a daemon of this configuration would meet on this host, and the one that runs, as far as it tells. Changes nothing.

use super::Place;
use super::exit::{CliError, Exit};
use super::terminal::{self, Style, Tone};
use crate::config::{Config, FrontConfig, Surroundings};
use crate::control::Client;
use crate::discover::holder_of;
use crate::front::Descriptors;
use crate::layout::Layout;
use crate::preflight::{self, PreflightError, Verdict};
use berth_actors::status::FrontLimits;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Doctor {
    /// Configuration file; without it, the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Well,
    /// It runs, and not as well as it was meant to.
    Warning,
    /// It would not start.
    Refusal,
}

pub(super) async fn run(place: &Place, args: &Doctor) -> Result<Exit, CliError> {
    let config = Config::load(args.config.as_deref(), &place.overrides()?, &Surroundings::read())?;
    let layout = Layout::new(config.state_dir.value.clone(), config.run_dir.value.clone());
    let running = Client::new(layout.control_socket()).status().await.ok().map(|status| status.front.limits);
    let mut findings = host(preflight::check(&layout, config.user.value.as_ref(), &config.tenants.range()));
    if *config.kcp.enabled {
        findings.push(open_files(&config.front, running, Descriptors::allowed()));
        if running.is_none()
            && let Some(holder) = holder_of(*config.front.listen)
        {
            let text = format!("the front's address {} is taken by {holder}", *config.front.listen);
            findings.push((Finding::Refusal, text));
        }
    }
    let style = Style::of(&std::io::stdout());
    for (finding, text) in &findings {
        terminal::say(&line(*finding, text, style))?;
    }
    let is_refused = findings.iter().any(|(finding, _)| *finding == Finding::Refusal);
    Ok(if is_refused { Exit::Failed } else { Exit::Ok })
}

fn line(finding: Finding, text: &str, style: Style) -> String {
    let (tone, word) = match finding {
        Finding::Well => (Tone::Good, "ok      "),
        Finding::Warning => (Tone::Busy, "warning "),
        Finding::Refusal => (Tone::Bad, "refused "),
    };
    format!("{}  {text}", style.paint(tone, word))
}

fn host(checked: Result<Verdict, PreflightError>) -> Vec<(Finding, String)> {
    match checked {
        Err(error) => vec![(Finding::Refusal, error.to_string())],
        Ok(Verdict { account, warnings }) => {
            let account = account.map_or("this account".to_owned(), |account| account.name);
            let well =
                format!("a default route, directories and space are there; components run as {account}");
            let warnings = warnings.into_iter().map(|warning| (Finding::Warning, warning));
            std::iter::once((Finding::Well, well)).chain(warnings).collect()
        }
    }
}

/// `running`: what the daemon admits that answers. It has the limit of its unit; `ours` is the one of this shell.
fn open_files(front: &FrontConfig, running: Option<FrontLimits>, ours: Descriptors) -> (Finding, String) {
    let wanted = *front.max_connections;
    if let Some(FrontLimits { connections, .. }) = running {
        if connections >= wanted as u64 {
            return (Finding::Well, format!("the daemon that runs admits {connections} connections"));
        }
        let text = format!(
            "the daemon that runs admits {connections} connections, and max_connections is {wanted}: its limit of open files is \
             too low (LimitNOFILE= of the unit), or it was started with another configuration"
        );
        return (Finding::Warning, text);
    }
    match front.caps().within(ours) {
        (_, Some(misfit)) => (Finding::Warning, format!("for a daemon started from here, {misfit}")),
        (caps, None) => {
            let (fitting, limit) = (caps.max_connections, ours.limit);
            (Finding::Well, format!("{fitting} connections fit into the limit of {limit} open files"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn front(text: &str) -> FrontConfig {
        let surroundings = Surroundings { root: true, cpus: 1, ..Surroundings::default() };
        Config::parse(text, Path::new("/c"), &crate::config::Overrides::default(), &surroundings)
            .unwrap()
            .front
    }

    #[test]
    fn connections_that_do_not_fit_are_told_by_whose_limit_it_is() {
        let limits = |connections| Some(FrontLimits { connections, ..FrontLimits::default() });
        let [small, large] = [Descriptors { limit: 4096 }, Descriptors { limit: 1 << 20 }];
        let judge = |running, ours| open_files(&front("[front]\nmax_connections = 2000"), running, ours);
        assert_eq!(judge(None, large).0, Finding::Well);
        assert_eq!(judge(limits(2000), small).0, Finding::Well, "the daemon's own limit counts");
        let (finding, text) = judge(None, small);
        assert_eq!(finding, Finding::Warning);
        assert!(text.contains("started from here, max_connections 2000 does not fit"), "{text}");
        let (finding, text) = judge(limits(1536), large);
        assert_eq!(finding, Finding::Warning);
        assert!(text.contains("admits 1536") && text.contains("LimitNOFILE"), "{text}");
    }

    #[test]
    fn a_host_that_will_not_do_is_refused_with_the_way_out() {
        let [(finding, text)] = &host(Err(PreflightError::NoDefaultRoute))[..] else { panic!("one finding") };
        assert_eq!(*finding, Finding::Refusal);
        assert!(
            line(*finding, text, Style::PLAIN).starts_with("refused   the host has no default route"),
            "{text}"
        );
        let verdict = Verdict { account: None, warnings: vec!["little space".to_owned()] };
        let findings: Vec<_> = host(Ok(verdict)).into_iter().map(|(finding, _)| finding).collect();
        assert_eq!(findings, [Finding::Well, Finding::Warning]);
    }
}
