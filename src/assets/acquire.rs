//! One component as the catalogue says: from the store, unpacked, fetched or built, the first that there is.
//!
//! `provision` asks for each. Everything that takes long is told, and everything that blocks is done off the thread.

use super::catalogue::{self, Catalogue, Content, Entry, Source};
use super::delivery::Delivery;
use super::download;
use super::embedded;
use super::golang::GoProgram;
use super::overrides::Overrides;
use super::packed::PackedError;
use super::pins::{self, Pin};
use super::progress::{Advance, Origin, Progress};
use super::provision::{MADE_AGAIN, ProvisionError};
use super::record::Recipe;
use super::store::{Staged, Store};
use super::wheel::{self, Wheel};
use crate::off_thread::off_thread;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const STORING: &str = "storing it";

/// The program's path in its asset.
fn program(name: &str, entry: &Entry) -> String {
    match &entry.source {
        Source::Wheel { program, .. } | Source::GoTool { program, .. } => program.clone(),
        Source::File { content, .. } | Source::Https { content, .. } => content.program(name),
        Source::Operator { .. } => catalogue::program_of(name).to_owned(),
    }
}

/// How much passes between two words of progress.
const PROGRESS_STEP: u64 = 8 << 20;

#[derive(Debug, Default)]
struct Step(u64);

impl Step {
    fn is_passed(&mut self, done: u64) -> bool {
        let before = std::mem::replace(&mut self.0, done / PROGRESS_STEP);
        self.0 != before
    }
}

pub(super) struct Provisioning<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) store: &'a Arc<Store>,
    pub(super) overrides: &'a Overrides,
    pub(super) progress: &'a dyn Progress,
}

