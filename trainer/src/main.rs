//! Parse, run, exit code.

mod banner;
mod cli;
mod commands;

use std::{
    io::Write,
    process::ExitCode,
    sync::atomic::{AtomicI32, Ordering},
};

use burn_qwen_trainer::TrainError;
use clap::Parser;
use cli::{Cli, Command};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

/// The signal that asked to stop; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);

fn main() -> ExitCode {
    report_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors.
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match std::panic::catch_unwind(|| run(cli.command)) {
        // The hook has said what there is to say.
        Err(_) => ExitCode::FAILURE,
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), TrainError> {
    match command {
        Command::Train(args) => {
            watch_signals().map_err(TrainError::machine("cannot watch for signals"))?;
            commands::train::run(args, &STOP)
        }
        Command::Recipes { name, json } => commands::recipes::run(name.as_deref(), json),
        Command::Eval { input, json } => commands::eval::run(&input, json),
        Command::Generate { model, prompt, raw, json } => {
            commands::generate::run(&model, &prompt, raw, json)
        }
        Command::Chat { model } => commands::generate::chat(&model),
        Command::Data(command) => commands::data::run(command),
        Command::Parity { model, golden, kernels, json } => {
            commands::parity::run(model.as_deref(), &golden, &kernels, json)
        }
        Command::Export { checkpoint, folder, dtype, force } => {
            commands::export::run(&checkpoint, &folder, dtype.as_deref(), force)
        }
        Command::Devices { json } => {
            commands::devices::run(json);
            Ok(())
        }
        Command::Kernels(command) => commands::kernels::run(command),
    }
}

/// The first signal lets the step end and saves; a second one ends the process at once.
fn watch_signals() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for signal in signals.forever() {
            if STOP.swap(signal, Ordering::SeqCst) != 0 {
                // As if we had never listened; its only error is a number that is no signal.
                let _ = emulate_default_handler(signal);
            }
        }
    })?;
    Ok(())
}

/// A panic is our bug: one message, without a wall of frames, and exit code 1.
fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place =
            info.location().map_or(String::new(), |l| format!(" ({}:{})", l.file(), l.line()));
        let text = info
            .payload()
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| info.payload().downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        let _ = writeln!(
            std::io::stderr(),
            "error: this is a bug in burn-qwen{place}: {text}\nplease report it with the command \
             you ran"
        );
    }));
}
