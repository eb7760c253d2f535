//! Forward and backward pass of one micro-batch.

use burn::tensor::{Int, Tensor};
use burn_qwen::{DecoderLayer, ForwardContext, Head, Row, embed, params::BlockParams};
use burn_qwen_data::Batch;
use burn_qwen_kernels::Packing;

use super::{Engine, Recompute};
use crate::error::TrainError;

/// A block's forward pass with its graph.
struct Graph {
    params: BlockParams,
    input: Tensor<2>,
    output: Tensor<2>,
}

impl Engine {
    /// Adds a micro-batch's gradients to the store; returns the sum of its token losses.
    ///
    /// The gradients are those of the sum: the update divides by the number of targets of the
    /// whole step. A micro-batch without targets is not run.
    ///
    /// # Errors
    /// A loss that is not finite, with the first block whose output is not.
    pub fn forward_backward(&mut self, batch: &Batch) -> Result<f64, TrainError> {
        if batch.num_trained() == 0 {
            return Ok(0.0);
        }
        let ctx = self.context(batch);
        let input_ids = self.input_ids(batch);
        let last = self.store.num_blocks() - 1;

        let mut x = embed(&self.store.params(0), input_ids.clone(), &ctx);
        let mut inputs = Vec::with_capacity(last);
        let mut graphs = Vec::new();
        for block in 1..last {
            match self.recompute {
                Recompute::Full => {
                    inputs.push(x.clone());
                    x = self.layer(block, &self.store.params(block)).forward(x, &ctx, None);
                }
                Recompute::None => {
                    let graph = self.with_graph(block, x, &ctx);
                    x = graph.output.clone().inner();
                    graphs.push(graph);
                }
            }
        }

        let (loss, mut dx, mut embedding_grad) = self.head(x, batch, &ctx)?;
        for block in (1..last).rev() {
            let graph = graphs.pop().unwrap_or_else(|| {
                let input = inputs.pop().expect("each layer's input was kept");
                self.with_graph(block, input, &ctx)
            });
            let Graph { params, input, output } = graph;
            // The gradient of sum(y * dy) with respect to y is dy, exactly.
            let mut grads = (output * dx.autodiff()).sum().backward();
            dx = input.grad_remove(&mut grads).expect("every layer passes its input on");
            let grad = params.grads(&mut grads).unwrap_or_else(|name| no_gradient(block, &name));
            self.store.add_grad(block, grad);
        }

        let params = self.store.params(0).require_grad();
        let output = embed(&params, input_ids, &ctx);
        let mut grads = (output * dx.autodiff()).sum().backward();
        let grad = params.grads(&mut grads).unwrap_or_else(|name| no_gradient(0, &name));
        let grad = match embedding_grad.take() {
            Some(tied) => grad + tied,
            None => grad,
        };
        self.store.add_grad(0, grad);
        Ok(loss)
    }

    /// Sum of the token losses of a micro-batch, without gradients.
    pub fn loss(&self, batch: &Batch) -> f64 {
        let packing = Packing::new(batch.cu_seqlens.as_slice());
        let row = Row {
            input_ids: &batch.input_ids,
            position_ids: &batch.position_ids,
            packing: &packing,
        };
        scalar(self.model().loss(row, &batch.labels, &self.kernels))
    }

    /// Loss, gradient of the head's input, and, where the head is tied, of the embedding.
    fn head(
        &mut self,
        x: Tensor<2>,
        batch: &Batch,
        ctx: &ForwardContext,
    ) -> Result<(f64, Tensor<2>, Option<Tensor<1>>), TrainError> {
        let block = self.store.num_blocks() - 1;
        let params = self.store.params(block).require_grad();
        let tied = self.config.tie_word_embeddings;
        let embedding = self.store.params(0);
        let embedding = if tied { embedding.require_grad() } else { embedding };
        let input = x.autodiff().require_grad();
        let head = Head::new(&self.config, &params, &embedding);
        let loss = head.loss(input.clone(), &batch.labels, ctx);
        let value = scalar(loss.clone().inner());
        if !value.is_finite() {
            let place = self.first_non_finite_block(self.input_ids(batch), ctx);
            return Err(TrainError::NotFinite(format!("the loss is {value}: {place}")));
        }
        let mut grads = loss.backward();
        let dx = input.grad_remove(&mut grads).expect("the loss depends on the head's input");
        let grad = params.grads(&mut grads).unwrap_or_else(|name| no_gradient(block, &name));
        self.store.add_grad(block, grad);
        let embedding_grad =
            tied.then(|| embedding.grads(&mut grads).unwrap_or_else(|name| no_gradient(0, &name)));
        Ok((value, dx, embedding_grad))
    }

    fn with_graph(&self, block: usize, input: Tensor<2>, ctx: &ForwardContext) -> Graph {
        let params = self.store.params(block).require_grad();
        let input = input.autodiff().require_grad();
        let output = self.layer(block, &params).forward(input.clone(), ctx, None);
        Graph { params, input, output }
    }

    /// Block 0 is the embedding, so block i is layer i - 1.
    pub(super) fn layer(&self, block: usize, params: &BlockParams) -> DecoderLayer {
        DecoderLayer::new(&self.config, block - 1, params)
    }

    fn input_ids(&self, batch: &Batch) -> Tensor<1, Int> {
        Tensor::from_ints(batch.input_ids.as_slice(), &self.device)
    }

    fn context(&self, batch: &Batch) -> ForwardContext {
        let packing = Packing::new(batch.cu_seqlens.as_slice());
        let kernels = self.kernels.clone();
        ForwardContext::new(&self.config, kernels, &batch.position_ids, packing, &self.device)
    }
}

fn no_gradient(block: usize, name: &str) -> ! {
    panic!("{name} of block {block} takes part in the forward pass but got no gradient")
}

fn scalar(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_scalar::<f32>())
}
