//! Who is asking: from the Authorization header and this process's tokens. Pure.

use super::kubeconfig::{KCP_ADMIN, SHARD_ADMIN};
use super::material::Tokens;
use sha2::{Digest, Sha256};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    Anonymous,
    KcpAdmin,
    ShardAdmin,
    /// Somebody the backend vouches for (a ServiceAccount): authenticated, allowed nothing.
    Stranger(String),
}

/// What a header proves by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    Caller(Caller),
    /// A token none of ours: worth a review by the backend if it looks like a JWT, else unauthorized.
    Token(&'a str),
}

impl Caller {
    pub(super) fn user(&self) -> &str {
        match self {
            Self::Anonymous => "system:anonymous",
            Self::KcpAdmin => KCP_ADMIN,
            Self::ShardAdmin => SHARD_ADMIN,
            Self::Stranger(user) => user,
        }
    }
}

pub(super) fn credential<'a>(authorization: Option<&'a str>, tokens: &Tokens) -> Credential<'a> {
    let Some(token) = authorization
        .and_then(|header| header.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty())
    else {
        return Credential::Caller(Caller::Anonymous);
    };
    // Digests, so that the time of a comparison tells nothing about the token.
    let same = |ours: &str| Sha256::digest(ours) == Sha256::digest(token);
    if same(&tokens.shard_admin) {
        Credential::Caller(Caller::ShardAdmin)
    } else if same(&tokens.kcp_admin) {
        Credential::Caller(Caller::KcpAdmin)
    } else {
        Credential::Token(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_one_of_the_admins_nobody_or_an_unknown_token() {
        let tokens = Tokens { kcp_admin: "k".to_owned(), shard_admin: "s".to_owned() };
        for (header, expected) in [
            (None, Credential::Caller(Caller::Anonymous)),
            (Some("Basic a2M6a2M="), Credential::Caller(Caller::Anonymous)),
            (Some("Bearer k"), Credential::Caller(Caller::KcpAdmin)),
            (Some("bearer s"), Credential::Caller(Caller::ShardAdmin)),
            (Some("Bearer other"), Credential::Token("other")),
        ] {
            assert_eq!(credential(header, &tokens), expected, "{header:?}");
        }
    }
}
