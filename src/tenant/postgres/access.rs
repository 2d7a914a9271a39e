//! Who may connect, as files: peer authentication maps operating system accounts to roles. No password exists.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Whoever is not mapped, and every TCP connection, is rejected for want of a line.
/// Replication is what a backup reads; `all` does not mean it.
pub(super) const HBA: &str = "# Written by Berth before every start.\nlocal all all peer map=berth\nlocal replication all peer map=berth\n";

/// Every account as every role. Quoted: a bare name may be a pattern or a keyword.
pub(super) fn ident<'a, R: Iterator<Item = &'a str>>(
    accounts: &'a [String],
    roles: impl Fn() -> R,
) -> String {
    let mut text = "# Written by Berth before every start.\n".to_owned();
    let accounts: BTreeSet<&str> = accounts.iter().map(String::as_str).collect();
    for account in accounts {
        for role in roles().collect::<BTreeSet<_>>() {
            let _infallible = writeln!(text, "berth \"{account}\" \"{role}\"");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_account_is_mapped_to_each_role_once() {
        let accounts = ["nobody", "root", "nobody"].map(str::to_owned);
        let text = ident(&accounts, || ["postgres", "kine", "kine"].into_iter());
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            [
                r#"berth "nobody" "kine""#,
                r#"berth "nobody" "postgres""#,
                r#"berth "root" "kine""#,
                r#"berth "root" "postgres""#,
            ]
        );
    }

    #[test]
    fn nothing_but_peer_authentication_on_the_socket_is_allowed() {
        let lines: Vec<_> = HBA.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["local all all peer map=berth", "local replication all peer map=berth"]);
    }
}
