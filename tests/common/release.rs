//! Other releases of kcp, as far as a handover can tell.

use super::Home;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A program in `home` that calls itself so, and then is the stand-in, or ends at once.
pub fn kcp_calling_itself(home: &Home, version: &str, works: bool) -> PathBuf {
    let stand_in = home.state().with_file_name("kcp-stand-in");
    if !stand_in.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_berth"), &stand_in).unwrap();
    }
    let path = home.state().with_file_name(format!("kcp-{version}"));
    let then = if works { format!("exec {} \"$@\"", stand_in.display()) } else { "exit 1".to_owned() };
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'kcp version {version}'; exit; fi\n{then}\n"
    );
    std::fs::File::create(&path).unwrap().write_all(script.as_bytes()).unwrap();
    for program in [&path, &stand_in] {
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    path
}
