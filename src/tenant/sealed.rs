//! Sealing anew what an older key has sealed: every object is touched without a change, and the API server writes it with the
//! key that seals now. The count of what is left comes from the database, so that a key is dropped on proof.
//!
//! Values never come here: objects are listed by name, and patched with nothing.

use super::administrator::Administrator;
use super::pki::encryption::SEALED;
use super::postgres::databases;
use super::stack::KINE_DATABASE;
use crate::one_line::one_line;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use std::path::Path;
use std::time::Duration;

/// Objects a page: a list of names is small.
const PAGE: u32 = 500;
/// One page or one object; an API server that needs longer is asked again later.
const DEADLINE: Duration = Duration::from_secs(30);

/// A million objects. An API server that has further pages after that makes them up.
const MOST_PAGES: u32 = 2000;

/// Touches every object of the kinds that are sealed. Says how many there were.
pub(crate) async fn anew(administrator: &Administrator) -> Result<usize, String> {
    let client = administrator.client().await?;
    let mut touched = 0;
    for plural in SEALED {
        touched += touch(&client, &resource(plural)).await?;
    }
    Ok(touched)
}

fn resource(plural: &str) -> ApiResource {
    let kind = if plural == "secrets" { "Secret" } else { "ConfigMap" };
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

async fn touch(client: &Client, resource: &ApiResource) -> Result<usize, String> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut page = ListParams::default().limit(PAGE);
    let mut touched = 0;
    for _ in 0..MOST_PAGES {
        let list = within(all.list_metadata(&page)).await?;
        for object in &list.items {
            let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
            let one: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, resource);
            let nothing = Patch::Merge(serde_json::json!({}));
            match within(one.patch_metadata(&name, &PatchParams::default(), &nothing)).await {
                Ok(_) => touched += 1,
                // Gone meanwhile.
                Err(reason) if reason.contains("NotFound") => {}
                Err(reason) => return Err(format!("{} {namespace}/{name}: {reason}", resource.plural)),
            }
        }
        match list.metadata.continue_ {
            Some(next) if !next.is_empty() => page.continue_token = Some(next),
            _ => return Ok(touched),
        }
    }
    Err(format!("{}: the list has no end after {MOST_PAGES} pages", resource.plural))
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(one_line(format!("{} ({})", status.message, status.reason))),
        Ok(Err(error)) => Err(one_line(error)),
        Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
    }
}

/// How many objects there are whose newest value begins with one of `marks`.
pub(crate) async fn left(sockets: &Path, marks: &[String]) -> Result<i64, String> {
    let client = databases::connect(sockets, KINE_DATABASE, KINE_DATABASE).await.map_err(one_line)?;
    let mut count = 0;
    for mark in marks {
        let query = "SELECT count(*) FROM kine AS k WHERE k.deleted = 0 \
                     AND substring(k.value FROM 1 FOR $2) = $1 \
                     AND k.id = (SELECT max(newest.id) FROM kine AS newest WHERE newest.name = k.name)";
        let length = i32::try_from(mark.len()).unwrap_or_default();
        let mark = mark.as_bytes();
        let row = tokio::time::timeout(DEADLINE, client.query_one(query, &[&mark, &length]))
            .await
            .map_err(|_| "postgres does not answer")?;
        count += row.and_then(|row| row.try_get::<_, i64>(0)).map_err(one_line)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_list_that_always_has_one_more_page_is_left_at_a_bound() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let endless = axum::Router::new().fallback(move || async move {
            count.fetch_add(1, Ordering::Relaxed);
            let list = serde_json::json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"continue": "more"}, "items": [],
            });
            axum::Json(list)
        });
        let resource = resource("secrets");
        let refused = touch(&Client::new(endless, "default"), &resource).await.unwrap_err();
        assert_eq!(refused, "secrets: the list has no end after 2000 pages");
        assert_eq!(asked.load(Ordering::Relaxed), MOST_PAGES);
    }
}
