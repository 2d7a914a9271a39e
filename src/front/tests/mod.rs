//! The front as a whole: byte by byte against a model, and over real sockets on loopback.

mod draining;
mod hostile;
mod loopback;
mod model;
mod serving;
mod tls_client;
