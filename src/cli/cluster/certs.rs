//! `berth cluster certs`: what a cluster's credentials are worth, and new ones.

use super::super::exit::Exit;
use super::super::status;
use super::{CliError, Named, shown, terminal};
use crate::control::Client;
use crate::control::api::{Credential, CredentialOrder, Credentials, Rotate};
use clap::{Args, Subcommand};
use std::cell::RefCell;
use std::fmt::Write;

#[derive(Debug, Subcommand)]
pub enum CertsVerb {
    /// Show every certificate and key: what for, until when, and whether it fits; ends with 8 if one needs seeing to
    Check {
        #[command(flatten)]
        cluster: Named,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Make new ones and have the components take them up; without an option: certificates whose last third has begun
    Rotate(Order),
}

#[derive(Debug, Args)]
pub struct Order {
    #[command(flatten)]
    cluster: Named,
    /// All certificates of components and of the administrator, with new keys; authorities stay
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    key: Key,
    /// For how long the tokens of the key before are good
    #[arg(long, value_name = "DAYS", default_value_t = 365, requires = "service_account_key")]
    keep_old_for: u32,
}

#[derive(Debug, Default, Args)]
#[group(multiple = false, conflicts_with = "now")]
struct Key {
    /// The key that signs ServiceAccounts' tokens; restarts the API server
    #[arg(long)]
    service_account_key: bool,
    /// The key that seals Secrets and ConfigMaps at rest; seals all of them anew
    #[arg(long)]
    encryption_key: bool,
    /// The key that opens the cluster's vault; restarts OpenBao
    #[arg(long)]
    seal_key: bool,
}

impl Order {
    fn wanted(&self) -> CredentialOrder {
        let what = match self.key {
            Key { service_account_key: true, .. } => Rotate::ServiceAccountKey,
            Key { encryption_key: true, .. } => Rotate::EncryptionKey,
            Key { seal_key: true, .. } => Rotate::SealKey,
            Key { .. } => Rotate::Certificates,
        };
        let keep_days = (what == Rotate::ServiceAccountKey).then_some(self.keep_old_for);
        CredentialOrder { what, now: self.now, keep_days }
    }
}

pub(super) async fn run(client: &Client, verb: &CertsVerb) -> Result<Exit, CliError> {
    match verb {
        CertsVerb::Check { cluster: Named { name }, json } => {
            let credentials = client.credentials(name).await?;
            let text = if *json { status::json(&credentials)? + "\n" } else { render(&credentials) };
            terminal::write(text.as_bytes())?;
            Ok(if credentials.is_well() { Exit::Ok } else { Exit::Unsound })
        }
        CertsVerb::Rotate(order) => {
            let name = &order.cluster.name;
            let done = RefCell::new(Vec::new());
            let wanted = order.wanted();
            let work = async {
                *done.borrow_mut() = client.rotate_credentials(name, &wanted).await?.done;
                Ok(())
            };
            shown(client, name, work).await?;
            let mut done = done.into_inner();
            if done.is_empty() {
                done.push("nothing was due: --now replaces all certificates".to_owned());
            }
            for line in done {
                terminal::say(&terminal::harmless(&line))?;
            }
            Ok(Exit::Ok)
        }
    }
}

fn render(credentials: &Credentials) -> String {
    let mut text = String::new();
    for credential in &credentials.credentials {
        // Into a String: cannot fail.
        let _ = writeln!(
            text,
            "{:36}  {}",
            terminal::harmless(&credential.file),
            terminal::harmless(&credential.purpose)
        );
        for (word, line) in lines(credential) {
            let _ = writeln!(text, "  {word:8}  {}", terminal::harmless(&line));
        }
    }
    text
}

fn lines(credential: &Credential) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let (Some(subject), Some(issuer)) = (&credential.subject, &credential.issuer) {
        lines.push(("names", format!("{subject}, signed by {issuer}")));
    }
    if let (Some(end), Some(left)) = (&credential.not_after, credential.left_seconds) {
        let date = end.split('T').next().unwrap_or(end);
        lines.push(("ends", format!("{date}, {} days left", left.div_euclid(86_400))));
    }
    lines.push(("replaced", credential.renewal.clone()));
    lines.extend(credential.problems.iter().map(|problem| ("PROBLEM", problem.clone())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_what_for_until_when_and_what_is_wrong() {
        let server = Credential {
            file: "pki/apiserver.crt".to_owned(),
            purpose: "what kube-apiserver shows".to_owned(),
            subject: Some("CN=kube-apiserver".to_owned()),
            issuer: Some("CN=demo server-ca".to_owned()),
            not_after: Some("2027-12-01T10:00:00Z".to_owned()),
            left_seconds: Some(-86_400),
            renewal: "by the daemon".to_owned(),
            problems: vec!["it has ended".to_owned()],
        };
        let all = Credentials { cluster: "demo".to_owned(), credentials: vec![server] };
        assert!(!all.is_well());
        assert_eq!(
            render(&all),
            "pki/apiserver.crt                     what kube-apiserver shows\n\
             \x20 names     CN=kube-apiserver, signed by CN=demo server-ca\n\
             \x20 ends      2027-12-01, -1 days left\n\
             \x20 replaced  by the daemon\n\
             \x20 PROBLEM   it has ended\n"
        );
    }

    #[test]
    fn an_order_is_for_one_thing() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            order: Order,
        }
        let wanted = |words: &[&str]| {
            let words = ["rotate", "demo"].iter().chain(words);
            <Line as clap::Parser>::try_parse_from(words).map(|line| line.order.wanted())
        };
        let order = |what, now, keep_days| CredentialOrder { what, now, keep_days };
        assert_eq!(wanted(&[]).unwrap(), order(Rotate::Certificates, false, None));
        assert_eq!(wanted(&["--now"]).unwrap(), order(Rotate::Certificates, true, None));
        assert_eq!(wanted(&["--seal-key"]).unwrap(), order(Rotate::SealKey, false, None));
        let at_once = ["--service-account-key", "--keep-old-for", "0"];
        assert_eq!(wanted(&at_once).unwrap(), order(Rotate::ServiceAccountKey, false, Some(0)));
        for words in
            [&["--now", "--seal-key"][..], &["--seal-key", "--encryption-key"], &["--keep-old-for", "0"]]
        {
            assert!(wanted(words).is_err(), "{words:?}");
        }
    }
}
