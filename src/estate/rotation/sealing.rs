//! The key of encryption at rest: announced, preferred, everything sealed anew, the old one dropped.
//!
//! `pki/encryption.json` says how far it has come; each stage begins when the API server says that it uses the file as it is.

use super::{Rotation, until};
use crate::fault;
use crate::tenant::pki::Pki;
use crate::tenant::pki::encryption::Stage;
use crate::tenant::{kube_apiserver, sealed};
use berth_actors::message::Refusal;

/// Objects made while others were touched are sealed with the new key already: one more pass finds those a conflict left.
const PASSES: u32 = 3;

impl Rotation {
    /// One that is under way is gone on with.
    pub(super) async fn new_encryption_key(&mut self) -> Result<(), Refusal> {
        if !self.tree.is_ready().await? {
            let text =
                format!("{} is not ready: its API server has to seal everything anew", self.tenant.name());
            return Err(Refusal::Conflict(text));
        }
        if self.stage().await? == Stage::Settled {
            self.advance(Stage::Settled).await?;
        }
        self.go_on_sealing().await
    }

    /// Nothing when no rotation is under way.
    pub(super) async fn go_on_sealing(&mut self) -> Result<(), Refusal> {
        while self.stage().await? != Stage::Settled {
            if !self.tree.is_ready().await? {
                return Ok(());
            }
            self.in_use().await?;
            let stage = self.stage().await?;
            if stage == Stage::Preferred {
                self.seal_anew().await?;
                fault::point("sealed-anew");
            }
            self.advance(stage).await?;
            if stage == Stage::Preferred {
                self.in_use().await?;
            }
        }
        Ok(())
    }

    async fn stage(&self) -> Result<Stage, Refusal> {
        Ok(self.on_disk(Pki::encryption_keys).await?.stage())
    }

    async fn advance(&mut self, stage: Stage) -> Result<(), Refusal> {
        self.on_disk(move |pki| pki.advance_encryption(stage)).await?;
        let keys = self.on_disk(Pki::encryption_keys).await?;
        self.say(match keys.stage() {
            Stage::Announced => format!("the keys are {}: the new one opens", keys.names().join(", ")),
            Stage::Preferred => format!("the keys are {}: the new one seals", keys.names().join(", ")),
            Stage::Settled => format!("the key is {}: the old one is gone", keys.names().join(", ")),
        });
        fault::point("key-advanced");
        Ok(())
    }

    /// Returns once the API server uses the file as it is: by itself, or for a restart.
    async fn in_use(&mut self) -> Result<(), Refusal> {
        let digest = self.on_disk(Pki::encryption_digest).await?;
        let api = self.api().await?;
        if until(|| api.seals_by(&digest)).await {
            return Ok(());
        }
        self.restart(kube_apiserver::NAME, "it did not say that it uses the new keys").await
    }

    async fn seal_anew(&mut self) -> Result<(), Refusal> {
        let marks = self.on_disk(Pki::encryption_keys).await?.old_marks();
        let (administrator, sockets) = (self.tenant.administrator(), self.tenant.seat().sockets.clone());
        for _ in 0..PASSES {
            let touched = sealed::anew(&administrator).await.map_err(|reason| self.failed(reason))?;
            let left = sealed::left(&sockets, &marks).await.map_err(|reason| self.failed(reason))?;
            self.say(format!("{touched} objects were sealed anew; {left} are left of the old key"));
            if left == 0 {
                return Ok(());
            }
        }
        Err(self.failed("objects of the old key are left: it is kept"))
    }
}
