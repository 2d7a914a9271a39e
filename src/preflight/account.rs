//! The unprivileged account components run as under a root daemon, and what it may pass through.

use crate::config;
use berth_actors::spec::User;

/// Accounts for components of a root daemon, the first that exists.
const ACCOUNTS: [&str; 2] = ["berth", "nobody"];

/// An account of /etc/passwd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub user: User,
}

/// Who components run as when this process is root: the account that was asked for, else the first of the customary ones
/// that exists. `None` when this process is not root: everything runs as itself. Blocking.
pub fn account(wanted: Option<&config::Account>) -> Result<Option<Account>, AccountError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = crate::files::trusted::text("/etc/passwd").unwrap_or_default();
    match wanted {
        Some(wanted) => named(wanted, &passwd).map(Some),
        None => choose_account(&passwd).map(Some).ok_or(AccountError::None),
    }
}

/// Components cannot be given an account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error(
        "berth runs as root, PostgreSQL refuses to, and there is no account for it: create one with \
         `useradd --system --shell /usr/sbin/nologin berth`"
    )]
    None,
    #[error(transparent)]
    Unknown(#[from] config::UnknownAccount),
    #[error("uid {0} has no name in /etc/passwd, and postgres looks it up: create an account with that uid")]
    Nameless(u32),
}

/// postgres knows its clients by their account's name, so a bare uid must have one.
pub(super) fn named(wanted: &config::Account, passwd: &str) -> Result<Account, AccountError> {
    let user = wanted.resolve(passwd)?;
    let account = passwd.lines().filter_map(parse_account).find(|account| account.user.uid == user.uid);
    let name = account.ok_or(AccountError::Nameless(user.uid))?.name;
    Ok(Account { name, user })
}

/// The account components run as when the daemon is root.
pub(super) fn choose_account(passwd: &str) -> Option<Account> {
    let accounts: Vec<_> = passwd.lines().filter_map(parse_account).collect();
    ACCOUNTS.iter().find_map(|wanted| accounts.iter().find(|account| account.name == *wanted).cloned())
}

/// One line of passwd(5). An account with root's uid is no way out of root.
fn parse_account(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    (uid != 0).then_some(Account { name, user: User { uid, gid } })
}

/// The search permission the kernel would look at, for an account without supplementary groups.
pub(super) fn may_pass(mode: u32, owner: User, account: User) -> bool {
    let bit = if owner.uid == account.uid {
        0o100
    } else if owner.gid == account.gid {
        0o010
    } else {
        0o001
    };
    mode & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_account_is_preferred_to_nobody_and_root_is_never_taken() {
        let nobody =
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
        let both = format!("{nobody}berth:x:990:988::/var/lib/berth:/usr/sbin/nologin\n");
        let chosen = |passwd: &str| choose_account(passwd).map(|account| (account.name, account.user.uid));
        assert_eq!(chosen(&both), Some(("berth".into(), 990)));
        assert_eq!(chosen(nobody), Some(("nobody".into(), 65534)));
        assert_eq!(chosen("berth:x:0:0::/:/bin/sh\ntorn:x\n"), None);
    }

    #[test]
    fn search_permission_is_that_of_the_first_class_that_fits() {
        let user = |uid, gid| User { uid, gid };
        assert!(!may_pass(0o011, user(1, 1), user(1, 1)), "the owner has no other rights than the owner's");
        assert!(may_pass(0o010, user(2, 1), user(1, 1)));
        assert!(!may_pass(0o110, user(2, 2), user(1, 1)));
    }
}
