//! Leaf certificates: made anew, put into the kubeconfigs they belong to, and taken up by the servers that show them.

use super::{Rotation, until};
use crate::estate::inventory::certificate_in;
use crate::files;
use crate::tenant::asked::certificate_of;
use crate::tenant::pki::certificate::Certificate;
use crate::tenant::pki::{LEAVES, Leaf, PkiError, TakenUp, Which};
use crate::tenant::{kube_apiserver, kube_controller_manager, openbao};
use berth_actors::host::Distribution;
use berth_actors::message::Refusal;

impl Rotation {
    pub(super) async fn certificates(&mut self, which: Which) -> Result<(), Refusal> {
        let is_kubernetes = self.tenant.distribution() == Distribution::Kubernetes;
        let made = self.on_disk(move |pki| pki.rotate(which, crate::clock::now())).await?;
        for leaf in made.iter().filter(|leaf| is_kubernetes || leaf.name == "bao") {
            self.say(format!("pki/{}.crt and its key are new", leaf.name));
        }
        if is_kubernetes {
            let (path, port) = (self.tenant.kubeconfig(), self.tenant.port());
            self.on_disk(move |pki| pki.kubeconfig(&path, "admin", port)).await?;
        }
        if !self.tree.is_ready().await? {
            if !made.is_empty() {
                self.say("the cluster is not ready: its components take them up when they start");
            }
            return Ok(());
        }
        for leaf in &LEAVES {
            match leaf.taken_up {
                TakenUp::AtStart(openbao::NAME) => self.served_by(leaf, openbao::NAME, false).await?,
                TakenUp::ByItself if is_kubernetes && leaf.name == "apiserver" => {
                    self.served_by(leaf, kube_apiserver::NAME, true).await?;
                    if made.iter().any(|made| made.name == leaf.name) {
                        self.say("kube-apiserver shows its new certificate");
                    }
                }
                TakenUp::AtStart(component) if is_kubernetes => self.held_by(leaf, component).await?,
                // The aggregator's client certificate is watched by the same code; nobody can be asked for it.
                _ => {}
            }
        }
        Ok(())
    }

    /// A server that shows another certificate than the one on disk is waited for, where it `watches` its files, and else
    /// restarted.
    async fn served_by(
        &mut self,
        leaf: &'static Leaf,
        component: &str,
        watches: bool,
    ) -> Result<(), Refusal> {
        let Some(address) = self.tree.address_of(component).await? else { return Ok(()) };
        let (own, ca) = self
            .on_disk(move |pki| {
                let path = pki.certificate(leaf.name);
                let own = Certificate::parse(&files::read(&path)?, &path)?;
                Ok((own, files::read(&pki.certificate(leaf.ca()))?))
            })
            .await?;
        let shows = || async { Ok(certificate_of(address, &ca).await? == own.der()) };
        match shows().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(reason) => return Err(self.failed(reason)),
        }
        if watches && until(shows).await {
            return Ok(());
        }
        self.restart(component, "it reads its certificate at its start").await
    }

    /// A component whose kubeconfig holds another certificate than the one on disk.
    async fn held_by(&mut self, leaf: &'static Leaf, component: &str) -> Result<(), Refusal> {
        let kubeconfig = self.tenant.seat().data.join(kube_controller_manager::KUBECONFIG);
        let is_held = self
            .on_disk(move |pki| {
                let held = files::read_optional(&kubeconfig)?.and_then(|text| certificate_in(&text).ok());
                Ok::<_, PkiError>(held == Some(files::read(&pki.certificate(leaf.name))?))
            })
            .await?;
        if is_held { Ok(()) } else { self.restart(component, "it reads its certificate at its start").await }
    }
}
