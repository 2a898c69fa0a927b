//! A real Postgres.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process as ProcEntry;
use tempfile::TempDir;

use crate::child::{Child, RunAs, unprivileged};
use crate::ports::Port;
use crate::shared::{self, Prepared};
use crate::tools;
use crate::wait::{self, Seen};

/// The user of every database here, who owns them all.
pub const USER: &str = "dropgate";

/// A password that Postgres does not ask for on loopback: it is in the URLs so that a test can look
/// for it where it must not be, in logs and errors.
pub const PASSWORD: &str = "postgres-test-password";

/// How a Postgres is started.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Whether a commit is flushed to the disk before it is answered; off by default.
    pub durable: bool,
    /// Further lines of `postgresql.conf`.
    pub extra: Vec<String>,
}

/// A running Postgres of one's own.
#[derive(Debug)]
pub struct Postgres {
    child: Child,
    port: Port,
    folder: TempDir,
    bin: PathBuf,
}

/// A database of one's own, dropped with this value.
#[derive(Debug)]
pub struct Database {
    port: u16,
    name: String,
    owned: bool,
}

impl Postgres {
    /// Starts a Postgres in a new folder and waits until it answers.
    ///
    /// # Errors
    /// When Postgres is not installed or does not come up.
    pub fn start(options: &PostgresOptions) -> Result<Self> {
        let bin = bin_dir()?;
        let folder = data_folder()?;
        init(&bin, folder.path())?;
        let mut tries = 0;
        loop {
            let port = Port::reserve()?;
            configure(folder.path(), port.number(), options)?;
            match run(&bin, folder.path(), port.number()) {
                Ok(child) => {
                    return Ok(Self {
                        child,
                        port,
                        folder,
                        bin,
                    });
                }
                Err(error) if tries == 4 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// A fresh database in the Postgres that the ordinary tests share. Never stop or pause that one.
    ///
    /// # Errors
    /// When Postgres is not installed or does not come up.
    pub fn shared_database() -> Result<Database> {
        let port = shared::lease("postgres", prepare_shared, |port| {
            psql(port, "postgres", "SELECT 1").map(drop)
        })?;
        Database::create(port)
    }

    /// A fresh database in this Postgres.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn database(&self) -> Result<Database> {
        Database::create(self.port())
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id of the postmaster.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Stops it where it is, with every process that serves a connection.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        // The postmaster first, so that it does not start another while we look.
        self.child.pause()?;
        signal_all(&workers(self.child.pid()), Signal::SIGSTOP);
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        signal_all(&workers(self.child.pid()), Signal::SIGCONT);
        self.child.resume()
    }

    /// Kills it as a power cut would, with every process that serves a connection, and waits until
    /// all are gone.
    ///
    /// # Errors
    /// When they do not disappear.
    pub fn kill9(&mut self) -> Result<()> {
        let workers = workers(self.child.pid());
        self.child.kill9()?;
        signal_all(&workers, Signal::SIGKILL);
        wait::until("the processes of Postgres to end", wait::END, || {
            let left = workers.iter().filter(|worker| same(worker)).count();
            Ok(if left == 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{left} are left"))
            })
        })
    }

    /// Ends it in order, closing all connections at once (SIGINT, "fast").
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGINT)?;
        self.child.wait(wait::END).map(drop)
    }

    /// Starts it again on the same port and folder, after killing it if it still runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.child = run(&self.bin, self.folder.path(), self.port())?;
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT ends it at once and frees its shared memory, which a SIGKILL leaves behind.
        if self.child.alive() {
            signal_all(&workers(self.child.pid()), Signal::SIGCONT);
            let _ = self.child.resume();
            let _ = self.child.signal(Signal::SIGQUIT);
            let _ = self.child.wait(wait::END);
        }
    }
}

impl Database {
    fn create(port: u16) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nanos = std::time::UNIX_EPOCH.elapsed()?.subsec_nanos();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t_{}_{nanos}_{number}", std::process::id());
        psql(port, "postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(Self {
            port,
            name,
            owned: true,
        })
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The URL by way of another port, for example a proxy's.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        format!(
            "postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/{}",
            self.name
        )
    }

    /// The port of its Postgres.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL and gives the rows, a line each, columns with `|` between them.
    ///
    /// # Errors
    /// When the database cannot be reached or refuses.
    pub fn sql(&self, sql: &str) -> Result<String> {
        psql(self.port, &self.name, sql)
    }

    /// Runs SQL in a process of its own, for example to hold a lock:
    /// `BEGIN; LOCK TABLE orders; SELECT pg_sleep(20)`. The session ends when the child is dropped.
    ///
    /// # Errors
    /// When `psql` cannot be started.
    pub fn sql_in_background(&self, sql: &str, log: &Path) -> Result<Child> {
        let program = bin_dir()?.join("psql");
        let args = psql_args(self.port, &self.name, sql);
        Child::start("psql", &program, &args, &[], log, RunAs::Me)
    }

    /// Leaves the database where it is when this value is dropped.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.owned = false;
        self
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // Where the server is gone or paused by now, so is the database, or soon.
        let _ = psql(self.port, "postgres", &sql);
    }
}

