//! What is asked of a load, on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// Somebody else's front, with credentials for what is behind it.
    pub at: Option<(SocketAddr, PathBuf)>,
    pub seconds: Option<Duration>,
    /// On a Berth of our own.
    pub handovers: usize,
    pub crashes: bool,
    pub goaway: Option<String>,
    /// Classes with one of these in their name; none: all.
    pub only: Vec<String>,
}

pub const USAGE: &str = "load --front ADDRESS --kubeconfig FILE [--seconds N] [--only CLASSES]\n\
                         load --handovers N [--goaway CHANCE] [--only CLASSES]\n\
                         load --crashes";

impl Args {
    /// `None`: only the usage was asked for.
    pub fn parse(words: &[String]) -> Result<Option<Self>, String> {
        let (mut args, mut front, mut kubeconfig) = (Self::default(), None, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Ok(None);
            }
            if word == "--crashes" {
                args.crashes = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"))?;
            let bad = |what: &str| format!("{word} {value:?}: not {what}\n{USAGE}");
            match word.as_str() {
                "--front" => {
                    let address = value.strip_prefix("https://").unwrap_or(value);
                    front = Some(
                        address.trim_end_matches('/').parse().map_err(|_| bad("an address and a port"))?,
                    );
                }
                "--kubeconfig" => kubeconfig = Some(PathBuf::from(value)),
                "--seconds" => {
                    let seconds = value.parse().map_err(|_| bad("a number of seconds"))?;
                    args.seconds = Some(Duration::from_secs(seconds));
                }
                "--handovers" => args.handovers = value.parse().map_err(|_| bad("a number"))?,
                "--goaway" => args.goaway = Some(value.clone()),
                "--only" => args.only.extend(value.split(',').map(str::to_owned)),
                _ => return Err(format!("{word}?\n{USAGE}")),
            }
        }
        args.at = match (front, kubeconfig) {
            (Some(front), Some(kubeconfig)) => Some((front, kubeconfig)),
            (None, None) => None,
            _ => return Err(format!("--front and --kubeconfig belong together\n{USAGE}")),
        };
        if args.at.is_none() && args.handovers == 0 && !args.crashes {
            return Err(USAGE.to_owned());
        }
        Ok(Some(args))
    }
}
