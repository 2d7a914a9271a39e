//! Processes that stand in for components a registry does not serve.
