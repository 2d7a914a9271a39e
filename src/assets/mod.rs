//! assets
