//! The account components run under when the daemon is root: PostgreSQL refuses root, and nothing else needs it.

use berth_actors::spec::User;
use serde::Deserialize;
use std::fmt;

/// A name of `/etc/passwd`, or `uid:gid`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Account {
    Name(String),
    Ids(User),
}

/// A name that `/etc/passwd` does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "user = {0:?}: /etc/passwd has no such account; create it (`useradd --system {0}`), or write it as \"uid:gid\""
)]
pub struct UnknownAccount(String);

impl Account {
    /// Finds the account in the text of `/etc/passwd`.
    pub fn resolve(&self, passwd: &str) -> Result<User, UnknownAccount> {
        match self {
            Self::Ids(user) => Ok(*user),
            Self::Name(name) => passwd
                .lines()
                .find_map(|line| {
                    let mut fields = line.split(':');
                    (fields.next()? == name).then_some(())?;
                    let uid = fields.nth(1)?.parse().ok()?;
                    Some(User { uid, gid: fields.next()?.parse().ok()? })
                })
                .ok_or_else(|| UnknownAccount(name.clone())),
        }
    }
}

impl TryFrom<String> for Account {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("{text:?} is no account: write a name, or \"uid:gid\"");
        let account = match text.split_once(':') {
            None if text.is_empty() => return Err(bad()),
            None => Self::Name(text),
            Some((uid, gid)) => {
                Self::Ids(User { uid: uid.parse().map_err(|_| bad())?, gid: gid.parse().map_err(|_| bad())? })
            }
        };
        match account {
            Self::Ids(User { uid: 0, .. }) => Err("components must not run as root (uid 0)".to_owned()),
            account => Ok(account),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ids(User { uid, gid }) => write!(f, "{uid}:{gid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nberthing:x:9:9::/:\nberth:x:801:802::/var/lib/berth:/bin/false\n";

    #[test]
    fn an_account_is_found_by_its_whole_name_or_given_by_its_ids() {
        let account = |text: &str| Account::try_from(text.to_owned()).unwrap();
        assert_eq!(account("berth").resolve(PASSWD), Ok(User { uid: 801, gid: 802 }));
        assert_eq!(account("7:8").resolve(""), Ok(User { uid: 7, gid: 8 }));
        let error = account("bert").resolve(PASSWD).unwrap_err().to_string();
        assert!(error.contains("\"bert\"") && error.contains("useradd"), "{error}");
    }

    #[test]
    fn root_and_half_an_account_are_refused() {
        for bad in ["", "0:0", "1:", ":1", "a:b", "1:2:3", "-1:1"] {
            assert!(Account::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
