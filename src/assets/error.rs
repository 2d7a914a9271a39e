//! Everything that a command about assets may fail with, each in its own words.

use super::catalogue::CatalogueError;
use super::import::ImportError;
use super::operators::OperatorsError;
use super::packed::PackedError;
use super::provision::ProvisionError;
use super::store::StoreError;
use super::usage::UsageError;

#[derive(Debug, thiserror::Error)]
pub enum AssetError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Packed(#[from] PackedError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Operators(#[from] OperatorsError),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

impl AssetError {
    /// Whether waiting helps: the store is open in another process.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Busy(_)) | Self::Provision(ProvisionError::Store(StoreError::Busy(_)))
        )
    }
}
