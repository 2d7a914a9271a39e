//! The key that opens the vault: a new one beside the old one, a root key sealed with it, the old one dropped.

use super::Rotation;
use crate::fault;
use crate::tenant::openbao::files::Files;
use crate::tenant::openbao::{self, sealing};
use berth_actors::message::Refusal;

impl Rotation {
    /// One that is under way is gone on with.
    pub(super) async fn new_seal_key(&mut self) -> Result<(), Refusal> {
        let files = self.vault();
        let (name, is_ready) = (self.tenant.name().to_owned(), self.tree.is_ready().await?);
        if !is_ready || !openbao::is_initialised(&self.tenant.seat().data) {
            let text = format!("{name} is not ready: its vault has to seal its root key anew");
            return Err(Refusal::Conflict(text));
        }
        self.on_disk(move |_| files.begin_seal_rotation()).await?;
        fault::point("seal-key-made");
        self.finish_seal_key().await
    }

    /// Nothing when no rotation is under way.
    pub(super) async fn finish_seal_key(&mut self) -> Result<(), Refusal> {
        let files = self.vault();
        let keys = self.on_disk(move |_| Ok((files.seal_key(), files.previous_seal_key()))).await?;
        let (current, Some(_)) = keys else { return Ok(()) };
        if !self.tree.is_ready().await? {
            return Ok(());
        }
        if !self.is_sealed_with(&current.id()).await? {
            self.restart(openbao::NAME, "it reads its seal keys at its start").await?;
            let Some(address) = self.tree.address_of(openbao::NAME).await? else { return Ok(()) };
            let (files, ca) = (self.vault(), self.tenant.pki().certificate("server-ca"));
            sealing::rotate_root(&files, &ca, address).await.map_err(|reason| self.failed(reason))?;
            if !self.is_sealed_with(&current.id()).await? {
                return Err(self.failed("the vault did not take the new seal key: the old one is kept"));
            }
            self.say(format!("the vault has a new root key, sealed with {}", current.id()));
        }
        fault::point("root-sealed-anew");
        let files = self.vault();
        self.on_disk(move |_| Ok(files.drop_previous_seal_keys()?)).await?;
        self.say("the seal key before it is gone".to_owned());
        self.restart(openbao::NAME, "its configuration names the old seal key").await
    }

    async fn is_sealed_with(&self, id: &str) -> Result<bool, Refusal> {
        let sealed = sealing::is_sealed_with(&self.tenant.seat().sockets, id).await;
        sealed.map_err(|reason| self.failed(reason))
    }

    fn vault(&self) -> Files {
        Files::of(&self.tenant.seat().data, self.tenant.seat().owner)
    }
}
