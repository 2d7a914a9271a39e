//! kcp
