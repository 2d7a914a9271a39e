//! The supervision tree of Berth: no system calls, no network, no files. The outside is behind the traits of [`host`].
//!
//! ```text
//!                      Command ▼    ▲ Reply                    TreeEvent ▶ whoever listens
//!                          ┌──────────────┐
//!                          │     Root     │ owns what should run; decides order across chains
//!                          └──┬────┬────┬─┘
//!              Retarget,Drain │    │Goal│ ▲ ChainNews
//!                   ┌─────────▼┐ ┌─▼────┴───────┐
//!                   │  Front   │ │  Supervisor  │ one per chain: kcp-store, slot-a, slot-b, each tenant
//!                   └──────────┘ └─┬────────────┘
//!                                  │ Order  ▲ News
//!                                ┌─▼────────┴─┐
//!                                │ ChildActor │ one per process
//!                                └────────────┘
//! ```
//! Each actor wraps one pure machine that takes an event and returns effects: [`child::Child`] (one process's life),
//! [`chain::Chain`] (order, restart or ride through), [`handover::Handover`] (blue/green). The machines hold every decision;
//! the actors hold mailboxes, timers and futures. All of them run on one arbiter, and nothing in it ever blocks.
//!
//! A message only goes along an arrow of the picture. Nobody but a [`child::actor::ChildActor`] starts or signals a
//! process; nobody but [`front::Front`] touches the data plane; nobody but [`root::Root`] knows two chains.

pub mod canary;
pub mod chain;
pub mod child;
pub mod data_adoption;
mod descent;
pub mod fake;
pub mod front;
pub mod group;
pub mod handover;
pub mod host;
pub mod identity;
pub mod message;
pub mod policy;
pub mod root;
pub mod spec;
pub mod status;
mod strays;
pub mod supervisor;
