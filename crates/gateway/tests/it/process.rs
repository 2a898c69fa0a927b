//! The gateway as a process: its command line, its configuration, its end.

use crate::stack::{Wanted, config_text};
use crate::wire::{self, BOUND};
use dropgate_testkit::ports::Port;
use dropgate_testkit::{Redis, RedisOptions};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

fn gateway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dropgate-gateway"));
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

async fn output(mut command: Command) -> (bool, String) {
    let output = tokio::time::timeout(BOUND, command.output())
        .await
        .expect("it hangs")
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_of_file_and_environment_are_all_told_and_no_secret_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let text = "[http]\nbacklog = 'many'\ncolour = 1\n[auth]\nkeys = [{ kid = 'a', secret = 'hunter2' }]\n";
    std::fs::write(&file, text).unwrap();
    let mut command = gateway();
    command.arg("--config").arg(&file).arg("--check");
    command.env("DROPGATE_REDIS__URLL", "redis://u:hunter3@h");
    command.env("DROPGATE_HTTP__CONNECTIONS_MAX", "0");
    let (ok, text) = output(command).await;
    assert!(!ok);
    for told in [
        "http.backlog",
        "http.colour",
        "auth.keys[0].secret",
        "redis.urll",
        "DROPGATE_REDIS__URLL",
        "http.connections_max",
    ] {
        assert!(text.contains(told), "{told} in {text}");
    }
    assert!(!text.contains("hunter"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn help_says_how_to_configure_it() {
    let mut command = gateway();
    command.arg("--help");
    let (ok, text) = output(command).await;
    assert!(
        ok && text.contains("DROPGATE_SECTION__KEY") && text.contains("--config"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sigterm_turns_it_unready_first_and_ends_it_in_order() {
    let redis = Redis::start(&RedisOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (public, admin) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let wanted = Wanted {
        config: vec![
            format!("http.bind = '127.0.0.1:{}'", public.number()),
            format!("http.admin_bind = '127.0.0.1:{}'", admin.number()),
            "http.drain = '2s'".into(),
        ],
        ..Wanted::default()
    };
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, config_text(&redis, &folder, &wanted)).unwrap();
    let mut command = gateway();
    command.arg("--config").arg(&file);
    let child = command.spawn().unwrap();
    let admin = SocketAddr::from(([127, 0, 0, 1], admin.number()));
    until_status(admin, 200).await;
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGTERM).unwrap();
    // It goes on answering while load balancers find out.
    until_status(admin, 503).await;
    let public = SocketAddr::from(([127, 0, 0, 1], public.number()));
    assert_eq!(
        wire::call(public, "GET", "/livez", &[], b"").await.status,
        200
    );
    let (ok, text) = ended(child).await;
    assert!(ok, "{text}");
    assert!(text.contains("\"clean\":true"), "{text}");
}

async fn until_status(addr: SocketAddr, status: u16) {
    let asking = async {
        loop {
            if tokio::net::TcpStream::connect(addr).await.is_ok()
                && wire::call(addr, "GET", "/readyz", &[], b"").await.status == status
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, asking)
        .await
        .expect("readiness did not come");
}

async fn ended(child: Child) -> (bool, String) {
    let output = tokio::time::timeout(BOUND, child.wait_with_output()).await;
    let output = output.expect("it does not end").unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
