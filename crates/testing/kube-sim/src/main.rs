//! `kube-sim`: the simulated Kubernetes API as a program, for tests that stop it as a process.

use clap::Parser;
use nodegate_kube_sim::Sim;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// A simulated Kubernetes API.
///
/// When it is ready it prints its URL.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Names of the nodes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "node-1")]
    nodes: Vec<String>,

    /// Give every node a simulated kubelet.
    #[arg(long)]
    kubelets: bool,

    /// Write the administrator's kubeconfig here.
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let sim = Sim::builder().nodes(&arguments.nodes).kubelets(arguments.kubelets).start().await?;
    if let Some(path) = &arguments.kubeconfig_out {
        sim.write_kubeconfig(path)?;
    }
    println!("{}", sim.url());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    sim.shutdown().await;
    Ok(())
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(arguments)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
