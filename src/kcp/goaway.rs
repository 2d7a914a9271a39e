//! kcp's `--goaway-chance`: the share of HTTP/2 requests after which the server sends their client to a new connection.

use serde::Deserialize;
use std::fmt;

/// At most 0.02, which is kcp's own bound. In millionths, so that two of them can be compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct GoawayChance(u32);

const MOST: f64 = 0.02;
const MILLION: f64 = 1_000_000.0;

impl GoawayChance {
    pub const NEVER: Self = Self(0);

    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }
}

impl TryFrom<f64> for GoawayChance {
    type Error = String;

    fn try_from(chance: f64) -> Result<Self, String> {
        if !(0.0..=MOST).contains(&chance) {
            return Err(format!("{chance} is no goaway chance: kcp takes 0 to {MOST}"));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 20,000")]
        Ok(Self((chance * MILLION).round() as u32))
    }
}

impl fmt::Display for GoawayChance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / MILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_what_kcp_takes_and_is_written_as_it_reads_it() {
        for (chance, text) in [(0.0, "0"), (0.02, "0.02"), (0.001, "0.001")] {
            assert_eq!(GoawayChance::try_from(chance).unwrap().to_string(), text);
        }
        assert!(GoawayChance::try_from(0.0).unwrap().is_never());
        for refused in [-0.01, 0.021, f64::NAN] {
            assert!(GoawayChance::try_from(refused).unwrap_err().contains("0 to 0.02"));
        }
    }
}
