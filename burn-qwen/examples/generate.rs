//! Continues a text with a checkpoint: the crate used as a library.
//!
//! ```text
//! cargo run -p burn-qwen --example generate -- FOLDER "Once upon a time"
//! ```
#![expect(clippy::print_stdout, reason = "this is a program")]

use std::{
    error::Error,
    io::{Write, stdout},
    path::Path,
};

use burn::tensor::{DType, Device};
use burn_qwen::{
    Model, QwenConfig,
    generate::{Sampling, generate},
    weights::Checkpoint,
};
use burn_qwen_kernels::{BackendKind, KernelConfig, Kernels};
use tokenizers::Tokenizer;

const MAX_NEW_TOKENS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, prompt] = arguments.as_slice() else {
        return Err("usage: generate FOLDER PROMPT".into());
    };
    let folder = Path::new(folder);

    let config = QwenConfig::from_folder(folder)?;
    for note in &config.derived {
        println!("{note}");
    }
    let checkpoint = Checkpoint::open(folder, &config)?;
    for notice in checkpoint.notices() {
        println!("{notice}");
    }
    let case = config.kernel_case(BackendKind::Flex, DType::F32, false, 4096);
    let (kernels, report) = Kernels::resolve(&KernelConfig::default(), &case)?;
    print!("{report}");
    let model = Model::from_blocks(&config, &Device::flex(), |block| checkpoint.read_block(block))?;

    let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))
        .map_err(|error| format!("tokenizer.json: {error}"))?;
    let prompt = tokenizer.encode(prompt.as_str(), false).map_err(|error| error.to_string())?;
    if prompt.is_empty() {
        return Err("the prompt has no token".into());
    }
    let sampling = Sampling { temperature: 0.7, top_k: 20, top_p: 0.8, seed: 1 };
    let mut stream = tokenizer.decode_stream(true);
    let stop = &config.eos_token_ids;
    generate(&model, &kernels, prompt.get_ids(), &sampling, stop, MAX_NEW_TOKENS, |token| {
        // A character may need several tokens: nothing is printed until it is whole.
        if let Ok(Some(text)) = stream.step(token) {
            print!("{text}");
        }
        stdout().flush().is_ok()
    });
    println!();
    Ok(())
}
