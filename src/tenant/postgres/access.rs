//! Who may connect, as files: the kernel's word, or the socket's directory. No password exists.

use super::{BACKUP, SUPERUSER};
use crate::tenant::dsn::Database;
use berth_actors::spec::User;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Every cluster has it, and nothing is in it; only the superuser may create something there.
const MAINTENANCE: &str = "postgres";
const HEAD: &str = "# Written by Berth before every start.\n";

/// Whose connections are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Peer authentication of these operating system accounts, as any of the roles: the components' and the daemon's.
    Named(Vec<String>),
    /// The chain has a uid of its own, which has no name, and peer authentication knows names only. Nobody but that uid and
    /// root gets to the socket: they are taken for the owners of the databases; for the superuser, the daemon alone.
    Own {
        daemon: String,
        /// Runs initdb, which wants a name too.
        maker: User,
    },
}

impl Access {
    pub(super) fn maker(&self) -> Option<User> {
        match self {
            Self::Named(_) => None,
            Self::Own { maker, .. } => Some(*maker),
        }
    }

    /// Whoever is not mapped, and every TCP connection, is rejected for want of a line. Quoted: a bare name may be a keyword.
    /// Replication is what a backup reads; `all` does not mean it.
    pub(super) fn hba(&self, databases: &[Database]) -> String {
        let mut text = HEAD.to_owned();
        match self {
            Self::Named(_) => {
                text.push_str("local all all peer map=berth\nlocal replication all peer map=berth\n");
            }
            Self::Own { .. } => {
                let _infallible = writeln!(text, "local all \"{SUPERUSER}\" peer map=berth");
                // What copies the files for a backup runs as their owner, who may read them anyway.
                let _infallible = writeln!(text, "local replication \"{BACKUP}\" trust");
                for Database { name, role } in databases {
                    // kine looks into the maintenance database whether its own is there.
                    let _infallible = writeln!(text, "local \"{name}\",\"{MAINTENANCE}\" \"{role}\" trust");
                }
            }
        }
        text
    }

    /// Every account as every role it may have. Quoted: a bare name may be a pattern or a keyword.
    pub(super) fn ident<'a, R: Iterator<Item = &'a str>>(&self, roles: impl Fn() -> R) -> String {
        let (accounts, roles): (BTreeSet<&str>, BTreeSet<&str>) = match self {
            Self::Named(accounts) => (accounts.iter().map(String::as_str).collect(), roles().collect()),
            Self::Own { daemon, .. } => ([daemon.as_str()].into(), [SUPERUSER].into()),
        };
        let mut text = HEAD.to_owned();
        for account in accounts {
            for role in &roles {
                let _infallible = writeln!(text, "berth \"{account}\" \"{role}\"");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Access {
        Access::Named(["nobody", "root", "nobody"].map(str::to_owned).into())
    }

    fn own() -> Access {
        Access::Own { daemon: "root".to_owned(), maker: User { uid: 65534, gid: 65534 } }
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn each_account_is_mapped_to_each_role_once() {
        let text = named().ident(|| ["postgres", "kine", "kine"].into_iter());
        assert_eq!(
            lines(&text),
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
        assert_eq!(
            lines(&named().hba(&[Database::named("kine")])),
            ["local all all peer map=berth", "local replication all peer map=berth"]
        );
    }

    #[test]
    fn who_has_a_uid_without_a_name_owns_its_databases_and_is_never_the_superuser() {
        let text = own().hba(&["kine", "bao"].map(Database::named));
        assert_eq!(
            lines(&text),
            [
                r#"local all "postgres" peer map=berth"#,
                r#"local replication "berth_backup" trust"#,
                r#"local "kine","postgres" "kine" trust"#,
                r#"local "bao","postgres" "bao" trust"#
            ]
        );
        let text = own().ident(|| ["postgres", "kine"].into_iter());
        assert_eq!(lines(&text), [r#"berth "root" "postgres""#]);
    }
}