fn psql_args(port: u16, database: &str, sql: &str) -> Vec<String> {
    let connection =
        format!("host=127.0.0.1 port={port} user={USER} dbname={database} connect_timeout=5");
    [
        "-qAtX",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        &connection,
        "-c",
        sql,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn psql(port: u16, database: &str, sql: &str) -> Result<String> {
    let output = Command::new(bin_dir()?.join("psql"))
        .args(psql_args(port, database, sql))
        .env("PGPASSWORD", PASSWORD)
        .output()
        .context("running psql")?;
    if !output.status.success() {
        bail!("psql: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// The folder with the server's programs: Debian keeps them off `PATH`, one folder a version.
fn bin_dir() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            bin.join("initdb").is_file().then_some((version, bin))
        })
        .collect();
    found.sort();
    if let Some((_, newest)) = found.pop() {
        return Ok(newest);
    }
    let initdb = tools::find("initdb", &[])?;
    Ok(initdb
        .parent()
        .context("a program has a folder")?
        .to_owned())
}

/// A new folder that the server's user owns, somewhere that user can reach.
fn data_folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("dropgate-postgres-")
        .tempdir()?;
    if let Some(user) = unprivileged(RunAs::NotRoot)? {
        nix::unistd::chown(folder.path(), Some(user.uid), Some(user.gid))?;
    }
    Ok(folder)
}

fn init(bin: &Path, folder: &Path) -> Result<()> {
    let data = folder.join("data").display().to_string();
    let args = [
        "--no-sync",
        "--no-instructions",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        &format!("--username={USER}"),
        "-D",
        &data,
    ]
    .map(str::to_owned);
    let log = folder.join("initdb.log");
    let initdb = bin.join("initdb");
    let mut child = Child::start("initdb", &initdb, &args, &[], &log, RunAs::NotRoot)?;
    let status = child.wait(wait::START)?;
    if !status.success() {
        bail!("initdb ended with {status}:\n{}", tools::tail_of(&log));
    }
    Ok(())
}

fn configure(folder: &Path, port: u16, options: &PostgresOptions) -> Result<()> {
    // A commit is handed to the kernel in either case: what was acknowledged outlives a `kill -9`.
    let flush = if options.durable { "on" } else { "off" };
    // Memory in files of the data folder: what a killed server leaves behind goes with the folder.
    let mut conf = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\n\
         max_connections = 200\nfsync = {flush}\nsynchronous_commit = on\n\
         full_page_writes = {flush}\ndynamic_shared_memory_type = mmap\njit = off\n\
         log_min_messages = warning\n"
    );
    for line in &options.extra {
        conf.push_str(line);
        conf.push('\n');
    }
    std::fs::write(folder.join("data/postgresql.auto.conf"), conf)?;
    Ok(())
}

fn run(bin: &Path, folder: &Path, port: u16) -> Result<Child> {
    let data = folder.join("data");
    let args = ["-D".to_owned(), data.display().to_string()];
    let log = folder.join("postgres.log");
    let program = bin.join("postgres");
    let mut child = Child::start_with(
        "postgres",
        &program,
        &args,
        &[],
        &log,
        RunAs::NotRoot,
        Signal::SIGQUIT,
    )?;
    wait::until("Postgres to answer", wait::START, || {
        child.check_alive()?;
        // The pid file says "ready" for this very server, not for a stranger on the port.
        let state = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let mine = state.lines().next() == Some(&child.pid().to_string());
        if !mine || !state.contains("ready") {
            return Ok(Seen::NotYet(tools::tail_of(&log)));
        }
        Ok(match psql(port, "postgres", "SELECT 1") {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::NotYet(format!("{error:#}")),
        })
    })
    .context("starting Postgres")?;
    Ok(child)
}

fn prepare_shared() -> Result<Prepared> {
    let bin = bin_dir()?;
    let folder = data_folder()?;
    init(&bin, folder.path())?;
    let port = Port::reserve()?.number();
    configure(folder.path(), port, &PostgresOptions::default())?;
    let mut command = Vec::new();
    if let Some(user) = unprivileged(RunAs::NotRoot)? {
        command.extend([
            "setpriv".to_owned(),
            format!("--reuid={}", user.uid),
            format!("--regid={}", user.gid),
            "--clear-groups".to_owned(),
            "--pdeathsig=QUIT".to_owned(),
            "--".to_owned(),
        ]);
    }
    command.extend([
        bin.join("postgres").display().to_string(),
        "-D".to_owned(),
        folder.path().join("data").display().to_string(),
    ]);
    Ok(Prepared {
        folder: folder.keep(),
        command,
        signal: "QUIT",
        port,
    })
}

/// The id and the start of a process: together they name one process for ever.
type Worker = (i32, u64);

/// The children of the postmaster.
fn workers(postmaster: u32) -> Vec<Worker> {
    let Ok(all) = procfs::process::all_processes() else {
        return Vec::new();
    };
    all.flatten()
        .filter_map(|process| process.stat().ok())
        .filter(|stat| u32::try_from(stat.ppid) == Ok(postmaster))
        .map(|stat| (stat.pid, stat.starttime))
        .collect()
}

fn same(&(pid, started): &Worker) -> bool {
    let stat = ProcEntry::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime == started && stat.state != 'Z')
}

fn signal_all(workers: &[Worker], signal: Signal) {
    for worker in workers.iter().filter(|worker| same(worker)) {
        // It may have ended just now, which is what most signals here are for.
        let _ = kill(Pid::from_raw(worker.0), signal);
    }
}
