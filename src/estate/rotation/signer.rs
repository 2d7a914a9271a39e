//! The key of ServiceAccount tokens: a new one signs, and those before it verify until their time.

use super::Rotation;
use crate::tenant::kube_apiserver;
use crate::tenant::pki::Pki;
use crate::tenant::pki::service_account::Verifier;
use berth_actors::message::Refusal;
use std::collections::BTreeSet;
use std::time::Duration;

impl Rotation {
    /// Tokens of the key that signs now are good for another `keep`.
    pub(super) async fn new_signer(&mut self, keep: Duration) -> Result<(), Refusal> {
        let until = crate::clock::now().saturating_add(time::Duration::try_from(keep).unwrap_or_default());
        self.on_disk(move |pki| pki.rotate_service_account(until)).await?;
        self.say(format!("pki/sa.key is new; the key before it verifies until {}", until.date()));
        self.retire_signers().await
    }

    /// Takes keys out whose time is over, and sees to it that the API server has read those there are.
    pub(super) async fn retire_signers(&mut self) -> Result<(), Refusal> {
        let now = crate::clock::now();
        if self.on_disk(move |pki| pki.retire_verifiers(now)).await? {
            self.say("pki/sa.pub has lost a key whose time is over");
        }
        if !self.tree.is_ready().await? {
            return Ok(());
        }
        let verifiers = self.on_disk(Pki::verifiers).await?;
        let wanted: BTreeSet<_> = verifiers.iter().filter_map(Verifier::id).collect();
        let api = self.api().await?;
        if api.verifiers().await.map_err(|reason| self.failed(reason))? == wanted {
            return Ok(());
        }
        self.restart(kube_apiserver::NAME, "it reads ServiceAccounts' keys at its start").await?;
        if api.verifiers().await.map_err(|reason| self.failed(reason))? != wanted {
            return Err(self.failed("the API server takes other keys than pki/sa.pub has"));
        }
        Ok(())
    }
}
