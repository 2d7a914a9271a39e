//! Which names a cluster may have. Called before anything is created for it.

/// A directory, a DNS label and a part of a socket path must all bear the name.
const LONGEST: usize = 40;

/// Chains of the kcp half: a tenant of that name would share their socket directory and their place in the tree.
const RESERVED: [&str; 3] = ["kcp-store", "slot-a", "slot-b"];

/// Why a name is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a cluster name may not be empty")]
    Empty,
    #[error("cluster name {0:?} has {1} characters, {LONGEST} at most: choose a shorter one")]
    TooLong(String, usize),
    #[error(
        "cluster name {0:?} may hold only a-z, 0-9 and '-', and must begin and end with a letter or digit: \
         {1:?} is in the wrong place"
    )]
    NotALabel(String, char),
    #[error("cluster name {0:?} is the name of a kcp chain: choose another one")]
    Reserved(String),
}

/// An RFC 1123 label of at most 40 characters.
pub fn check(name: &str) -> Result<(), NameError> {
    let length = name.chars().count();
    if length == 0 {
        return Err(NameError::Empty);
    }
    if length > LONGEST {
        return Err(NameError::TooLong(name.to_owned(), length));
    }
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let misplaced = name
        .char_indices()
        .find(|&(at, c)| !(alphanumeric(c) || (c == '-' && at != 0 && at + 1 != name.len())));
    if let Some((_, c)) = misplaced {
        return Err(NameError::NotALabel(name.to_owned(), c));
    }
    if RESERVED.contains(&name) {
        return Err(NameError::Reserved(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_of_forty_characters_is_a_name_and_of_forty_one_is_not() {
        assert_eq!(check(&"a".repeat(40)), Ok(()));
        assert_eq!(check(&"a".repeat(41)), Err(NameError::TooLong("a".repeat(41), 41)));
        assert_eq!(check("team-1"), Ok(()));
        assert_eq!(check("1"), Ok(()));
        assert_eq!(check(""), Err(NameError::Empty));
    }

    #[test]
    fn what_could_leave_the_directory_or_the_label_is_refused_with_the_character() {
        for (name, bad) in [
            ("-a", '-'),
            ("a-", '-'),
            ("..", '.'),
            ("a/b", '/'),
            ("Demo", 'D'),
            ("dömo", 'ö'),
            ("a b", ' '),
            ("a\n", '\n'),
        ] {
            assert_eq!(check(name), Err(NameError::NotALabel(name.to_owned(), bad)), "{name:?}");
        }
    }

    #[test]
    fn a_tenant_cannot_take_the_name_of_a_kcp_chain() {
        assert_eq!(check("slot-a"), Err(NameError::Reserved("slot-a".to_owned())));
    }
}
