//! Dropgate's own processes.

use std::path::{Path, PathBuf};

use super::{GatewayPorts, Settings};
use crate::ports::Port;
use crate::{Process, ProcessOptions, Ready};
use anyhow::{Context, Result};

/// The running processes. They end with this value.
#[derive(Debug)]
pub struct Services {
    /// Every process, by the name that reports give it.
    pub processes: Vec<(String, Process)>,
    /// The ports of the gateways.
    pub gateways: Vec<GatewayPorts>,
    /// The file of `dropgate`, the operators' command.
    pub dropgate: PathBuf,
    /// The file of the reconciler.
    pub reconciler: PathBuf,
    _ports: Vec<Port>,
}

impl Services {
    /// Everything in one process.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn embedded(settings: &Settings, logs: &Path) -> Result<Self> {
        let (mut ports, gateway) = gateway_ports()?;
        let ops = Port::reserve()?;
        let file = settings.dropgate(gateway, ops.number())?;
        let watch = Port::reserve()?;
        let bind = format!("127.0.0.1:{}", watch.number());
        ports.extend([ops, watch]);
        let process = ProcessOptions::of_ours("dropgate")?
            .args(["serve", "--config"])
            .args([file.display().to_string()])
            .env("DROPGATE_WATCH_OPS__BIND", bind)
            .log(&logs.join("serve.log"))
            .ready(Ready::Http(gateway.admin, "/readyz".to_owned()))
            .start()?;
        Ok(Self {
            processes: vec![("dropgate serve".to_owned(), process)],
            gateways: vec![gateway],
            dropgate: file,
            reconciler: settings.reconciler("reconciler")?,
            _ports: ports,
        })
    }

    /// So many gateways, and an order-writer.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn full(settings: &Settings, logs: &Path, gateways_count: usize) -> Result<Self> {
        let (mut processes, mut gateways, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=gateways_count {
            let name = format!("gateway-{number}");
            let (taken, gateway) = gateway_ports()?;
            ports.extend(taken);
            let file = settings.gateway(&name, gateway)?;
            let process = service("dropgate-gateway", &name, &file, logs, gateway.admin)?;
            processes.push((name, process));
            gateways.push(gateway);
        }
        let ops = Port::reserve()?;
        let file = settings.order_writer("order-writer", ops.number())?;
        let writer = service(
            "dropgate-order-writer",
            "order-writer",
            &file,
            logs,
            ops.number(),
        )?;
        processes.push(("order-writer".to_owned(), writer));
        let first = gateways.first().copied().context("a gateway")?;
        let dropgate = settings.dropgate(first, ops.number())?;
        ports.push(ops);
        Ok(Self {
            processes,
            gateways,
            dropgate,
            reconciler: settings.reconciler("reconciler")?,
            _ports: ports,
        })
    }

    /// The URLs that users go to.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let url = |ports: &GatewayPorts| format!("http://127.0.0.1:{}", ports.public);
        self.gateways.iter().map(url).collect()
    }
}

fn gateway_ports() -> Result<(Vec<Port>, GatewayPorts)> {
    let (public, admin) = (Port::reserve()?, Port::reserve()?);
    let numbers = GatewayPorts {
        public: public.number(),
        admin: admin.number(),
    };
    Ok((vec![public, admin], numbers))
}

fn service(binary: &str, name: &str, file: &Path, logs: &Path, ready: u16) -> Result<Process> {
    ProcessOptions::of_ours(binary)?
        .args(["--config".to_owned(), file.display().to_string()])
        .log(&logs.join(format!("{name}.log")))
        .ready(Ready::Http(ready, "/readyz".to_owned()))
        .start()
}
