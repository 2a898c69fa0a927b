//! One of our services, with its ports, its clock and whether it is down on purpose.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dropgate_testkit::ports::Port;
use dropgate_testkit::stack::{GatewayPorts, Settings};
use dropgate_testkit::{Process, ProcessOptions, tools};

use super::clock::{Clock, Shift};
use crate::weakness::Weakness;

/// How long an ordered end may take: it has deadlines of its own, far below.
const END: Duration = Duration::from_secs(60);

/// Which one.
pub(super) enum Program<'a> {
    /// A gateway of this name.
    Gateway(&'a str),
    /// The order-writer.
    OrderWriter,
    /// The watch, with the lines of its section.
    Watch(&'a str),
}

/// A service.
#[derive(Debug)]
pub struct Service {
    name: String,
    process: Process,
    clock: Clock,
    /// Of a gateway the public one too.
    public: Option<Port>,
    ops: Port,
    down: bool,
    paused: bool,
}

impl Service {
    pub(super) fn start(
        settings: &Settings,
        program: &Program<'_>,
        weakness: Option<Weakness>,
    ) -> Result<Self> {
        let ops = Port::reserve()?;
        let (name, binary, file, public) = match program {
            Program::Gateway(name) => {
                let public = Port::reserve()?;
                let ports = GatewayPorts {
                    public: public.number(),
                    admin: ops.number(),
                };
                let file = settings.gateway(name, ports)?;
                (*name, "dropgate-gateway", file, Some(public))
            }
            Program::OrderWriter => {
                let file = settings.order_writer("order-writer", ops.number())?;
                ("order-writer", "dropgate-order-writer", file, None)
            }
            Program::Watch(lines) => {
                let file = settings.watch("watch", ops.number(), lines)?;
                ("watch", "dropgate-reconciler", file, None)
            }
        };
        let clock = Clock::new(settings.folder().join(format!("{name}.clock")))?;
        let verb = matches!(program, Program::Watch(_)).then(|| "watch".to_owned());
        let mut options = ProcessOptions::of_ours(binary)?
            .args(verb)
            .args(["--config".to_owned(), file.display().to_string()])
            .log(&settings.folder().join(format!("{name}.log")));
        if let Some(weakness) = weakness {
            options = options.env("WEAKENED", weakness.name());
        }
        let process = clock.worn_by(options)?.start()?;
        Ok(Self {
            name: name.to_owned(),
            process,
            clock,
            public,
            ops,
            down: false,
            paused: false,
        })
    }

    /// What timelines call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it says whether it is ready.
    #[must_use]
    pub fn ops_port(&self) -> u16 {
        self.ops.number()
    }

    pub(super) fn gateway_ports(&self) -> Result<GatewayPorts> {
        Ok(GatewayPorts {
            public: self.public.as_ref().context("not a gateway")?.number(),
            admin: self.ops.number(),
        })
    }

    /// Whether it runs.
    pub fn alive(&mut self) -> bool {
        self.process.alive()
    }

    /// The end of what it printed.
    #[must_use]
    pub fn last_words(&self) -> String {
        tools::tail_of(self.process.log())
    }

    /// Kills it, and leaves it down.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self) -> Result<()> {
        self.down = true;
        self.process.kill9()
    }

    /// Ends it in order, and leaves it down.
    ///
    /// # Errors
    /// When it does not end.
    pub fn terminate(&mut self) -> Result<()> {
        self.down = true;
        self.process.terminate(END).map(drop)
    }

    /// Starts it again. It need not be ready when this returns.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_again(&mut self) -> Result<()> {
        self.process.restart()?;
        (self.down, self.paused) = (false, false);
        Ok(())
    }

    /// Stops it where it is.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.process.pause()?;
        self.paused = true;
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.paused = false;
        self.process.resume()
    }

    /// Whether it is stopped where it is.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Shifts its clock.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn shift(&self, shift: Shift) -> Result<()> {
        self.clock.shift(shift)
    }

    /// Starts it again if it has ended and should not have, as whatever runs services does.
    /// Returns what it said last when that was so.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn supervise(&mut self) -> Result<Option<String>> {
        if self.down || self.process.alive() {
            return Ok(None);
        }
        let said = self.last_words();
        self.start_again()?;
        Ok(Some(said))
    }

    pub(super) fn heal(&mut self) -> Result<()> {
        self.clock.shift(Shift::None)?;
        if !self.process.alive() {
            return self.start_again();
        }
        if self.paused {
            self.resume()?;
        }
        match self.down {
            true => bail!("{} runs and is down", self.name),
            false => Ok(()),
        }
    }
}