impl Provisioning<'_> {
    pub(super) async fn component(&self, name: &str) -> Result<PathBuf, ProvisionError> {
        let began = Instant::now();
        if let Some(path) = self.overrides.program(name)? {
            self.progress.finished(name, began.elapsed(), Origin::Operator);
            return Ok(path);
        }
        let entry = self.catalogue.entry(name)?;
        let pin = pins::of(name, entry)?;
        let (dir, origin) = match self.stored(&pin).await? {
            Some(stored) => stored,
            None => self.fetched(name, entry, &pin).await?,
        };
        self.progress.finished(name, began.elapsed(), origin);
        Ok(dir.join(program(name, entry)))
    }

    /// What only an operator has: from the catalogue or brought by hand, `None` where it is neither.
    pub(super) async fn operators(&self, name: &str) -> Result<Option<PathBuf>, ProvisionError> {
        let began = Instant::now();
        let entry = self.catalogue.entry(name)?;
        if !matches!(entry.source, Source::Operator { .. }) {
            return self.component(name).await.map(Some);
        }
        let Some((dir, origin)) = self.stored(&pins::of(name, entry)?).await? else { return Ok(None) };
        self.progress.finished(name, began.elapsed(), origin);
        Ok(Some(dir.join(program(name, entry))))
    }

    async fn fetched(
        &self,
        name: &str,
        entry: &Entry,
        pin: &Pin,
    ) -> Result<(PathBuf, Origin), ProvisionError> {
        match &entry.source {
            Source::Wheel { .. } => {
                let (wheel, digests) = pins::wheel(name, entry)?;
                self.wheel(&wheel, &entry.version, digests).await
            }
            Source::GoTool { .. } => self.go_program(&pins::go_program(name, entry)?).await,
            Source::Operator { flag } => {
                Err(ProvisionError::OperatorOnly { component: name.into(), flag: flag.clone() })
            }
            Source::File { path, content } => {
                self.progress.started(name, &format!("unpacking {}", path.display()));
                let made_by = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok((
                    self.delivery(pin, content, self.stage().await?, path.clone(), made_by).await?,
                    Origin::Copied,
                ))
            }
            Source::Https { url, ca, content } => {
                let address = url.split(['?', '#']).next().unwrap_or_default();
                self.progress.started(name, &format!("downloading {address}"));
                let staged = self.stage().await?;
                let made_by = address.rsplit('/').next().unwrap_or_default().to_owned();
                // The name it has there is in an error, and cannot be that of anything else here.
                let file = staged.dir.path().join(format!("download-{made_by}"));
                let ca = ca.clone();
                let roots = off_thread(move || download::roots(ca.as_deref())).await?;
                let tell = |done, total| self.progress.advanced(name, Advance::Fetched { done, total });
                download::fetch(url, roots, &file, tell).await?;
                Ok((self.delivery(pin, content, staged, file, made_by).await?, Origin::Fetched))
            }
        }
    }

    /// Installs a pinned file, which may lie in what is `held` meanwhile.
    async fn delivery(
        &self,
        pin: &Pin,
        content: &Content,
        held: Staged,
        file: PathBuf,
        made_by: String,
    ) -> Result<PathBuf, ProvisionError> {
        let (pin, content, store) = (pin.clone(), content.clone(), Arc::clone(self.store));
        let recipe = Recipe { component: pin.component.clone(), version: pin.version, key: pin.key, made_by };
        let component = pin.component.clone();
        self.telling(&component, move |tell| {
            let delivery = Delivery { component: &pin.component, content: &content };
            let installed = delivery.install(&store, &file, recipe, tell);
            drop(held);
            installed.map_err(ProvisionError::Delivery)
        })
        .await
    }

    /// Runs blocking work that says how many bytes it has done.
    async fn telling<T: Send + 'static>(
        &self,
        component: &str,
        work: impl FnOnce(&dyn Fn(u64, u64)) -> T + Send + 'static,
    ) -> T {
        let (tell, mut told) = tokio::sync::watch::channel(None);
        let working = off_thread(move || {
            let step = RefCell::new(Step::default());
            work(&|done, total| {
                if step.borrow_mut().is_passed(done) {
                    // Nobody listens once the caller has given up; the rest is harmless.
                    let _ = tell.send(Some(Advance::Bytes { done, total }));
                }
            })
        });
        let telling = async {
            while told.changed().await.is_ok() {
                let advance = told.borrow_and_update().clone();
                if let Some(advance) = advance {
                    self.progress.advanced(component, advance);
                }
            }
        };
        tokio::join!(working, telling).0
    }

    async fn wheel(
        &self,
        wheel: &Wheel<'_>,
        version: &str,
        digests: Vec<&'static str>,
    ) -> Result<(PathBuf, Origin), ProvisionError> {
        let key = wheel.key();
        self.progress.started(wheel.component, &format!("downloading {} {}", wheel.package, wheel.version));
        let mut staged = self.stage().await?;
        let file = wheel.download(&staged, &self.store.log(wheel.component), self.progress).await?;
        let recipe = Recipe {
            component: wheel.component.to_owned(),
            version: version.to_owned(),
            key,
            made_by: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let (members, store) = (wheel.members.clone(), Arc::clone(self.store));
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let unpacking = off_thread(move || -> Result<PathBuf, ProvisionError> {
            // Nobody listens once the caller has given up; the rest is harmless.
            let say = |advance| drop(tell.send(advance));
            say(Advance::Note("checking its sha256".into()));
            let digest = wheel::verify(&file, &digests)?;
            let tell = |done, total| say(Advance::Bytes { done, total });
            staged.hashed = wheel::unpack(&file, &members, &staged.tree, &tell)?;
            say(Advance::Note(STORING.into()));
            Ok(store.install(&staged, recipe, Some(digest))?)
        });
        let telling = async {
            while let Some(advance) = told.recv().await {
                self.progress.advanced(wheel.component, advance);
            }
        };
        let (installed, ()) = tokio::join!(unpacking, telling);
        Ok((installed?, Origin::Fetched))
    }

    async fn go_program(&self, go: &GoProgram<'_>) -> Result<(PathBuf, Origin), ProvisionError> {
        let key = go.key();
        self.progress.started(go.component, &format!("building {} {}", go.import_path, go.version));
        let staged = self.stage().await?;
        let made_by = go.build(&staged, &self.store.log(go.component), self.progress).await?;
        self.progress.advanced(go.component, Advance::Note(STORING.into()));
        let recipe =
            Recipe { component: go.component.to_owned(), version: go.version.to_owned(), key, made_by };
        let store = Arc::clone(self.store);
        let dir = off_thread(move || store.install(&staged, recipe, None)).await?;
        Ok((dir, Origin::Built))
    }

    /// What lies in the store, or rests there packed.
    async fn stored(&self, pin: &Pin) -> Result<Option<(PathBuf, Origin)>, ProvisionError> {
        let (store, key) = (Arc::clone(self.store), pin.key.clone());
        match off_thread(move || store.find(&key)).await {
            Ok(dir) => return Ok(Some((dir, Origin::Store))),
            Err(None) => {}
            Err(Some(reason)) => self.progress.warned(&format!("{MADE_AGAIN}: {reason}")),
        }
        let (store, key) = (Arc::clone(self.store), pin.key.clone());
        let restored = self
            .telling(&pin.component, move |tell| match store.restore(&key, tell) {
                Ok(Some(dir)) => Ok(Some((dir, Origin::Unpacked))),
                missing => match embedded::restore(&store, &key, tell)? {
                    Some(dir) => Ok(Some((dir, Origin::Embedded))),
                    None => missing.map(|_| None),
                },
            })
            .await;
        match restored {
            Ok(found) => Ok(found),
            // As it would be without it.
            Err(PackedError::Store(error)) => Err(error.into()),
            Err(torn) => {
                self.progress.warned(&format!("{MADE_AGAIN}: {torn}"));
                Ok(None)
            }
        }
    }

    async fn stage(&self) -> Result<Staged, ProvisionError> {
        let store = Arc::clone(self.store);
        Ok(off_thread(move || store.stage()).await?)
    }
}

#[cfg(test)]
#[path = "acquire_tests.rs"]
mod tests;
