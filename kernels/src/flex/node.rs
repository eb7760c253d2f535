//! A kernel with a hand-written backward pass, as one node of Burn's autodiff graph.

use std::{fmt, sync::Arc};

use burn::{
    backend::{
        Autodiff, BackendTensor, DispatchKindConversion, Flex, TensorMetadata, tensor::FloatTensor,
    },
    tensor::{DType, DispatchTensor, Shape, Tensor, TensorData},
};
use burn_autodiff::{
    checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn_flex::FlexTensor;

type FlexAutodiff = Autodiff<Flex, NoCheckpointing>;
type GraphTensor = FloatTensor<FlexAutodiff>;

/// Gradients of N inputs from the gradient of the output; `None` where an input is not tracked
/// (the second argument says which are).
pub(crate) type BackwardFn<const N: usize> =
    Arc<dyn Fn(&[f32], [bool; N]) -> [Option<Vec<f32>>; N] + Send + Sync>;

/// An input as a kernel sees it: contiguous f32 values, shared with the graph, not copied.
#[derive(Clone)]
pub(crate) struct Input(FlexTensor);

impl Input {
    /// The values in row-major order.
    pub(crate) fn values(&self) -> &[f32] {
        self.0.as_slice::<f32>().expect("made contiguous and f32 on entry")
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }
}

/// Runs `forward` on N inputs. Where any of them is tracked, the output becomes a node whose
/// backward pass is the function that `forward` returned beside its values.
///
/// # Panics
/// If an input is no f32 tensor on Flex: an implementation's `supports` has ruled that out.
pub(crate) fn node<const N: usize, const D: usize>(
    inputs: [DispatchTensor; N],
    shape: [usize; D],
    forward: impl FnOnce(&[Input; N], bool) -> (Vec<f32>, Option<BackwardFn<N>>),
) -> Tensor<D> {
    let parents = inputs.map(Parent::new);
    let values = parents.each_ref().map(Parent::input);
    let shapes = values.each_ref().map(Input::shape);
    let tracked = parents.iter().any(Parent::is_tracked);
    let (output, backward) = forward(&values, tracked);
    let output = flex_tensor(output, Shape::from(shape));
    if !tracked {
        let in_graph = parents.iter().any(|p| matches!(p, Parent::Graph(_)));
        return if in_graph {
            Tensor::from_primitive::<FlexAutodiff>(GraphTensor::new(output))
        } else {
            Tensor::from_primitive::<Flex>(output)
        };
    }
    let backward = backward.expect("a kernel returns its backward pass when an input is tracked");
    let guards = parents.each_ref().map(Parent::guard);
    let state = State { shapes, backward };
    let prepared = FlexNode.prepare::<NoCheckpointing>(guards).compute_bound().stateful();
    let output = match prepared {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    };
    Tensor::from_primitive::<FlexAutodiff>(output)
}

/// The values of a tensor outside any graph.
pub(crate) fn values_of(tensor: Tensor<1>) -> Input {
    Parent::new(tensor.into_dispatch()).input()
}

/// A tensor outside any graph.
pub(crate) fn from_values(values: Vec<f32>) -> Tensor<1> {
    let shape = Shape::from([values.len()]);
    Tensor::from_primitive::<Flex>(flex_tensor(values, shape))
}

enum Parent {
    Graph(GraphTensor),
    Constant(GraphTensor),
}

impl Parent {
    fn new(tensor: DispatchTensor) -> Self {
        let dtype = tensor.dtype();
        type Converted = DispatchTensor;
        if let Ok(BackendTensor::Float(tensor)) =
            <Converted as DispatchKindConversion<FlexAutodiff>>::try_into_backend(tensor.clone())
        {
            return Self::Graph(tensor);
        }
        match <Converted as DispatchKindConversion<Flex>>::try_into_backend(tensor) {
            Ok(BackendTensor::Float(tensor)) => Self::Constant(GraphTensor::new(tensor)),
            _ => panic!("a Flex kernel was given a {dtype:?} tensor that is no float on Flex"),
        }
    }

    fn tensor(&self) -> &GraphTensor {
        match self {
            Self::Graph(tensor) | Self::Constant(tensor) => tensor,
        }
    }

    fn is_tracked(&self) -> bool {
        matches!(self, Self::Graph(tensor) if tensor.is_tracked())
    }

    fn guard(&self) -> burn_autodiff::ops::NodeGuard {
        self.tensor().node()
    }

    fn input(&self) -> Input {
        let tensor: &FloatTensor<Flex> = self.tensor().primitive();
        assert_eq!(tensor.dtype(), DType::F32, "a Flex kernel computes in f32");
        Input(tensor.to_contiguous())
    }
}

fn flex_tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

#[derive(Clone)]
struct State<const N: usize> {
    shapes: [Shape; N],
    backward: BackwardFn<N>,
}

impl<const N: usize> fmt::Debug for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("shapes", &self.shapes).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct FlexNode;

impl<const N: usize> Backward<Flex, N> for FlexNode {
    type State = State<N>;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = Input(grads.consume::<Flex>(&ops.node).to_contiguous());
        let State { shapes, backward } = ops.state;
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let results = backward(grad.values(), wanted);
        for ((parent, result), shape) in ops.parents.into_iter().zip(results).zip(shapes) {
            if let Some(parent) = parent {
                let result = result.expect("a kernel returns every gradient that is wanted");
                grads.register::<Flex>(parent.id, flex_tensor(result, shape));
            }
        }
    }
}
