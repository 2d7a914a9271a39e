//! What a run did and saw.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Tally {
    pub storms: usize,
    pub faults: BTreeMap<&'static str, usize>,
    /// Places at which the daemon was struck, by name.
    pub places: BTreeMap<String, usize>,
    /// Armed, but the daemon did not come by.
    pub missed: BTreeMap<&'static str, usize>,
    pub daemons: usize,
    /// Acknowledged writes that were there at the end.
    pub written: usize,
    /// Times a client found every acknowledged write.
    pub reads: usize,
    /// From the end of a storm to everything being ready, and which storm it was.
    pub longest: (Duration, String),
    pub took: Duration,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.storms += other.storms;
        for (name, count) in other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        for (name, count) in other.places {
            *self.places.entry(name).or_default() += count;
        }
        for (name, count) in other.missed {
            *self.missed.entry(name).or_default() += count;
        }
        self.daemons += other.daemons;
        self.written += other.written;
        self.reads += other.reads;
        if self.longest < other.longest {
            self.longest = other.longest;
        }
        self.took = self.took.max(other.took);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.values().sum();
        writeln!(f, "{faults} faults in {} storms, {:.0} s", self.storms, self.took.as_secs_f64())?;
        for (name, count) in &self.faults {
            writeln!(f, "  {count:>6}  {name}")?;
        }
        let struck: usize = self.places.values().sum();
        let missed: usize = self.missed.values().sum();
        writeln!(f, "{struck} strikes at {} named places, {missed} not reached", self.places.len())?;
        for (name, count) in &self.places {
            writeln!(f, "  {count:>6}  {name}")?;
        }
        for (name, count) in &self.missed {
            writeln!(f, "  {count:>6}  {name}, not reached")?;
        }
        writeln!(f, "{} daemons; {} acknowledged writes, none lost", self.daemons, self.written)?;
        let (longest, storm) = &self.longest;
        writeln!(f, "every process, file and port as it should be {} times", self.storms)?;
        writeln!(f, "longest way back to ready: {:.1} s, after {storm}", longest.as_secs_f64())
    }
}
