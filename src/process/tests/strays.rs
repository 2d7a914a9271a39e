//! A process that SIGKILL does not end, as one on a dead disk: a frozen one of the first cgroup generation, where there is that.

use super::*;
use berth_actors::host::Accounted;
use std::fs;

/// Where version 1 of the freezer is mounted on most hosts that still have it.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

struct Frozen(PathBuf);

/// One word for the kernel.
fn tell(file: &Path, word: &str) -> std::io::Result<()> {
    fs::File::options().write(true).open(file)?.write_all(word.as_bytes())
}

impl Frozen {
    /// `None`, and a word about it, on a host that cannot do it.
    fn new(process: &Identity) -> Option<Self> {
        let dir = PathBuf::from(format!("{FREEZER}/berth-test-{}", process.pid));
        let freeze = || {
            fs::create_dir(&dir)?;
            tell(&dir.join("cgroup.procs"), &process.pid.to_string())?;
            tell(&dir.join("freezer.state"), "FROZEN")
        };
        match freeze() {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                not_exercised(&format!(
                    "a process that outlives SIGKILL: {FREEZER} cannot be used ({error})"
                ));
                let _ = fs::remove_dir(&dir);
                None
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = tell(&self.0.join("freezer.state"), "THAWED");
        while fs::read_to_string(self.0.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty()) {
            std::thread::yield_now();
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn what_outlives_sigkill_holds_up_its_own_component_until_it_ends() {
    let mut bench = Bench::new();
    // Its main process is gone when the next daemon looks: nobody can adopt what is left.
    let leader = bench.start("setsid sh -c 'echo $$ > gate; : < never' & : < never").await;
    let stuck = bench.announced().await;
    let Some(frozen) = Frozen::new(&stuck) else {
        bench.end(&leader).await;
        return;
    };
    bench.host.signal(&leader, Signal::Kill).await.unwrap();
    soon(bench.host.exited(&leader)).await;

    let next = ProcessHost::new(&bench.layout).unwrap();
    let accounted = Accounted { components: [id()].into(), ..Accounted::default() };
    assert_eq!(soon(next.reap_strays(&accounted)).await.unwrap(), [""; 0], "none of it could be ended");
    let strays = next.strays();
    assert_eq!(strays.iter().map(|stray| stray.pid).collect::<Vec<_>>(), [stuck.pid]);
    let refusal = next.spawn(&id(), &bench.sh("exit")).await.unwrap_err().to_string();
    let why = format!("demo/kine: sh (pid {}) of an earlier daemon outlives SIGKILL", stuck.pid);
    assert_eq!(refusal, why);
    let other = ComponentId::new("demo", "openbao");
    let free = next.spawn(&other, &bench.sh(": < never")).await.unwrap();
    next.reap(&other, &free.identity).await.unwrap();

    drop(frozen);
    soon(next.strays_ended(&id())).await;
    assert_eq!(next.strays(), []);
    let again = next.spawn(&id(), &bench.sh(": < never")).await.unwrap();
    next.reap(&id(), &again.identity).await.unwrap();
}
