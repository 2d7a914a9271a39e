//! How many faults, on what, and from which seed.

/// What is run when nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "the test and the example each construct one")]
pub enum Size {
    /// Some of each kind, within the minutes a test run has.
    Test,
    /// Stand-ins alone, until told otherwise.
    Example,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Small programs under the real tree, ledger, journal, front and control socket.
    StandIn,
    /// `berth dev` on the real components.
    Real,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub kind: Kind,
    pub faults: usize,
    /// Daemons that are stormed at the same time, each with its own share.
    pub systems: usize,
}

#[derive(Debug)]
pub struct Args {
    pub seed: u64,
    pub runs: Vec<Run>,
}

const USAGE: &str = "chaos [--stand-in | --real] [--seed N] [--faults N] [--systems N]";
/// Waits for deadlines overlap, and two cores still keep up.
const SYSTEMS: usize = 6;
const STAND_IN_FAULTS: usize = 240;
/// The same faults every time: a change is judged by what it changed. New ones are for the example to find.
const TEST_SEED: u64 = 2026;
const REAL_FAULTS: usize = 24;

impl Args {
    /// `None`: there is nothing to run. Words of a test harness (a filter, `--list`) are understood as far as they apply.
    pub fn parse(size: Size, words: &[String]) -> Result<Option<Self>, String> {
        let (mut seed, mut faults, mut systems, mut kind) = (None, None, None, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().ok_or_else(|| format!("{word} needs a number\n{USAGE}"))?;
                value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}\n{USAGE}"))
            };
            match word.as_str() {
                "--seed" => seed = Some(number()?),
                "--faults" => faults = Some(usize::try_from(number()?).unwrap()),
                "--systems" => systems = Some(usize::try_from(number()?).unwrap()),
                "--stand-in" | "stand-in" => kind = Some(Kind::StandIn),
                "--real" | "real" => kind = Some(Kind::Real),
                "--list" => {
                    println!("stand-in: test\nreal: test");
                    return Ok(None);
                }
                // What libtest is told about its threads and its output says nothing here.
                other if size == Size::Test && other.starts_with('-') => {}
                other if size == Size::Test => {
                    println!("nothing is called {other}");
                    return Ok(None);
                }
                other => return Err(format!("{other} is not understood\n{USAGE}")),
            }
        }
        let run = |kind: Kind| Run {
            kind,
            faults: faults.unwrap_or(if kind == Kind::Real { REAL_FAULTS } else { STAND_IN_FAULTS }),
            systems: systems.unwrap_or(if kind == Kind::Real { 1 } else { SYSTEMS }),
        };
        let kinds = match (kind, size) {
            (Some(kind), _) => vec![kind],
            (None, Size::Test) => vec![Kind::StandIn, Kind::Real],
            (None, Size::Example) => vec![Kind::StandIn],
        };
        let seed =
            seed.unwrap_or_else(|| if size == Size::Test { TEST_SEED } else { rand::random::<u32>().into() });
        Ok(Some(Self { seed, runs: kinds.into_iter().map(run).collect() }))
    }
}
