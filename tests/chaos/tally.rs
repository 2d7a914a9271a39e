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
    pub missed: usize,
    pub daemons: usize,
    /// Acknowledged writes that were there at the end.
    pub written: usize,
    /// Times a client found every acknowledged write.
    pub reads: usize,
    pub longest: Duration,
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
        self.missed += other.missed;
        self.daemons += other.daemons;
        self.written += other.written;
        self.reads += other.reads;
        self.longest = self.longest.max(other.longest);
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
        writeln!(f, "{struck} strikes at {} named places ({} not reached)", self.places.len(), self.missed)?;
        for (name, count) in &self.places {
            writeln!(f, "  {count:>6}  {name}")?;
        }
        writeln!(f, "{} daemons; {} acknowledged writes, none lost", self.daemons, self.written)?;
        write!(f, "every process, file and port as it should be {} times; ", self.storms)?;
        writeln!(f, "longest way back to ready: {:.1} s", self.longest.as_secs_f64())
    }
}
