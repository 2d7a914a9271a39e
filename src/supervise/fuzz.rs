//! The file of services under any bytes.

use super::spec::{Spec, parse};
use crate::fuzzing::{assert_refused_by_name, text};
use std::path::Path;

/// Read as TOML and as JSON.
pub fn services(bytes: &[u8]) {
    for name in ["services.toml", "services.json"] {
        match parse(&text(bytes), Path::new(name)) {
            Ok(Spec { services, .. }) => {
                for (place, service) in services.iter().enumerate() {
                    let earlier = |name: &String| services[..place].iter().any(|other| other.name == *name);
                    assert!(
                        service.after.iter().all(earlier),
                        "{} stands before what it comes after",
                        service.name
                    );
                }
            }
            Err(refusal) => assert_refused_by_name(&refusal, name),
        }
    }
}
