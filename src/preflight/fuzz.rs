//! The tables of the host that are read before anything starts, under any bytes.

use super::{account, route};
use crate::config::Account;
use crate::fuzzing::{assert_one_line, text};

/// Routes and accounts. Whatever /etc/passwd holds, no component gets root's uid.
pub fn host_tables(bytes: &[u8]) {
    let text = text(bytes);
    let (head, tail) = text.split_once("\n\n").unwrap_or((&text, ""));
    let _ = route::has_default(head, tail);
    assert!(account::choose_account(&text).is_none_or(|account| account.user.uid != 0));
    for wanted in ["root", "berth", "1000:1000"] {
        let Ok(wanted) = Account::try_from(wanted.to_owned()) else { continue };
        match account::named(&wanted, &text) {
            Ok(account) => assert_ne!(account.user.uid, 0, "{account:?}"),
            Err(refusal) => assert_one_line(&refusal.to_string()),
        }
    }
}
