//! The root's part in `berth cluster pause` and `resume`: a cluster that should run is held down, and stays so.
//!
//! The record keeps both wishes apart: that it runs, and that it is held. A resume brings back what was wished before.

use super::Root;
use super::tenants::{Answer, refuse, unknown};
use crate::host::TenantRecord;
use crate::message::Refusal;
use std::collections::BTreeMap;

impl Root {
    /// `at`: the wall clock, RFC 3339. One that is paused already keeps its own.
    pub(super) fn pause(&mut self, name: &str, at: String) -> Answer {
        match self.pausable(name) {
            Err(refusal) => refuse(refusal),
            Ok(record) => {
                let paused = Some(record.paused.clone().unwrap_or(at));
                self.write_wish(TenantRecord { paused, ..record })
            }
        }
    }

    fn pausable(&self, name: &str) -> Result<TenantRecord, Refusal> {
        self.may_change(name)?;
        let record = self.records.get(name).ok_or_else(|| unknown(name))?;
        if self.adopting.contains(name) {
            return Err(Refusal::Conflict(format!(
                "the data of {name} are being adopted: pause it after that"
            )));
        }
        if !record.run {
            let text = format!(
                "{name} is stopped: there is nothing to pause; it stays down until berth cluster start {name}"
            );
            return Err(Refusal::Conflict(text));
        }
        Ok(record.clone())
    }

    /// Answered when it is ready, also where it was never paused.
    pub(super) fn resume(&mut self, name: &str) -> Answer {
        if let Err(refusal) = self.may_change(name) {
            return refuse(refusal);
        }
        match self.records.get(name).cloned() {
            None => refuse(unknown(name)),
            Some(record) if !record.run => {
                let text = format!("{name} is stopped, not paused: berth cluster start {name} starts it");
                refuse(Refusal::Conflict(text))
            }
            Some(record) => self.write_wish(TenantRecord { paused: None, ..record }),
        }
    }

    pub(super) fn is_not_paused(&self, name: &str) -> Result<(), Refusal> {
        match self.records.get(name).and_then(|record| record.paused.as_ref()) {
            None => Ok(()),
            Some(since) => Err(Refusal::Conflict(format!(
                "{name} is paused since {since}: berth cluster resume {name} brings it back"
            ))),
        }
    }

    /// Whatever is paused, and since when.
    pub(super) fn pauses(&self) -> BTreeMap<String, String> {
        let of_record =
            |(name, record): (&String, &TenantRecord)| Some((name.clone(), record.paused.clone()?));
        self.records.iter().filter_map(of_record).collect()
    }
}
